/// Stray accesses of host code to device memory: pages of device memory are closed (mprotect) unless ditorch itself
/// works on them.
///
/// For devices whose memory is host memory, where a program that passes a device address to host code would otherwise
/// go unnoticed until it meets real hardware. dit_memory_access_begin and _end stand around everything of ours that
/// touches device memory: kernels and copies of the embedded device, CPU tensors that stand for device tensors, reads
/// of the tools. While one of them runs all pages are open, for all threads; so an access at the same moment as one of
/// ours is not seen. Code of ditorch's own libraries, and memcpy and its like when they call it,
/// is let through by its address as well. A fault is reported, with a
/// backtrace, and then the page is opened until ditorch's next work ends (report) or the process goes on to die (stop).
///
/// Invariant: `depth` and the state of the pages change together under the lock. The fault handler takes no lock: the
/// address map answers without one. Memory that the allocators hold before the start is included; memory that is shared
/// with other processes and given to system calls (write) in between is not ours to open: such a call fails with
/// EFAULT. Depends on Linux, allocator_map.c.
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "device/allocator_impl.h"
#include "device/memory_watch.h"
#include "dit/alloc.h"
#include "dit/log.h"
#include "dit/stage.h"

#define OWN_LIBRARIES 16

struct page_range {
  char *start;
  size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int mode;    ///< enum dit_protect_mode
static atomic_bool armed;  ///< was ever on: begin and end count from then on
static int depth;
static struct page_range *ranges;
static size_t range_count, range_capacity;
static struct sigaction old_action;
static struct page_range own_code[OWN_LIBRARIES];
static int own_count;
static size_t page_size;

// Pages, with the lock held

static void set_pages(const struct page_range *range, int access) {
  if (mprotect(range->start, range->size, access) != 0) {
    dit_log_write_once("memory_protect", DIT_LOG_WARNING,
                       "DITORCH_MEMORY_PROTECT: the pages of %zu bytes at %p cannot be protected", range->size,
                       (void *)range->start);
  }
}

static void set_all(int access) {
  for (size_t i = 0; i < range_count; i++) {
    set_pages(&ranges[i], access);
  }
}

static bool is_closed(void) {
  return depth == 0 && atomic_load(&mode) != DIT_PROTECT_OFF;
}

size_t dit_protect_round(size_t size) {
  size_t whole = size > DIT_MIB ? size : DIT_MIB;  // what the embedded device maps in pages of its own
  return atomic_load_explicit(&mode, memory_order_relaxed) == DIT_PROTECT_OFF
             ? size
             : (whole + page_size - 1) / page_size * page_size;
}

void dit_protect_add(void *ptr, size_t size) {
  if (!atomic_load_explicit(&armed, memory_order_relaxed)) {
    return;
  }
  if (!dit_stage_is_host_accessible()) {  // addresses that are nobody's to open
    dit_log_write_once("memory_protect.closed", DIT_LOG_WARNING,
                       "DITORCH_MEMORY_PROTECT has no effect: the host cannot touch this device's memory anyway");
    return;
  }
  struct page_range range = {ptr, size / page_size * page_size};
  pthread_mutex_lock(&lock);
  if ((uintptr_t)ptr % page_size == 0 && range.size > 0) {
    if (range_count == range_capacity) {
      size_t capacity = range_capacity ? 2 * range_capacity : 64;
      struct page_range *grown = dit_realloc(ranges, capacity * sizeof *grown);
      ranges = grown ? grown : ranges;
      range_capacity = grown ? capacity : range_capacity;
    }
    if (range_count < range_capacity) {  // else these pages stay open
      ranges[range_count++] = range;
      if (is_closed()) {
        set_pages(&range, PROT_NONE);
      }
    }
  }
  pthread_mutex_unlock(&lock);
}

void dit_protect_remove(const void *ptr) {
  if (!atomic_load_explicit(&armed, memory_order_relaxed)) {
    return;
  }
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < range_count; i++) {
    if (ranges[i].start == (const char *)ptr) {
      set_pages(&ranges[i], PROT_READ | PROT_WRITE);  // the vendor may keep the pages for somebody else
      ranges[i] = ranges[--range_count];
      break;
    }
  }
  pthread_mutex_unlock(&lock);
}

// Work of ours

bool dit_memory_access_is_watched(void) {
  return atomic_load_explicit(&armed, memory_order_relaxed);
}

void dit_memory_access_begin(void) {
  if (DIT_LIKELY(!atomic_load_explicit(&armed, memory_order_relaxed))) {
    return;
  }
  pthread_mutex_lock(&lock);
  if (is_closed()) {
    set_all(PROT_READ | PROT_WRITE);
  }
  depth++;
  pthread_mutex_unlock(&lock);
}

void dit_memory_access_end(void) {
  if (DIT_LIKELY(!atomic_load_explicit(&armed, memory_order_relaxed))) {
    return;
  }
  pthread_mutex_lock(&lock);
  depth -= depth > 0;
  if (is_closed()) {
    set_all(PROT_NONE);
  }
  pthread_mutex_unlock(&lock);
}

// Faults

static uintptr_t get_program_counter(const void *context) {
#if defined(__x86_64__)
  return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.pc;
#else
  (void)context;
  return 0;
#endif
}

static bool is_own_code(uintptr_t address) {
  for (int i = 0; i < own_count; i++) {
    if (address - (uintptr_t)own_code[i].start < own_code[i].size) {
      return true;
    }
  }
  return false;
}

/// A function of the C library that code of ours called: memcpy and its like. The handler's own frames come first.
static bool is_called_by_own_code(uintptr_t counter) {
  void *frames[DIT_CHECK_DEPTH];
  Dl_info info;
  if (dladdr((void *)counter, &info) == 0 || !info.dli_fname || !strstr(info.dli_fname, "/libc.so")) {
    return false;
  }
  int found = backtrace(frames, DIT_CHECK_DEPTH);
  for (int i = 0; i + 1 < found; i++) {
    if ((uintptr_t)frames[i] == counter) {
      return is_own_code((uintptr_t)frames[i + 1]);
    }
  }
  return false;
}

static bool is_device_memory(const void *address) {
  struct dit_allocator_hit hit = dit_allocator_map_find(address);
  return hit.owner && hit.owner->device >= 0;
}

/// Formatting on the stack and write(2) only. A fault is synchronous: the thread was in the program's code, in none of
/// the C library's locks that matter here.
static void report_fault(const void *address, uintptr_t counter) {
  struct dit_allocator_hit hit = dit_allocator_map_find(address);
  void *frames[DIT_CHECK_DEPTH];
  char line[512], place[256];
  dit_check_count(DIT_COUNT_STRAY);
  dit_memory_check_describe_frame((const void *)counter, place, sizeof(place));
  int length = snprintf(line, sizeof(line),
                        DIT_CHECK_PREFIX
                        "stray host access to memory of device %d, ptr = %p, by %s; copy the tensor to the CPU first\n",
                        hit.owner ? hit.owner->device : -1, address, place);
  ssize_t ignored = write(STDERR_FILENO, line, length < (int)sizeof(line) ? (size_t)length : sizeof(line) - 1);
  (void)ignored;
  int found = backtrace(frames, DIT_CHECK_DEPTH);
  backtrace_symbols_fd(frames, found, STDERR_FILENO);
}

static void pass_on(int number, siginfo_t *info, void *context) {
  if (old_action.sa_flags & SA_SIGINFO) {
    old_action.sa_sigaction(number, info, context);
  } else if (old_action.sa_handler != SIG_DFL && old_action.sa_handler != SIG_IGN) {
    old_action.sa_handler(number);
  } else {
    signal(number, SIG_DFL);  // the access runs again and ends the process as it would have
  }
}

static void on_fault(int number, siginfo_t *info, void *context) {
  int now = atomic_load(&mode);
  uintptr_t counter = get_program_counter(context);
  bool ours = now != DIT_PROTECT_OFF && info->si_code == SEGV_ACCERR && is_device_memory(info->si_addr);
  if (!ours) {
    pass_on(number, info, context);
    return;
  }
  const bool open = dit_stage_is_host_accessible();  // known since the pages were added; else nothing can be opened
  bool let_through = open && (is_own_code(counter) || is_called_by_own_code(counter));
  if (!let_through) {
    report_fault(info->si_addr, counter);
    let_through = open && now == DIT_PROTECT_REPORT;
  }
  if (!let_through) {
    pass_on(number, info, context);
    return;
  }
  char *page = (char *)((uintptr_t)info->si_addr / page_size * page_size);
  if (mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) {
    pass_on(number, info, context);
  }
}

// On and off

/// The code of libdit, the vendor, the extension and the adapter.
static int note_library(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size;
  (void)unused;
  const char *name = info->dlpi_name ? info->dlpi_name : "";
  if (!strstr(name, "/libdit") && !strstr(name, "ditorch/_C.")) {
    return 0;
  }
  for (int i = 0; i < info->dlpi_phnum && own_count < OWN_LIBRARIES; i++) {
    if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
      own_code[own_count++] = (struct page_range){(char *)(uintptr_t)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
                                                  (size_t)info->dlpi_phdr[i].p_memsz};
    }
  }
  return 0;
}

static bool add_segment(void *context, const struct dit_memory_segment *segment) {
  (void)context;
  dit_protect_add((void *)(uintptr_t)segment->address, segment->total_size);
  return true;
}

static void reset_lock(void) {
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static enum dit_status arm(struct dit_error *err) {
  page_size = (size_t)sysconf(_SC_PAGESIZE);
  void *frame;
  (void)backtrace(&frame, 1);  // loads what it needs now, not in the handler
  own_count = 0;
  (void)dl_iterate_phdr(note_library, NULL);
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGSEGV, &action, &old_action) != 0) {
    return dit_error_set(err, DIT_ERR_INTERNAL, "memory_protect: no handler for SIGSEGV can be installed");
  }
  (void)pthread_atfork(NULL, NULL, reset_lock);
  atomic_store(&armed, true);
  return dit_memory_visit(-1, add_segment, NULL, err);
}

enum dit_status dit_protect_set(enum dit_protect_mode wanted, struct dit_error *err) {
  if (wanted != DIT_PROTECT_OFF && !atomic_load(&armed)) {
    DIT_RETURN_IF_NOT_OK(arm(err));
  }
  if (!atomic_load(&armed)) {
    return DIT_OK;
  }
  pthread_mutex_lock(&lock);
  bool was_closed = is_closed();
  atomic_store(&mode, (int)wanted);
  if (was_closed != is_closed()) {
    set_all(was_closed ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  pthread_mutex_unlock(&lock);
  return DIT_OK;
}
