/// The memory checker: every block of device and pinned host memory, under every algorithm, with a guard zone in front
/// and behind.
///
/// It finds blocks that were never freed, addresses that are freed twice or were never handed out, writes beyond a
/// block's ends (looked for when the block is freed, and on request), and copies that touch freed memory or more than a
/// block. Findings are lines of text that begin with "dipu memory checker: " and are counted. Off by default; then an
/// allocation pays one relaxed load for all observers of memory together.
#ifndef DIT_MEMORY_CHECK_H
#define DIT_MEMORY_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

DIT_EXTERN_C_BEGIN

#define DIT_CHECK_PREFIX "dipu memory checker: "
#define DIT_CHECK_DEPTH 32        ///< frames of a backtrace
#define DIT_CHECK_PLACE_SIZE 160  ///< bytes of the program's own place, with the final NUL

struct dit_memory_check_options {
  bool backtrace;       ///< keep where each block was allocated
  uint64_t max_blocks;  ///< more live blocks than this are called a leak when it is first reached, then at every double
  uint64_t interval;    ///< allocations between two lines about the state; 0: none
  size_t guard;         ///< bytes in front of and behind each block, a multiple of 512; 0: none
};

/// Blocks that exist already are left alone: they have no guard zones and are no leaks. A second start changes the
/// options for later blocks. DIT_ERR_INVALID for a guard that is no multiple of 512 or above 1 MiB.
DIT_API DIT_NODISCARD enum dit_status dit_memory_check_start(const struct dit_memory_check_options *options,
                                                             struct dit_error *err);
/// Later blocks are not watched; those that are stay so until they are freed.
DIT_API void dit_memory_check_stop(void);
DIT_API bool dit_memory_check_is_on(void);

struct dit_memory_check_state {
  uint64_t blocks, bytes;   ///< live and watched
  uint64_t inserts;         ///< ever watched
  uint64_t damaged;         ///< guard zones found written to
  uint64_t double_frees;    ///< addresses freed again
  uint64_t unknown_frees;   ///< addresses freed that were never handed out
  uint64_t unknown_copies;  ///< copies from or to freed memory, or beyond a block's end
  uint64_t stray_accesses;  ///< accesses of host code to protected device memory
};
DIT_API void dit_memory_check_get_state(struct dit_memory_check_state *out);

/// A live block.
struct dit_memory_check_block {
  const void *address;
  size_t size;
  int device;  ///< -1: pinned host memory
  int64_t stream;
  uint64_t number;    ///< of the allocation, from 1
  const char *place;  ///< "file.py:12 in train", "" when not known
  void *const *frames;
  int depth;  ///< 0: without backtrace
};
/// Every live block with a number above `since`, in the order of allocation, from a copy. A visit that returns false
/// ends the walk.
DIT_API DIT_NODISCARD enum dit_status dit_memory_check_visit(uint64_t since,
                                                             bool (*visit)(void *context,
                                                                           const struct dit_memory_check_block *block),
                                                             void *context, struct dit_error *err);
/// Wait for all devices, look at the guard zones of all live blocks and report the damaged ones. `damaged` is their
/// number; each zone is reported once.
DIT_API DIT_NODISCARD enum dit_status dit_memory_check_verify(uint64_t *damaged, struct dit_error *err);
/// Write the report that also comes at exit: live blocks (at most 100 of them) and the state.
DIT_API void dit_memory_check_report(void);
/// Replace the sink of all lines; NULL restores stderr. Never called concurrently with itself.
DIT_API void dit_memory_check_set_writer(void (*write)(void *context, const char *line), void *context);
/// Who knows the program's own place (a Python line): fills `text` and returns true. Called with `backtrace` on, by the
/// allocating thread, without any lock held. NULL: nobody.
DIT_API void dit_memory_check_set_locator(bool (*locate)(char *text, size_t size));
/// One line for a frame address: "libtorch_cpu.so(at::native::empty+0x1b)".
DIT_API void dit_memory_check_describe_frame(const void *frame, char *text, size_t size);

DIT_EXTERN_C_END

#endif
