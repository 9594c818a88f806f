/// Sparse convolution of mmcv by pairs of rows, its gradients, with bias, and largest values by pairs.
///
/// indicePairs (V, 2, P) has, for each of V places of the kernel, indiceNum[v] pairs (input row, output row); filters
/// are
/// (..., C, O) with V matrices. out[output row] += features[input row] @ filters[v]; _inverse exchanges the two rows of
/// the pairs. With _subM rows stay where they are, and the place with the most pairs (the first such), the kernel's
/// middle, meets every row with itself. indice_maxpool: the largest of the input rows that meet an output row, and at
/// least 0; the gradient goes to every input that equals the largest. Floating dtypes; pairs int32 or int64.
#include <string.h>

#include "call.h"
#include "engine/scratch.h"
#include "product.h"

#define LOOPS "sparse_conv_loops.h"
#include "twice.h"

struct sparse_task {
  bool inverse, same;
};

/// 0 features, 1 pairs, 2 counts: every pair is one of rows that exist.
static diopiError_t check_pairs(struct call *call, int64_t from, int64_t to, bool inverse) {
  const int64_t room = call_size(call, 'p'), *pairs = call_data(call, 1), *counts = call_data(call, 2);
  for (int64_t i = 0; i < 2 * call_size(call, 'v'); i++) {
    const int64_t limit = (i % 2 == 1) != inverse ? to : from;
    for (int64_t k = 0; k < counts[i / 2]; k++) {
      FRAME_CHECK_RANGE(&call->frame, pairs[i * room + k] >= 0 && pairs[i * room + k] < limit,
                        "'indicePairs' has the value %lld; valid there: 0 to %lld", (long long)pairs[i * room + k],
                        (long long)limit - 1);
    }
  }
  return diopiSuccess;
}

/// The place of the kernel with the most pairs.
static int64_t find_middle(const struct call *call) {
  const int64_t *counts = call_data(call, 2);
  int64_t middle = 0;
  for (int64_t v = 1; v < call_size(call, 'v'); v++) {
    middle = counts[v] > counts[middle] ? v : middle;
  }
  return middle;
}

/// Rows of place v that are read and written, and how many; the middle of _subM has NULL rows: all of them.
static int64_t get_rows(const struct call *call, int64_t v, int64_t middle, const int64_t **in, const int64_t **out) {
  const struct sparse_task *task = call->task;
  const int64_t room = call_size(call, 'p'), *pairs = (const int64_t *)call_data(call, 1) + 2 * v * room;
  *in = task->same && v == middle ? NULL : pairs + (task->inverse ? room : 0);
  *out = task->same && v == middle ? NULL : pairs + (task->inverse ? 0 : room);
  return *in ? ((const int64_t *)call_data(call, 2))[v] : call_size(call, 'n');
}

static const void *take(const struct call *call, const void *from, const int64_t *rows, int64_t count, int64_t width,
                        void *room) {
  if (!rows) {
    return from;
  }
  if (call->work == DIT_DTYPE_F64) {
    take_rows_f64(from, rows, count, width, room);
  } else {
    take_rows_f32(from, rows, count, width, room);
  }
  return room;
}

static void add(const struct call *call, const void *from, const int64_t *rows, int64_t count, int64_t width,
                void *to) {
  if (call->work == DIT_DTYPE_F64) {
    add_rows_f64(from, rows, count, width, to);
  } else {
    add_rows_f32(from, rows, count, width, to);
  }
}

/// Numbers 0 .. count - 1, for rows that stay where they are.
static int64_t *list_rows(int64_t count) {
  int64_t *rows = scratch_take(sizeof *rows * ((size_t)count + 1));
  for (int64_t i = 0; rows && i < count; i++) {
    rows[i] = i;
  }
  return rows;
}

/// 3 result, 4 bias, 5 filters.
static diopiError_t run_conv(struct call *call) {
  const struct sparse_task *task = call->task;
  const int64_t wide = call_size(call, 'c'), out_wide = call_size(call, 'o'), rows = call_size(call, 'n');
  const size_t width = dit_dtype_get_size(call->work), most = (size_t)(call_size(call, 'p') + rows + 1);
  FRAME_TRY(check_pairs(call, rows, call->tensors[3].view.sizes[0], task->inverse));
  char *room = scratch_take(most * (size_t)(wide + out_wide) * width + 1);
  int64_t *all = list_rows(rows);
  diopiError_t code = room && all ? diopiSuccess : dense_fail(&call->frame);
  char *made = room ? room + most * (size_t)wide * width : NULL;
  const int64_t middle = find_middle(call);
  call_zero(call, 3);
  for (int64_t v = 0; code == diopiSuccess && v < call_size(call, 'v'); v++) {
    const int64_t *in, *out, count = get_rows(call, v, middle, &in, &out);
    const char *filter = (const char *)call_data(call, 5) + (size_t)(v * wide * out_wide) * width;
    if (count * wide * out_wide > 0) {
      const void *from = take(call, call_data(call, 0), in, count, wide, room);
      product_multiply(call->work, count, out_wide, wide, from, false, filter, false, made);
      add(call, made, out ? out : all, count, out_wide, call_data(call, 3));
    }
  }
  if (code == diopiSuccess) {
    (call->work == DIT_DTYPE_F64 ? add_bias_f64 : add_bias_f32)(call);
  }
  scratch_give(all);
  scratch_give(room);
  return code;
}

/// Tensors 0 to 2, and the filters as number `at` whatever their shape; 'v' of them.
static diopiError_t take_pairs(struct call *call, diopiConstTensorHandle_t features,
                               diopiConstTensorHandle_t indicePairs, diopiConstTensorHandle_t indiceNum) {
  CALL_IN(call, features, "f:nc");
  CALL_IN(call, indicePairs, "i:v2p");
  CALL_IN(call, indiceNum, "i:v");
  CALL_CHECK(call, call_size(call, 'v') > 0, "'indicePairs' has no places of a kernel");
  call_limit(call, 2, 0, call_size(call, 'p'));
  return diopiSuccess;
}

static diopiError_t check_filters(struct call *call, const struct dit_tensor_view *filters) {
  CALL_CHECK(call, filters->ndim >= 2, "'filters' has %d dimensions; it must have 2 or more", (int)filters->ndim);
  const int64_t in = filters->sizes[filters->ndim - 2], out = filters->sizes[filters->ndim - 1];
  CALL_CHECK(call, in == call_size(call, 'c') && filters->numel == in * out * call_size(call, 'v'),
             "'filters' is no list of %lld matrices with %lld rows", (long long)call_size(call, 'v'),
             (long long)call_size(call, 'c'));
  call->sizes['o'] = out;
  return diopiSuccess;
}

static diopiError_t convolve(struct call *call, diopiTensorHandle_t *out, diopiConstTensorHandle_t features,
                             diopiConstTensorHandle_t filters, diopiConstTensorHandle_t bias,
                             diopiConstTensorHandle_t indicePairs, diopiConstTensorHandle_t indiceNum,
                             int64_t numActOut, int64_t _inverse, int64_t _subM) {
  struct dit_tensor_view view;
  diopiTensorHandle_t made = NULL;
  CALL_CHECK(call, out, "'out' is NULL; it must be a place for the result's handle");
  CALL_SET(call, numActOut, 'r');
  FRAME_TRY(take_pairs(call, features, indicePairs, indiceNum));
  FRAME_TRY(frame_take(&call->frame, "filters", filters, &view));
  FRAME_TRY(check_filters(call, &view));
  CALL_CHECK(call, !_subM || numActOut == call_size(call, 'n'), "'numActOut' is %lld; with '_subM' it must be %lld",
             (long long)numActOut, (long long)call_size(call, 'n'));
  call->count = 4;  // the result's place, made when all is checked
  FRAME_TRY(call_take(call, "bias", bias, "f:o", CALL_ROLE_IN, bias == NULL));
  CALL_IN(call, filters, "f:*");
  const int64_t sizes[2] = {numActOut, call_size(call, 'o')};
  const int count = call->count;
  call->count = 3;
  FRAME_TRY(call_make(call, "out", &made, call->dtype, 2, sizes, 'f'));
  call->count = count;
  call->task = &(struct sparse_task){_inverse != 0, _subM != 0};
  FRAME_TRY(call_run(call, run_conv));
  *out = made;
  return diopiSuccess;
}

diopiError_t diopiIndiceConvMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t features,
                                 diopiConstTensorHandle_t filters, diopiConstTensorHandle_t indicePairs,
                                 diopiConstTensorHandle_t indiceNum, int64_t numActOut, int64_t _inverse,
                                 int64_t _subM) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  return convolve(&call, out, features, filters, NULL, indicePairs, indiceNum, numActOut, _inverse, _subM);
}

diopiError_t diopiFusedIndiceConvBatchnormMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                               diopiConstTensorHandle_t features, diopiConstTensorHandle_t filters,
                                               diopiConstTensorHandle_t bias, diopiConstTensorHandle_t indicePairs,
                                               diopiConstTensorHandle_t indiceNum, int64_t numActOut, int64_t _inverse,
                                               int64_t _subM) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, bias, "'bias' is NULL; it must be a tensor");
  return convolve(&call, out, features, filters, bias, indicePairs, indiceNum, numActOut, _inverse, _subM);
}

/// 3 outGrad (r, o), 4 filters, 5 gradient of features, 6 gradient of filters.
static diopiError_t run_conv_backward(struct call *call) {
  const struct sparse_task *task = call->task;
  const int64_t wide = call_size(call, 'c'), out_wide = call_size(call, 'o'), rows = call_size(call, 'n');
  const size_t width = dit_dtype_get_size(call->work), most = (size_t)(call_size(call, 'p') + rows + 1);
  FRAME_TRY(check_pairs(call, rows, call_size(call, 'r'), task->inverse));
  char *room = scratch_take(most * (size_t)(2 * wide + out_wide) * width + 1);
  int64_t *all = list_rows(rows);
  const diopiError_t code = room && all ? diopiSuccess : dense_fail(&call->frame);
  const int64_t middle = find_middle(call);
  call_zero(call, 5);
  call_zero(call, 6);
  for (int64_t v = 0; code == diopiSuccess && v < call_size(call, 'v'); v++) {
    const int64_t *in, *out, count = get_rows(call, v, middle, &in, &out);
    const size_t at = (size_t)(v * wide * out_wide) * width;
    if (count * wide * out_wide > 0) {
      const void *from = take(call, call_data(call, 0), in, count, wide, room);
      const void *grad = take(call, call_data(call, 3), out, count, out_wide, room + most * (size_t)wide * width);
      char *made = room + most * (size_t)(wide + out_wide) * width;
      product_multiply(call->work, wide, out_wide, count, from, true, grad, false, (char *)call_data(call, 6) + at);
      product_multiply(call->work, count, wide, out_wide, grad, false, (const char *)call_data(call, 4) + at, true,
                       made);
      add(call, made, in ? in : all, count, wide, call_data(call, 5));
    }
  }
  scratch_give(all);
  scratch_give(room);
  return code;
}

diopiError_t diopiIndiceConvBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *outlist,
                                         diopiConstTensorHandle_t features, diopiConstTensorHandle_t filters,
                                         diopiConstTensorHandle_t outGrad, diopiConstTensorHandle_t indicePairs,
                                         diopiConstTensorHandle_t indiceNum, int64_t _inverse, int64_t _subM) {
  struct call call;
  diopiTensorHandle_t made[2] = {NULL, NULL};
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, outlist, "'outlist' is NULL; it must be room for two handles");
  FRAME_TRY(take_pairs(&call, features, indicePairs, indiceNum));
  CALL_IN(&call, outGrad, "f:ro");
  CALL_IN(&call, filters, "f:*");
  const int64_t out_wide = call_size(&call, 'o');
  FRAME_TRY(check_filters(&call, &call.tensors[4].view));
  CALL_CHECK(&call, out_wide == call_size(&call, 'o'), "'outGrad' has %lld columns; it must have %lld",
             (long long)out_wide, (long long)call_size(&call, 'o'));
  CALL_CHECK(&call, !_subM || call_size(&call, 'r') == call_size(&call, 'n'),
             "'outGrad' has %lld rows; with '_subM' it must have %lld", (long long)call_size(&call, 'r'),
             (long long)call_size(&call, 'n'));
  const struct dit_tensor_view *in = &call.tensors[0].view, *filter = &call.tensors[4].view;
  FRAME_TRY(call_make(&call, "outlist", &made[0], call.dtype, in->ndim, in->sizes, 'f'));
  FRAME_TRY(call_make(&call, "outlist", &made[1], call.dtype, filter->ndim, filter->sizes, 'f'));
  call.task = &(struct sparse_task){_inverse != 0, _subM != 0};
  FRAME_TRY(call_run(&call, run_conv_backward));
  memcpy(outlist, made, sizeof made);
  return diopiSuccess;
}

// Largest values

static diopiError_t run_pool(struct call *call) {
  const int64_t room = call_size(call, 'p'), *pairs = call_data(call, 1), *counts = call_data(call, 2);
  const bool backward = call->count > 4;
  FRAME_TRY(check_pairs(call, call_size(call, 'n'), call_size(call, 'r'), false));
  call_zero(call, backward ? 5 : 3);
  for (int64_t v = 0; v < call_size(call, 'v'); v++) {
    const int64_t *in = pairs + 2 * v * room, *to = in + room;
    if (call->work == DIT_DTYPE_F64) {
      (backward ? pool_backward_rows_f64 : pool_rows_f64)(call, in, to, counts[v]);
    } else {
      (backward ? pool_backward_rows_f32 : pool_rows_f32)(call, in, to, counts[v]);
    }
  }
  return diopiSuccess;
}

diopiError_t diopiIndiceMaxpoolMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                    diopiConstTensorHandle_t features, diopiConstTensorHandle_t indicePairs,
                                    diopiConstTensorHandle_t indiceNum, int64_t numAct) {
  struct call call;
  diopiTensorHandle_t made = NULL;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, out, "'out' is NULL; it must be a place for the result's handle");
  CALL_SET(&call, numAct, 'r');
  FRAME_TRY(take_pairs(&call, features, indicePairs, indiceNum));
  const int64_t sizes[2] = {numAct, call_size(&call, 'c')};
  FRAME_TRY(call_make(&call, "out", &made, call.dtype, 2, sizes, 'f'));
  FRAME_TRY(call_run(&call, run_pool));
  *out = made;
  return diopiSuccess;
}

diopiError_t diopiIndiceMaxpoolBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                            diopiConstTensorHandle_t features, diopiConstTensorHandle_t outFeatures,
                                            diopiConstTensorHandle_t outGrad, diopiConstTensorHandle_t indicePairs,
                                            diopiConstTensorHandle_t indiceNum) {
  struct call call;
  diopiTensorHandle_t made = NULL;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, out, "'out' is NULL; it must be a place for the result's handle");
  FRAME_TRY(take_pairs(&call, features, indicePairs, indiceNum));
  CALL_IN(&call, outFeatures, "f:rc");
  CALL_IN(&call, outGrad, "f:rc");
  FRAME_TRY(call_make(&call, "out", &made, call.dtype, 2, call.tensors[0].view.sizes, 'f'));
  FRAME_TRY(call_run(&call, run_pool));
  *out = made;
  return diopiSuccess;
}
