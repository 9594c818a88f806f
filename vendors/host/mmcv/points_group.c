/// Features of points by indices in mmcv: gather, group, stacked group, three-point interpolation, scores of PAConv.
///
/// gather and group: out[b, c, i] = points[b, c, idx[b, i]]; the gradient adds up. Stacked: batches of different sizes
/// lie one after another and indices count within their batch. assign_score_withk: out[b, o, p, k] = sum over m of
/// scores[b, p, k, m] (points[b, i, m, o] - centers[b, j, m, o]) with i = knn_idx[b, p, k], j = knn_idx[b, p, 0]; an
/// index that is no point gives 0. Other indices out of range are errors. Floating dtypes; indices int32 or int64.
#include "call.h"

/// Indices per batch: (b, p) or (b, p, s).
static int64_t count_picks(const struct call *call) {
  return call_size(call, 'p') * (call_size(call, 's') < 0 ? 1 : call_size(call, 's'));
}
static bool is_inside(int64_t index, int64_t count) {
  return index >= 0 && index < count;
}

/// Stacked batches: 3 counts of idx, 4 counts of features.
static int64_t find_batch(const struct call *call, int64_t i) {
  const int64_t *counts = call_data(call, 3);
  int64_t b = 0;
  for (int64_t end = counts[0]; i >= end; end += counts[++b]) {
  }
  return b;
}
static int64_t find_first(const struct call *call, int64_t i) {
  const int64_t *counts = call_data(call, 4);
  int64_t first = 0;
  for (int64_t b = find_batch(call, i) - 1; b >= 0; b--) {
    first += counts[b];
  }
  return first;
}

#define LOOPS "points_group_loops.h"
#include "twice.h"

static diopiError_t run_gather(struct call *call) {
  CALL_LOOP(call, call_size(call, 'b') * call_size(call, 'c'), 2 * count_picks(call), gather_rows);
  return diopiSuccess;
}
static diopiError_t run_gather_backward(struct call *call) {
  call_zero(call, 0);
  CALL_LOOP(call, call_size(call, 'b') * call_size(call, 'c'), 4 * count_picks(call), gather_backward_rows);
  return diopiSuccess;
}
static diopiError_t run_interpolate(struct call *call) {
  CALL_LOOP(call, call_size(call, 'b') * call_size(call, 'c'), 6 * call_size(call, 'n'), interpolate_rows);
  return diopiSuccess;
}
static diopiError_t run_interpolate_backward(struct call *call) {
  call_zero(call, 0);
  CALL_LOOP(call, call_size(call, 'b') * call_size(call, 'c'), 8 * call_size(call, 'n'), interpolate_backward_rows);
  return diopiSuccess;
}

diopiError_t diopiGatherPointsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t points,
                                   diopiConstTensorHandle_t idx, int64_t b, int64_t c, int64_t n, int64_t npoints) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, b, 'b');
  CALL_SET(&call, c, 'c');
  CALL_SET(&call, n, 'n');
  CALL_SET(&call, npoints, 'p');
  CALL_IN(&call, points, "f:bcn");
  CALL_IN(&call, idx, "i:bp");
  CALL_OUT(&call, out, "f:bcp");
  call_limit(&call, 1, 0, n - 1);
  return call_run(&call, run_gather);
}

diopiError_t diopiGatherPointsBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_points,
                                           diopiConstTensorHandle_t grad_out, diopiConstTensorHandle_t idx, int64_t b,
                                           int64_t c, int64_t n, int64_t npoints) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, b, 'b');
  CALL_SET(&call, c, 'c');
  CALL_SET(&call, n, 'n');
  CALL_SET(&call, npoints, 'p');
  CALL_OUT(&call, grad_points, "f:bcn");
  CALL_IN(&call, idx, "i:bp");
  CALL_IN(&call, grad_out, "f:bcp");
  call_limit(&call, 1, 0, n - 1);
  return call_run(&call, run_gather_backward);
}

diopiError_t diopiGroupPointsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t points,
                                  diopiConstTensorHandle_t idx, int64_t b, int64_t c, int64_t n, int64_t npoints,
                                  int64_t nsample) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, b, 'b');
  CALL_SET(&call, c, 'c');
  CALL_SET(&call, n, 'n');
  CALL_SET(&call, npoints, 'p');
  CALL_SET(&call, nsample, 's');
  CALL_IN(&call, points, "f:bcn");
  CALL_IN(&call, idx, "i:bps");
  CALL_OUT(&call, out, "f:bcps");
  call_limit(&call, 1, 0, n - 1);
  return call_run(&call, run_gather);
}

diopiError_t diopiGroupPointsBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_points,
                                          diopiConstTensorHandle_t grad_out, diopiConstTensorHandle_t idx, int64_t b,
                                          int64_t c, int64_t n, int64_t npoints, int64_t nsample) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, b, 'b');
  CALL_SET(&call, c, 'c');
  CALL_SET(&call, n, 'n');
  CALL_SET(&call, npoints, 'p');
  CALL_SET(&call, nsample, 's');
  CALL_OUT(&call, grad_points, "f:bcn");
  CALL_IN(&call, idx, "i:bps");
  CALL_IN(&call, grad_out, "f:bcps");
  call_limit(&call, 1, 0, n - 1);
  return call_run(&call, run_gather_backward);
}

diopiError_t diopiThreeInterpolateMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t points, diopiConstTensorHandle_t idx,
                                       diopiConstTensorHandle_t weight, int64_t b, int64_t c, int64_t m, int64_t n) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, b, 'b');
  CALL_SET(&call, c, 'c');
  CALL_SET(&call, m, 'm');
  CALL_SET(&call, n, 'n');
  CALL_IN(&call, points, "f:bcm");
  CALL_IN(&call, idx, "i:bn3");
  CALL_OUT(&call, out, "f:bcn");
  CALL_IN(&call, weight, "f:bn3");
  call_limit(&call, 1, 0, m - 1);
  return call_run(&call, run_interpolate);
}

diopiError_t diopiThreeInterpolateBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_points,
                                               diopiConstTensorHandle_t grad_out, diopiConstTensorHandle_t idx,
                                               diopiConstTensorHandle_t weight, int64_t b, int64_t c, int64_t n,
                                               int64_t m) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, b, 'b');
  CALL_SET(&call, c, 'c');
  CALL_SET(&call, m, 'm');
  CALL_SET(&call, n, 'n');
  CALL_OUT(&call, grad_points, "f:bcm");
  CALL_IN(&call, idx, "i:bn3");
  CALL_IN(&call, grad_out, "f:bcn");
  CALL_IN(&call, weight, "f:bn3");
  call_limit(&call, 1, 0, m - 1);
  return call_run(&call, run_interpolate_backward);
}

/// Counts add up, and every index is one of its batch.
static diopiError_t check_stack(struct call *call) {
  const int64_t samples = call_size(call, 's'), *idx = call_data(call, 1);
  for (int number = 3; number < 5; number++) {
    const int64_t *counts = call_data(call, number), total = call_size(call, number == 3 ? 'm' : 'n');
    int64_t sum = 0;
    for (int64_t b = 0; b < call_size(call, 'b'); b++) {
      sum += counts[b] >= 0 ? counts[b] : INT32_MAX;
    }
    FRAME_CHECK_RANGE(&call->frame, sum == total, "'%s' does not add up to %lld", call->tensors[number].name,
                      (long long)total);
  }
  for (int64_t i = 0; i < call_size(call, 'm'); i++) {
    const int64_t count = ((const int64_t *)call_data(call, 4))[find_batch(call, i)];
    for (int64_t s = 0; s < samples; s++) {
      FRAME_CHECK_RANGE(&call->frame, is_inside(idx[i * samples + s], count),
                        "'%s' has the value %lld; valid in its batch: 0 to %lld", call->tensors[1].name,
                        (long long)idx[i * samples + s], (long long)count - 1);
    }
  }
  return diopiSuccess;
}

static diopiError_t run_stack(struct call *call) {
  FRAME_TRY(check_stack(call));
  CALL_LOOP(call, call_size(call, 'm'), 2 * call_size(call, 'c') * call_size(call, 's'), stack_rows);
  return diopiSuccess;
}
static diopiError_t run_stack_backward(struct call *call) {
  FRAME_TRY(check_stack(call));
  call_zero(call, 0);
  CALL_LOOP(call, call_size(call, 'c'), 4 * call_size(call, 'm') * call_size(call, 's'), stack_backward_channels);
  return diopiSuccess;
}

diopiError_t diopiStackGroupPointsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t out_tensor,
                                       diopiConstTensorHandle_t features_tensor,
                                       diopiConstTensorHandle_t features_batch_cnt_tensor,
                                       diopiConstTensorHandle_t idx_tensor,
                                       diopiConstTensorHandle_t idx_batch_cnt_tensor, int64_t b, int64_t c, int64_t m,
                                       int64_t nsample) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, b, 'b');
  CALL_SET(&call, c, 'c');
  CALL_SET(&call, m, 'm');
  CALL_SET(&call, nsample, 's');
  CALL_IN(&call, features_tensor, "f:nc");
  CALL_IN(&call, idx_tensor, "i:ms");
  CALL_OUT(&call, out_tensor, "f:mcs");
  CALL_IN(&call, idx_batch_cnt_tensor, "i:b");
  CALL_IN(&call, features_batch_cnt_tensor, "i:b");
  return call_run(&call, run_stack);
}

diopiError_t diopiStackGroupPointsBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_features_tensor,
                                               diopiConstTensorHandle_t grad_out_tensor,
                                               diopiConstTensorHandle_t idx_tensor,
                                               diopiConstTensorHandle_t idx_batch_cnt_tensor,
                                               diopiConstTensorHandle_t features_batch_cnt_tensor, int64_t b, int64_t c,
                                               int64_t m, int64_t n, int64_t nsample) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, b, 'b');
  CALL_SET(&call, c, 'c');
  CALL_SET(&call, m, 'm');
  CALL_SET(&call, n, 'n');
  CALL_SET(&call, nsample, 's');
  CALL_OUT(&call, grad_features_tensor, "f:nc");
  CALL_IN(&call, idx_tensor, "i:ms");
  CALL_IN(&call, grad_out_tensor, "f:mcs");
  CALL_IN(&call, idx_batch_cnt_tensor, "i:b");
  CALL_IN(&call, features_batch_cnt_tensor, "i:b");
  return call_run(&call, run_stack_backward);
}

static diopiError_t run_score(struct call *call) {
  CALL_LOOP(call, call_size(call, 'b') * call_size(call, 'p'),
            2 * call_size(call, 'k') * call_size(call, 'o') * call_size(call, 'm'), score_points);
  return diopiSuccess;
}

static diopiError_t run_score_backward(struct call *call) {
  const int64_t b = call_size(call, 'b'), p = call_size(call, 'p'), k = call_size(call, 'k'), o = call_size(call, 'o');
  call_zero(call, 5);
  call_zero(call, 6);
  CALL_LOOP(call, b * call_size(call, 'm'), 4 * p * k * o, score_backward_points);
  CALL_LOOP(call, b * p * k, 4 * o * call_size(call, 'm'), score_backward_scores);
  return diopiSuccess;
}

/// Sizes of assign_score_withk, and that it sums.
static diopiError_t start_score(struct call *call, int64_t B, int64_t N, int64_t npoint, int64_t M, int64_t K,
                                int64_t out_dim, int64_t aggregate) {
  CALL_CHECK(call, aggregate == 0, "'aggregate' is %lld; valid: 0 (sum)", (long long)aggregate);
  CALL_SET(call, B, 'b');
  CALL_SET(call, N, 'n');
  CALL_SET(call, npoint, 'p');
  CALL_SET(call, M, 'm');
  CALL_SET(call, K, 'k');
  CALL_SET(call, out_dim, 'o');
  return diopiSuccess;
}

diopiError_t diopiAssignScoreWithkMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                       diopiConstTensorHandle_t points, diopiConstTensorHandle_t centers,
                                       diopiConstTensorHandle_t scores, diopiConstTensorHandle_t knn_idx, int64_t B,
                                       int64_t N, int64_t npoint, int64_t M, int64_t K, int64_t out_dim,
                                       int64_t aggregate) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  FRAME_TRY(start_score(&call, B, N, npoint, M, K, out_dim, aggregate));
  CALL_IN(&call, points, "f:bnmo");
  CALL_IN(&call, centers, "f:bnmo");
  CALL_IN(&call, scores, "f:bpkm");
  CALL_IN(&call, knn_idx, "i:bpk");
  CALL_OUT(&call, output, "f:bopk");
  return call_run(&call, run_score);
}

diopiError_t diopiAssignScoreWithkBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_points,
                                               diopiTensorHandle_t grad_centers, diopiTensorHandle_t grad_scores,
                                               diopiConstTensorHandle_t grad_out, diopiConstTensorHandle_t points,
                                               diopiConstTensorHandle_t centers, diopiConstTensorHandle_t scores,
                                               diopiConstTensorHandle_t knn_idx, int64_t B, int64_t N, int64_t npoint,
                                               int64_t M, int64_t K, int64_t out_dim, int64_t aggregate) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  FRAME_TRY(start_score(&call, B, N, npoint, M, K, out_dim, aggregate));
  CALL_IN(&call, points, "f:bnmo");
  CALL_IN(&call, centers, "f:bnmo");
  CALL_IN(&call, scores, "f:bpkm");
  CALL_IN(&call, knn_idx, "i:bpk");
  CALL_IN(&call, grad_out, "f:bopk");
  CALL_OUT(&call, grad_points, "f:bnmo");
  CALL_OUT(&call, grad_centers, "f:bnmo");
  CALL_OUT(&call, grad_scores, "f:bpkm");
  return call_run(&call, run_score_backward);
}
