/// The opaque device's kernel table: the kernels of vendors/host on the device's own mapping, queued on its streams.
///
/// Every kernel does three things: it answers DIT_ERR_UNSUPPORTED for what DITORCH_OPAQUE_MISSING takes away, lets
/// mishaps strike under its name, and calls the host's kernel with open views. Depends on vendors/host's kernel table.
#include <stddef.h>

#include "dit/kernel.h"
#include "opaque.h"

enum { MAX_VIEWS = 9 };

/// The open views of one call, and its queue.
struct opened {
  struct dit_tensor_view views[MAX_VIEWS];
  const struct dit_tensor_view *pointers[MAX_VIEWS];
  void *queue;
};

/// `closed` holds `count` views, NULL for absent ones; the first one is there and says which device works.
static enum dit_status open_views(struct opened *opened, const char *name, void *stream,
                                  const struct dit_tensor_view *const *closed, int count, struct dit_error *err) {
  const int device = closed[0]->device_index;
  bool dtype;
  for (int i = 0; i < count; i++) {
    opened->pointers[i] = NULL;
    if (!closed[i]) {
      continue;
    }
    if (dit_opaque_lacks(closed[i], &dtype)) {
      return DIT_ERR_UNSUPPORTED;
    }
    if (!dit_opaque_open_view(closed[i], &opened->views[i])) {
      return dit_error_set(err, DIT_ERR_DEVICE, "%s: a tensor is not in the memory of opaque device %d", name, device);
    }
    opened->pointers[i] = &opened->views[i];
  }
  opened->queue = dit_opaque_get_queue(device, stream);
  return dit_opaque_strike(device, stream, name, err);
}

/// Opens the views that follow, or returns; `p` is what the host's kernel gets.
#define OPEN(name, ...)                                                                                   \
  const struct dit_tensor_view *const closed[] = {__VA_ARGS__};                                           \
  struct opened opened;                                                                                   \
  if (opaque_is_kernel_missing(name)) {                                                                   \
    return DIT_ERR_UNSUPPORTED;                                                                           \
  }                                                                                                       \
  DIT_RETURN_IF_NOT_OK(                                                                                   \
      open_views(&opened, "kernel " name, stream, closed, (int)(sizeof closed / sizeof closed[0]), err)); \
  const struct dit_tensor_view *const *p = opened.pointers

typedef const struct dit_tensor_view view;

static enum dit_status run_copy(void *stream, view *out, view *in, struct dit_error *err) {
  OPEN("copy", out, in);
  return dit_host_get_kernels()->copy(opened.queue, p[0], p[1], err);
}

static enum dit_status run_lstm(void *stream, view *hy, view *cy, view *workspace, view *input_gates,
                                view *hidden_gates, view *cx, view *input_bias, view *hidden_bias,
                                struct dit_error *err) {
  OPEN("lstm_cell", hy, cy, workspace, input_gates, hidden_gates, cx, input_bias, hidden_bias);
  return dit_host_get_kernels()->lstm_cell(opened.queue, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], err);
}

static enum dit_status run_lstm_backward(void *stream, view *grad_gates, view *grad_cx, view *grad_bias, view *grad_hy,
                                         view *grad_cy, view *cx, view *cy, view *workspace, struct dit_error *err) {
  OPEN("lstm_cell_backward", grad_gates, grad_cx, grad_bias, grad_hy, grad_cy, cx, cy, workspace);
  return dit_host_get_kernels()->lstm_cell_backward(opened.queue, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], err);
}

static enum dit_status run_gru(void *stream, view *hy, view *workspace, view *input_gates, view *hidden_gates, view *hx,
                               view *input_bias, view *hidden_bias, struct dit_error *err) {
  OPEN("gru_cell", hy, workspace, input_gates, hidden_gates, hx, input_bias, hidden_bias);
  return dit_host_get_kernels()->gru_cell(opened.queue, p[0], p[1], p[2], p[3], p[4], p[5], p[6], err);
}

static enum dit_status run_gru_backward(void *stream, view *grad_input_gates, view *grad_hidden_gates, view *grad_hx,
                                        view *grad_input_bias, view *grad_hidden_bias, view *grad_hy, view *workspace,
                                        struct dit_error *err) {
  OPEN("gru_cell_backward", grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias, grad_hy,
       workspace);
  return dit_host_get_kernels()->gru_cell_backward(opened.queue, p[0], p[1], p[2], p[3], p[4], p[5], p[6], err);
}

static enum dit_status run_histogram(void *stream, view *out, view *in, int64_t low, int64_t high,
                                     struct dit_error *err) {
  OPEN("histogram", out, in);
  return dit_host_get_kernels()->histogram(opened.queue, p[0], p[1], low, high, err);
}

static enum dit_status run_fold(void *stream, enum dit_kernel_fold fold, view *out, view *in, uint32_t mask,
                                struct dit_error *err) {
  OPEN("fold", out, in);
  return dit_host_get_kernels()->fold(opened.queue, fold, p[0], p[1], mask, err);
}

static enum dit_status run_xor(void *stream, view *out, view *a, view *b, struct dit_error *err) {
  OPEN("bitwise_xor", out, a, b);
  return dit_host_get_kernels()->bitwise_xor(opened.queue, p[0], p[1], p[2], err);
}

static const struct dit_kernel_vtable kernels = {
    .abi_version = DIT_KERNEL_ABI_VERSION,
    .struct_size = sizeof(struct dit_kernel_vtable),
    .copy = run_copy,
    .lstm_cell = run_lstm,
    .lstm_cell_backward = run_lstm_backward,
    .gru_cell = run_gru,
    .gru_cell_backward = run_gru_backward,
    .histogram = run_histogram,
    .fold = run_fold,
    .bitwise_xor = run_xor,
};

DIT_API const struct dit_kernel_vtable *dit_vendor_get_kernels(void);

const struct dit_kernel_vtable *dit_vendor_get_kernels(void) {
  return &kernels;
}
