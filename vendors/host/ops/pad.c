/// Pieces of input in other places: pad, roll, flip.
///
/// Along each dimension the result is a row of pieces of input, read forwards, backwards or standing still; the
/// operators differ in their pieces, and every combination of pieces is one strided copy. pad: pairs (before, after)
/// from the last dimension on; negative numbers cut off. Modes: constant (value, default 0), reflect, replicate,
/// circular, with PyTorch's limits: reflect pads less than the size, circular at most what is left of it. roll: shifts
/// along dims, or of the flattened tensor without dims. flip: dims backwards. Every dtype; out shares no memory with
/// input.
#include "engine/pad.h"

#include <string.h>

#include "engine/kernels.h"
#include "layout.h"

static void add_piece(struct pieces *pieces, int dim, int64_t to, int64_t from, int64_t count, int64_t step) {
  if (count > 0) {
    pieces->piece[dim][pieces->count[dim]++] = (struct piece){to, from, count, step};
  }
}

static void add_whole(struct pieces *pieces, const struct dit_tensor_view *view) {
  for (int dim = 0; dim < view->ndim; dim++) {
    pieces->count[dim] = 0;
    add_piece(pieces, dim, 0, 0, view->sizes[dim], 1);
  }
}

/// One copy per combination.
static diopiError_t copy_combinations(struct frame *frame, const struct dit_tensor_view *out,
                                      const struct dit_tensor_view *input, const struct pieces *pieces) {
  int at[DIT_MAX_DIMS] = {0}, dim;
  for (dim = 0; dim < out->ndim; dim++) {
    if (pieces->count[dim] == 0) {
      return diopiSuccess;
    }
  }
  do {
    struct layout to, from;
    layout_init(&to, out);
    layout_init(&from, input);
    for (int i = 0; i < out->ndim; i++) {
      const struct piece *piece = &pieces->piece[i][at[i]];
      layout_narrow(&to, i, piece->to, piece->count, 1);
      layout_narrow(&from, i, piece->from, piece->count, piece->step);
    }
    FRAME_TRY(layout_copy(frame, &to.view, &from.view));
    for (dim = out->ndim - 1; dim >= 0 && ++at[dim] == pieces->count[dim]; dim--) {
      at[dim] = 0;
    }
  } while (dim >= 0);
  return diopiSuccess;
}

/// Lines of several pieces go as a whole.
static diopiError_t copy_pieces(struct frame *frame, const struct dit_tensor_view *out,
                                const struct dit_tensor_view *input, const struct pieces *pieces) {
  static const char nothing[16];
  struct dit_error err = {.message = ""};
  if (!pad_has_lines(out, input) || pieces->count[out->ndim - 1] == 1) {
    return copy_combinations(frame, out, input, pieces);
  }
  return frame_get_code(frame, pad_lines(frame->stream, out, input, pieces, nothing, &err), &err);
}

static diopiError_t check_same(struct frame *frame, const struct dit_tensor_view *out,
                               const struct dit_tensor_view *input) {
  FRAME_TRY(layout_check_sizes(frame, "out", out, input->ndim, input->sizes));
  FRAME_TRY(layout_check_dtype(frame, "out", out, "input", input));
  return frame_check_output(frame, "out", out, &input, 1, false);
}

// Flip and roll

diopiError_t diopiFlip(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       diopiSize_t dims) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct pieces pieces;
  uint32_t mask;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TRY(check_same(&frame, &o, &x));
  FRAME_TRY(frame_get_mask(&frame, "dims", dims, x.ndim, false, &mask));
  add_whole(&pieces, &x);
  for (int dim = 0; dim < x.ndim; dim++) {
    if (mask >> dim & 1) {
      pieces.piece[dim][0].from = x.sizes[dim] - 1;
      pieces.piece[dim][0].step = -1;
    }
  }
  return copy_pieces(&frame, &o, &x, &pieces);
}

static void roll_dim(struct pieces *pieces, int dim, int64_t size, int64_t shift) {
  pieces->count[dim] = 0;
  add_piece(pieces, dim, shift, 0, size - shift, 1);
  add_piece(pieces, dim, 0, size - shift, shift, 1);
}

/// Without dims the row-major sequence of elements is shifted; a side that is not contiguous goes through a copy.
static diopiError_t roll_flat(struct frame *frame, const struct dit_tensor_view *out,
                              const struct dit_tensor_view *input, int64_t shift) {
  diopiTensorHandle_t made[2] = {NULL, NULL};
  struct dit_tensor_view flat[2] = {*input, *out};
  struct pieces pieces;
  const diopiSize_t size = {input->sizes, input->ndim};
  const int64_t one = 1, numel = input->numel;
  for (int i = 0; i < 2; i++) {
    if (flat[i].flags & DIT_TENSOR_CONTIGUOUS) {
      continue;
    }
    if (diopiRequireTensor(frame->context, &made[i], &size, NULL, dit_diopi_get_dtype(input->dtype), diopi_device) !=
        diopiSuccess) {
      return frame_fail(frame, diopiErrorOccurred, "no memory for a copy of %lld elements", (long long)numel);
    }
    FRAME_TRY(frame_take(frame, i ? "out" : "input", made[i], &flat[i]));
  }
  if (made[0]) {
    FRAME_TRY(layout_copy(frame, &flat[0], input));
  }
  const struct dit_tensor_view result = flat[1];
  for (int i = 0; i < 2; i++) {
    flat[i].ndim = 1;
    flat[i].sizes = &numel;
    flat[i].strides = &one;
  }
  roll_dim(&pieces, 0, numel, shift);
  FRAME_TRY(copy_pieces(frame, &flat[1], &flat[0], &pieces));
  return made[1] ? layout_copy(frame, out, &result) : diopiSuccess;
}

static int64_t wrap_shift(int64_t shift, int64_t size) {
  shift %= size;
  return shift < 0 ? shift + size : shift;
}

diopiError_t diopiRoll(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       diopiSize_t shifts, diopiSize_t dims) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct pieces pieces;
  int64_t total[DIT_MAX_DIMS] = {0};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TRY(check_same(&frame, &o, &x));
  const bool flat = !dims.data || dims.len == 0;
  FRAME_CHECK(&frame, shifts.data && shifts.len > 0 && (flat ? shifts.len == 1 : shifts.len == dims.len),
              "there are %lld 'shifts' and %lld 'dims'; they must be as many, or one shift and no dims",
              (long long)shifts.len, (long long)dims.len);
  add_whole(&pieces, &x);
  for (int64_t i = 0; !flat && i < dims.len; i++) {
    int dim;
    FRAME_TRY(frame_wrap_dim(&frame, "dims", dims.data[i], x.ndim, &dim));
    if (x.ndim > 0 && x.sizes[dim] > 0) {
      total[dim] = wrap_shift(total[dim] + wrap_shift(shifts.data[i], x.sizes[dim]), x.sizes[dim]);
      roll_dim(&pieces, dim, x.sizes[dim], total[dim]);
    }
  }
  if (flat && x.numel > 0) {
    return roll_flat(&frame, &o, &x, wrap_shift(shifts.data[0], x.numel));
  }
  return copy_pieces(&frame, &o, &x, &pieces);
}

// Pad

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR };

static diopiError_t parse_mode(struct frame *frame, const char *text, enum pad_mode *mode) {
  static const char *const names[] = {"constant", "reflect", "replicate", "circular"};
  for (int i = 0; text && i < 4; i++) {
    if (strcmp(text, names[i]) == 0) {
      *mode = (enum pad_mode)i;
      return diopiSuccess;
    }
  }
  return frame_fail(frame, diopiErrorOccurred, "'mode' is '%.32s'; valid: constant, reflect, replicate, circular",
                    text ? text : "(NULL)");
}

/// The pieces of one dimension. What lies in the result without padding is input from `cut` on.
static diopiError_t pad_dim(struct frame *frame, struct pieces *pieces, int dim, int64_t size, int64_t before,
                            int64_t after, enum pad_mode mode) {
  const int64_t left = before > 0 ? before : 0, right = after > 0 ? after : 0;
  const int64_t cut = before < 0 ? -before : 0, kept = size + (before < 0 ? before : 0) + (after < 0 ? after : 0);
  const int64_t end = left + kept;
  const int64_t limit = mode == PAD_REFLECT ? size - 1 : kept;
  FRAME_CHECK(frame, kept >= 0 && (mode == PAD_CONSTANT || (size > 0 && kept > 0)),
              "'pad' (%lld, %lld) leaves nothing of dimension %d, which has size %lld", (long long)before,
              (long long)after, dim, (long long)size);
  FRAME_CHECK(frame, mode == PAD_CONSTANT || mode == PAD_REPLICATE || (left <= limit && right <= limit),
              "'pad' is (%lld, %lld) for dimension %d of size %lld; at most %lld for this mode", (long long)before,
              (long long)after, dim, (long long)size, (long long)limit);
  pieces->count[dim] = 0;
  if (mode == PAD_REFLECT) {
    add_piece(pieces, dim, 0, left, left, -1);
    add_piece(pieces, dim, end, size - 2, right, -1);
  } else if (mode == PAD_REPLICATE) {
    add_piece(pieces, dim, 0, 0, left, 0);
    add_piece(pieces, dim, end, size - 1, right, 0);
  } else if (mode == PAD_CIRCULAR) {
    add_piece(pieces, dim, 0, cut + kept - left, left, 1);
    add_piece(pieces, dim, end, cut, right, 1);
  }
  add_piece(pieces, dim, left, cut, kept, 1);
  return diopiSuccess;
}

/// Fill what the pieces leave out, slab by slab: no element twice.
static diopiError_t fill_border(struct frame *frame, const struct dit_tensor_view *out, const struct pieces *pieces,
                                struct dit_scalar value) {
  struct layout inner;
  layout_init(&inner, out);
  for (int dim = 0; dim < out->ndim; dim++) {
    const bool empty = pieces->count[dim] == 0;
    const int64_t start = empty ? 0 : pieces->piece[dim][0].to, count = empty ? 0 : pieces->piece[dim][0].count;
    const int64_t ends[2][2] = {{0, start}, {start + count, out->sizes[dim] - start - count}};
    for (int i = 0; i < 2; i++) {
      struct layout slab = inner;
      struct dit_error err = {.message = ""};
      slab.view.sizes = slab.sizes;
      slab.view.strides = slab.strides;
      layout_narrow(&slab, dim, ends[i][0], ends[i][1], 1);
      FRAME_TRY(frame_get_code(frame, kernel_fill(frame->stream, &slab.view, value, &err), &err));
    }
    layout_narrow(&inner, dim, start, count, 1);
  }
  return diopiSuccess;
}

static diopiError_t make_pieces(struct frame *frame, const struct dit_tensor_view *input, diopiSize_t pad,
                                enum pad_mode mode, struct pieces *pieces, int64_t *sizes) {
  FRAME_CHECK(frame, pad.len >= 0 && pad.len % 2 == 0 && pad.len <= 2 * (int64_t)input->ndim && (pad.data || !pad.len),
              "'pad' has %lld entries; valid: an even number up to twice the %d dimensions of 'input'",
              (long long)pad.len, input->ndim);
  add_whole(pieces, input);
  for (int dim = 0; dim < input->ndim; dim++) {
    const int64_t at = 2 * (int64_t)(input->ndim - 1 - dim);
    sizes[dim] = input->sizes[dim];
    if (at >= pad.len) {
      continue;
    }
    FRAME_CHECK(frame,
                !__builtin_add_overflow(sizes[dim], pad.data[at], &sizes[dim]) &&
                    !__builtin_add_overflow(sizes[dim], pad.data[at + 1], &sizes[dim]),
                "'pad' is (%lld, %lld) for dimension %d, too large", (long long)pad.data[at],
                (long long)pad.data[at + 1], dim);
    FRAME_TRY(pad_dim(frame, pieces, dim, input->sizes[dim], pad.data[at], pad.data[at + 1], mode));
  }
  return diopiSuccess;
}

diopiError_t diopiPad(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiSize_t pad, const char *mode, const double *value) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct pieces pieces;
  enum pad_mode kind = PAD_CONSTANT;
  int64_t sizes[DIT_MAX_DIMS];
  _Alignas(16) char element[16];
  const struct dit_scalar fill = {.kind = DIT_SCALAR_DOUBLE, .v.d = value ? *value : 0};
  const struct dit_tensor_view *inputs[] = {&x};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TRY(parse_mode(&frame, mode, &kind));
  FRAME_TRY(make_pieces(&frame, &x, pad, kind, &pieces, sizes));
  FRAME_TRY(layout_check_sizes(&frame, "out", &o, x.ndim, sizes));
  FRAME_TRY(layout_check_dtype(&frame, "out", &o, "input", &x));
  FRAME_TRY(frame_check_output(&frame, "out", &o, inputs, 1, false));
  if (kind == PAD_CONSTANT) {
    FRAME_TRY(layout_get_value(&frame, "value", fill, o.dtype, element));
    if (pad_has_lines(&o, &x)) {
      struct dit_error err = {.message = ""};
      return frame_get_code(&frame, pad_lines(frame.stream, &o, &x, &pieces, element, &err), &err);
    }
    FRAME_TRY(fill_border(&frame, &o, &pieces, fill));
  }
  return copy_pieces(&frame, &o, &x, &pieces);
}
