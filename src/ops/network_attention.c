/// Scaled dot product attention without mask and dropout: softmax(scale Q K^T) V, optionally causal, and its gradients.
///
/// Query (B, H, S, D), key and value (B, G, T, D), where H is a multiple of G; DIOPI has (B, S, H, D), so views change
/// places of H and S. The logarithm of the sums is (B, H, S) of the accumulation dtype. PyTorch's causal mask begins at
/// the first key, that of DIOPI ends at the last one: causal calls need S = T. Everything else is the CPU's, or
/// PyTorch's own composition.
#include <math.h>

#include "network.h"
#include "table.h"

/// A tensor with H and S exchanged.
struct swapped {
  struct dit_tensor_view view;
  int64_t sizes[4], strides[4];
};

static const struct dit_tensor_view *swap_heads(const struct dit_tensor_view *view, struct swapped *room) {
  static const int order[4] = {0, 2, 1, 3};
  room->view = *view;
  for (int i = 0; i < 4; i++) {
    room->sizes[i] = view->sizes[order[i]];
    room->strides[i] = view->strides[order[i]];
  }
  room->view.sizes = room->sizes;
  room->view.strides = room->strides;
  room->view.flags &= (uint8_t)~DIT_TENSOR_CONTIGUOUS;
  return &room->view;
}

struct attention {
  struct dit_tensor_view *query, *key, *value;
  bool causal;
  float scale;
};

/// query, key, value from `first` on; dropout, is_causal, mask and scale from `options` on.
static bool read(struct dit_call *call, int first, int options, struct attention *out) {
  struct dit_tensor_view *q = net_get(call, first), *k = net_get(call, first + 1), *v = net_get(call, first + 2);
  if (!q || !k || !v || q->ndim != 4 || k->ndim != 4 || v->ndim != 4 || q->numel == 0 || k->numel == 0 ||
      !op_is_floating(q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype || !op_same_sizes(v, 4, k->sizes) ||
      q->sizes[0] != k->sizes[0] || q->sizes[1] % k->sizes[1] != 0 || q->sizes[3] != k->sizes[3] ||
      net_get_double(call, options) != 0 || call->args[options + 2].tag != DIT_VALUE_NONE) {
    return false;
  }
  out->query = q;
  out->key = k;
  out->value = v;
  out->causal = call->args[options + 1].v.i != 0;
  // DIOPI's scale is a float: exact enough for all but float64
  const double scale =
      call->args[options + 3].tag == DIT_VALUE_NONE ? 1 / sqrt((double)q->sizes[3]) : net_get_double(call, options + 3);
  out->scale = (float)scale;
  return (q->dtype != DIT_DTYPE_F64 || (double)out->scale == scale) && (!out->causal || q->sizes[2] == k->sizes[2]);
}

enum dit_status op_attention(struct dit_call *call) {
  struct attention in;
  struct dit_tensor_view out, lse;
  struct swapped rooms[4];
  struct diopiTensor handles[5];
  struct diopiContext context;
  struct diopiGenerator generator = {0, 0};
  NET_NEED(OP_HAS(call, diopiFlashAttention) && read(call, 0, 3, &in));
  const int64_t *sizes = in.query->sizes, lse_strides[3] = {sizes[1] * sizes[2], 1, sizes[1]};
  const int accumulated = in.query->dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  DIT_RETURN_IF_NOT_OK(net_new_like(call, in.query, in.query->dtype, &out));
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, 3, sizes, lse_strides, accumulated, &lse));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(
      call, &context, diopiFlashAttention, op_handle(call, &handles[0], swap_heads(&out, &rooms[0])),
      op_handle(call, &handles[1], &lse), &generator, op_handle(call, &handles[2], swap_heads(in.query, &rooms[1])),
      op_handle(call, &handles[3], swap_heads(in.key, &rooms[2])),
      op_handle(call, &handles[4], swap_heads(in.value, &rooms[3])), NULL, 0.0f, in.scale, in.causal, -1, -1));
  (void)op_return(call, 1, &lse);
  return op_return(call, 0, &out);
}

/// A gradient in the memory order (B, S, H, D).
static enum dit_status make_gradient(struct dit_call *call, const struct dit_tensor_view *like,
                                     struct dit_tensor_view *out) {
  const int64_t *sizes = like->sizes;
  const int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], sizes[3], sizes[1] * sizes[3], 1};
  return call->services->new_tensor(call, 4, sizes, strides, like->dtype, out);
}

enum dit_status op_attention_backward(struct dit_call *call) {
  struct attention in;
  struct dit_tensor_view *grad = net_get(call, 0), *out = net_get(call, 4), *lse = net_get(call, 5), made[3];
  struct swapped rooms[8];
  struct diopiTensor handles[9];
  struct diopiContext context;
  struct diopiGenerator generator = {0, 0};
  NET_NEED(OP_HAS(call, diopiFlashAttentionBackward) && read(call, 1, 6, &in) && grad && out && lse &&
           grad->dtype == in.query->dtype && out->dtype == in.query->dtype && op_same_sizes(grad, 4, in.query->sizes) &&
           op_same_sizes(out, 4, in.query->sizes) && op_same_sizes(lse, 3, in.query->sizes));
  struct dit_tensor_view *likes[3] = {in.query, in.key, in.value};
  diopiTensorHandle_t gradients[3], inputs[3];
  for (int i = 0; i < 3; i++) {
    DIT_RETURN_IF_NOT_OK(make_gradient(call, likes[i], &made[i]));
    gradients[i] = op_handle(call, &handles[i], swap_heads(&made[i], &rooms[i]));
    inputs[i] = op_handle(call, &handles[3 + i], swap_heads(likes[i], &rooms[3 + i]));
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiFlashAttentionBackward, gradients[0], gradients[1], gradients[2],
                                op_handle(call, &handles[6], swap_heads(grad, &rooms[6])), &generator, inputs[0],
                                inputs[1], inputs[2], NULL, op_handle(call, &handles[7], swap_heads(out, &rooms[7])),
                                op_handle(call, &handles[8], lse), 0.0f, in.scale, in.causal, -1, -1));
  for (int i = 0; i < 3; i++) {
    (void)op_return(call, i, &made[i]);
  }
  return DIT_OK;
}

/// isneginf and isposinf, which the softmax of masked attention asks for: a comparison with an infinity.
enum dit_status op_is_infinite(struct dit_call *call) {
  const struct dit_tensor_view *self = net_get(call, 0);
  struct dit_tensor_view out;
  struct op_layout layout;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  diopiScalar_t room;
  bool same_shape;
  NET_NEED(OP_HAS(call, diopiEqScalar) && self && op_is_floating(self->dtype));
  const bool negative = strcmp(call->op->name, "aten::isneginf") == 0;
  const struct dit_scalar infinity = {.kind = DIT_SCALAR_DOUBLE, .v.d = negative ? -INFINITY : INFINITY};
  DIT_RETURN_IF_NOT_OK(op_broadcast(&self, 1, &layout, &same_shape, call->err));
  op_infer_strides(&self, 1, self->dtype, same_shape, &layout);
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, layout.ndim, layout.sizes,
                                                  layout.contiguous ? NULL : layout.strides, DIT_DTYPE_BOOL, &out));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiEqScalar, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], self), op_scalar(&room, infinity)));
  return op_return(call, 0, &out);
}
