/// Samples, the decision, the compressed form (contract in squeeze.h).
#include "store/squeeze.h"

#include <string.h>
#include <time.h>

#include "dit/alloc.h"

enum { SAMPLE_BYTES = 16 << 10, LEAST_BYTES = 32 << 10, KEPT_BYTES = 16 << 20, LAST_DISTANCE = 64 };
#define MOST_BYTES ((size_t)256 << 20)  // of a blob: its compressed form is made in memory

static double get_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

enum dit_status dit_squeeze_init(struct dit_squeeze *squeeze, enum dit_store_compress compress, struct dit_error *err) {
  *squeeze = (struct dit_squeeze){.measured = compress == DIT_STORE_COMPRESS_AUTO};
  if (compress == DIT_STORE_COMPRESS_OFF) {
    return DIT_OK;
  }
  enum dit_compress_method method = compress == DIT_STORE_COMPRESS_ZLIB ? DIT_COMPRESS_ZLIB : DIT_COMPRESS_ZSTD;
  if (squeeze->measured && !dit_compress_has(method)) {
    method = DIT_COMPRESS_ZLIB;
  }
  if (dit_compress_has(method)) {
    squeeze->method = method;
    squeeze->context = dit_compress_create(method);
    return DIT_OK;
  }
  return squeeze->measured ? DIT_OK
                           : dit_error_set(err, DIT_ERR_UNSUPPORTED,
                                           "compress is %s, but %s is not on this machine; install it, or choose auto",
                                           dit_compress_get_name(method), dit_compress_get_library(method));
}

void dit_squeeze_reset(struct dit_squeeze *squeeze) {
  dit_compress_destroy(squeeze->method, squeeze->context);
  dit_free(squeeze->memory);
  *squeeze = (struct dit_squeeze){0};
}

/// Room for the orders and the compressed form of `size` bytes.
static bool reserve(struct dit_squeeze *squeeze, size_t size) {
  if (size <= squeeze->capacity && (size > KEPT_BYTES || squeeze->capacity <= KEPT_BYTES)) {
    return true;
  }
  dit_free(squeeze->memory);
  squeeze->capacity = size > LEAST_BYTES ? size : (size_t)LEAST_BYTES;
  squeeze->memory = dit_malloc(squeeze->capacity + dit_compress_get_bound(squeeze->method, squeeze->capacity));
  if (!squeeze->memory) {
    squeeze->capacity = 0;
  }
  return squeeze->memory != NULL;
}

static size_t pack(struct dit_squeeze *squeeze, const unsigned char *data, size_t size, uint32_t width) {
  if (width > 1) {
    dit_compress_split(data, squeeze->memory, size, width);
    data = squeeze->memory;
  }
  return dit_compress_pack(squeeze->method, squeeze->context, data, size, squeeze->memory + squeeze->capacity,
                           dit_compress_get_bound(squeeze->method, squeeze->capacity));
}

/// The width whose sample is the smallest; 0 when none pays.
static uint32_t choose_width(struct dit_squeeze *squeeze, const unsigned char *data, size_t size, double write_ns) {
  static const uint32_t widths[] = {1, 2, 4, 8};
  const unsigned char *sample = data + (size - SAMPLE_BYTES) / 2 / 64 * 64;
  size_t best = SAMPLE_BYTES - SAMPLE_BYTES / 10;
  double spent = 0;
  uint32_t width = 0;
  for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
    double start = get_ns();
    size_t packed = pack(squeeze, sample, SAMPLE_BYTES, widths[i]);
    if (packed > 0 && packed < best) {
      best = packed;
      width = widths[i];
      spent = get_ns() - start;
    }
  }
  bool pays = !squeeze->measured || spent < (double)(SAMPLE_BYTES - best) * write_ns;
  return pays ? width : 0;
}

bool dit_squeeze_take(struct dit_squeeze *squeeze, const unsigned char *data, size_t size, double write_ns,
                      struct dit_squeezed *out) {
  if (squeeze->method == DIT_COMPRESS_NONE || size < LEAST_BYTES || size > MOST_BYTES) {
    return false;
  }
  if (squeeze->skip > 0) {
    squeeze->skip--;
    return false;
  }
  out->width = reserve(squeeze, LEAST_BYTES) ? choose_width(squeeze, data, size, write_ns) : 0;
  if (out->width == 0) {
    unsigned further = 2 * squeeze->distance + 1;
    squeeze->distance = further < LAST_DISTANCE ? further : LAST_DISTANCE;
    squeeze->skip = squeeze->measured ? squeeze->distance : 0;
    return false;
  }
  squeeze->distance = 0;
  out->packed = reserve(squeeze, size) ? pack(squeeze, data, size, out->width) : 0;
  if (out->packed == 0 || out->packed >= size - size / 10) {
    return false;
  }
  size_t least = (size + DIT_COMPRESS_MOST - 1) / DIT_COMPRESS_MOST;
  unsigned char *payload = squeeze->memory + squeeze->capacity;
  out->size = out->packed > least ? out->packed : least;
  memset(payload + out->packed, 0, out->size - out->packed);
  out->payload = payload;
  return true;
}
