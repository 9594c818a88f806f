/// Compressed blobs of a container: libraries that are looked up at run time, and the order of bytes that suits
/// numbers.
///
/// Internal to store. Numbers of `width` bytes compress better when their first bytes stand together, then their second
/// ones, and so on: exponents repeat, mantissas do not.
#ifndef DIT_STORE_COMPRESS_H
#define DIT_STORE_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dit_compress_method { DIT_COMPRESS_NONE, DIT_COMPRESS_ZLIB, DIT_COMPRESS_ZSTD, DIT_COMPRESS_COUNT };
/// A blob is at most so many times as large as its payload: what a small file may claim is bounded.
enum { DIT_COMPRESS_MOST = 256 };

/// "zlib", "zstd".
const char *dit_compress_get_name(enum dit_compress_method method);
/// The file that is looked up: "libzstd.so.1".
const char *dit_compress_get_library(enum dit_compress_method method);
/// Whether the library is there; looked up once.
bool dit_compress_has(enum dit_compress_method method);
/// Bytes that `size` bytes take at most.
size_t dit_compress_get_bound(enum dit_compress_method method, size_t size);
/// What a method works with, for one thread at a time; NULL when there is no memory, and for methods without one.
void *dit_compress_create(enum dit_compress_method method);
void dit_compress_destroy(enum dit_compress_method method, void *context);  ///< accepts NULL
/// The bytes that the compressed ones take in `to`; 0 when it failed or `capacity` is too small.
size_t dit_compress_pack(enum dit_compress_method method, void *context, const void *from, size_t size, void *to,
                         size_t capacity);
/// Exactly `size` bytes into `to`; false for anything else.
bool dit_compress_unpack(enum dit_compress_method method, const void *from, size_t packed, void *to, size_t size);
/// Is this a width that bytes may be ordered by?
static inline bool dit_compress_is_width(uint32_t width) {
  return width == 1 || width == 2 || width == 4 || width == 8;
}
/// Bytes in the order of planes, and back; what is no whole number stands at the end as it is.
void dit_compress_split(const unsigned char *from, unsigned char *to, size_t size, uint32_t width);
void dit_compress_join(const unsigned char *from, unsigned char *to, size_t size, uint32_t width);

#endif
