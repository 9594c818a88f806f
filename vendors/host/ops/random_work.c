/// Random fills on the host (see random.c for the rules): blocks of numbers, spread over threads.
#include <string.h>

#include "dense.h"
#include "dit/parallel.h"
#include "engine/philox.h"
#include "random.h"

#define BLOCK 512

// Blocks of at most BLOCK elements, `words` for them

/// What rounding to a half type makes the end of the range becomes its beginning, as in PyTorch.
static void exclude_end(const struct random_task *task, float *out, int64_t count) {
  const int dtype = task->v_out.dtype;
  const float from = (float)task->a, to = (float)task->b;
  for (int64_t i = 0; i < count; i++) {
    out[i] = random_round(dtype, out[i]) == to ? from : out[i];
  }
}

static void fill_uniform(const struct random_task *task, const uint32_t *words, char *out, int64_t count) {
  const double width = task->b - task->a;
  if (task->work == DIT_DTYPE_F64) {
    for (int64_t i = 0; i < count; i++) {
      const uint64_t bits = (uint64_t)words[2 * i] << 32 | words[2 * i + 1];
      ((double *)out)[i] = task->a + width * ((double)(bits >> 11) * 0x1.0p-53);
    }
    return;
  }
  const float from = (float)task->a, size = (float)width;
  for (int64_t i = 0; i < count; i++) {
    ((float *)out)[i] = from + size * ((float)(int32_t)(words[i] >> 8) * 0x1.0p-24f);
  }
  if (task->v_out.dtype != DIT_DTYPE_F32) {
    exclude_end(task, (float *)out, count);
  }
}

static void fill_normal(const struct random_task *task, const uint32_t *words, char *out, int64_t first,
                        int64_t count) {
  const int64_t even = (count + 1) / 2 * 2;
  if (task->work == DIT_DTYPE_F64) {
    double room[BLOCK];
    const double *mean = task->pa, *deviation = task->pb;
    philox_normal_double(words, room, even);
    for (int64_t i = 0; i < count; i++) {
      ((double *)out)[i] = (mean ? mean[first + i] : task->a) + (deviation ? deviation[first + i] : task->b) * room[i];
    }
    return;
  }
  float room[BLOCK];
  const float *mean = task->pa, *deviation = task->pb, a = (float)task->a, b = (float)task->b;
  philox_normal(words, room, even);
  for (int64_t i = 0; i < count && !mean && !deviation; i++) {
    ((float *)out)[i] = a + b * room[i];
  }
  for (int64_t i = 0; i < count && (mean || deviation); i++) {
    ((float *)out)[i] = (mean ? mean[first + i] : a) + (deviation ? deviation[first + i] : b) * room[i];
  }
}

static void fill_bernoulli(const struct random_task *task, const uint32_t *words, char *out, int64_t first,
                           int64_t count) {
  const double *p = task->pa;
  const uint64_t limit = (uint64_t)(task->a * 4294967296.0);
  for (int64_t i = 0; i < count && !p; i++) {
    out[i] = words[i] < limit;
  }
  for (int64_t i = 0; i < count && p; i++) {
    out[i] = (double)words[i] < p[first + i] * 4294967296.0;
  }
}

static void fill_integer(const struct random_task *task, const uint32_t *words, char *out, int64_t count) {
  for (int64_t i = 0; i < count && !task->wide; i++) {
    ((uint64_t *)out)[i] = (uint64_t)task->from + ((uint64_t)words[i] * task->range >> 32);
  }
  for (int64_t i = 0; i < count && task->wide; i++) {
    const uint64_t bits = (uint64_t)words[2 * i] << 32 | words[2 * i + 1];
    ((uint64_t *)out)[i] = (uint64_t)task->from + (task->range ? bits % task->range : bits);
  }
}

static void run_blocks(void *context, int64_t begin, int64_t end) {
  const struct random_task *task = context;
  const int64_t width = (int64_t)dit_dtype_get_size(task->work), per = task->wide ? 2 : 1;
  for (int64_t block = begin; block < end; block++) {
    uint32_t words[2 * BLOCK];
    const int64_t first = block * BLOCK, count = task->numel - first < BLOCK ? task->numel - first : BLOCK;
    char *out = (char *)task->out + first * width;
    philox_fill(task->span.seed, task->span.offset + (uint64_t)(first * per) / 4, (count * per + 3) / 4, words);
    if (task->kind == RANDOM_UNIFORM) {
      fill_uniform(task, words, out, count);
    } else if (task->kind == RANDOM_NORMAL) {
      fill_normal(task, words, out, first, count);
    } else if (task->kind == RANDOM_BERNOULLI) {
      fill_bernoulli(task, words, out, first, count);
    } else {
      fill_integer(task, words, out, count);
    }
  }
}

/// Values of a tensor argument that make no distribution are refused before anything is written.
static diopiError_t check_values(struct random_task *task) {
  const bool chance = task->kind == RANDOM_BERNOULLI;
  const void *p = chance ? task->pa : task->pb;
  for (int64_t i = 0; p && i < task->numel; i++) {
    const bool single = !chance && task->work == DIT_DTYPE_F32;
    const double value = single ? (double)((const float *)p)[i] : ((const double *)p)[i];
    if (chance) {
      FRAME_CHECK(&task->frame, value >= 0 && value <= 1, "a probability is %g; valid: 0 to 1", value);
    } else {
      FRAME_CHECK(&task->frame, value >= 0, "'std' has the value %g; it must not be negative", value);
    }
  }
  return diopiSuccess;
}

/// Take the numbers from the generator: in the caller, as the next call takes the following ones.
static diopiError_t reserve(struct random_task *task) {
  const uint64_t words = (uint64_t)task->numel * (task->wide ? 2 : 1);
  task->reserved = true;
  return random_reserve(&task->frame, task->generator, words, &task->span);
}

static diopiError_t run_random(void *argument) {
  struct random_task *task = argument;
  const int parameters = task->kind == RANDOM_BERNOULLI ? DIT_DTYPE_F64 : task->work;
  struct dense out = {0}, a = {0}, b = {0};
  diopiError_t code;
  if (dense_read(&a, &task->v_a, parameters) && dense_read(&b, &task->v_b, parameters) &&
      dense_reserve(&out, &task->v_out, task->work)) {
    task->pa = a.data;
    task->pb = b.data;
    task->out = out.data;
    code = check_values(task);
    if (code == diopiSuccess && !task->reserved) {
      code = reserve(task);
    }
    if (code == diopiSuccess) {
      dit_parallel_for(0, (task->numel + BLOCK - 1) / BLOCK, 16, run_blocks, task);
      dense_store(&out);
    }
  } else {
    code = dense_fail(&task->frame);
  }
  dense_close(&out);
  dense_close(&a);
  dense_close(&b);
  return code;
}

diopiError_t random_launch(struct random_task *task) {
  if (!task->frame.stream || task->v_a.handle || task->v_b.handle) {  // parameters are checked before numbers are drawn
    return frame_run(&task->frame, run_random, task);
  }
  FRAME_TRY(reserve(task));
  return FRAME_QUEUE(&task->frame, run_random, task, NULL, &task->v_out);
}
