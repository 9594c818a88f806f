/// What the embedded accelerator says about itself: number of devices, memory size, properties.
///
/// The numbers are those of the machine this process may use (affinity, cgroup), except where torch programs branch on
/// NVIDIA-like values (capability, warp size, threads, shared memory): those are constants. Depends on libdit's options
/// and the files of /proc and /sys.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "dit/options.h"
#include "host_internal.h"

int64_t host_option_get(const char *name, int64_t fallback) {
  int index = dit_option_find(name);
  return index >= 0 ? dit_option_get_int(index) : fallback;
}

enum dit_status host_count(int *count, struct dit_error *err) {
  int64_t devices = host_option_get("host_devices", 1);
  if (devices < 0 || devices > DIT_MAX_DEVICES) {
    return dit_error_set(err, DIT_ERR_INVALID, "DITORCH_HOST_DEVICES is %lld; valid: 0 to %d", (long long)devices,
                         DIT_MAX_DEVICES);
  }
  *count = (int)devices;
  return DIT_OK;
}

// The first unsigned number of a small file; `missing` when the file or the number is not there ("max" in cgroup
// files).
static uint64_t read_number(const char *path, uint64_t missing) {
  FILE *file = fopen(path, "re");
  if (!file) {
    return missing;
  }
  unsigned long long number;
  bool found = fscanf(file, "%llu", &number) == 1;
  fclose(file);
  return found ? number : missing;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

uint64_t host_memory_limit(bool *chosen) {
  int64_t option = host_option_get("host_memory", 0);
  *chosen = option > 0;
  if (option > 0) {
    return (uint64_t)option;
  }
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  uint64_t physical = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
  physical = smaller(physical, read_number("/sys/fs/cgroup/memory.max", UINT64_MAX));
  return smaller(physical, read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", UINT64_MAX));
}

uint64_t host_memory_available(void) {
  FILE *file = fopen("/proc/meminfo", "re");
  if (!file) {
    return UINT64_MAX;
  }
  uint64_t available = UINT64_MAX;
  char line[128];
  unsigned long long kilobytes;
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) {
      available = (uint64_t)kilobytes * 1024;
      break;
    }
  }
  fclose(file);
  return available;
}

static int count_processors(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    return CPU_COUNT(&set);
  }
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (int)online : 1;
}

static uint64_t cache_size(void) {
#ifdef _SC_LEVEL2_CACHE_SIZE
  long size = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return size > 0 ? (uint64_t)size : 0;
#else
  return 0;
#endif
}

static void set_names(int device, struct dit_device_properties *out) {
  struct utsname machine;
  snprintf(out->name, sizeof out->name, "ditorch host device");
  snprintf(out->vendor, sizeof out->vendor, "host");
  if (uname(&machine) == 0) {
    snprintf(out->architecture, sizeof out->architecture, "%.31s", machine.machine);
  }
  // "dit", "host", index: the same in every process and on every machine.
  snprintf(out->uuid, sizeof out->uuid, "64697400-686f-7374-0000-%012x", (unsigned)device);
}

enum dit_status host_get_properties(int device, struct dit_device_properties *out, struct dit_error *err) {
  (void)err;
  *out = (struct dit_device_properties){
      .total_memory = host_memory_get_total(),
      .major = 8,
      .minor = 0,
      .multi_processor_count = count_processors(),
      .warp_size = 32,
      .max_threads_per_multi_processor = 2048,
      .max_threads_per_block = 1024,
      .regs_per_multiprocessor = 65536,
      .pci_bus = device,
      .shared_memory_per_block = 49152,
      .shared_memory_per_multiprocessor = 167936,
      .l2_cache_size = cache_size(),
      .clock_rate_khz = (int32_t)read_number("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", 0),
      .integrated = true,
      .host_accessible = true,
  };
  set_names(device, out);
  return DIT_OK;
}
