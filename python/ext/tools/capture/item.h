/// One captured item on its way to the store: the pickle stream, the JSON text and the snapshot of the storages.
///
/// Items are scratch memory that is taken and given back, so that the steady state allocates only the snapshots. Needs
/// the GIL and the engine's guard.
#ifndef DIT_EXT_CAPTURE_ITEM_H
#define DIT_EXT_CAPTURE_ITEM_H

#include "dit/store.h"
#include "engine/engine.h"
#include "tools/capture/blob.h"
#include "tools/capture/text.h"

struct capture_item {
  struct capture_text pickle, json;
  struct capture_blobs blobs;
  struct engine_tensor *tensors;  ///< read by capture_item_read
  int tensor_count, tensor_capacity;
  struct capture_item *next;
};

/// What is to be saved. Entries of `args` may be NULL (None).
struct capture_source {
  const char *name;  ///< of the operator
  PyObject *const *args;
  Py_ssize_t count;
  PyObject *kwargs;  ///< or NULL
  PyObject *state;   ///< of the process (call_settings.h), or NULL
  const char *identifier;
  size_t identifier_size;
  const struct engine_tensor *tensors;  ///< all tensors among them, as the engine found them
  int tensor_count;
  bool whole;  ///< whole storages instead of the smallest spans
  bool plain;  ///< copy by torch's own operators
};

/// NULL with an exception when memory is exhausted.
struct capture_item *capture_item_take(void);
/// Releases what was not handed to a store.
void capture_item_give(struct capture_item *item);
/// Read those of `objects` that are tensors into item->tensors. 0 or -1.
DIT_NODISCARD int capture_item_read(struct capture_item *item, PyObject *const *objects, int count);
/// Take the snapshot and write both texts. 0, or -1 with an exception.
DIT_NODISCARD int capture_item_build(struct capture_item *item, const struct capture_source *source);
/// The store's view of it. Whoever passes it to dit_store_put calls capture_item_move afterwards.
void capture_item_show(const struct capture_item *item, const char *path, struct dit_store_item *out);
void capture_item_move(struct capture_item *item);
/// Bytes of everything.
int64_t capture_item_get_size(const struct capture_item *item);

#endif
