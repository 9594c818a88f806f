/// Memory of snapshots: blocks that several blobs share and that the store's thread gives back.
///
/// Blocks are kept for reuse by size (at most CAPTURE_MEMORY_KEPT bytes in all): fresh pages cost more than copying
/// into them, and memory that one thread takes and another frees is what malloc does worst. Thread safe; no Python.
#ifndef DIT_EXT_CAPTURE_MEMORY_H
#define DIT_EXT_CAPTURE_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/helper.h"

#define CAPTURE_MEMORY_LEAST (1u << 6)  ///< smaller blocks come from malloc
#define CAPTURE_MEMORY_KEPT (256u << 20)

struct capture_memory {
  atomic_int references;
  size_t size;  ///< usable bytes at `data`
  unsigned char *data;
  const struct dit_helper_vtable *helper;  ///< of pinned memory; NULL: malloc
  int device;
  bool pending;                 ///< the bytes come by a copy that may be under way
  void *event;                  ///< recorded behind the copy; NULL: the device's default stream, see `ticket`
  uint64_t ticket;              ///< number of the copy on the default stream
  uint64_t identity;            ///< of its one blob, for the store; 0: none
  struct capture_memory *next;  ///< while it waits for reuse
};

/// One reference; NULL when memory is exhausted.
struct capture_memory *capture_memory_create(size_t size);
/// The block holds one snapshot, from now on unchanged: blobs of it are known to be equal.
void capture_memory_identify(struct capture_memory *memory);
/// Pinned memory for copies from a device; NULL when it could not be had.
struct capture_memory *capture_memory_create_pinned(size_t size, const struct dit_helper_vtable *helper, int device);
/// The copies into a pinned block are queued on `stream`: from now on its bytes must be waited for. On the default
/// stream this costs nothing: whoever waits first records one event for all copies so far.
DIT_NODISCARD enum dit_status capture_memory_follow(struct capture_memory *memory, void *stream, struct dit_error *err);
/// For dit_store_blob: `context` is the block.
bool capture_memory_wait(void *context);
void capture_memory_release(void *context);
/// Give back what waits for reuse beyond `keep` bytes.
void capture_memory_trim(size_t keep);

#endif
