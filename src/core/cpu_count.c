/// How many CPUs this process may use: affinity mask and cgroup quota, version 2 (cpu.max) and 1 (cpu.cfs_quota_us).
///
/// Invariant: every unreadable or malformed file means "no limit"; the answer is at least 1. Depends on libc only.
#include "core/cpu_count.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, LINE_SIZE = 4096, MOST_CPUS = 1 << 16 };

static int count_affinity(void) {
  for (int cpus = 1024; cpus <= MOST_CPUS; cpus *= 2) {
    cpu_set_t *set = CPU_ALLOC((size_t)cpus);
    if (!set) {
      break;
    }
    size_t size = CPU_ALLOC_SIZE((size_t)cpus);
    int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) {
      return count;
    }
  }
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 && online < MOST_CPUS ? (int)online : 1;
}

/// First line of a small file without its newline; false when it cannot be read.
static bool read_line(const char *path, char *line, int size) {
  FILE *file = fopen(path, "re");
  if (!file) {
    return false;
  }
  bool ok = fgets(line, size, file) != NULL;
  fclose(file);
  if (ok) {
    line[strcspn(line, "\n")] = '\0';
  }
  return ok;
}

/// ceil(quota / period); 0 for "no limit" or nonsense.
static int divide_quota(long long quota, long long period) {
  if (quota <= 0 || period <= 0) {
    return 0;
  }
  long long cpus = quota / period + (quota % period != 0);
  return cpus < MOST_CPUS ? (int)cpus : 0;
}

/// The quota of one folder; 0 when it has none.
static int read_quota(const char *folder, bool unified) {
  char path[PATH_SIZE + 32], line[128];
  long long quota = 0, period = 0;
  if (unified) {
    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    if (!read_line(path, line, sizeof(line)) || sscanf(line, "%lld %lld", &quota, &period) != 2) {
      return 0;
    }
    return divide_quota(quota, period);
  }
  snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
  if (!read_line(path, line, sizeof(line)) || sscanf(line, "%lld", &quota) != 1) {
    return 0;
  }
  snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
  if (!read_line(path, line, sizeof(line)) || sscanf(line, "%lld", &period) != 1) {
    return 0;
  }
  return divide_quota(quota, period);
}

static int get_lower(int a, int b) {
  if (a == 0 || b == 0) {
    return a ? a : b;
  }
  return a < b ? a : b;
}

/// The lowest quota from `mount`/`group` up to `mount` itself. Inside a container `group` may not exist below the mount
/// point (it is the host's name); the mount point is then the container's own group.
static int walk_up(const char *mount, const char *group, bool unified) {
  char folder[PATH_SIZE];
  int length = snprintf(folder, sizeof(folder), "%s%s", mount, group);
  if (length < 0 || (size_t)length >= sizeof(folder)) {
    return 0;
  }
  size_t stop = strlen(mount);
  int lowest = 0;
  for (;;) {
    lowest = get_lower(lowest, read_quota(folder, unified));
    char *slash = strrchr(folder, '/');
    if (!slash || (size_t)(slash - folder) < stop) {
      return lowest;
    }
    *slash = '\0';
  }
}

/// Does the comma-separated list of controllers hold "cpu"?
static bool has_cpu_controller(const char *controllers) {
  for (const char *p = controllers; *p;) {
    size_t length = strcspn(p, ",");
    if (length == 3 && strncmp(p, "cpu", 3) == 0) {
      return true;
    }
    p += length + (p[length] == ',');
  }
  return false;
}

int dit_cpu_count_get_quota(const char *proc_cgroup, const char *root) {
  FILE *file = fopen(proc_cgroup, "re");
  if (!file) {
    return 0;
  }
  char line[LINE_SIZE], mount[PATH_SIZE];
  int lowest = 0;
  while (fgets(line, sizeof(line), file)) {  // "hierarchy:controllers:/group"
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) {
      continue;
    }
    *controllers++ = '\0';
    *group++ = '\0';
    if (*controllers == '\0') {
      lowest = get_lower(lowest, walk_up(root, group, true));
    } else if (has_cpu_controller(controllers)) {
      snprintf(mount, sizeof(mount), "%.2000s/%.2000s", root, controllers);
      lowest = get_lower(lowest, walk_up(mount, group, false));
      snprintf(mount, sizeof(mount), "%.2000s/cpu", root);
      lowest = get_lower(lowest, walk_up(mount, group, false));
    }
  }
  fclose(file);
  return lowest;
}

int dit_cpu_count_get(void) {
  int cpus = count_affinity();
  int quota = dit_cpu_count_get_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  return get_lower(cpus, quota);
}

int dit_cpu_count_choose(const char *omp, int cpus) {
  if (!omp || *omp < '0' || *omp > '9') {
    return cpus;
  }
  char *end = NULL;
  long value = strtol(omp, &end, 10);
  if (value < 1 || value > MOST_CPUS || (*end != '\0' && *end != ',' && *end != ' ')) {
    return cpus;
  }
  return (int)value;
}
