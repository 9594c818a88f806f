/// The storages of one captured item: which bytes its tensors cover, and a copy of them taken now.
///
/// A tensor is stored as the smallest run of bytes that covers it. Tensors whose runs overlap share one storage, so
/// that views keep their strides and what aliases before the capture aliases after loading; tensors that only belong to
/// the same storage without touching the same bytes are stored apart. Storage number i of the pickle stream is
/// `blob[i]`.
///
/// The copy is the snapshot: after capture_blobs_copy the program may overwrite, resize or free its tensors. Memory of
/// the host and of the embedded device (once its current stream is idle) is copied at once; CUDA memory is copied on
/// the current stream into pinned memory, and the store waits for the event behind it. Needs the GIL and the engine's
/// guard.
#ifndef DIT_EXT_CAPTURE_BLOB_H
#define DIT_EXT_CAPTURE_BLOB_H

#include "dit/store.h"
#include "engine/engine.h"

/// One tensor. `sizes` and `strides` of the engine's record must stay valid while the item is built.
struct capture_span {
  const struct engine_tensor *tensor;
  uintptr_t low, high;  ///< addresses of its bytes, half open
  int32_t group;        ///< index of its storage; -1: its memory cannot be read
  uint32_t memo;        ///< of the pickle stream, plus 1; 0: not written yet
  int32_t same;         ///< index of the first span of the very same object (itself when first)
  int16_t dtype;
  uint8_t element;  ///< bytes of one element
};

/// One storage.
struct capture_group {
  uintptr_t low, high;
  const struct engine_tensor *tensor;  ///< one of its tensors: tells the device
  uintptr_t widest_low;                ///< an address at which the largest element type is aligned as in its storage
  uint32_t memo;
  int16_t dtype;  ///< -1: several types, stored without one
  uint8_t widest;
};

struct capture_blobs {
  struct capture_span *span;
  struct capture_group *group;
  struct dit_store_blob *blob;
  int32_t *order;  ///< scratch
  int span_count, span_capacity;
  int group_count, group_capacity;  ///< of group and blob
  int copied;                       ///< groups whose bytes are in blob[]
  int64_t bytes;                    ///< of those
  bool plain;                       ///< copy device memory by torch's own operators only
  bool whole;                       ///< store whole storages instead of the smallest spans
  /// Records of tensors that joined late (components of sparse tensors ...); owned, with references.
  struct capture_late {
    struct capture_late *next;
    struct engine_tensor tensor;
  } *late;
};

/// The tensor's element type (enum dit_dtype), also where the engine's record does not tell it exactly; -1 unknown.
int16_t capture_dtype_find(const struct engine_tensor *tensor);
/// Sort `count` tensors into storages. The records must outlive the item. 0 or -1.
DIT_NODISCARD int capture_blobs_collect(struct capture_blobs *blobs, const struct engine_tensor *tensors, int count);
/// One more tensor, with a storage of its own, copied at once; the object is kept alive until capture_blobs_clear.
/// Index of its span, or -1.
DIT_NODISCARD int capture_blobs_join(struct capture_blobs *blobs, PyObject *tensor);
/// Index of a storage of `size` bytes (a buffer that is no tensor), copied at once; or -1.
DIT_NODISCARD int capture_blobs_join_bytes(struct capture_blobs *blobs, const void *data, size_t size);
/// Take the snapshot of all storages that have none. 0 or -1.
DIT_NODISCARD int capture_blobs_copy(struct capture_blobs *blobs);
/// The store has taken the blobs: forget them.
void capture_blobs_move(struct capture_blobs *blobs);
/// Release blobs that were not moved and forget everything; the arrays stay for the next item.
void capture_blobs_clear(struct capture_blobs *blobs);
void capture_blobs_reset(struct capture_blobs *blobs);

#endif
