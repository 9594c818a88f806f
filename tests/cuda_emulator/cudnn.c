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
  int dtype, count, sizes[5], strides[5];
};
struct convolution {
  int count, padding[3], stride[3], dilation[3], groups;
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

// Tensors of the older interface

API int cudnnCreate(void **handle) {
  *handle = calloc(1, sizeof(struct handle));
  return *handle ? OK : BAD;
}
API int cudnnSetStream(void *handle, void *stream) {
  ((struct handle *)handle)->stream = stream;
  return OK;
}
API int cudnnCreateTensorDescriptor(void **tensor) {
  *tensor = calloc(1, sizeof(struct tensor));
  return *tensor ? OK : BAD;
}
API int cudnnDestroyTensorDescriptor(void *tensor) {
  free(tensor);
  return OK;
}
API int cudnnSetTensorNdDescriptor(void *tensor, int dtype, int count, const int *sizes, const int *strides) {
  struct tensor *t = tensor;
  t->dtype = dtype;
  t->count = count;
  memcpy(t->sizes, sizes, sizeof *sizes * (size_t)count);
  memcpy(t->strides, strides, sizeof *strides * (size_t)count);
  return OK;
}

// The graph interface: a descriptor is a list of attributes; those it was given are copied, as the real one does

struct attribute {
  int name, type;
  int64_t count;
  char values[40];
};
struct descriptor {
  int kind, count, finished;
  struct attribute attributes[16];
};
enum { TENSOR = 17, HEURISTIC = 4, CONFIG = 3, ENGINE = 2, PLAN = 5, PACK = 16, GRAPH = 15 };

static size_t get_width(int type) {
  return type == 1 || type == 7 || type == 8 || type == 11 || type == 4 ? 4 : 8;
}
static const struct attribute *find_attribute(const struct descriptor *d, int name) {
  for (int i = 0; i < d->count; i++) {
    if (d->attributes[i].name == name) {
      return &d->attributes[i];
    }
  }
  return NULL;
}
static void *follow(const struct descriptor *d, int name) {
  const struct attribute *attribute = d ? find_attribute(d, name) : NULL;
  void *to = NULL;
  if (attribute && attribute->count > 0) {
    memcpy(&to, attribute->values, sizeof to);
  }
  return to;
}
API int cudnnBackendCreateDescriptor(int kind, void **out) {
  struct descriptor *d = calloc(1, sizeof *d);
  *out = d;
  if (d) {
    d->kind = kind;
  }
  return d ? OK : BAD;
}
/// Descriptors that others point to live on: the real ones are counted. Here they are few.
API int cudnnBackendDestroyDescriptor(void *descriptor) {
  if (((struct descriptor *)descriptor)->kind == PACK) {
    free(descriptor);
  }
  return OK;
}
API int cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t count, const void *values) {
  struct descriptor *d = descriptor;
  const size_t size = get_width(type) * (size_t)count;
  if (!d || d->finished || d->count == 16 || size > sizeof d->attributes[0].values || find_attribute(d, name)) {
    return BAD;
  }
  struct attribute *attribute = &d->attributes[d->count++];
  attribute->name = name;
  attribute->type = type;
  attribute->count = count;
  memcpy(attribute->values, values, size);
  return OK;
}
/// What each kind cannot do without.
API int cudnnBackendFinalize(void *descriptor) {
  static const struct {
    int kind, names[7];
  } needed[] = {{TENSOR, {900, 901, 902, 903, 906}},
                {1, {100, 101, 102, 103, 104, 105, 106}},
                {10, {700, 701, 702, 703, 704, 705}},
                {12, {706, 707, 708, 709, 710, 711}},
                {11, {712, 713, 714, 715, 716, 717}},
                {GRAPH, {800, 801}},
                {HEURISTIC, {200, 201}},
                {PLAN, {400, 401}},
                {PACK, {1000, 1001, 1003}}};
  struct descriptor *d = descriptor;
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
    for (int j = 0; needed[i].kind == d->kind && j < 7 && needed[i].names[j]; j++) {
      if (!find_attribute(d, needed[i].names[j])) {
        return BAD;
      }
    }
  }
  d->finished = 1;
  return OK;
}
/// The heuristic names two configurations: the first one's engine has sums in any order (note 4).
API int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t wanted, int64_t *count, void *values) {
  struct descriptor *d = descriptor;
  if (name == 202 && type == 15 && wanted >= 2) {
    for (int i = 0; i < 2; i++) {
      struct descriptor *config = ((struct descriptor **)values)[i];
      const int64_t engine = i + 1;
      void *graph = follow(d, 201);
      if (config->kind != CONFIG) {
        return BAD;
      }
      cudnnBackendSetAttribute(config, 301, 15, 1, &graph);
      cudnnBackendSetAttribute(config, 302, 3, 1, &engine);
    }
    *count = 2;
    return OK;
  }
  if (name == 300 && type == 15 && wanted == 1 && d->kind == CONFIG) {
    struct descriptor *engine = *(struct descriptor **)values;
    *count = 1;
    return cudnnBackendSetAttribute(engine, 302, 3, 1, find_attribute(d, 302)->values);
  }
  if (name == 1303 && type == 11 && d->kind == ENGINE && wanted > 0) {
    *count = follow(d, 302) == (void *)1;
    *(int32_t *)values = 4;
    return OK;
  }
  if (name == 402 && type == 3 && wanted == 1 && d->kind == PLAN) {
    *(int64_t *)values = ROOM;
    *count = 1;
    return OK;
  }
  return BAD;
}

static int read_number(const struct descriptor *d, int name, int index) {
  int64_t value;
  memcpy(&value, find_attribute(d, name)->values + 8 * index, sizeof value);
  return (int)value;
}
static void read_tensor(const struct descriptor *d, struct tensor *t) {
  memcpy(&t->dtype, find_attribute(d, 901)->values, sizeof t->dtype);
  t->count = (int)find_attribute(d, 902)->count;
  for (int i = 0; i < t->count; i++) {
    t->sizes[i] = read_number(d, 902, i);
    t->strides[i] = read_number(d, 903, i);
  }
}
static void read_convolution(const struct descriptor *d, struct convolution *c) {
  c->count = read_number(d, 106, 0);
  for (int i = 0; i < c->count; i++) {
    c->dilation[i] = read_number(d, 102, i);
    c->stride[i] = read_number(d, 103, i);
    c->padding[i] = read_number(d, 105, i);
  }
}
/// Read as the dtype of the sums wants it, whatever type was given: so does the real library.
static double read_factor(const struct descriptor *d, int name, int dtype) {
  double wide;
  float plain;
  memcpy(&wide, find_attribute(d, name)->values, sizeof wide);
  memcpy(&plain, find_attribute(d, name)->values, sizeof plain);
  return dtype == 1 ? wide : (double)plain;
}
static void *find_data(const struct descriptor *pack, const struct descriptor *tensor) {
  const int id = read_number(tensor, 906, 0);
  for (int i = 0; i < 3; i++) {
    if (read_number(pack, 1000, i) == id) {
      void *data;
      memcpy(&data, find_attribute(pack, 1001)->values + 8 * i, sizeof data);
      return data;
    }
  }
  return NULL;
}
API int cudnnBackendExecute(void *handle, void *plan, void *pack) {
  const struct descriptor *config = follow(plan, 401), *graph = follow(config, 301), *operation = follow(graph, 801);
  if (!operation || !follow(pack, 1003) || follow(plan, 400) != handle || follow(config, 302) != (void *)2) {
    return BAD;
  }
  const enum product kind = operation->kind == 10 ? FORWARD : operation->kind == 12 ? DATA : FILTER;
  const int first = kind == FORWARD ? 700 : kind == DATA ? 706 : 712;
  const struct descriptor *parts[3] = {follow(operation, first + 4), follow(operation, first + 3),
                                       follow(operation, first + 5)};
  struct tensor t[3];
  struct convolution c;
  void *data[3];
  for (int i = 0; i < 3; i++) {
    read_tensor(parts[i], &t[i]);
    data[i] = find_data(pack, parts[i]);
  }
  read_convolution(follow(operation, first + 2), &c);
  c.groups = t[0].sizes[1] / t[1].sizes[1];
  if (read_factor(operation, first, t[0].dtype) != 1 || read_factor(operation, first + 1, t[0].dtype) != 0) {
    return UNSUPPORTED;
  }
  return convolve(kind, handle, &t[0], data[0], &t[1], data[1], &c, &t[2], data[2],
                  data[kind == FORWARD ? 2
                       : kind == DATA  ? 0
                                       : 1]);
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
