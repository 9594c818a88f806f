/// Rules of diopiExtInferOutputs for products, windows, norms, losses and attention (see infer.h).
#include "dit/window.h"
#include "infer.h"
#include "window.h"

// Products

/// matmul: vectors count as one row or one column, which is not part of the result; batches broadcast. With
/// item->number both tensors have that rank, and batches are equal.
diopiError_t infer_product(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view a, b;
  struct infer_shape shape = {.ndim = 0};
  FRAME_TRY(infer_take(infer, item->names[0], &a));
  FRAME_TRY(infer_take(infer, item->names[1], &b));
  const int least = item->number ? item->number : 1;
  FRAME_CHECK(&infer->frame, a.ndim >= least && b.ndim >= least && (!item->number || a.ndim + b.ndim == 2 * least),
              "'%s' has %d and '%s' %d dimensions; valid: %s%d", item->names[0], (int)a.ndim, item->names[1],
              (int)b.ndim, item->number ? "" : "at least ", least);
  const int64_t inner = b.sizes[b.ndim > 1 ? b.ndim - 2 : 0];
  FRAME_CHECK(&infer->frame, a.sizes[a.ndim - 1] == inner, "'%s' has %lld columns, '%s' has %lld rows", item->names[0],
              (long long)a.sizes[a.ndim - 1], item->names[1], (long long)inner);
  const int batch_a = a.ndim > 2 ? a.ndim - 2 : 0, batch_b = b.ndim > 2 ? b.ndim - 2 : 0;
  shape.ndim = batch_a > batch_b ? batch_a : batch_b;
  for (int i = 0; i < shape.ndim; i++) {
    const int at_a = i - shape.ndim + batch_a, at_b = i - shape.ndim + batch_b;
    const int64_t size_a = at_a < 0 ? 1 : a.sizes[at_a], size_b = at_b < 0 ? 1 : b.sizes[at_b];
    FRAME_CHECK(&infer->frame, size_a == size_b || (!item->number && (size_a == 1 || size_b == 1)),
                "batches of %lld and of %lld matrices do not go together", (long long)size_a, (long long)size_b);
    shape.sizes[i] = size_a == 1 ? size_b : size_a;
  }
  FRAME_TRY(a.ndim > 1 ? infer_add_size(infer, &shape, a.sizes[a.ndim - 2]) : diopiSuccess);
  FRAME_TRY(b.ndim > 1 ? infer_add_size(infer, &shape, b.sizes[b.ndim - 1]) : diopiSuccess);
  shape.dtype = a.dtype;
  return infer_emit(infer, &shape, item->as);
}

/// input (..., in), weight (out, in) or (in): (..., out) or (...).
diopiError_t infer_linear(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view input, weight;
  struct infer_shape shape;
  FRAME_TRY(infer_take(infer, item->names[0], &input));
  FRAME_TRY(infer_take(infer, item->names[1], &weight));
  FRAME_CHECK(&infer->frame, input.ndim > 0 && (weight.ndim == 1 || weight.ndim == 2),
              "'%s' has %d and '%s' %d dimensions; valid: at least 1, and 1 or 2", item->names[0], (int)input.ndim,
              item->names[1], (int)weight.ndim);
  const int64_t inner = weight.sizes[weight.ndim - 1];
  FRAME_CHECK(&infer->frame, input.sizes[input.ndim - 1] == inner, "'%s' has %lld columns, '%s' %lld", item->names[0],
              (long long)input.sizes[input.ndim - 1], item->names[1], (long long)inner);
  infer_start(&shape, &input);
  shape.ndim--;
  FRAME_TRY(weight.ndim == 2 ? infer_add_size(infer, &shape, weight.sizes[0]) : diopiSuccess);
  return infer_emit(infer, &shape, item->as);
}

/// One dimension: size `number` of argument 0.
diopiError_t infer_size_of(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view, other;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_TRY(infer_take(infer, item->names[1], &other));
  FRAME_CHECK(&infer->frame, view.ndim > item->number, "'%s' has %d dimensions; valid: at least %d", item->names[0],
              (int)view.ndim, item->number + 1);
  const struct infer_shape shape = {.ndim = 1, .dtype = other.dtype, .sizes = {view.sizes[item->number]}};
  return infer_emit(infer, &shape, item->as);
}

// Windows

struct windows {
  int64_t kernel[3], stride[3], padding[3], dilation[3], extra[3];
  int64_t in[3], out[3], batch, channels;
  int ndim, lead;  ///< spatial dimensions; those of three that are not there
  bool has_batch;
};

static const int64_t zeros[3] = {0, 0, 0}, ones[3] = {1, 1, 1};

static diopiError_t read_windows(struct infer *infer, struct windows *w, const char *kernel, const char *stride) {
  struct frame *frame = &infer->frame;
  FRAME_TRY(kernel ? window_read(frame, kernel, infer_get_list(infer, kernel), w->ndim, 1, 1, NULL, w->kernel)
                   : diopiSuccess);
  FRAME_TRY(
      window_read(frame, stride, infer_get_list(infer, stride), w->ndim, 1, 1, kernel ? w->kernel : ones, w->stride));
  FRAME_TRY(window_read(frame, "padding", infer_get_list(infer, "padding"), w->ndim, 0, 0, zeros, w->padding));
  FRAME_TRY(window_read(frame, "dilation", infer_get_list(infer, "dilation"), w->ndim, 1, 1, ones, w->dilation));
  return window_read(frame, "output_padding", infer_get_list(infer, "output_padding"), w->ndim, 0, 0, zeros, w->extra);
}

static diopiError_t start_windows(struct infer *infer, const char *name, int ndim, struct windows *w, int *dtype) {
  struct dit_tensor_view view;
  FRAME_TRY(infer_take(infer, name, &view));
  FRAME_TRY(window_split(&infer->frame, name, &view, ndim, &w->batch, &w->channels, w->in));
  for (int i = 0; i < 3; i++) {
    FRAME_CHECK(&infer->frame, w->in[i] <= INT32_MAX, "'%s' has the spatial size %lld; valid: up to 2147483647", name,
                (long long)w->in[i]);
  }
  w->ndim = ndim;
  w->lead = 3 - ndim;
  w->has_batch = view.ndim == ndim + 2;
  *dtype = view.dtype;
  return diopiSuccess;
}

static diopiError_t emit_windows(struct infer *infer, const struct infer_item *item, const struct windows *w,
                                 int64_t channels, int dtype) {
  struct infer_shape shape = {.ndim = w->has_batch, .dtype = dtype, .sizes = {w->batch}};
  shape.sizes[shape.ndim++] = channels;
  for (int i = w->lead; i < 3; i++) {
    shape.sizes[shape.ndim++] = w->out[i];
  }
  return infer_emit(infer, &shape, item->as);
}

/// Every spatial size of a result is at least 1.
static diopiError_t check_windows(struct infer *infer, const struct infer_item *item, const struct windows *w) {
  for (int i = w->lead; i < 3; i++) {
    FRAME_CHECK(&infer->frame, w->out[i] > 0, "'%s' has size %lld in spatial dimension %d, which leaves no result",
                item->names[0], (long long)w->in[i], i - w->lead);
  }
  return diopiSuccess;
}

static struct dit_window get_window(const struct windows *w, int i, bool ceil) {
  return (struct dit_window){w->in[i], w->kernel[i], w->stride[i], w->padding[i], w->dilation[i], ceil};
}

static int64_t count_windows(const struct windows *w, int i, bool ceil) {
  const struct dit_window window = get_window(w, i, ceil);
  return dit_window_count(&window);
}

/// item->number spatial dimensions; transposed (as many as a convolution of the result would leave) when negative.
diopiError_t infer_conv(struct infer *infer, const struct infer_item *item) {
  const bool transposed = item->number < 0;
  const int ndim = transposed ? -item->number : item->number;
  struct windows w = {0};
  struct dit_tensor_view weight;
  int64_t groups;
  int dtype = 0;
  FRAME_TRY(start_windows(infer, item->names[0], ndim, &w, &dtype));
  FRAME_TRY(infer_take(infer, item->names[1], &weight));
  FRAME_CHECK(&infer->frame, weight.ndim == ndim + 2, "'%s' has %d dimensions; valid: %d", item->names[1],
              (int)weight.ndim, ndim + 2);
  FRAME_TRY(read_windows(infer, &w, NULL, "stride"));
  FRAME_TRY(infer_get_integer(infer, "groups", &groups));
  FRAME_CHECK(&infer->frame,
              groups > 0 && infer_multiply(weight.sizes[transposed ? 0 : 1], transposed ? 1 : groups) == w.channels,
              "'%s' has %lld channels, which do not go with 'groups' %lld and '%s'", item->names[0],
              (long long)w.channels, (long long)groups, item->names[1]);
  for (int i = w.lead; i < 3; i++) {
    w.kernel[i] = weight.sizes[2 + i - w.lead];
    FRAME_CHECK(&infer->frame, w.kernel[i] <= INT32_MAX, "'%s' has the kernel size %lld; valid: up to 2147483647",
                item->names[1], (long long)w.kernel[i]);
    const struct dit_window window = get_window(&w, i, false);
    w.out[i] = transposed ? dit_window_get_transposed(&window, w.extra[i]) : dit_window_count(&window);
  }
  FRAME_TRY(check_windows(infer, item, &w));
  return emit_windows(infer, item, &w, transposed ? infer_multiply(weight.sizes[1], groups) : weight.sizes[0], dtype);
}

/// The sizes that are given for the bias; the output's channels without.
diopiError_t infer_bias(struct infer *infer, const struct infer_item *item) {
  const diopiSize_t sizes = infer_get_list(infer, item->names[1]);
  struct dit_tensor_view weight;
  int64_t groups;
  FRAME_TRY(infer_take(infer, item->names[0], &weight));
  FRAME_TRY(infer_get_integer(infer, "groups", &groups));
  FRAME_CHECK(&infer->frame, weight.ndim >= 2 && sizes.len <= 1, "'%s' has %d dimensions; valid: at least 2",
              item->names[0], (int)weight.ndim);
  const int64_t channels = item->number < 0 ? infer_multiply(weight.sizes[1], groups) : weight.sizes[0];
  const struct infer_shape shape = {.ndim = 1, .dtype = weight.dtype, .sizes = {sizes.data ? sizes.data[0] : channels}};
  return infer_emit(infer, &shape, item->as);
}

/// item->number spatial dimensions. The functions differ in the names of their lists; adaptive ones have no kernel, or
/// say that they are.
diopiError_t infer_pool(struct infer *infer, const struct infer_item *item) {
  const char *kernel = infer_get_kind(infer, "ksize") ? "ksize" : "kernel_size";
  const bool adaptive = !infer_get_kind(infer, kernel) || infer_get_flag(infer, "adaptive");
  struct windows w = {0};
  int dtype = 0;
  FRAME_TRY(start_windows(infer, item->names[0], item->number, &w, &dtype));
  if (adaptive) {
    FRAME_TRY(window_read(&infer->frame, "output_size", infer_get_list(infer, "output_size"), item->number, 0, 1, NULL,
                          w.out));
    return emit_windows(infer, item, &w, w.channels, dtype);
  }
  FRAME_TRY(read_windows(infer, &w, kernel, "stride"));
  for (int i = w.lead; i < 3; i++) {
    w.out[i] = count_windows(&w, i, infer_get_flag(infer, "ceil_mode"));
  }
  FRAME_TRY(check_windows(infer, item, &w));
  return emit_windows(infer, item, &w, w.channels, dtype);
}

/// (N, C, H, W) to (N, C kh kw, windows), both without N too.
diopiError_t infer_im2col(struct infer *infer, const struct infer_item *item) {
  struct windows w = {0};
  int dtype = 0;
  FRAME_TRY(start_windows(infer, item->names[0], 2, &w, &dtype));
  FRAME_TRY(read_windows(infer, &w, "kernel_size", "stride"));
  struct infer_shape shape = {.ndim = w.has_batch, .dtype = dtype, .sizes = {w.batch}};
  shape.sizes[shape.ndim++] = infer_multiply(infer_multiply(w.channels, w.kernel[1]), w.kernel[2]);
  shape.sizes[shape.ndim++] = infer_multiply(count_windows(&w, 1, false), count_windows(&w, 2, false));
  return infer_emit(infer, &shape, item->as);
}

/// The way back: (N, C kh kw, windows) to (N, C, output_size).
diopiError_t infer_col2im(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view;
  struct windows w = {.ndim = 2, .lead = 1};
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_CHECK(&infer->frame, view.ndim == 2 || view.ndim == 3, "'%s' has %d dimensions; valid: 2 or 3", item->names[0],
              (int)view.ndim);
  FRAME_TRY(read_windows(infer, &w, "kernel_size", "stride"));
  FRAME_TRY(window_read(&infer->frame, "output_size", infer_get_list(infer, "output_size"), 2, 1, 1, NULL, w.out));
  struct infer_shape shape = {.ndim = view.ndim == 3, .dtype = view.dtype, .sizes = {view.sizes[0]}};
  shape.sizes[shape.ndim++] = view.sizes[view.ndim - 2] / (w.kernel[1] * w.kernel[2]);
  shape.sizes[shape.ndim++] = w.out[1];
  shape.sizes[shape.ndim++] = w.out[2];
  return infer_emit(infer, &shape, item->as);
}

/// Batch and channels, then the sizes that are asked for.
diopiError_t infer_upsample(struct infer *infer, const struct infer_item *item) {
  const diopiSize_t sizes = infer_get_list(infer, item->names[1]);
  struct dit_tensor_view view;
  struct infer_shape shape;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  infer_start(&shape, &view);
  FRAME_CHECK(&infer->frame, view.ndim >= 3 && sizes.len == view.ndim - 2,
              "'%s' has %d dimensions and '%s' %lld entries; valid: at least 3, and 2 less than those", item->names[0],
              (int)view.ndim, item->names[1], (long long)sizes.len);
  for (int64_t i = 0; i < sizes.len; i++) {
    shape.sizes[2 + i] = sizes.data[i];
  }
  return infer_emit(infer, &shape, item->as);
}

/// input (N, C, H, W) at places (N, Ho, Wo, 2): (N, C, Ho, Wo).
diopiError_t infer_grid(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view, grid;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_TRY(infer_take(infer, item->names[1], &grid));
  FRAME_CHECK(&infer->frame, view.ndim == 4 && grid.ndim == 4 && grid.sizes[3] == 2 && grid.sizes[0] == view.sizes[0],
              "'%s' has %d and '%s' %d dimensions; valid: (N, C, H, W) and (N, Ho, Wo, 2)", item->names[0],
              (int)view.ndim, item->names[1], (int)grid.ndim);
  const struct infer_shape shape = {4, view.dtype, {view.sizes[0], view.sizes[1], grid.sizes[1], grid.sizes[2]}};
  return infer_emit(infer, &shape, item->as);
}

// Norms

/// Statistics of rows: size 1 in the dimensions that are normalized, the last ones.
diopiError_t infer_layer(struct infer *infer, const struct infer_item *item) {
  const diopiSize_t sizes = infer_get_list(infer, item->names[1]);
  struct dit_tensor_view view;
  struct infer_shape shape;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_CHECK(&infer->frame, sizes.len <= view.ndim, "'%s' has %lld entries; valid: at most %d", item->names[1],
              (long long)sizes.len, (int)view.ndim);
  infer_start(&shape, &view);
  for (int64_t i = 0; i < sizes.len; i++) {
    shape.sizes[view.ndim - 1 - i] = 1;
  }
  return infer_emit(infer, &shape, item->as);
}

/// One dimension: the rows, which are the dimensions before argument 1.
diopiError_t infer_layer_flat(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view;
  int64_t axis;
  int at;
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_TRY(infer_get_integer(infer, item->names[1], &axis));
  FRAME_TRY(frame_wrap_dim(&infer->frame, item->names[1], axis, view.ndim, &at));
  struct infer_shape shape = {.ndim = 1, .dtype = view.dtype, .sizes = {1}};
  for (int i = 0; i < at; i++) {
    shape.sizes[0] = infer_multiply(shape.sizes[0], view.sizes[i]);
  }
  return infer_emit(infer, &shape, item->as);
}

/// (N, groups).
diopiError_t infer_groups(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view;
  struct infer_shape shape = {.ndim = 2};
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_CHECK(&infer->frame, view.ndim >= 2, "'%s' has %d dimensions; valid: at least 2", item->names[0],
              (int)view.ndim);
  FRAME_TRY(infer_get_integer(infer, item->names[1], &shape.sizes[1]));
  shape.sizes[0] = view.sizes[0];
  shape.dtype = view.dtype;
  return infer_emit(infer, &shape, item->as);
}

// Losses

static diopiError_t is_reduced(struct infer *infer, bool *reduced) {
  int64_t reduction;
  FRAME_TRY(infer_get_integer(infer, "reduction", &reduction));
  FRAME_CHECK(&infer->frame, reduction >= ReductionNone && reduction < ReductionEND,
              "'reduction' is %lld; valid: 0 none, 1 mean, 2 sum", (long long)reduction);
  *reduced = reduction != ReductionNone;
  return diopiSuccess;
}

/// Element by element (the arguments broadcast), or one number.
diopiError_t infer_loss(struct infer *infer, const struct infer_item *item) {
  bool reduced = false;
  FRAME_TRY(is_reduced(infer, &reduced));
  const struct infer_item whole = {infer_mix, item->as, 0, {item->names[0], item->names[1]}};
  const struct infer_item one = {infer_scalar, item->as, 0, {item->names[1]}};
  return reduced ? infer_scalar(infer, &one) : infer_mix(infer, &whole);
}

/// One for each place: the input without its classes, which are dimension 1, or 0 without a batch.
diopiError_t infer_loss_class(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view view;
  bool reduced = false;
  FRAME_TRY(is_reduced(infer, &reduced));
  FRAME_TRY(infer_take(infer, item->names[0], &view));
  FRAME_CHECK(&infer->frame, view.ndim >= 1, "'%s' has 0 dimensions; valid: at least 1", item->names[0]);
  struct infer_shape shape = {.ndim = 0, .dtype = view.dtype};
  for (int i = 0; i < view.ndim && !reduced; i++) {
    if (i != (view.ndim > 1)) {
      shape.sizes[shape.ndim++] = view.sizes[i];
    }
  }
  return infer_emit(infer, &shape, item->as);
}

/// log_probs (T, N, C): item->number 0 the loss, 1 one for each sequence, 2 the table (N, T, 2 longest target + 1),
/// which depends on values when the targets stand one after the other.
diopiError_t infer_ctc(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view probs, targets;
  bool reduced = false;
  FRAME_TRY(is_reduced(infer, &reduced));
  FRAME_TRY(infer_take(infer, item->names[0], &probs));
  FRAME_TRY(infer_take(infer, item->names[1], &targets));
  FRAME_CHECK(&infer->frame, probs.ndim == 2 || probs.ndim == 3, "'%s' has %d dimensions; valid: 2 or 3",
              item->names[0], (int)probs.ndim);
  struct infer_shape shape = {.ndim = 0, .dtype = probs.dtype};
  const int64_t batch = probs.ndim == 3 ? probs.sizes[1] : 1;
  if (item->number == 2) {
    if (targets.ndim != 2) {
      return infer_emit_unknown(infer, probs.dtype, item->as);
    }
    shape = (struct infer_shape){3, probs.dtype, {batch, probs.sizes[0], infer_multiply(2, targets.sizes[1]) + 1}};
  } else if (item->number == 1 || !reduced) {
    shape = (struct infer_shape){1, probs.dtype, {batch}};
  }
  return infer_emit(infer, &shape, item->as);
}

/// Logarithms of the sums of an attention: q (batch, length, heads, size) gives (batch, heads, length); sequences one
/// after the other, q (all, heads, size), give (batch, heads, longest) by the places where they begin.
diopiError_t infer_attention(struct infer *infer, const struct infer_item *item) {
  struct dit_tensor_view q, places;
  FRAME_TRY(infer_take(infer, item->names[0], &q));
  struct infer_shape shape = {3, q.dtype, {0}};
  if (!item->names[1]) {
    FRAME_CHECK(&infer->frame, q.ndim == 4, "'%s' has %d dimensions; valid: 4", item->names[0], (int)q.ndim);
    shape = (struct infer_shape){3, q.dtype, {q.sizes[0], q.sizes[2], q.sizes[1]}};
  } else {
    FRAME_TRY(infer_take(infer, item->names[1], &places));
    FRAME_CHECK(&infer->frame, q.ndim == 3 && places.ndim == 1 && places.numel > 0,
                "'%s' has %d and '%s' %d dimensions; valid: 3, and 1 with at least one place", item->names[0],
                (int)q.ndim, item->names[1], (int)places.ndim);
    shape.sizes[0] = places.numel - 1;
    shape.sizes[1] = q.sizes[1];
    FRAME_TRY(infer_get_integer(infer, item->names[2], &shape.sizes[2]));
  }
  return infer_emit(infer, &shape, item->as);
}
