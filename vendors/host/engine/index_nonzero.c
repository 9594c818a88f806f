/// Counting and listing elements that are not zero (see index.h).
///
/// Zero is a pattern of bits: all of them for integers, all but the sign for floating types. The elements are split in
/// blocks of one size in row-major order; blocks are counted first, so that each knows where its coordinates go.
#include <string.h>

#include "dit/parallel.h"
#include "dit/promotion.h"
#include "index.h"
#include "simd.h"

#define TEST_PARAMS (uint8_t *restrict flags, const char *restrict data, int64_t stride, uint64_t mask, int64_t count)
#define TEST_ARGS (flags, data, stride, mask, count)
/// flags[i] = element i is not zero; with a loop of its own where elements are neighbours.
#define TEST_LOOP(name, type)                                      \
  KERNEL_INLINE void name##_body TEST_PARAMS {                     \
    const type bits = (type)mask;                                  \
    if (stride == (int64_t)sizeof(type)) {                         \
      const type *values = (const type *)data;                     \
      for (int64_t i = 0; i < count; i++) {                        \
        flags[i] = (values[i] & bits) != 0;                        \
      }                                                            \
      return;                                                      \
    }                                                              \
    for (int64_t i = 0; i < count; i++) {                          \
      flags[i] = (*(const type *)(data + i * stride) & bits) != 0; \
    }                                                              \
  }                                                                \
  KERNEL_MULTI(static, name, TEST_PARAMS, TEST_ARGS)
TEST_LOOP(test_1, uint8_t)
TEST_LOOP(test_2, uint16_t)
TEST_LOOP(test_4, uint32_t)
TEST_LOOP(test_8, uint64_t)

void index_test_nonzero(int dtype, const char *data, int64_t stride, int64_t count, uint8_t *flags) {
  const uint64_t mask = dit_dtype_get_magnitude_bits(dtype);
  switch (dit_dtype_get_size(dtype)) {
    case 1:
      test_1(flags, data, stride, mask, count);
      return;
    case 2:
      test_2(flags, data, stride, mask, count);
      return;
    case 4:
      test_4(flags, data, stride, mask, count);
      return;
    case 8:
      test_8(flags, data, stride, mask, count);
      return;
    default:
      for (int64_t i = 0; i < count; i++) {
        const uint64_t *parts = (const uint64_t *)(data + i * stride);
        flags[i] = ((parts[0] | parts[1]) & mask) != 0;
      }
  }
}

#define SUM_PARAMS (const uint8_t *flags, int64_t count, int64_t *sum)
KERNEL_INLINE void sum_flags_body SUM_PARAMS {
  uint32_t n = 0;
  for (int64_t i = 0; i < count; i++) {
    n += flags[i];
  }
  *sum += n;
}
KERNEL_MULTI(static, sum_flags, SUM_PARAMS, (flags, count, sum))

struct flag_task {
  const struct nest *nest;
  int dtype;
  int64_t *counts;  ///< per block
};

struct flag_block {
  const struct flag_task *task;
  int64_t count;
};

static void count_run(void *context, char *const *data, int64_t count) {
  struct flag_block *block = context;
  const int64_t stride = block->task->nest->strides[0][0];
  uint8_t flags[NEST_BLOCK];
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    const int64_t n = count - i < NEST_BLOCK ? count - i : NEST_BLOCK;
    index_test_nonzero(block->task->dtype, data[0] + i * stride, stride, n, flags);
    sum_flags(flags, n, &block->count);
  }
}

static void count_blocks(void *context, int64_t begin, int64_t end) {
  const struct flag_task *task = context;
  for (int64_t i = begin; i < end; i++) {
    const int64_t first = i * NEST_GRAIN, left = task->nest->numel - first;
    struct flag_block block = {task, 0};
    nest_walk(task->nest, first, first + (left < NEST_GRAIN ? left : NEST_GRAIN), count_run, &block);
    task->counts[i] = block.count;
  }
}

enum dit_status index_count_blocks(struct diopiContext *context, void *stream, const struct dit_tensor_view *view,
                                   int64_t **starts, int64_t *total, struct dit_error *err) {
  struct nest nest;
  const int64_t blocks = (view->numel + NEST_GRAIN - 1) / NEST_GRAIN;
  (void)stream, (void)err;
  *total = 0;
  *starts = index_take_room(context, ((size_t)blocks + 1) * sizeof **starts);
  if (!*starts) {
    return DIT_ERR_NOMEM;
  }
  if (blocks == 0) {
    return DIT_OK;
  }
  nest_init_ordered(&nest, 1, &view);
  struct flag_task task = {&nest, view->dtype, *starts};
  dit_parallel_for(0, blocks, 1, count_blocks, &task);
  for (int64_t i = 0; i < blocks; i++) {
    const int64_t count = (*starts)[i];
    (*starts)[i] = *total;
    *total += count;
  }
  (*starts)[blocks] = *total;
  return DIT_OK;
}

struct list_task {
  const struct dit_tensor_view *view;
  const int64_t *starts;
  int64_t *out, row_step, dim_step;
};

/// Coordinates of the elements [begin, begin + count) of one row of the last dimension.
static int64_t *list_row(const struct list_task *task, const int64_t *index, const char *data, int64_t begin,
                         int64_t count, int64_t *out) {
  const int inner = task->view->ndim - 1;
  const int64_t stride = task->view->strides[inner] * (int64_t)dit_dtype_get_size(task->view->dtype);
  uint8_t flags[NEST_BLOCK];
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    const int64_t n = count - i < NEST_BLOCK ? count - i : NEST_BLOCK;
    index_test_nonzero(task->view->dtype, data + (begin + i) * stride, stride, n, flags);
    for (int64_t j = 0; j < n; j++) {
      if (!flags[j]) {
        continue;
      }
      for (int dim = 0; dim < inner; dim++) {
        out[dim * task->dim_step] = index[dim];
      }
      out[inner * task->dim_step] = begin + i + j;
      out += task->row_step;
    }
  }
  return out;
}

static void list_blocks(void *context, int64_t begin, int64_t end) {
  const struct list_task *task = context;
  const struct dit_tensor_view *view = task->view;
  const int inner = view->ndim - 1;
  const int64_t width = (int64_t)dit_dtype_get_size(view->dtype);
  int64_t *out = task->out + task->starts[begin] * task->row_step, index[DIT_MAX_DIMS];
  int64_t at = begin * NEST_GRAIN, last = end * NEST_GRAIN < view->numel ? end * NEST_GRAIN : view->numel;
  while (at < last) {
    const int64_t first = at % view->sizes[inner];
    int64_t rest = at / view->sizes[inner], count = view->sizes[inner] - first;
    const char *data = view->data;
    for (int dim = inner - 1; dim >= 0; dim--) {
      index[dim] = rest % view->sizes[dim];
      rest /= view->sizes[dim];
      data += index[dim] * view->strides[dim] * width;
    }
    count = count < last - at ? count : last - at;
    out = list_row(task, index, data, first, count, out);
    at += count;
  }
}

enum dit_status index_list_nonzero(void *stream, const struct dit_tensor_view *view, const int64_t *starts,
                                   int64_t *out, int64_t row_step, int64_t dim_step, struct dit_error *err) {
  struct list_task task = {view, starts, out, row_step, dim_step};
  (void)stream, (void)err;
  if (view->ndim > 0) {
    dit_parallel_for(0, (view->numel + NEST_GRAIN - 1) / NEST_GRAIN, 1, list_blocks, &task);
  }
  return DIT_OK;
}
