/// CPUs of a device: a thread that sets its current device is bound to that device's share of the process's CPUs.
///
/// Off unless asked for. The CPUs that are shared out are those the process had when the runtime started, so a cpuset
/// (cgroup) or taskset is respected; they are never left. Shares: one per device, or one per local rank
/// (LOCAL_WORLD_SIZE, LOCAL_RANK) when the ranks are more than the devices each of them sees, so that processes that
/// all call their only device 0 get CPUs of their own. Invariant: when off, no system call is made. Depends on Linux.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_internal.h"
#include "dit/alloc.h"
#include "dit/log.h"

#define MOST_CPUS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool active;
static int64_t cores_per_share;
static int allowed[MOST_CPUS], allowed_count;  ///< of the process when it was switched on
static _Thread_local int bound_share = -1;

/// A variable of the launcher; -1 when it is not a number.
static int read_rank(const char *name) {
  const char *text = getenv(name);
  char *end = NULL;
  long value = text && *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
  return end && *end == '\0' && value < MOST_CPUS ? (int)value : -1;
}

void dit_affinity_get_share(int device, int devices, int local_rank, int local_size, int *share, int *shares) {
  bool by_rank = local_size > devices && local_rank >= 0 && local_rank < local_size;
  *share = by_rank ? local_rank : device;
  *shares = by_rank ? local_size : devices > 0 ? devices : 1;
}

int dit_affinity_choose(const int *cpus, int count, int share, int shares, int64_t cores, int *out) {
  if (count <= 0 || shares <= 0) {
    return 0;
  }
  int64_t wanted = cores > 0 ? cores : count / shares;
  int64_t size = wanted < 1 ? 1 : wanted > count ? count : wanted;
  for (int64_t i = 0; i < size; i++) {
    out[i] = cpus[(share * size + i) % count];  // more shares than CPUs: they are shared in turn
  }
  return (int)size;
}

static int compare_ints(const void *left, const void *right) {
  int a = *(const int *)left, b = *(const int *)right;
  return (a > b) - (a < b);
}

/// "0-3,8": sorted CPUs as the kernel writes them.
static void format_cpus(int *cpus, int count, char *text, size_t size) {
  size_t used = 0;
  qsort(cpus, (size_t)count, sizeof(int), compare_ints);
  text[0] = '\0';
  for (int i = 0, last; i < count && used < size; i = last + 1) {
    for (last = i; last + 1 < count && cpus[last + 1] == cpus[last] + 1; last++) {
    }
    int length = snprintf(text + used, size - used, last > i ? "%s%d-%d" : "%s%d", i ? "," : "", cpus[i], cpus[last]);
    used += length > 0 ? (size_t)length : 0;
  }
}

static int bind_to(const int *cpus, int count) {
  cpu_set_t *set = CPU_ALLOC(MOST_CPUS);
  if (!set) {
    return -1;
  }
  CPU_ZERO_S(CPU_ALLOC_SIZE(MOST_CPUS), set);
  for (int i = 0; i < count; i++) {
    CPU_SET_S((size_t)cpus[i], CPU_ALLOC_SIZE(MOST_CPUS), set);
  }
  int result = sched_setaffinity(0, CPU_ALLOC_SIZE(MOST_CPUS), set);
  CPU_FREE(set);
  return result;
}

void dit_affinity_configure(int64_t cores) {
  pthread_mutex_lock(&lock);
  bool on = cores >= 0;
  if (on && !atomic_load(&active)) {
    cpu_set_t *set = CPU_ALLOC(MOST_CPUS);
    allowed_count = 0;
    if (set && sched_getaffinity(0, CPU_ALLOC_SIZE(MOST_CPUS), set) == 0) {
      for (int cpu = 0; cpu < MOST_CPUS; cpu++) {
        if (CPU_ISSET_S((size_t)cpu, CPU_ALLOC_SIZE(MOST_CPUS), set)) {
          allowed[allowed_count++] = cpu;
        }
      }
    }
    CPU_FREE(set);
  } else if (!on && atomic_load(&active) && bound_share >= 0) {
    (void)bind_to(allowed, allowed_count);  // this thread; others keep what they have
  }
  bound_share = -1;
  cores_per_share = cores;
  atomic_store(&active, on);
  pthread_mutex_unlock(&lock);
}

void dit_affinity_apply(int device) {
  if (DIT_LIKELY(!atomic_load_explicit(&active, memory_order_relaxed))) {
    return;
  }
  int cpus[MOST_CPUS], share, shares;
  dit_affinity_get_share(device, dit_device_get_count(), read_rank("LOCAL_RANK"), read_rank("LOCAL_WORLD_SIZE"), &share,
                         &shares);
  if (share == bound_share) {
    return;
  }
  pthread_mutex_lock(&lock);
  int count = dit_affinity_choose(allowed, allowed_count, share, shares, cores_per_share, cpus);
  pthread_mutex_unlock(&lock);
  char text[256];
  format_cpus(cpus, count, text, sizeof(text));
  if (count == 0 || bind_to(cpus, count) != 0) {
    dit_log_write_once("affinity", DIT_LOG_WARNING, "device %d: the thread cannot be bound to CPUs %s", device, text);
    return;
  }
  bound_share = share;
  dit_log_write(DIT_LOG_INFO, "device %d: this thread runs on CPUs %s (share %d of %d)", device, text, share + 1,
                shares);
}
