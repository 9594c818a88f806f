/// What this process holds of the embedded accelerator, readable by other processes (op_tools.process_monitor).
///
/// One page of shared memory without a file: a memfd named "dit-host-memory", found as /proc/<pid>/fd/<n> and gone with
/// the process. Content: "DITHOST1", then 64-bit numbers in the machine's order: pid, number of devices, bytes one
/// device has, bytes in use of each device. Only the process that made the page writes it: a forked child, which
/// inherits the descriptor, leaves it alone, and readers compare the pid. Where the system has no memfd nothing is
/// published.
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host_internal.h"

struct status_page {
  char magic[8];
  _Atomic uint64_t pid;
  _Atomic uint64_t count;
  _Atomic uint64_t limit;
  _Atomic uint64_t used[DIT_MAX_DEVICES];
};

static struct status_page *page;
static pid_t owner;

void host_status_init(uint64_t limit) {
  if (!page || owner != getpid()) {
    int fd = memfd_create("dit-host-memory", MFD_CLOEXEC);
    if (fd < 0) {
      return;
    }
    void *memory = MAP_FAILED;
    if (ftruncate(fd, sizeof *page) == 0) {
      memory = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (memory == MAP_FAILED) {
      close(fd);
      return;
    }
    page = memory;
    owner = getpid();
    memcpy(page->magic, "DITHOST1", sizeof page->magic);
    atomic_store_explicit(&page->pid, (uint64_t)owner, memory_order_relaxed);
    atomic_store_explicit(&page->count, DIT_MAX_DEVICES, memory_order_relaxed);
  }
  atomic_store_explicit(&page->limit, limit, memory_order_relaxed);
}

void host_status_set_used(int device, uint64_t bytes) {
  if (page && owner == getpid()) {
    atomic_store_explicit(&page->used[device], bytes, memory_order_relaxed);
  }
}
