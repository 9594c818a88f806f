/// Pickle streams (protocol 2) of captured calls, in the form that plain torch.load(weights_only=True) reads.
///
/// Only opcodes and globals that torch's restricted loader allows are written. Values that have no such form become
/// dictionaries with the key "__ditorch__", the tag; docs/tools/case-files.md lists them. Tensors are
/// torch._utils._rebuild_tensor_v2 over persistent ids ("storage", class, key, location, numel), key being the number
/// of the blob in struct capture_blobs. Nothing here runs the loader's side. Needs the GIL and the engine's guard.
#ifndef DIT_EXT_PICKLE_H
#define DIT_EXT_PICKLE_H

#include "engine/engine.h"
#include "tools/capture/blob.h"
#include "tools/capture/text.h"

#define PICKLE_MAX_DEPTH 64   ///< of nested containers; deeper ones are replaced by a tag
#define PICKLE_MAX_TEXT 2000  ///< characters of an object that is only described
#define PICKLE_TAG "__ditorch__"

/// Things written once and fetched from the memo afterwards.
enum pickle_global {
  PICKLE_REBUILD_V2,
  PICKLE_REBUILD_V3,
  PICKLE_REBUILD_PARAMETER,
  PICKLE_REBUILD_QUANTIZED,
  PICKLE_REBUILD_SPARSE,
  PICKLE_REBUILD_NESTED,
  PICKLE_REBUILD_META,
  PICKLE_ORDERED_DICT,
  PICKLE_STORAGE,  ///< the text "storage"
  PICKLE_UNTYPED,  ///< torch.storage.UntypedStorage
  PICKLE_SIZE,
  PICKLE_DEVICE,
  PICKLE_LAYOUT,
  PICKLE_ENCODE,
  PICKLE_BYTEARRAY,
  PICKLE_SET,
  PICKLE_COMPLEX,
  PICKLE_TAG_TEXT,
  PICKLE_CPU_TEXT,
  PICKLE_STORAGE_CLASS,                                   ///< plus enum dit_dtype
  PICKLE_DTYPE = PICKLE_STORAGE_CLASS + DIT_DTYPE_COUNT,  ///< plus enum dit_dtype
  PICKLE_GLOBALS = PICKLE_DTYPE + DIT_DTYPE_COUNT,
};

struct pickle {
  struct capture_text *out;
  struct capture_blobs *blobs;
  int cursor;     ///< the span that the next tensor probably is
  uint32_t memo;  ///< entries used
  int depth;
  uint32_t global[PICKLE_GLOBALS];  ///< memo entry plus 1; 0: not written yet
  uint32_t location;                ///< memo entry plus 1 of the device text below
  const char *location_text;
  PyObject *open[PICKLE_MAX_DEPTH];  ///< containers being written: a cycle ends at them
};

/// The stream of {"name": name, "args": (...), "kwargs": {...}, "identifier": identifier} appended to `out`, with a
/// fifth member "state" unless `state` is NULL. Entries of `args` may be NULL (None). The tensors known so far are in
/// `blobs` (collected and copied). 0, or -1 with an exception.
DIT_NODISCARD int pickle_item(struct capture_text *out, struct capture_blobs *blobs, const char *name,
                              PyObject *const *args, Py_ssize_t count, PyObject *kwargs, const char *identifier,
                              size_t identifier_size, PyObject *state);

// The parts; each returns 0, or -1 with an exception

DIT_NODISCARD int pickle_value(struct pickle *p, PyObject *value);
DIT_NODISCARD int pickle_tensor(struct pickle *p, PyObject *tensor);
/// Everything that is neither a tensor nor a plain builtin value.
DIT_NODISCARD int pickle_special(struct pickle *p, PyObject *value);
/// A tensor without plain memory: sparse, quantized, nested, meta natively; others as a description.
DIT_NODISCARD int pickle_tensor_unusual(struct pickle *p, PyObject *tensor, const struct engine_tensor *known);
/// The storage object of blob `key`.
void pickle_storage(struct pickle *p, int key, bool typed);
/// uint8 tensor over blob `key`.
void pickle_bytes_tensor(struct pickle *p, int key, size_t size);

void pickle_none(struct pickle *p);
void pickle_bool(struct pickle *p, bool value);
void pickle_integer(struct pickle *p, int64_t value);
DIT_NODISCARD int pickle_whole(struct pickle *p, PyObject *value);  ///< an int or an instance of a subclass
void pickle_float(struct pickle *p, double value);
void pickle_text(struct pickle *p, const char *text, size_t size);
DIT_NODISCARD int pickle_unicode(struct pickle *p, PyObject *text);
void pickle_global(struct pickle *p, int global);
void pickle_integers(struct pickle *p, const int64_t *values, int count);  ///< a tuple
void pickle_opcode(struct pickle *p, char opcode);
void pickle_memo_get(struct pickle *p, uint32_t entry);
uint32_t pickle_memo_put(struct pickle *p);  ///< the new entry plus 1
/// Whether torch has a typed storage class for it (torch.FloatStorage); others are stored untyped.
bool pickle_has_storage_class(int dtype);
/// `{"__ditorch__": kind, ` left open: pairs follow, then pickle_tag_end.
void pickle_tag_begin(struct pickle *p, const char *kind);
void pickle_tag_end(struct pickle *p);
/// Enter a container: 1 go on, 0 a tag was written instead (cycle, too deep).
int pickle_enter(struct pickle *p, PyObject *container);
void pickle_leave(struct pickle *p);

/// A place in the stream to go back to when what follows cannot be written. The memo of what is cut off is forgotten
/// too.
struct pickle_mark {
  struct pickle state;
  size_t size;
};
void pickle_mark_set(const struct pickle *p, struct pickle_mark *mark);
void pickle_mark_return(struct pickle *p, const struct pickle_mark *mark);

/// Where CPU twins of device tensors (place CPU, flag ENGINE_TENSOR_DEVICE) are said to be; NULL: on the CPU.
extern _Thread_local const char *pickle_twin_device;
/// Text of a tensor's device ("cuda:0"), valid for the life of the process.
const char *pickle_device_text(const struct engine_tensor *tensor);
/// Whether the negative bit is set (torch only sets it on views such as x.conj().imag).
bool pickle_tensor_is_negated(PyObject *tensor);

// .pth.json

/// The companion text, byte for byte json.dumps(mapping, indent=4) of the description of the arguments. 0 or -1.
DIT_NODISCARD int pickle_json(struct capture_text *out, const struct engine_tensor *tensors, int tensor_count,
                              const char *name, PyObject *const *args, Py_ssize_t count, PyObject *kwargs);

#endif
