/// oneDNN's C interface as it is used here: numbers, functions, and where the library was found.
///
/// Handles (engine, stream, descriptors, primitives, memory) are pointers to structs of the library. Everything runs in
/// the calling thread: the work is cut and spread by dit_parallel_for, as for BLAS.
#ifndef DIT_HOST_ENGINE_ONEDNN_LIBRARY_H
#define DIT_HOST_ENGINE_ONEDNN_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The public interface's numbers, the same in all versions 3.x.
enum {
  ONEDNN_SUCCESS = 0,
  ONEDNN_CPU = 1,
  ONEDNN_IN_ORDER = 1,
  ONEDNN_DIMS = 12,
  ONEDNN_ANY = 1,
  ONEDNN_OWN_SCRATCH = 1
};
enum { ONEDNN_F16 = 1, ONEDNN_BF16 = 2, ONEDNN_F32 = 3 };
enum { ONEDNN_FORWARD_TRAINING = 64, ONEDNN_DIRECT = 1 };
enum { ONEDNN_QUERY_NAME = 8 };
enum {
  ONEDNN_QUERY_SRC = 129,
  ONEDNN_QUERY_DIFF_SRC,
  ONEDNN_QUERY_WEIGHTS,
  ONEDNN_QUERY_DIFF_WEIGHTS,
  ONEDNN_QUERY_DST,
  ONEDNN_QUERY_DIFF_DST,
  ONEDNN_QUERY_WORKSPACE,
  ONEDNN_QUERY_SCRATCH
};
enum {
  ONEDNN_ARG_SRC = 1,
  ONEDNN_ARG_DST = 17,
  ONEDNN_ARG_WEIGHTS = 33,
  ONEDNN_ARG_BIAS = 41,
  ONEDNN_ARG_SCRATCH = 80,
  ONEDNN_ARG_DIFF_SRC = 129,
  ONEDNN_ARG_DIFF_DST = 145,
  ONEDNN_ARG_DIFF_WEIGHTS = 161
};
enum { ONEDNN_RUNTIME_SEQUENTIAL = 1, ONEDNN_RUNTIME_OPENMP = 2, ONEDNN_RUNTIME_POOL = 8 };

struct onednn_version {
  int major, minor, patch;
  const char *hash;
  unsigned cpu_runtime, gpu_runtime;
};

struct onednn_argument {
  int argument;
  void *memory;
};

/// Result, name without dnnl_, parameters.
#define ONEDNN_FUNCTIONS(X)                                                                                           \
  X(const struct onednn_version *, version, (void))                                                                   \
  X(int, engine_create, (void **engine, int kind, size_t index))                                                      \
  X(int, stream_create, (void **stream, void *engine, unsigned flags))                                                \
  X(int, stream_wait, (void *stream))                                                                                 \
  X(int, stream_destroy, (void *stream))                                                                              \
  X(int, memory_desc_create_with_strides,                                                                             \
    (void **desc, int ndims, const int64_t *dims, int dtype, const int64_t *strides))                                 \
  X(int, memory_desc_create_with_tag, (void **desc, int ndims, const int64_t *dims, int dtype, int tag))              \
  X(int, memory_desc_destroy, (void *desc))                                                                           \
  X(int, memory_desc_equal, (const void *a, const void *b))                                                           \
  X(size_t, memory_desc_get_size, (const void *desc))                                                                 \
  X(int, memory_create, (void **memory, const void *desc, void *engine, void *data))                                  \
  X(int, memory_destroy, (void *memory))                                                                              \
  X(int, memory_set_data_handle, (void *memory, void *data))                                                          \
  X(int, primitive_attr_create, (void **attr))                                                                        \
  X(int, primitive_attr_destroy, (void *attr))                                                                        \
  X(int, primitive_attr_set_scratchpad_mode, (void *attr, int mode))                                                  \
  X(int, primitive_attr_set_post_ops, (void *attr, const void *post_ops))                                             \
  X(int, post_ops_create, (void **post_ops))                                                                          \
  X(int, post_ops_destroy, (void *post_ops))                                                                          \
  X(int, post_ops_append_sum, (void *post_ops, float scale, int32_t zero_point, int dtype))                           \
  X(int, matmul_primitive_desc_create,                                                                                \
    (void **out, void *engine, const void *src, const void *weights, const void *bias, const void *dst,               \
     const void *attr))                                                                                               \
  X(int, convolution_forward_primitive_desc_create,                                                                   \
    (void **out, void *engine, int kind, int algorithm, const void *src, const void *weights, const void *bias,       \
     const void *dst, const int64_t *strides, const int64_t *dilates, const int64_t *left, const int64_t *right,      \
     const void *attr))                                                                                               \
  X(int, convolution_backward_data_primitive_desc_create,                                                             \
    (void **out, void *engine, int algorithm, const void *diff_src, const void *weights, const void *diff_dst,        \
     const int64_t *strides, const int64_t *dilates, const int64_t *left, const int64_t *right, const void *forward,  \
     const void *attr))                                                                                               \
  X(int, convolution_backward_weights_primitive_desc_create,                                                          \
    (void **out, void *engine, int algorithm, const void *src, const void *diff_weights, const void *diff_bias,       \
     const void *diff_dst, const int64_t *strides, const int64_t *dilates, const int64_t *left, const int64_t *right, \
     const void *forward, const void *attr))                                                                          \
  X(int, reorder_primitive_desc_create,                                                                               \
    (void **out, const void *from, void *from_engine, const void *to, void *to_engine, const void *attr))             \
  X(int, primitive_desc_destroy, (void *desc))                                                                        \
  X(const void *, primitive_desc_query_md, (const void *desc, int what, int index))                                   \
  X(int, primitive_desc_query, (const void *desc, int what, int index, void *result))                                 \
  X(int, primitive_create, (void **primitive, const void *desc))                                                      \
  X(int, primitive_destroy, (void *primitive))                                                                        \
  X(int, primitive_execute, (const void *primitive, void *stream, int count, const struct onednn_argument *arguments))

struct onednn_library {
#define X(result, name, parameters) result(*name) parameters;
  ONEDNN_FUNCTIONS(X)
#undef X
  void *engine;
};

/// The library, looked for on first use; NULL without one.
const struct onednn_library *onednn_library_get(void);

/// Around calls that make or run primitives: the library's own threads are held to one, and given back what they were.
int onednn_threads_hold(void);
void onednn_threads_release(int before);

#endif
