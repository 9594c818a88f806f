/// Movement along a dimension: lists of tensors, shifted and mirrored ones, padding, triangles, rows by index.
#include <string.h>

#include "dit/alloc.h"
#include "movement.h"

#define TAKE(piece, number, name) ADAPT_TRY(piece_init(&(piece), v[number].tensor, name))

static diopiError_t copy(diopiContextHandle_t ctx, const struct piece *out, const struct piece *in) {
  return adapt_copy(ctx, &out->view, &in->view, ADAPT_WRAP);
}

// Lists

/// An old habit of PyTorch: one-dimensional tensors of size 0 fit everything.
static bool is_skipped(const struct piece *piece) {
  return piece->view.ndim == 1 && piece->sizes[0] == 0;
}

/// First pass checks, second pass writes.
static diopiError_t cat_pass(diopiContextHandle_t ctx, const union dit_diopi_value *v, const struct piece *out, int dim,
                             bool write) {
  int64_t at = 0;
  for (int64_t i = 0; i < v[3].i; i++) {
    struct piece in, part;
    ADAPT_TRY(piece_init(&in, v[2].tensors[i], "tensors"));
    if (is_skipped(&in)) {
      continue;
    }
    ADAPT_CHECK_ARGUMENT(in.view.ndim == out->view.ndim && at + in.sizes[dim] <= out->sizes[dim],
                         "tensor %lld of the list does not fit the output", (long long)i);
    piece_copy(&part, out);
    piece_narrow(&part, dim, at, in.sizes[dim], 1);
    ADAPT_TRY(piece_check_shape(&part, in.view.ndim, in.sizes));
    ADAPT_TRY(write ? copy(ctx, &part, &in) : diopiSuccess);
    at += in.sizes[dim];
  }
  ADAPT_CHECK_ARGUMENT(at == out->sizes[dim], "the tensors have %lld rows in all, the output %lld", (long long)at,
                       (long long)out->sizes[dim]);
  return diopiSuccess;
}

diopiError_t move_cat(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out;
  int dim;
  TAKE(out, 1, "out");
  ADAPT_CHECK_ARGUMENT(v[2].tensors && v[3].i > 0, "'tensors' is an empty list");
  ADAPT_CHECK_ARGUMENT(out.view.ndim > 0, "tensors without dimensions cannot be joined");
  ADAPT_TRY(piece_wrap_dim("'dim'", v[4].i, out.view.ndim, &dim));
  ADAPT_TRY(cat_pass(ctx, v, &out, dim, false));
  return cat_pass(ctx, v, &out, dim, true);
}

diopiError_t move_stack(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out;
  int dim;
  TAKE(out, 1, "out");
  ADAPT_CHECK_ARGUMENT(v[2].tensors && v[3].i > 0, "'tensors' is an empty list");
  ADAPT_CHECK_ARGUMENT(out.view.ndim > 0, "the output has no dimensions");
  ADAPT_TRY(piece_wrap_dim("'dim'", v[4].i, out.view.ndim, &dim));
  ADAPT_CHECK_ARGUMENT(out.sizes[dim] == v[3].i, "the output has size %lld for %lld tensors", (long long)out.sizes[dim],
                       (long long)v[3].i);
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < v[3].i; i++) {
      struct piece in, part;
      ADAPT_TRY(piece_init(&in, v[2].tensors[i], "tensors"));
      piece_copy(&part, &out);
      piece_narrow(&part, dim, i, 1, 1);
      piece_drop(&part, dim);
      ADAPT_TRY(piece_check_shape(&part, in.view.ndim, in.sizes));
      ADAPT_TRY(pass ? copy(ctx, &part, &in) : diopiSuccess);
    }
  }
  return diopiSuccess;
}

diopiError_t move_split(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece in;
  int dim;
  TAKE(in, 3, "input");
  ADAPT_CHECK_ARGUMENT(v[1].tensors && v[2].i >= 0 && v[4].size.len == v[2].i, "%lld outputs for %lld sizes",
                       (long long)v[2].i, (long long)v[4].size.len);
  ADAPT_CHECK_ARGUMENT(in.view.ndim > 0, "a tensor without dimensions cannot be split");
  ADAPT_TRY(piece_wrap_dim("'dim'", v[5].i, in.view.ndim, &dim));
  for (int pass = 0; pass < 2; pass++) {
    int64_t at = 0;
    for (int64_t i = 0; i < v[2].i; i++) {
      struct piece out, part;
      const int64_t size = v[4].size.data[i];
      ADAPT_TRY(piece_init(&out, v[1].tensors[i], "outs"));
      ADAPT_CHECK_ARGUMENT(size >= 0 && size <= in.sizes[dim] - at, "'splitSizes' holds %lld at %lld", (long long)size,
                           (long long)i);
      piece_copy(&part, &in);
      piece_narrow(&part, dim, at, size, 1);
      ADAPT_TRY(piece_check_shape(&out, part.view.ndim, part.sizes));
      ADAPT_TRY(pass ? copy(ctx, &out, &part) : diopiSuccess);
      at += size;
    }
    ADAPT_CHECK_ARGUMENT(at == in.sizes[dim], "'splitSizes' adds up to %lld, the dimension has %lld", (long long)at,
                         (long long)in.sizes[dim]);
  }
  return diopiSuccess;
}

diopiError_t move_mesh_grid(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  const int64_t count = v[3].i;
  int64_t sizes[DIT_MAX_DIMS];
  ADAPT_CHECK_ARGUMENT(v[1].tensors && v[2].tensors && count > 0 && count <= DIT_MAX_DIMS, "there are %lld inputs",
                       (long long)count);
  for (int64_t i = 0; i < count; i++) {
    struct piece in;
    ADAPT_TRY(piece_init(&in, v[2].tensors[i], "inputs"));
    ADAPT_CHECK_ARGUMENT(in.view.ndim <= 1, "input %lld has %d dimensions; valid: 0 or 1", (long long)i, in.view.ndim);
    sizes[i] = in.view.ndim ? in.sizes[0] : 1;
  }
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < count; i++) {
      struct piece in, out;
      ADAPT_TRY(piece_init(&in, v[2].tensors[i], "inputs"));
      ADAPT_TRY(piece_init(&out, v[1].tensors[i], "outs"));
      ADAPT_TRY(piece_check_shape(&out, (int)count, sizes));
      while (in.view.ndim && in.view.ndim < count - i) {
        piece_insert(&in, in.view.ndim);
      }
      ADAPT_TRY(pass ? copy(ctx, &out, &in) : diopiSuccess);
    }
  }
  return diopiSuccess;
}

// One dimension after the other

/// A scratch tensor like `in` with another size in one dimension, filled by a map whose memory goes back here.
static diopiError_t apply_map(diopiContextHandle_t ctx, const struct piece *in, struct piece *out, int dim,
                              int64_t new_size, int64_t *map) {
  struct piece shape;
  piece_copy(&shape, in);
  shape.sizes[dim] = new_size;
  diopiTensorHandle_t made = adapt_create(ctx, in->view.ndim, shape.sizes, in->view.dtype);
  diopiError_t code = made ? piece_init(out, made, "out") : diopiErrorOccurred;
  code = code == diopiSuccess ? piece_copy_mapped(ctx, out, in, dim, map) : code;
  dit_free(map);
  return code;
}

static int64_t *create_map(int64_t size) {
  int64_t *map = dit_malloc(sizeof(int64_t) * (size_t)(size + 1));
  if (!map) {
    adapt_fail(diopiErrorOccurred, diopiExtFailureOther, "no memory for %lld positions", (long long)size);
  }
  return map;
}

static diopiError_t flip_dim(diopiContextHandle_t ctx, const struct piece *in, struct piece *out, int dim) {
  const int64_t size = in->sizes[dim];
  int64_t *map = create_map(size);
  for (int64_t j = 0; map && j < size; j++) {
    map[j] = size - 1 - j;
  }
  return map ? apply_map(ctx, in, out, dim, size, map) : diopiErrorOccurred;
}

diopiError_t move_flip(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, now, next;
  uint32_t seen = 0;
  TAKE(out, 1, "out");
  TAKE(now, 2, "input");
  ADAPT_TRY(piece_check_shape(&out, now.view.ndim, now.sizes));
  for (int64_t i = 0; i < v[3].size.len; i++) {
    int dim;
    ADAPT_TRY(piece_wrap_dim("an entry of 'dims'", v[3].size.data[i], now.view.ndim, &dim));
    ADAPT_CHECK_ARGUMENT(!(seen >> dim & 1), "'dims' names dimension %d twice", dim);
    seen |= 1U << dim;
    if (now.view.ndim == 0) {
      continue;
    }
    ADAPT_TRY(flip_dim(ctx, &now, &next, dim));
    piece_copy(&now, &next);
  }
  return copy(ctx, &out, &now);
}

static diopiError_t roll_dim(diopiContextHandle_t ctx, const struct piece *in, struct piece *out, int dim,
                             int64_t shift) {
  const int64_t size = in->sizes[dim];
  int64_t *map = create_map(size);
  shift = size ? ((shift % size) + size) % size : 0;
  for (int64_t j = 0; map && j < size; j++) {
    map[j] = (j - shift + size) % size;
  }
  return map ? apply_map(ctx, in, out, dim, size, map) : diopiErrorOccurred;
}

static diopiError_t roll_flat(diopiContextHandle_t ctx, const struct piece *out, const struct piece *in,
                              const union dit_diopi_value *v) {
  struct piece flat, rolled;
  diopiTensorHandle_t packed = adapt_create(ctx, in->view.ndim, in->sizes, in->view.dtype);
  if (!packed) {
    return diopiErrorOccurred;
  }
  ADAPT_TRY(adapt_copy(ctx, &packed->view, &in->view, ADAPT_WRAP));
  ADAPT_TRY(piece_init(&flat, packed, "input"));
  flat.sizes[0] = in->view.numel;
  flat.strides[0] = 1;
  flat.view.ndim = 1;
  piece_update(&flat);
  ADAPT_TRY(roll_dim(ctx, &flat, &rolled, 0, v[3].size.data[0]));
  rolled.view.ndim = in->view.ndim;
  memcpy(rolled.sizes, in->sizes, sizeof(int64_t) * (size_t)in->view.ndim);
  dit_shape_set_contiguous(in->view.ndim, rolled.sizes, rolled.strides);
  piece_update(&rolled);
  return copy(ctx, out, &rolled);
}

diopiError_t move_roll(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, now, next;
  TAKE(out, 1, "out");
  TAKE(now, 2, "input");
  ADAPT_TRY(piece_check_shape(&out, now.view.ndim, now.sizes));
  const int64_t shifts = v[3].size.len, dims = v[4].size.len;
  ADAPT_CHECK_ARGUMENT(shifts > 0 && (shifts == dims || (dims == 0 && shifts == 1)), "%lld shifts for %lld dims",
                       (long long)shifts, (long long)dims);
  for (int i = 0; i < (int)dims; i++) {
    int dim;
    ADAPT_TRY(piece_wrap_dim("an entry of 'dims'", v[4].size.data[i], now.view.ndim, &dim));
  }
  if (now.view.numel == 0) {
    return diopiSuccess;
  }
  if (dims == 0) {
    return roll_flat(ctx, &out, &now, v);
  }
  for (int i = 0; i < (int)dims && now.view.ndim > 0; i++) {
    int dim;
    ADAPT_TRY(piece_wrap_dim("an entry of 'dims'", v[4].size.data[i], now.view.ndim, &dim));
    ADAPT_TRY(roll_dim(ctx, &now, &next, dim, v[3].size.data[i]));
    piece_copy(&now, &next);
  }
  return copy(ctx, &out, &now);
}

// Padding

static int64_t get_pad(const union dit_diopi_value *v, int ndim, int dim, int side) {
  const int64_t at = 2 * (int64_t)(ndim - 1 - dim) + side;
  return at < v[3].size.len ? v[3].size.data[at] : 0;
}

static int64_t map_position(const char *mode, int64_t at, int64_t size) {
  if (strcmp(mode, "circular") == 0) {
    return ((at % size) + size) % size;
  }
  if (strcmp(mode, "replicate") == 0) {
    return at < 0 ? 0 : at >= size ? size - 1 : at;
  }
  at = at < 0 ? -at : at;
  return at >= size ? 2 * (size - 1) - at : at;
}

static diopiError_t pad_dim(diopiContextHandle_t ctx, const struct piece *in, struct piece *out, int dim, int64_t low,
                            int64_t new_size, const char *mode) {
  int64_t *map = create_map(new_size);
  for (int64_t j = 0; map && j < new_size; j++) {
    map[j] = map_position(mode, j - low, in->sizes[dim]);
    if (map[j] < 0 || map[j] >= in->sizes[dim]) {
      dit_free(map);
      return adapt_fail(diopiErrorOccurred, diopiExtFailureArgument, "'pad' is larger than mode %s allows", mode);
    }
  }
  return map ? apply_map(ctx, in, out, dim, new_size, map) : diopiErrorOccurred;
}

static diopiError_t pad_constant(diopiContextHandle_t ctx, const union dit_diopi_value *v, struct piece *out,
                                 struct piece *in) {
  const int ndim = in->view.ndim;
  const double value = v[5].doubles ? *v[5].doubles : 0;
  ADAPT_TRY(piece_fill(ctx, out, &(diopiScalar_t){.stype = diopi_dtype_float64, .fval = value}));
  for (int d = 0; d < ndim; d++) {
    const int64_t low = get_pad(v, ndim, d, 0), high = get_pad(v, ndim, d, 1);
    const int64_t keep = in->sizes[d] + (low < 0 ? low : 0) + (high < 0 ? high : 0);
    piece_narrow(in, d, low < 0 ? -low : 0, keep > 0 ? keep : 0, 1);
    piece_narrow(out, d, low > 0 ? low : 0, keep > 0 ? keep : 0, 1);
  }
  return copy(ctx, out, in);
}

diopiError_t move_pad(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, now, next;
  const char *mode = v[4].string;
  int64_t sizes[DIT_MAX_DIMS];
  TAKE(out, 1, "out");
  TAKE(now, 2, "input");
  const int ndim = now.view.ndim;
  ADAPT_CHECK_ARGUMENT(mode && (strcmp(mode, "constant") == 0 || strcmp(mode, "reflect") == 0 ||
                                strcmp(mode, "replicate") == 0 || strcmp(mode, "circular") == 0),
                       "'mode' is '%s'; valid: constant, reflect, replicate, circular", mode ? mode : "(null)");
  ADAPT_CHECK_ARGUMENT(v[3].size.len % 2 == 0 && v[3].size.len <= 2 * ndim, "'pad' has %lld entries for %d dimensions",
                       (long long)v[3].size.len, ndim);
  for (int d = 0; d < ndim; d++) {
    const int64_t low = get_pad(v, ndim, d, 0), high = get_pad(v, ndim, d, 1);
    sizes[d] = now.sizes[d] + low + high;
    ADAPT_CHECK_ARGUMENT(sizes[d] >= 0, "'pad' leaves dimension %d a negative size", d);
    ADAPT_CHECK_ARGUMENT(
        mode[0] == 'c' || mode[3] == 'l' || (low < now.sizes[d] && high < now.sizes[d]) || (low == 0 && high == 0),
        "'pad' is larger than mode %s allows", mode);
    ADAPT_CHECK_ARGUMENT(strcmp(mode, "circular") != 0 || (low <= now.sizes[d] && high <= now.sizes[d]),
                         "'pad' wraps around more than once");
  }
  ADAPT_TRY(piece_check_shape(&out, ndim, sizes));
  if (strcmp(mode, "constant") == 0) {
    return pad_constant(ctx, v, &out, &now);
  }
  for (int d = 0; d < ndim && out.view.numel > 0; d++) {
    if (get_pad(v, ndim, d, 0) || get_pad(v, ndim, d, 1)) {
      ADAPT_TRY(pad_dim(ctx, &now, &next, d, get_pad(v, ndim, d, 0), sizes[d], mode));
      piece_copy(&now, &next);
    }
  }
  return copy(ctx, &out, &now);
}
