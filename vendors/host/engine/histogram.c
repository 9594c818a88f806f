/// Histogram of integers: bin of v = (v - low) * bins / (high - low), the last bin takes v == high too.
///
/// low == high means the range of the data (one wider on both sides when that is a single value). Products are
/// computed with 128 bits, so no int64 range overflows. One thread: the counts of small bins would only be contended.
#include <string.h>

#include "cast.h"
#include "host.h"
#include "kernels.h"
#include "nest.h"

__extension__ typedef unsigned __int128 product;

struct histogram_task {
  struct nest nest;  ///< operand 0: the input
  char *out;
  int64_t out_stride, bins, low, high;
  int dtype, width;
  bool measured;  ///< low and high hold the range seen so far
};

static void load_block(const struct histogram_task *task, const char *data, int64_t count, int64_t *block) {
  _Alignas(16) char raw[NEST_BLOCK * 8];
  cast_gather(raw, data, task->nest.strides[0][0], task->width, count);
  cast_block(DIT_DTYPE_I64, block, task->dtype, raw, count);
}

static void measure_run(void *context, char *const *data, int64_t count) {
  struct histogram_task *task = context;
  int64_t block[NEST_BLOCK];
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    int64_t n = count - i < NEST_BLOCK ? count - i : NEST_BLOCK;
    load_block(task, data[0] + i * task->nest.strides[0][0], n, block);
    for (int64_t j = 0; j < n; j++) {
      task->low = !task->measured || block[j] < task->low ? block[j] : task->low;
      task->high = !task->measured || block[j] > task->high ? block[j] : task->high;
      task->measured = true;
    }
  }
}

/// Add one to an integer of `width` bytes, which wraps as the dtype does.
static void increment(char *count, int width) {
  uint64_t value = 0;
  memcpy(&value, count, (size_t)width);  // little endian: the low bytes come first
  value++;
  memcpy(count, &value, (size_t)width);
}

static void count_run(void *context, char *const *data, int64_t count) {
  const struct histogram_task *task = context;
  const uint64_t range = (uint64_t)task->high - (uint64_t)task->low;
  int64_t block[NEST_BLOCK];
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    int64_t n = count - i < NEST_BLOCK ? count - i : NEST_BLOCK;
    load_block(task, data[0] + i * task->nest.strides[0][0], n, block);
    for (int64_t j = 0; j < n; j++) {
      if (block[j] < task->low || block[j] > task->high) {
        continue;
      }
      int64_t bin = (int64_t)((product)((uint64_t)block[j] - (uint64_t)task->low) * (product)task->bins / range);
      bin -= bin == task->bins;
      increment(task->out + bin * task->out_stride, task->width);
    }
  }
}

static void run_histogram(void *argument) {
  struct histogram_task *task = argument;
  for (int64_t bin = 0; bin < task->bins; bin++) {
    memset(task->out + bin * task->out_stride, 0, (size_t)task->width);
  }
  if (task->nest.numel == 0) {
    return;
  }
  if (task->low == task->high) {
    nest_walk(&task->nest, 0, task->nest.numel, measure_run, task);
  }
  if (task->low == task->high) {
    task->low -= task->low > INT64_MIN;
    task->high += task->high < INT64_MAX;
  }
  nest_walk(&task->nest, 0, task->nest.numel, count_run, task);
}

enum dit_status kernel_histogram(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                                 int64_t low, int64_t high, struct dit_error *err) {
  struct histogram_task task = {0};
  const uint32_t integers =
      1u << DIT_DTYPE_U8 | 1u << DIT_DTYPE_I8 | 1u << DIT_DTYPE_I16 | 1u << DIT_DTYPE_I32 | 1u << DIT_DTYPE_I64;
  if (in->dtype != out->dtype || in->dtype < 0 || in->dtype >= 32 || !(integers >> in->dtype & 1)) {
    return DIT_ERR_UNSUPPORTED;
  }
  nest_init(&task.nest, 1, (const struct dit_tensor_view *const[]){in});
  task.dtype = in->dtype;
  task.width = (int)dit_dtype_get_size(in->dtype);
  task.out = out->data;
  task.bins = out->sizes[0];
  task.out_stride = out->strides[0] * task.width;
  task.low = low;
  task.high = high;
  return host_stream_launch(stream, run_histogram, &task, sizeof(task), err);
}
