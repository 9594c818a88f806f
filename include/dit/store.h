/// The capture store: tensors and their description, written by a background thread as `.pth` files or into one packed
/// container per process.
///
/// An item is one file of a capture: a pickle stream (protocol 2, in which storages are persistent ids with the keys
/// "0", "1" ...), the bytes of those storages and an optional JSON text. FILES writes `<root>/<path>` (a ZIP archive
/// that torch.load reads, also with mmap) and `<root>/<path>.json`, each under a temporary name first; PACKED appends
/// the item to `<root>/<container>` and stores equal blobs once. Putting never fails the caller's program: what cannot
/// be kept is counted and said once. docs/store-format.md describes the container.
#ifndef DIT_STORE_H
#define DIT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"
#include "dit/record.h"

DIT_EXTERN_C_BEGIN

#define DIT_STORE_MAX_PATH 4096
#define DIT_STORE_MAX_BLOBS (1 << 20)        ///< of one item
#define DIT_STORE_QUEUE_BYTES (256LL << 20)  ///< default of dit_store_options.queue_bytes

/// Bytes of one storage. The store owns it from dit_store_put on, whatever that returns: `release` (nullable) is called
/// exactly once, on any thread. `wait` (nullable) is called on the writer's thread before the bytes are read: a copy
/// from a device may still be under way; false gives the item up. An item that is refused or given up is released
/// without waiting. What a process had queued when it forked is released in the parent alone. Neither may call the
/// store, nor need a lock that a thread holds while it puts, flushes or destroys (an interpreter's). `identity`: blobs
/// of one store that have the same one, not 0, and the same size have the same bytes; a container then refers to the
/// first of them without looking at the others.
struct dit_store_blob {
  const void *data;
  size_t size;
  bool (*wait)(void *context);
  void (*release)(void *context);
  void *context;
  uint64_t identity;
};

/// All pointers are borrowed for the call only (blob bytes: until release).
struct dit_store_item {
  /// Relative to the root, with '/', without "..": "op_capture_results/torch.add/71/1/.../input.pth".
  const char *path;
  const void *pickle;
  size_t pickle_size;
  const char *json;  ///< NULL: no companion
  size_t json_size;
  const struct dit_store_blob *blobs;
  size_t blob_count;
};

enum dit_store_layout { DIT_STORE_FILES, DIT_STORE_PACKED };
/// Of the blobs of a container. AUTO: each as samples tell that compressing is faster than writing what it saves.
enum dit_store_compress {
  DIT_STORE_COMPRESS_OFF,
  DIT_STORE_COMPRESS_AUTO,
  DIT_STORE_COMPRESS_ZSTD,
  DIT_STORE_COMPRESS_ZLIB
};

/// Zero everything that should have its default.
struct dit_store_options {
  enum dit_store_layout layout;
  const char *container;  ///< PACKED: file name below the root (default "capture-r<rank>-p<pid>.dpack")
  int32_t rank;
  enum dit_record_pressure pressure;  ///< of a full queue
  int block_ms;                       ///< longest wait of a producer (default 60000)
  int64_t queue_bytes;                ///< bound of what waits, blobs included
  enum dit_store_compress compress;   ///< PACKED; the libraries are looked up: libzstd.so.1, libz.so.1
};

struct dit_store_counts {
  uint64_t put;       ///< calls of dit_store_put
  uint64_t accepted;  ///< of those, queued
  uint64_t dropped;   ///< refused by a full queue or a failing disk
  uint64_t written;   ///< on disk (with the kernel)
  uint64_t lost;      ///< accepted but not written
  uint64_t bytes;     ///< written
  uint64_t shared;    ///< PACKED: bytes not written because an equal blob was there
  bool failing;
  char problem[256];  ///< the last failure, empty when none
};

struct dit_store;

/// Create the root (and its parents), open the container where there is one, start the thread. DIT_ERR_INVALID,
/// DIT_ERR_IO, DIT_ERR_NOMEM; DIT_ERR_UNSUPPORTED when the library of a compression that was asked for is not there. In
/// a forked child the store is closed.
DIT_API DIT_NODISCARD enum dit_status dit_store_create(const char *root, const struct dit_store_options *options,
                                                       struct dit_store **store, struct dit_error *err);
/// Queue an item. `now`: write-ahead, return when it is with the kernel (or lost, or block_ms is over: not kept).
/// DIT_OK also when it was dropped (see `kept`, nullable); DIT_ERR_INVALID for a bad item. Blobs are released
/// in every case. An item larger than queue_bytes is taken when the queue is empty. The same path again replaces the
/// file.
DIT_API DIT_NODISCARD enum dit_status dit_store_put(struct dit_store *store, const struct dit_store_item *item,
                                                    bool now, bool *kept, struct dit_error *err);
/// Wait until everything accepted before the call is with the kernel. DIT_ERR_IO when `timeout_ms` is over or items
/// were lost since the last flush; DIT_ERR_INVALID in a forked child. The exit of the program flushes all stores, for
/// at most ten seconds: a program whose `release` needs more than C at that time (an interpreter) destroys its stores
/// before.
DIT_API DIT_NODISCARD enum dit_status dit_store_flush(struct dit_store *store, int timeout_ms, struct dit_error *err);
/// Write out what is queued, for at most `timeout_ms`, and free the store. No other thread may use it any more. Accepts
/// NULL. DIT_ERR_IO when accepted items were not written; those still queued are released later, by the store's thread.
DIT_API enum dit_status dit_store_destroy(struct dit_store *store, int timeout_ms, struct dit_error *err);
DIT_API void dit_store_get_counts(struct dit_store *store, struct dit_store_counts *counts);
/// The root (FILES) or the container (PACKED) into `path`, cut to `size`.
DIT_API void dit_store_get_path(struct dit_store *store, char *path, size_t size);
/// True while an item may still be accepted: lets a producer skip the work of building one.
DIT_API bool dit_store_is_open(struct dit_store *store);

/// Write one item as a `.pth` file (and `.json`) at once, without a store: atomic, mode 0600, parents are made. `path`
/// replaces item->path. Blobs are waited for and released on the calling thread, released in every case.
/// DIT_ERR_INVALID, DIT_ERR_IO, DIT_ERR_NOMEM, DIT_ERR_DEVICE when a `wait` gave up.
DIT_API DIT_NODISCARD enum dit_status dit_store_write_file(const char *path, const struct dit_store_item *item,
                                                           struct dit_error *err);

/// Read a container: items in the order of writing. A torn end is ignored and counted; damage never crashes.
struct dit_store_reader;
struct dit_store_read_counts {
  uint64_t items;       ///< delivered
  uint64_t torn_bytes;  ///< behind the last sound frame, known at the end
  uint64_t damaged;     ///< places that were passed over, and items that lack a sound part
};
/// DIT_ERR_IO, DIT_ERR_NOMEM, DIT_ERR_CORRUPT for a file that is no container, DIT_ERR_UNSUPPORTED for a newer one.
DIT_API DIT_NODISCARD enum dit_status dit_store_reader_open(const char *path, struct dit_store_reader **reader,
                                                            struct dit_error *err);
DIT_API void dit_store_reader_close(struct dit_store_reader *reader);  ///< accepts NULL
/// The next item, valid until the next call; NULL at the end. Its blobs have no wait and no release, their bytes are in
/// memory, aligned to 16. Damage is passed over and counted, never an error. DIT_ERR_IO, DIT_ERR_NOMEM;
/// DIT_ERR_UNSUPPORTED when blobs are compressed and the library is not on this machine.
DIT_API DIT_NODISCARD enum dit_status dit_store_reader_next(struct dit_store_reader *reader,
                                                            const struct dit_store_item **item, struct dit_error *err);
DIT_API void dit_store_reader_get_counts(const struct dit_store_reader *reader, struct dit_store_read_counts *counts);
/// Write every item of a container below `root` as files, byte for byte what FILES would have written. `written`
/// (nullable) receives their number. Links below `root` are never followed (DIT_ERR_IO). Damaged items are left out.
DIT_API DIT_NODISCARD enum dit_status dit_store_unpack(const char *container, const char *root, uint64_t *written,
                                                       struct dit_error *err);

DIT_EXTERN_C_END

#endif
