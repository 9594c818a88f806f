/// The fused recurrent cells that torch.nn.LSTM and GRU call on an accelerator; formulas and layouts at the slots in
/// dit/kernel.h, because the standard has no such functions.
///
/// Results are row-major; a gradient of a bias is the column sum of the gates' gradient, absent (NONE) when there is no
/// bias.
#include <stddef.h>

#include "invoke.h"
#include "table.h"

static bool is_rows(const struct dit_tensor_view *view, int dtype, int64_t rows, int64_t columns) {
  return view && view->ndim == 2 && view->dtype == dtype && op_is_device(view) && view->sizes[0] == rows &&
         view->sizes[1] == columns;
}

static bool is_bias(const struct dit_tensor_view *view, int dtype, int64_t columns) {
  return !view || (view->ndim == 1 && view->dtype == dtype && op_is_device(view) && view->sizes[0] == columns &&
                   (view->strides[0] == 1 || columns <= 1));
}

/// The kernels want rows without gaps between neighbours; another layout is copied. NULL stays NULL.
static enum dit_status make_rows(struct dit_call *call, const struct dit_tensor_view **view,
                                 struct dit_tensor_view *room) {
  if (!*view || (*view)->strides[1] == 1 || (*view)->sizes[1] <= 1) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, 2, (*view)->sizes, NULL, (*view)->dtype, room));
  DIT_RETURN_IF_NOT_OK(op_copy(call, room, *view));
  *view = room;
  return DIT_OK;
}

static enum dit_status new_rows(struct dit_call *call, int64_t rows, int64_t columns, int dtype,
                                struct dit_tensor_view *out) {
  const int64_t sizes[2] = {rows, columns};
  return call->services->new_tensor(call, 2, sizes, NULL, dtype, out);
}

static void set_result(struct dit_call *call, int index, const struct dit_tensor_view *view) {
  call->rets[index].tag = view ? DIT_VALUE_TENSOR : DIT_VALUE_NONE;
  if (view) {
    call->rets[index].v.tensor = *view;
  }
}

/// Room for the gradient of a bias, (columns of `gates`); NULL when it is not wanted.
static enum dit_status new_bias(struct dit_call *call, bool wanted, const struct dit_tensor_view *gates,
                                struct dit_tensor_view *room, const struct dit_tensor_view **out) {
  *out = wanted ? room : NULL;
  return wanted ? call->services->new_tensor(call, 1, gates->sizes + 1, NULL, gates->dtype, room) : DIT_OK;
}

/// A cell needs its backward too.
static bool has_slots(const struct dit_call *call) {
  return OP_HAS_KERNEL(call, lstm_cell) && OP_HAS_KERNEL(call, lstm_cell_backward) && OP_HAS_KERNEL(call, gru_cell) &&
         OP_HAS_KERNEL(call, gru_cell_backward) && op_can_copy(call);
}

/// Arguments of a forward cell with `gates` gates; false when something is not covered.
static bool check_forward(struct dit_call *call, int gates, const struct dit_tensor_view *args[5]) {
  for (int i = 0; i < 5; i++) {
    args[i] = op_get_tensor(call, i);
  }
  const struct dit_tensor_view *state = args[2];
  if (!has_slots(call) || !state || state->ndim != 2 || !op_is_floating(state->dtype) || !args[3] != !args[4]) {
    return false;
  }
  int64_t rows = state->sizes[0], hidden = state->sizes[1];
  return is_rows(args[0], state->dtype, rows, gates * hidden) && is_rows(args[1], state->dtype, rows, gates * hidden) &&
         is_rows(state, state->dtype, rows, hidden) && is_bias(args[3], state->dtype, gates * hidden) &&
         is_bias(args[4], state->dtype, gates * hidden);
}

enum dit_status op_lstm_cell(struct dit_call *call) {
  const struct dit_tensor_view *args[5];
  struct dit_tensor_view rooms[3], hy, cy, workspace;
  if (!check_forward(call, 4, args)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int64_t rows = args[2]->sizes[0], hidden = args[2]->sizes[1];
  const int dtype = args[2]->dtype;
  for (int i = 0; i < 3; i++) {
    DIT_RETURN_IF_NOT_OK(make_rows(call, &args[i], &rooms[i]));
  }
  DIT_RETURN_IF_NOT_OK(new_rows(call, rows, hidden, dtype, &hy));
  DIT_RETURN_IF_NOT_OK(new_rows(call, rows, hidden, dtype, &cy));
  DIT_RETURN_IF_NOT_OK(new_rows(call, rows, 4 * hidden, dtype, &workspace));
  DIT_RETURN_IF_NOT_OK(call->kernels->lstm_cell(call->stream, &hy, &cy, &workspace, args[0], args[1], args[2], args[3],
                                                args[4], call->err));
  set_result(call, 0, &hy);
  set_result(call, 1, &cy);
  set_result(call, 2, &workspace);
  return DIT_OK;
}

enum dit_status op_lstm_cell_backward(struct dit_call *call) {
  const struct dit_tensor_view *args[5];  // grad_hy, grad_cy, cx, cy, workspace
  struct dit_tensor_view rooms[5], grad_gates, grad_cx, bias_room;
  const struct dit_tensor_view *bias;
  for (int i = 0; i < 5; i++) {
    args[i] = op_get_tensor(call, i);
  }
  if (!has_slots(call) || !args[2] || args[2]->ndim != 2 || !op_is_floating(args[2]->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int64_t rows = args[2]->sizes[0], hidden = args[2]->sizes[1];
  const int dtype = args[2]->dtype;
  if (!args[0] && !args[1]) {
    for (int i = 0; i < 3; i++) {
      set_result(call, i, NULL);
    }
    return DIT_OK;
  }
  for (int i = 0; i < 5; i++) {
    if ((i >= 2 || args[i]) && !is_rows(args[i], dtype, rows, i == 4 ? 4 * hidden : hidden)) {
      return DIT_ERR_UNSUPPORTED;
    }
  }
  for (int i = 0; i < 5; i++) {
    DIT_RETURN_IF_NOT_OK(make_rows(call, &args[i], &rooms[i]));
  }
  DIT_RETURN_IF_NOT_OK(new_rows(call, rows, 4 * hidden, dtype, &grad_gates));
  DIT_RETURN_IF_NOT_OK(new_rows(call, rows, hidden, dtype, &grad_cx));
  DIT_RETURN_IF_NOT_OK(new_bias(call, call->args[5].v.i != 0, &grad_gates, &bias_room, &bias));
  DIT_RETURN_IF_NOT_OK(call->kernels->lstm_cell_backward(call->stream, &grad_gates, &grad_cx, bias, args[0], args[1],
                                                         args[2], args[3], args[4], call->err));
  set_result(call, 0, &grad_gates);
  set_result(call, 1, &grad_cx);
  set_result(call, 2, bias);
  return DIT_OK;
}

enum dit_status op_gru_cell(struct dit_call *call) {
  const struct dit_tensor_view *args[5];
  struct dit_tensor_view rooms[3], hy, workspace;
  if (!check_forward(call, 3, args)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int64_t rows = args[2]->sizes[0], hidden = args[2]->sizes[1];
  const int dtype = args[2]->dtype;
  for (int i = 0; i < 3; i++) {
    DIT_RETURN_IF_NOT_OK(make_rows(call, &args[i], &rooms[i]));
  }
  DIT_RETURN_IF_NOT_OK(new_rows(call, rows, hidden, dtype, &hy));
  DIT_RETURN_IF_NOT_OK(new_rows(call, rows, 5 * hidden, dtype, &workspace));
  DIT_RETURN_IF_NOT_OK(
      call->kernels->gru_cell(call->stream, &hy, &workspace, args[0], args[1], args[2], args[3], args[4], call->err));
  set_result(call, 0, &hy);
  set_result(call, 1, &workspace);
  return DIT_OK;
}

enum dit_status op_gru_cell_backward(struct dit_call *call) {
  const struct dit_tensor_view *grad_hy = op_get_tensor(call, 0), *workspace = op_get_tensor(call, 1);
  struct dit_tensor_view rooms[2], grad_input, grad_hidden, grad_hx, bias_rooms[2];
  const struct dit_tensor_view *input_bias, *hidden_bias;
  if (!has_slots(call) || !grad_hy || grad_hy->ndim != 2 || !op_is_floating(grad_hy->dtype) || !op_is_device(grad_hy) ||
      !is_rows(workspace, grad_hy->dtype, grad_hy->sizes[0], 5 * grad_hy->sizes[1])) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int64_t rows = grad_hy->sizes[0], hidden = grad_hy->sizes[1];
  const int dtype = grad_hy->dtype;
  DIT_RETURN_IF_NOT_OK(make_rows(call, &grad_hy, &rooms[0]));
  DIT_RETURN_IF_NOT_OK(make_rows(call, &workspace, &rooms[1]));
  DIT_RETURN_IF_NOT_OK(new_rows(call, rows, 3 * hidden, dtype, &grad_input));
  DIT_RETURN_IF_NOT_OK(new_rows(call, rows, 3 * hidden, dtype, &grad_hidden));
  DIT_RETURN_IF_NOT_OK(new_rows(call, rows, hidden, dtype, &grad_hx));
  const bool has_bias = call->args[2].v.i != 0;
  DIT_RETURN_IF_NOT_OK(new_bias(call, has_bias, &grad_input, &bias_rooms[0], &input_bias));
  DIT_RETURN_IF_NOT_OK(new_bias(call, has_bias, &grad_hidden, &bias_rooms[1], &hidden_bias));
  DIT_RETURN_IF_NOT_OK(call->kernels->gru_cell_backward(call->stream, &grad_input, &grad_hidden, &grad_hx, input_bias,
                                                        hidden_bias, grad_hy, workspace, call->err));
  set_result(call, 0, &grad_input);
  set_result(call, 1, &grad_hidden);
  set_result(call, 2, &grad_hx);
  set_result(call, 3, input_bias);
  set_result(call, 4, hidden_bias);
  return DIT_OK;
}
