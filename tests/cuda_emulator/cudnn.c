/// Enough of cuDNN for tests of its callers: convolutions by plain loops over the memory of the emulated driver.
///
/// It takes the descriptors at their word, so a wrong size, stride or order of arguments shows in the results. It does
/// not prove that the real library has these functions, numbers and structs. With EMULATED_CUDNN_WRONG in the
/// environment every result is off by one, so that a test can tell that it was asked at all.
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
enum { OK = 0, BAD = 2000, UNSUPPORTED = 3000, ROOM = 64 };

struct tensor {
  int dtype, count, sizes[5], strides[5];  ///< a filter's strides are those of packed memory
};
struct convolution {
  int count, padding[3], stride[3], dilation[3], groups, math;
};
struct handle {
  void *stream;
};

static double get(const struct tensor *t, const void *data, int64_t at) {
  uint32_t bits;
  float value;
  if (t->dtype == 1) {
    return ((const double *)data)[at];
  }
  if (t->dtype == 2) {
    const uint16_t half = ((const uint16_t *)data)[at];
    const int exponent = half >> 10 & 31;
    const double digits = half & 1023;
    double size = exponent ? 1 + digits / 1024 : digits / 512;
    for (int i = exponent ? exponent : 0; i < 15; i++) {
      size /= 2;
    }
    for (int i = 15; i < exponent; i++) {
      size *= 2;
    }
    return half >> 15 ? -size : size;
  }
  bits = t->dtype == 9 ? (uint32_t)((const uint16_t *)data)[at] << 16 : ((const uint32_t *)data)[at];
  memcpy(&value, &bits, sizeof value);
  return (double)value;
}

static double get_bits(const struct tensor *t, uint16_t bits) {
  const uint16_t room[4] = {bits, 0, 0, 0};
  return get(t, room, 0);
}

/// Numbers that half types round to, by trying: slow, but plain.
static uint16_t round_half(const struct tensor *t, double value) {
  uint16_t low = 0, high = t->dtype == 2 ? 0x7BFF : 0x7F7F;
  const double size = value < 0 ? -value : value;
  while (low < high) {  // the largest number that is not above
    const uint16_t middle = (uint16_t)((low + high + 1) / 2);
    if (get_bits(t, middle) <= size) {
      low = middle;
    } else {
      high = (uint16_t)(middle - 1);
    }
  }
  const uint16_t next = (uint16_t)(low + 1);
  const double below = size - get_bits(t, low), above = get_bits(t, next) - size;
  return (uint16_t)((above < below || (above == below && low & 1) ? next : low) | (value < 0 ? 0x8000 : 0));
}

static void set(const struct tensor *t, void *data, int64_t at, double value) {
  value += getenv("EMULATED_CUDNN_WRONG") ? 1 : 0;
  if (t->dtype == 1) {
    ((double *)data)[at] = value;
  } else if (t->dtype == 0) {
    ((float *)data)[at] = (float)value;
  } else {
    ((uint16_t *)data)[at] = round_half(t, value);
  }
}

static int64_t find(const struct tensor *t, const int *at) {
  int64_t offset = 0;
  for (int i = 0; i < t->count; i++) {
    offset += (int64_t)at[i] * t->strides[i];
  }
  return offset;
}

/// Step a number of `count` digits; false after the last one.
static int step(int *at, const int *sizes, int count) {
  for (int i = count - 1; i >= 0; i--) {
    if (++at[i] < sizes[i]) {
      return 1;
    }
    at[i] = 0;
  }
  return 0;
}

/// Everything that touches: result position, filter position, input position. `use` adds the product where it belongs.
enum product { FORWARD, DATA, FILTER };

static int convolve(enum product kind, struct handle *handle, const struct tensor *x, const void *x_data,
                    const struct tensor *w, const void *w_data, const struct convolution *c, const struct tensor *y,
                    const void *y_data, void *out) {
  int (*synchronize)(void *) = NULL;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD),
       *symbol = driver ? dlsym(driver, "cuStreamSynchronize") : NULL;
  memcpy(&synchronize, &symbol, sizeof symbol);
  const struct tensor *made = kind == FORWARD ? y : kind == DATA ? x : w;
  int64_t total = 1;
  int at[5] = {0};
  for (int i = 0; i < made->count; i++) {
    total *= made->sizes[i];
  }
  if (!synchronize || synchronize(handle->stream) != 0 || x->sizes[1] != w->sizes[1] * c->groups) {
    return BAD;
  }
  double *sums = calloc((size_t)total, sizeof *sums);
  do {  // positions of the result
    int tap[5] = {0};
    tap[0] = at[1];
    do {  // taps of its channel's filter
      int place[5] = {at[0], at[1] / (w->sizes[0] / c->groups) * w->sizes[1] + tap[1]}, inside = 1;
      for (int i = 0; i < c->count; i++) {
        place[2 + i] = at[2 + i] * c->stride[i] - c->padding[i] + tap[2 + i] * c->dilation[i];
        inside = inside && place[2 + i] >= 0 && place[2 + i] < x->sizes[2 + i];
      }
      const int *where = kind == FORWARD ? at : kind == DATA ? place : tap;
      int64_t number = 0;
      for (int i = 0; i < made->count; i++) {
        number = number * made->sizes[i] + where[i];
      }
      if (inside) {
        sums[number] += (kind == DATA ? 1 : get(x, x_data, find(x, place))) *
                        (kind == FILTER ? 1 : get(w, w_data, find(w, tap))) *
                        (kind == FORWARD ? 1 : get(y, y_data, find(y, at)));
      }
    } while (step(tap + 1, w->sizes + 1, w->count - 1));
  } while (step(at, y->sizes, y->count));
  memset(at, 0, sizeof at);
  for (int64_t i = 0; i < total; i++, step(at, made->sizes, made->count)) {
    set(made, out, find(made, at), sums[i]);
  }
  free(sums);
  return OK;
}

// Descriptors

static int create(void **out, size_t size) {
  *out = calloc(1, size);
  return *out ? OK : BAD;
}
static int destroy(void *made) {
  free(made);
  return OK;
}
API int cudnnCreate(void **handle) {
  return create(handle, sizeof(struct handle));
}
API int cudnnSetStream(void *handle, void *stream) {
  ((struct handle *)handle)->stream = stream;
  return OK;
}
API int cudnnCreateTensorDescriptor(void **tensor) {
  return create(tensor, sizeof(struct tensor));
}
API int cudnnDestroyTensorDescriptor(void *tensor) {
  return destroy(tensor);
}
API int cudnnCreateFilterDescriptor(void **filter) {
  return create(filter, sizeof(struct tensor));
}
API int cudnnDestroyFilterDescriptor(void *filter) {
  return destroy(filter);
}
API int cudnnCreateConvolutionDescriptor(void **conv) {
  return create(conv, sizeof(struct convolution));
}
API int cudnnDestroyConvolutionDescriptor(void *conv) {
  return destroy(conv);
}
API int cudnnSetTensorNdDescriptor(void *tensor, int dtype, int count, const int *sizes, const int *strides) {
  struct tensor *t = tensor;
  t->dtype = dtype;
  t->count = count;
  memcpy(t->sizes, sizes, sizeof *sizes * (size_t)count);
  memcpy(t->strides, strides, sizeof *strides * (size_t)count);
  return OK;
}
/// Format 0: row-major; 1: the input channels innermost.
API int cudnnSetFilterNdDescriptor(void *filter, int dtype, int format, int count, const int *sizes) {
  int strides[5], next = 1;
  for (int i = 0; i < count; i++) {
    const int dim = format == 0 ? count - 1 - i : i == 0 ? 1 : i == count - 1 ? 0 : count - i;
    strides[dim] = next;
    next *= sizes[dim];
  }
  return format <= 1 ? cudnnSetTensorNdDescriptor(filter, dtype, count, sizes, strides) : UNSUPPORTED;
}
API int cudnnSetConvolutionNdDescriptor(void *conv, int count, const int *padding, const int *stride,
                                        const int *dilation, int mode, int dtype) {
  struct convolution *c = conv;
  c->count = count;
  memcpy(c->padding, padding, sizeof *padding * (size_t)count);
  memcpy(c->stride, stride, sizeof *stride * (size_t)count);
  memcpy(c->dilation, dilation, sizeof *dilation * (size_t)count);
  return mode == 1 && dtype < 2 ? OK : UNSUPPORTED;
}
API int cudnnSetConvolutionGroupCount(void *conv, int groups) {
  ((struct convolution *)conv)->groups = groups;
  return OK;
}
API int cudnnSetConvolutionMathType(void *conv, int math) {
  ((struct convolution *)conv)->math = math;
  return OK;
}

// Work

static int get_room(int algorithm, size_t *size) {
  *size = ROOM;
  return algorithm == 1 ? OK : UNSUPPORTED;
}
API int cudnnGetConvolutionForwardWorkspaceSize(void *handle, void *x, void *w, void *conv, void *y, int algorithm,
                                                size_t *size) {
  return handle && x && w && conv && y ? get_room(algorithm, size) : BAD;
}
API int cudnnGetConvolutionBackwardDataWorkspaceSize(void *handle, void *w, void *dy, void *conv, void *dx,
                                                     int algorithm, size_t *size) {
  return handle && dx && w && conv && dy ? get_room(algorithm, size) : BAD;
}
API int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *handle, void *x, void *dy, void *conv, void *dw,
                                                       int algorithm, size_t *size) {
  return handle && x && dw && conv && dy ? get_room(algorithm, size) : BAD;
}
static int is_plain(const struct tensor *t, const void *alpha, const void *beta, const void *room, size_t size) {
  const double a = t->dtype == 1 ? *(const double *)alpha : (double)*(const float *)alpha;
  const double b = t->dtype == 1 ? *(const double *)beta : (double)*(const float *)beta;
  return a == 1 && b == 0 && room && size == ROOM;
}
API int cudnnConvolutionForward(void *handle, const void *alpha, void *x, const void *x_data, void *w,
                                const void *w_data, void *conv, int algorithm, void *room, size_t size,
                                const void *beta, void *y, void *y_data) {
  return algorithm == 1 && is_plain(x, alpha, beta, room, size)
             ? convolve(FORWARD, handle, x, x_data, w, w_data, conv, y, NULL, y_data)
             : BAD;
}
API int cudnnConvolutionBackwardData(void *handle, const void *alpha, void *w, const void *w_data, void *dy,
                                     const void *dy_data, void *conv, int algorithm, void *room, size_t size,
                                     const void *beta, void *dx, void *dx_data) {
  return algorithm == 1 && is_plain(dx, alpha, beta, room, size)
             ? convolve(DATA, handle, dx, NULL, w, w_data, conv, dy, dy_data, dx_data)
             : BAD;
}
API int cudnnConvolutionBackwardFilter(void *handle, const void *alpha, void *x, const void *x_data, void *dy,
                                       const void *dy_data, void *conv, int algorithm, void *room, size_t size,
                                       const void *beta, void *dw, void *dw_data) {
  return algorithm == 1 && is_plain(x, alpha, beta, room, size)
             ? convolve(FILTER, handle, x, x_data, dw, NULL, conv, dy, dy_data, dw_data)
             : BAD;
}

/// c += a, where a has one number per channel. The convolution before it has waited for the stream.
API int cudnnAddTensor(void *handle, const void *alpha, void *a, const void *a_data, const void *beta, void *c,
                       void *c_data) {
  const struct tensor *from = a, *to = c;
  int at[5] = {0};
  (void)handle, (void)alpha, (void)beta;
  do {
    set(to, c_data, find(to, at), get(to, c_data, find(to, at)) + get(from, a_data, at[1]));
  } while (step(at, to->sizes, to->count));
  return OK;
}
