/// A oneDNN of our own for the tests of its lookup and of the plans: matrix products of floats by plain loops, no
/// convolutions. With FAKE_<defect> it has one defect. It counts what it is asked for.
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNIMPLEMENTED = 3, RUNTIME_ERROR = 5 };
enum { ARG_SRC = 1, ARG_DST = 17, ARG_WEIGHTS = 33, ARG_BIAS = 41 };

atomic_int fake_onednn_live;   ///< objects that were made and not destroyed
atomic_int fake_onednn_asked;  ///< descriptors of primitives that were asked for

struct version {
  int major, minor, patch;
  const char *hash;
  unsigned cpu_runtime, gpu_runtime;
};

struct desc {
  int ndim, dtype;
  int64_t dims[12], strides[12];
};

struct attributes {
  int adds;
};

struct product {
  struct desc src, weights, bias, dst;
  int has_bias, adds;
};

struct memory {
  struct desc desc;
  void *data;
};

struct argument {
  int argument;
  struct memory *memory;
};

static void *make(size_t size) {
  fake_onednn_live++;
  return calloc(1, size);
}

static int drop(void *object) {
  fake_onednn_live--;
  free(object);
  return SUCCESS;
}

#ifndef FAKE_nothing
const struct version *dnnl_version(void) {
#if defined(FAKE_old)
  static const struct version version = {2, 7, 1, "", 1, 0};
#elif defined(FAKE_threads)
  static const struct version version = {3, 4, 0, "", 4, 0};
#else
  static const struct version version = {3, 2, 5, "", 1, 0};
#endif
  return &version;
}
#endif

int dnnl_engine_create(void **engine, int kind, size_t index) {
#ifdef FAKE_no_engine
  (void)engine, (void)kind, (void)index;
  return RUNTIME_ERROR;
#else
  static int one;
  *engine = &one;
  return kind == 1 && index == 0 ? SUCCESS : RUNTIME_ERROR;
#endif
}

int dnnl_stream_create(void **stream, void *engine, unsigned flags) {
  (void)engine;
  *stream = make(1);
  return flags == 1 ? SUCCESS : RUNTIME_ERROR;
}

int dnnl_stream_wait(void *stream) {
  return stream ? SUCCESS : RUNTIME_ERROR;
}

int dnnl_stream_destroy(void *stream) {
  return drop(stream);
}

int dnnl_memory_desc_create_with_strides(void **out, int ndim, const int64_t *dims, int dtype, const int64_t *strides) {
  struct desc *desc = make(sizeof(*desc));
  desc->ndim = ndim;
  desc->dtype = dtype;
  memcpy(desc->dims, dims, sizeof(int64_t) * (size_t)ndim);
  memcpy(desc->strides, strides, sizeof(int64_t) * (size_t)ndim);
  *out = desc;
  return SUCCESS;
}

int dnnl_memory_desc_create_with_tag(void **out, int ndim, const int64_t *dims, int dtype, int tag) {
  int64_t strides[12], next = 1;
  for (int i = ndim - 1; i >= 0; i--) {
    strides[i] = next;
    next *= dims[i];
  }
  (void)tag;
  return dnnl_memory_desc_create_with_strides(out, ndim, dims, dtype, strides);
}

int dnnl_memory_desc_destroy(void *desc) {
  return drop(desc);
}

int dnnl_memory_desc_equal(const void *a, const void *b) {
  return memcmp(a, b, sizeof(struct desc)) == 0;
}

size_t dnnl_memory_desc_get_size(const void *desc) {
  const struct desc *d = desc;
  size_t size = 4;
  for (int i = 0; i < d->ndim; i++) {
    size *= (size_t)d->dims[i];
  }
  return d->ndim ? size : 0;
}

int dnnl_memory_create(void **out, const void *desc, void *engine, void *data) {
  struct memory *memory = make(sizeof(*memory));
  (void)engine;
  memory->desc = *(const struct desc *)desc;
  memory->data = data;
  *out = memory;
  return SUCCESS;
}

int dnnl_memory_set_data_handle(struct memory *memory, void *data) {
  memory->data = data;
  return SUCCESS;
}

int dnnl_memory_destroy(void *memory) {
  return drop(memory);
}

int dnnl_primitive_attr_create(void **attr) {
  *attr = make(sizeof(struct attributes));
  return SUCCESS;
}

int dnnl_primitive_attr_destroy(void *attr) {
  return drop(attr);
}

int dnnl_primitive_attr_set_scratchpad_mode(void *attr, int mode) {
  return attr && mode == 1 ? SUCCESS : RUNTIME_ERROR;
}

int dnnl_primitive_attr_set_post_ops(void *attr, const void *post_ops) {
  *(struct attributes *)attr = *(const struct attributes *)post_ops;
  return SUCCESS;
}

int dnnl_post_ops_create(void **post_ops) {
  return dnnl_primitive_attr_create(post_ops);
}

int dnnl_post_ops_destroy(void *post_ops) {
  return drop(post_ops);
}

int dnnl_post_ops_append_sum(void *post_ops, float scale, int32_t zero_point, int dtype) {
  ((struct attributes *)post_ops)->adds = 1;
  return scale == 1.0F && zero_point == 0 && dtype == 0 ? SUCCESS : RUNTIME_ERROR;
}

int dnnl_matmul_primitive_desc_create(void **out, void *engine, const void *src, const void *weights, const void *bias,
                                      const void *dst, const void *attr) {
  fake_onednn_asked++;
  (void)engine;
#ifdef FAKE_refuses
  (void)out, (void)src, (void)weights, (void)bias, (void)dst, (void)attr;
  return UNIMPLEMENTED;
#else
  if (((const struct desc *)src)->dtype != 3) {
    return UNIMPLEMENTED;
  }
  struct product *product = make(sizeof(*product));
  product->src = *(const struct desc *)src;
  product->weights = *(const struct desc *)weights;
  product->dst = *(const struct desc *)dst;
  product->has_bias = bias != NULL;
  product->bias = bias ? *(const struct desc *)bias : product->dst;
  product->adds = ((const struct attributes *)attr)->adds;
  *out = product;
  return SUCCESS;
#endif
}

int dnnl_convolution_forward_primitive_desc_create(void **out, void *engine, int kind, int algorithm, const void *src,
                                                   const void *weights, const void *bias, const void *dst,
                                                   const int64_t *strides, const int64_t *dilates, const int64_t *left,
                                                   const int64_t *right, const void *attr) {
  (void)out, (void)engine, (void)kind, (void)algorithm, (void)src, (void)weights, (void)bias, (void)dst;
  (void)strides, (void)dilates, (void)left, (void)right, (void)attr;
  fake_onednn_asked++;
  return UNIMPLEMENTED;
}

// Never called: the forward one is asked for first.
int dnnl_convolution_backward_data_primitive_desc_create(void) {
  abort();
}

int dnnl_convolution_backward_weights_primitive_desc_create(void) {
  abort();
}

int dnnl_reorder_primitive_desc_create(void **out, const void *from, void *from_engine, const void *to, void *to_engine,
                                       const void *attr) {
  (void)out, (void)from, (void)from_engine, (void)to, (void)to_engine, (void)attr;
  return UNIMPLEMENTED;
}

int dnnl_primitive_desc_destroy(void *desc) {
  return drop(desc);
}

const void *dnnl_primitive_desc_query_md(const void *desc, int what, int index) {
  static const struct desc none;
  const struct product *product = desc;
  return what == 129   ? &product->src
         : what == 131 ? (index ? &product->bias : &product->weights)
         : what == 133 ? &product->dst
                       : &none;
}

int dnnl_primitive_desc_query(const void *desc, int what, int index, void *result) {
  (void)desc, (void)index;
#ifdef FAKE_reference
  *(const char **)result = "ref:any";
#else
  *(const char **)result = "jit:fake";
#endif
  return what == 8 ? SUCCESS : UNIMPLEMENTED;
}

int dnnl_primitive_create(void **out, const void *desc) {
  struct product *product = make(sizeof(*product));
  *product = *(const struct product *)desc;
  *out = product;
  return SUCCESS;
}

int dnnl_primitive_destroy(void *primitive) {
  return drop(primitive);
}

#ifndef FAKE_lacks
static float *at(const struct memory *memory, int64_t batch, int64_t row, int64_t column) {
  const int64_t *strides = memory->desc.strides;
  return (float *)memory->data + (memory->desc.dims[0] == 1 ? 0 : batch) * strides[0] + row * strides[1] +
         column * strides[2];
}

int dnnl_primitive_execute(const void *primitive, void *stream, int count, const struct argument *arguments) {
  const struct product *p = primitive;
  const struct memory *src = NULL, *weights = NULL, *bias = NULL, *dst = NULL;
  (void)stream;
#ifdef FAKE_fails
  return RUNTIME_ERROR;
#endif
  for (int i = 0; i < count; i++) {
    const int name = arguments[i].argument;
    *(name == ARG_SRC ? &src : name == ARG_WEIGHTS ? &weights : name == ARG_BIAS ? &bias : &dst) = arguments[i].memory;
  }
  for (int64_t i = 0; i < p->dst.dims[0] * p->dst.dims[1] * p->dst.dims[2]; i++) {
    const int64_t column = i % p->dst.dims[2], row = i / p->dst.dims[2] % p->dst.dims[1];
    const int64_t batch = i / p->dst.dims[2] / p->dst.dims[1];
    float *out = at(dst, batch, row, column), sum = p->adds ? *out : 0;
    sum += p->has_bias ? *at(bias, 0, 0, column) : 0;
    for (int64_t k = 0; k < p->src.dims[2]; k++) {
      sum += *at(src, batch, row, k) * *at(weights, batch, k, column);
    }
    *out = sum;
  }
  return SUCCESS;
}
#endif
