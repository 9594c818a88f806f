/// Permutations and samples of a distribution on CUDA (vendors/host/ops/random.h): the launches. Weights are not looked
/// at, because that would make the host wait.
#include "kernels/random.h"
#include "launch.h"
#include "ops/fail.h"
#include "ops/random.h"
#include "packed.h"

KERNEL_REFERENCE(permutation_shuffle, choice);
KERNEL_REFERENCE(permutation_cipher, choice);
KERNEL_REFERENCE(sample_sums, choice);
KERNEL_REFERENCE(sample_with, choice);
KERNEL_REFERENCE(sample_keys, choice);
KERNEL_REFERENCE(sample_smallest, choice);
KERNEL_REFERENCE(sample_rank, choice);

/// Samples of a row that are found one after the other.
#define FEW_SAMPLES 16

static diopiError_t launch(struct frame *frame, struct kernel *kernel, struct kernel_grid grid, const void *task) {
  struct dit_error err = {.message = ""};
  grid.threads = RANDOM_KERNEL_THREADS;
  return frame_get_code(frame, kernel_launch(kernel, frame->stream, grid, task, &err), &err);
}

diopiError_t permutation_run(struct permutation_task *task) {
  struct permutation_kernel kernel = {.out = task->out.data,
                                      .n = task->n,
                                      .stride = task->n > 0 ? task->out.strides[0] : 0,
                                      .seed = task->span.seed,
                                      .offset = task->span.offset,
                                      .dtype = task->out.dtype};
  int bits = 2;
  if (task->n == 0) {
    return diopiSuccess;
  }
  kernel.stride *= (int64_t)dit_dtype_get_size(task->out.dtype);
  if (task->n <= CHOICE_KERNEL_SHUFFLE) {
    return launch(&task->frame, &permutation_shuffle, (struct kernel_grid){.x = 1}, &kernel);
  }
  while (bits < 62 && INT64_C(1) << bits < task->n) {
    bits++;
  }
  kernel.left = bits / 2;
  kernel.right = bits - bits / 2;
  return launch(&task->frame, &permutation_cipher,
                (struct kernel_grid){.x = kernel_get_blocks(task->n, RANDOM_KERNEL_THREADS)}, &kernel);
}

static struct kernel_grid get_rows(const struct sample_task *task) {
  const int64_t most = (int64_t)kernel_get_multiprocessors() * 8;
  return (struct kernel_grid){.x = (unsigned)(task->rows < most ? task->rows : most)};
}

diopiError_t sample_run(struct sample_task *task) {
  struct frame *frame = &task->frame;
  struct packed in, out;
  struct random_span span;
  const int64_t weights = task->rows * task->classes, made = task->rows * task->samples;
  if (made == 0) {
    return diopiSuccess;
  }
  FRAME_CHECK(frame, task->classes > 0, "the weights of row 0 are all 0");
  FRAME_TRY(packed_read(&in, frame, &task->in));
  FRAME_TRY(packed_reserve(&out, frame, &task->out));
  struct sample_kernel kernel = {.in = in.view.data,
                                 .room = scratch_take(frame->context, (size_t)weights * sizeof(double)),
                                 .out = out.view.data,
                                 .rows = task->rows,
                                 .classes = task->classes,
                                 .samples = task->samples,
                                 .dtype = task->in.dtype};
  if (!kernel.room) {
    return frame_fail_device(frame, "no device memory for the weights' sums");
  }
  FRAME_TRY(random_reserve(frame, task->generator, 2 * (uint64_t)(task->replacement ? made : weights), &span));
  kernel.seed = span.seed;
  kernel.offset = span.offset;
  if (task->replacement) {
    FRAME_TRY(launch(frame, &sample_sums, get_rows(task), &kernel));
    FRAME_TRY(launch(frame, &sample_with, (struct kernel_grid){.x = kernel_get_blocks(made, RANDOM_KERNEL_THREADS)},
                     &kernel));
    return packed_store(&out, frame, &task->out);
  }
  FRAME_TRY(launch(frame, &sample_keys, (struct kernel_grid){.x = kernel_get_blocks(weights, RANDOM_KERNEL_THREADS)},
                   &kernel));
  if (task->samples <= FEW_SAMPLES) {
    FRAME_TRY(launch(frame, &sample_smallest, get_rows(task), &kernel));
  } else {
    const int64_t blocks = (task->classes + RANDOM_KERNEL_THREADS - 1) / RANDOM_KERNEL_THREADS;
    const struct kernel_grid grid = {.x = (unsigned)blocks, .y = (unsigned)(task->rows < 65535 ? task->rows : 65535)};
    FRAME_TRY(launch(frame, &sample_rank, grid, &kernel));
  }
  return packed_store(&out, frame, &task->out);
}
