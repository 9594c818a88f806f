/// Libraries of compression (contract in compress.h). They are used at their fastest level: the store's thread has to
/// keep up with a disk. Depends on libz and libzstd, where the system has them.
#include "store/compress.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { LEVEL = 1 };

static struct {
  size_t (*bound)(size_t size);
  void *(*create)(void);
  size_t (*destroy)(void *context);
  size_t (*pack)(void *context, void *to, size_t capacity, const void *from, size_t size, int level);
  size_t (*unpack)(void *to, size_t capacity, const void *from, size_t size);
  unsigned (*is_error)(size_t result);
} zstd;

static struct {
  unsigned long (*bound)(unsigned long size);
  int (*pack)(unsigned char *to, unsigned long *capacity, const unsigned char *from, unsigned long size, int level);
  int (*unpack)(unsigned char *to, unsigned long *capacity, const unsigned char *from, unsigned long size);
} zlib;

static bool found[DIT_COMPRESS_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find(void *library, const char *name, void *function) {
  void *address = library ? dlsym(library, name) : NULL;
  memcpy(function, &address, sizeof(address));
  return address != NULL;
}

static void load(void) {
  void *library = dlopen(dit_compress_get_library(DIT_COMPRESS_ZSTD), RTLD_NOW | RTLD_LOCAL);
  found[DIT_COMPRESS_ZSTD] =
      find(library, "ZSTD_compressBound", &zstd.bound) && find(library, "ZSTD_createCCtx", &zstd.create) &&
      find(library, "ZSTD_freeCCtx", &zstd.destroy) && find(library, "ZSTD_compressCCtx", &zstd.pack) &&
      find(library, "ZSTD_decompress", &zstd.unpack) && find(library, "ZSTD_isError", &zstd.is_error);
  library = dlopen(dit_compress_get_library(DIT_COMPRESS_ZLIB), RTLD_NOW | RTLD_LOCAL);
  found[DIT_COMPRESS_ZLIB] = find(library, "compressBound", &zlib.bound) && find(library, "compress2", &zlib.pack) &&
                             find(library, "uncompress", &zlib.unpack);
}

const char *dit_compress_get_name(enum dit_compress_method method) {
  return method == DIT_COMPRESS_ZSTD ? "zstd" : method == DIT_COMPRESS_ZLIB ? "zlib" : "none";
}

const char *dit_compress_get_library(enum dit_compress_method method) {
  return method == DIT_COMPRESS_ZSTD ? "libzstd.so.1" : "libz.so.1";
}

bool dit_compress_has(enum dit_compress_method method) {
  pthread_once(&once, load);
  return method > DIT_COMPRESS_NONE && method < DIT_COMPRESS_COUNT && found[method];
}

size_t dit_compress_get_bound(enum dit_compress_method method, size_t size) {
  return method == DIT_COMPRESS_ZSTD ? zstd.bound(size) : (size_t)zlib.bound((unsigned long)size);
}

void *dit_compress_create(enum dit_compress_method method) {
  return method == DIT_COMPRESS_ZSTD && dit_compress_has(method) ? zstd.create() : NULL;
}

void dit_compress_destroy(enum dit_compress_method method, void *context) {
  if (method == DIT_COMPRESS_ZSTD && context) {
    zstd.destroy(context);
  }
}

size_t dit_compress_pack(enum dit_compress_method method, void *context, const void *from, size_t size, void *to,
                         size_t capacity) {
  if (!dit_compress_has(method)) {
    return 0;
  }
  if (method == DIT_COMPRESS_ZSTD) {
    size_t packed = context ? zstd.pack(context, to, capacity, from, size, LEVEL) : 0;
    return zstd.is_error(packed) ? 0 : packed;
  }
  unsigned long packed = (unsigned long)capacity;
  return zlib.pack(to, &packed, from, (unsigned long)size, LEVEL) == 0 ? (size_t)packed : 0;
}

bool dit_compress_unpack(enum dit_compress_method method, const void *from, size_t packed, void *to, size_t size) {
  if (!dit_compress_has(method)) {
    return false;
  }
  if (method == DIT_COMPRESS_ZSTD) {
    size_t done = zstd.unpack(to, size, from, packed);
    return !zstd.is_error(done) && done == size;
  }
  unsigned long done = (unsigned long)size;
  return zlib.unpack(to, &done, from, (unsigned long)packed) == 0 && done == size;
}

void dit_compress_split(const unsigned char *from, unsigned char *to, size_t size, uint32_t width) {
  size_t count = size / width;
  for (uint32_t plane = 0; plane < width; plane++) {
    for (size_t i = 0; i < count; i++) {
      to[plane * count + i] = from[i * width + plane];
    }
  }
  memcpy(to + count * width, from + count * width, size - count * width);
}

void dit_compress_join(const unsigned char *from, unsigned char *to, size_t size, uint32_t width) {
  size_t count = size / width;
  for (uint32_t plane = 0; plane < width; plane++) {
    for (size_t i = 0; i < count; i++) {
      to[i * width + plane] = from[plane * count + i];
    }
  }
  memcpy(to + count * width, from + count * width, size - count * width);
}
