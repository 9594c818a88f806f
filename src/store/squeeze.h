/// Whether a blob is worth compressing, and its compressed form. Internal to store; one thread at a time.
///
/// A sample of each large blob is compressed in several orders of its bytes, and timed. By choice of the program the
/// best order is taken when it saves a tenth; with `measured` only when compressing takes less time than writing what
/// it saves, at the speed at which the file was written so far. After a sample that did not pay, the next ones are
/// taken further apart. Depends on compress.
#ifndef DIT_STORE_SQUEEZE_H
#define DIT_STORE_SQUEEZE_H

#include "dit/store.h"
#include "store/compress.h"

struct dit_squeeze {
  enum dit_compress_method method;  ///< NONE: nothing is compressed
  bool measured;
  unsigned skip, distance;  ///< blobs to pass over until the next sample
  void *context;
  unsigned char *memory;  ///< two halves: bytes in order, and compressed ones
  size_t capacity;        ///< of a blob
};

struct dit_squeezed {
  uint32_t width;
  size_t packed;                 ///< bytes that count
  size_t size;                   ///< of the payload: as many, or more (zeros)
  const unsigned char *payload;  ///< until the next blob
};

/// DIT_ERR_UNSUPPORTED when the library of a chosen method is not there.
DIT_NODISCARD enum dit_status dit_squeeze_init(struct dit_squeeze *squeeze, enum dit_store_compress compress,
                                               struct dit_error *err);
void dit_squeeze_reset(struct dit_squeeze *squeeze);
/// False: the blob is written as it is. `write_ns`: nanoseconds per byte of writing, 0 when nothing was written yet.
bool dit_squeeze_take(struct dit_squeeze *squeeze, const unsigned char *data, size_t size, double write_ns,
                      struct dit_squeezed *out);

#endif
