/// dit_doctor from the inside: what a check works on, how it says what it saw, and the groups of checks.
///
/// A check is a function about one slot of struct dit_device_vtable. It runs in a child process that has loaded the
/// vendor library, and answers true, or blames a slot and answers false; its process then ends, and the next check gets
/// a fresh one. So a check that fails need not clean up. Depends on libdit's public headers and src/core/plugin.
#ifndef DIT_DOCTOR_DOCTOR_H
#define DIT_DOCTOR_DOCTOR_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "dit/device.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum finding_state { FINDING_NONE, FINDING_RUNNING, FINDING_OK, FINDING_WRONG, FINDING_SKIPPED, FINDING_MISSING };

/// What became of a check. Lives in memory that the child shares with its parent.
struct finding {
  _Atomic int state;
  char slot[32];        ///< who is to blame; the check's own slot unless another one failed on the way
  const char *calling;  ///< the slot that is being called; a literal, which parent and child have at the same address
  char seen[768], expected[256], look[256];
  double milliseconds;
};

/// What the library says about itself, for the head of the report.
struct facts {
  char name[80], version[80], path[PATH_MAX], description[256];
  uint32_t abi_version, struct_size;
  int devices;
  bool queued;
};

/// What a check works on.
struct bench {
  const char *library;  ///< as the user wrote it
  void *handle;
  struct dit_device_vtable v;  ///< full size; slots beyond the vendor's own are NULL
  bool started;                ///< init was called
  int count;                   ///< devices
  double timeout;              ///< seconds that the parent waits for a check
  bool gentle;                 ///< do not fill the device's memory
  const char *blame;           ///< the slot after which nothing works; NULL: each call answers for itself
  int progress;                ///< the pipe that says to the parent: still alive
  struct finding *finding;
  struct facts *facts;
};

enum check_flag {
  CHECK_NOT_LOADED = 1 << 0,   ///< the check opens the library itself
  CHECK_NOT_STARTED = 1 << 1,  ///< the check calls init itself
  CHECK_FIRST = 1 << 2         ///< nothing is known about the library yet
};

struct check {
  const char *slot, *title;
  const char *needs;  ///< other slots, separated by blanks: a check is skipped when one of them is wrong
  bool (*run)(struct bench *b);
  unsigned flags;
};

struct check_group {
  const struct check *checks;
  size_t count;
};

extern const struct check_group load_group, table_group, process_group, device_group, stream_group, memory_group,
    copy_group, host_group, async_group, event_group, order_group, thread_group, kernel_group, collective_group,
    share_group, end_group;

// bench.c: blame

/// Write down what was seen. Always false, so that a check can `return bench_blame(...)`.
bool bench_blame(struct bench *b, const char *slot, const char *expected, const char *look, const char *format, ...)
    DIT_PRINTF(5, 6);
/// A call that must succeed: blames its slot, with the message, when it did not.
bool bench_is_ok(struct bench *b, const char *slot, enum dit_status status, const struct dit_error *err);
/// A call that must fail: the status is a known one, the message is there and is text, both say the same.
bool bench_is_error(struct bench *b, const char *slot, enum dit_status status, const struct dit_error *err,
                    const char *what);
/// An error struct that shows whether somebody wrote a text.
struct dit_error bench_make_error(void);

/// The check's own slot is wrong unless the condition holds.
#define WANT(b, condition, expected, look, ...)                               \
  do {                                                                        \
    if (!(condition)) {                                                       \
      return bench_blame(b, (b)->finding->slot, expected, look, __VA_ARGS__); \
    }                                                                         \
  } while (0)

/// Call a slot that must succeed.
#define CALL(b, slot, ...)                                                   \
  do {                                                                       \
    struct dit_error call_err = bench_make_error();                          \
    (b)->finding->calling = #slot;                                           \
    const enum dit_status call_status = (b)->v.slot(__VA_ARGS__, &call_err); \
    (b)->finding->calling = NULL;                                            \
    if (!bench_is_ok(b, #slot, call_status, &call_err)) {                    \
      return false;                                                          \
    }                                                                        \
  } while (0)

/// Call a helper that has blamed somebody when it is false.
#define TRY(call)   \
  do {              \
    if (!(call)) {  \
      return false; \
    }               \
  } while (0)

// bench.c: the library

bool bench_load(struct bench *b);
bool bench_start(struct bench *b);  ///< init, count

// bench.c: work on streams

double bench_get_seconds(void);
void bench_sleep(double seconds);

/// A host function that stands still until it is opened (or a long time has passed): work behind it is pending.
struct gate {
  atomic_bool reached, open, passed;
};
void gate_wait(void *gate);
/// Until the stream stands at the gate; false after a long time.
bool gate_await(struct gate *gate);

/// A host function that takes 30 ms and then counts.
struct slow {
  atomic_int done;
};
#define SLOW_SECONDS 0.03
void slow_run(void *slow);

/// Wait up to `seconds` for a counter to reach a value.
bool bench_await(const atomic_int *counter, int value, double seconds);
/// Does a created stream run its work later, so that the caller goes on? Asked once per process.
bool bench_is_queued(struct bench *b, bool *queued);

// bench.c: memory

void bench_fill(unsigned char *bytes, size_t size, unsigned seed);
/// Index of the first byte that is not the pattern's; `size` when all are.
size_t bench_compare(const unsigned char *bytes, size_t size, unsigned seed);
bool bench_put(struct bench *b, int device, void *dst, const void *src, size_t size);  ///< host to device, synchronous
bool bench_get(struct bench *b, int device, void *dst, const void *src, size_t size);  ///< device to host, synchronous
struct dit_copy bench_copy_in(int device, void *dst, const void *src, size_t size);
struct dit_copy bench_copy_out(int device, void *dst, const void *src, size_t size);

// runner.c

struct runner_options {
  const char *library, *only;
  double timeout;
  bool gentle;
  FILE *out;
};

/// Exit status: 0 all right, 1 something is wrong, 2 the library cannot be used at all, 3 there is no device.
int runner_run(const struct runner_options *options);

// slots.c

struct slot_info {
  const char *name;
  size_t offset;
  bool required;
};
extern const struct slot_info slot_infos[];
extern const size_t slot_count;
#define SMALLEST_TABLE offsetof(struct dit_device_vtable, profiler_start)
bool slot_is_empty(const struct dit_device_vtable *table, size_t offset);
/// By name; NULL for what is no slot ("library", "name" ...).
const struct slot_info *slot_find(const char *name);

#endif
