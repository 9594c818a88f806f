/// How many CPUs this process may use. Internal to core.
#ifndef DIT_CORE_CPU_COUNT_H
#define DIT_CORE_CPU_COUNT_H

/// CPUs in the affinity mask, lowered to the cgroup quota (rounded up). At least 1.
int dit_cpu_count_get(void);

/// The quota of a cgroup hierarchy in whole CPUs; 0 when there is none. `proc_cgroup` is a file like /proc/self/cgroup,
/// `root` the mount point of the hierarchy like /sys/fs/cgroup. Looks at the process's group and all its parents.
int dit_cpu_count_get_quota(const char *proc_cgroup, const char *root);

/// The number of threads a pool should use: the first number in `omp` (the text of OMP_NUM_THREADS, NULL when unset),
/// else `cpus`. Text that is not a positive number is ignored, as OpenMP runtimes do.
int dit_cpu_count_choose(const char *omp, int cpus);

#endif
