/// Convolution on the host (see conv.c): by oneDNN where it is there and good at it, else by columns.
#include "conv.h"
#include "dense.h"

static diopiError_t fail_memory(struct frame *frame) {
  return frame_fail(frame, diopiErrorOccurred, "no memory for the columns of the images");
}

static diopiError_t run_forward(void *context) {
  struct conv_call *call = context;
  struct dense out = {0}, x = {0}, weight = {0}, bias = {0};
  const int work = dense_get_work(call->x.dtype);
  if (conv_onednn_forward(call)) {
    return diopiSuccess;
  }
  bool done = dense_read(&x, &call->x, work) && dense_read(&weight, &call->weight, work) &&
              dense_read(&bias, &call->bias, work) && dense_reserve(&out, &call->out, work);
  if (done) {
    done = call->transposed ? conv_backward_input(&call->shape, out.data, x.data, weight.data, bias.data)
                            : conv_forward(&call->shape, out.data, x.data, weight.data, bias.data);
  }
  if (done) {
    dense_store(&out);
  }
  dense_close(&out);
  dense_close(&x);
  dense_close(&weight);
  dense_close(&bias);
  return done ? diopiSuccess : fail_memory(call->frame);
}

/// The gradients that are wanted, from dense operands.
static bool compute_gradients(const struct conv_call *call, const struct dense *grad, const struct dense *x,
                              const struct dense *weight, struct dense *results) {
  const struct conv_shape *s = &call->shape;
  bool done = true;
  if (call->grad_x.handle) {
    done = call->transposed ? conv_forward(s, results[0].data, grad->data, weight->data, NULL)
                            : conv_backward_input(s, results[0].data, grad->data, weight->data, NULL);
  }
  if (done && call->grad_weight.handle) {
    done = call->transposed ? conv_backward_weight(s, results[1].data, x->data, grad->data)
                            : conv_backward_weight(s, results[1].data, grad->data, x->data);
  }
  if (done && call->grad_bias.handle) {
    const int64_t *sizes = call->transposed ? s->in : s->out;
    conv_sum_channels(s->wide, results[2].data, grad->data, s->batch,
                      call->transposed ? s->in_channels : s->out_channels, sizes[0] * sizes[1] * sizes[2]);
  }
  return done;
}

static diopiError_t run_backward(void *context) {
  struct conv_call rest = *(const struct conv_call *)context, *const call = &rest;
  struct dense grad = {0}, x = {0}, weight = {0}, results[3] = {{0}};
  const int work = dense_get_work(call->x.dtype);
  const struct dit_tensor_view absent = {0};
  conv_onednn_backward(call);  // takes what it does off the call
  if (!call->grad_x.handle && !call->grad_weight.handle && !call->grad_bias.handle) {
    return diopiSuccess;
  }
  bool done =
      dense_read(&grad, &call->out, work) && dense_read(&x, call->grad_weight.handle ? &call->x : &absent, work) &&
      dense_read(&weight, call->grad_x.handle ? &call->weight : &absent, work) &&
      dense_reserve(&results[0], &call->grad_x, work) && dense_reserve(&results[1], &call->grad_weight, work) &&
      dense_reserve(&results[2], &call->grad_bias, work) && compute_gradients(call, &grad, &x, &weight, results);
  for (int i = 0; i < 3; i++) {
    if (done) {
      dense_store(&results[i]);
    }
    dense_close(&results[i]);
  }
  dense_close(&grad);
  dense_close(&x);
  dense_close(&weight);
  return done ? diopiSuccess : fail_memory(call->frame);
}

static diopiError_t queue(struct conv_call *call, frame_work *work) {
  return FRAME_QUEUE(call->frame, work, call, &call->frame, &call->out, &call->x, &call->weight, &call->bias,
                     &call->grad_x, &call->grad_weight, &call->grad_bias);
}

diopiError_t conv_run_forward(struct conv_call *call) {
  return queue(call, run_forward);
}

diopiError_t conv_run_backward(struct conv_call *call) {
  return queue(call, run_backward);
}
