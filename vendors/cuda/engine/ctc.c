/// CTC loss on CUDA (vendors/host/ops/loss_ctc.h): the launches. Lengths and labels are not looked at, because that
/// would make the host wait.
#include "kernels/ctc.h"

#include "launch.h"
#include "ops/fail.h"
#include "ops/loss_ctc.h"
#include "packed.h"

KERNEL_REFERENCE(ctc_forward, ctc);
KERNEL_REFERENCE(ctc_finish, ctc);
KERNEL_REFERENCE(ctc_backward, ctc);

static bool is_written(const struct ctc_task *task, int i) {
  return i == CTC_OUT || (!task->backward && (i == CTC_NLL || i == CTC_ALPHA));
}

static diopiError_t launch(struct frame *frame, struct kernel *kernel, struct kernel_grid grid, const void *task) {
  struct dit_error err = {.message = ""};
  return frame_get_code(frame, kernel_launch(kernel, frame->stream, grid, task, &err), &err);
}

static diopiError_t run(struct ctc_task *task, struct packed *d) {
  struct frame *frame = &task->frame;
  const struct dit_tensor_view *targets = &task->v[CTC_TARGETS];
  double *room = scratch_take(frame->context, sizeof(double) * (size_t)(task->batch * (2 * task->width + 1)));
  if (!room) {
    return frame_fail_device(frame, "no device memory for lines of states");
  }
  const struct ctc_kernel kernel = {.probs = d[CTC_PROBS].view.data,
                                    .targets = d[CTC_TARGETS].view.data,
                                    .inputs = d[CTC_INPUTS].view.data,
                                    .labels = d[CTC_LABELS].view.data,
                                    .grad = d[CTC_GRAD].view.data,
                                    .nll = d[CTC_NLL].view.data,
                                    .alpha = d[CTC_ALPHA].view.data,
                                    .out = d[CTC_OUT].view.data,
                                    .lines = room,
                                    .losses = room + 2 * task->batch * task->width,
                                    .steps = task->steps,
                                    .batch = task->batch,
                                    .classes = task->classes,
                                    .width = task->width,
                                    .target_stride = targets->ndim == 2 ? targets->sizes[1] : 0,
                                    .target_count = targets->ndim == 2 ? 0 : targets->numel,
                                    .blank = task->blank,
                                    .probs_dtype = task->v[CTC_PROBS].dtype,
                                    .targets_dtype = targets->dtype,
                                    .inputs_dtype = task->v[CTC_INPUTS].dtype,
                                    .labels_dtype = task->v[CTC_LABELS].dtype,
                                    .grad_dtype = task->v[CTC_GRAD].dtype,
                                    .nll_dtype = task->v[CTC_NLL].dtype,
                                    .alpha_dtype = task->v[CTC_ALPHA].dtype,
                                    .out_dtype = task->v[CTC_OUT].dtype,
                                    .reduction = (int32_t)task->reduction,
                                    .zero_infinity = task->zero_infinity};
  const struct kernel_grid grid = {.x = kernel_get_blocks(task->batch, 1), .threads = CTC_KERNEL_THREADS};
  if (task->batch > 0) {
    FRAME_TRY(launch(frame, task->backward ? &ctc_backward : &ctc_forward, grid, &kernel));
  }
  return task->backward ? diopiSuccess
                        : launch(frame, &ctc_finish, (struct kernel_grid){.x = 1, .threads = 32}, &kernel);
}

diopiError_t ctc_run(struct ctc_task *task) {
  struct packed d[CTC_COUNT];
  for (int i = 0; i < CTC_COUNT; i++) {
    FRAME_TRY(is_written(task, i) ? packed_reserve(&d[i], &task->frame, &task->v[i])
                                  : packed_read(&d[i], &task->frame, &task->v[i]));
  }
  if (task->v[CTC_OUT].numel == 0) {
    return diopiSuccess;
  }
  FRAME_TRY(run(task, d));
  for (int i = 0; i < CTC_COUNT; i++) {
    if (is_written(task, i)) {
      FRAME_TRY(packed_store(&d[i], &task->frame, &task->v[i]));
    }
  }
  return diopiSuccess;
}
