/// Neighbours of points in mmcv: ball query, k nearest, three nearest, chamfer distance, farthest point sampling.
///
/// Distances are squared and computed in double; of equal ones the first point counts. Ball query: the first points
/// with min_radius <= distance < max_radius (or at the centre itself), the first one found fills the rest; none: 0.
/// Stacked batches lie one after another and indices count within their batch; where a ball is empty its first index is
/// -1, the others 0. Missing neighbours (fewer points than asked for) have index 0 and a distance of 1e10 (knn) or 1e40
/// (three_nn). Farthest point sampling: temp holds the least squared distance of each point to those chosen before the
/// last one. Floating dtypes, one for all; indices int32 or int64.
#include <float.h>

#include "call.h"

struct query_task {
  double low, high;  ///< squared radii
};

static double get_distance(const double *a, const double *b, int64_t dims) {
  double sum = 0;
  for (int64_t i = 0; i < dims; i++) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return sum;
}

/// The first `room` of `count` points that lie in the ball: how many there are.
static int64_t list_ball(const struct query_task *task, const double *centre, const double *points, int64_t count,
                         int64_t *idx, int64_t room) {
  int64_t found = 0;
  for (int64_t k = 0; k < count && found < room; k++) {
    const double distance = get_distance(centre, points + 3 * k, 3);
    if (distance == 0 || (distance >= task->low && distance < task->high)) {
      idx[found++] = k;
    }
  }
  for (int64_t i = found; i < room; i++) {
    idx[i] = found > 0 ? idx[0] : 0;
  }
  return found;
}

static void query_balls(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const double *centres = call_data(call, 0), *points = call_data(call, 1);
  const int64_t many = call_size(call, 'p'), count = call_size(call, 'n'), room = call_size(call, 's');
  int64_t *idx = call_data(call, 2);
  for (int64_t i = begin; i < end; i++) {
    (void)list_ball(call->task, centres + 3 * i, points + 3 * (i / many) * count, count, idx + i * room, room);
  }
}

static diopiError_t run_ball(struct call *call) {
  call_loop(call, call_size(call, 'b') * call_size(call, 'p'), 8 * call_size(call, 'n'), query_balls);
  return diopiSuccess;
}

diopiError_t diopiBallQueryMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t idx, diopiConstTensorHandle_t center_xyz,
                                diopiConstTensorHandle_t xyz, int64_t B, int64_t N, int64_t npoint, int64_t sample_num,
                                float min_radius, float max_radius) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, B, 'b');
  CALL_SET(&call, N, 'n');
  CALL_SET(&call, npoint, 'p');
  CALL_SET_POSITIVE(&call, sample_num, 's');
  CALL_IN(&call, center_xyz, "d:bp3");
  CALL_IN(&call, xyz, "d:bn3");
  CALL_OUT(&call, idx, "i:bps");
  call.task = &(struct query_task){(double)min_radius * min_radius, (double)max_radius * max_radius};
  return call_run(&call, run_ball);
}

/// Counts of batches add up to the points there are.
static diopiError_t check_counts(struct call *call, int number, int64_t total) {
  const int64_t *counts = call_data(call, number);
  int64_t sum = 0;
  for (int64_t b = 0; b < call_numel(call, number); b++) {
    FRAME_CHECK_RANGE(&call->frame, counts[b] >= 0, "'%s' has the value %lld; valid: from 0",
                      call->tensors[number].name, (long long)counts[b]);
    sum += counts[b];
  }
  FRAME_CHECK_RANGE(&call->frame, sum == total, "'%s' adds up to %lld; there are %lld points",
                    call->tensors[number].name, (long long)sum, (long long)total);
  return diopiSuccess;
}

static diopiError_t run_stack_ball(struct call *call) {
  const double *centres = call_data(call, 0), *points = call_data(call, 1);
  const int64_t *centre_counts = call_data(call, 2), *counts = call_data(call, 3), room = call_size(call, 's');
  int64_t *idx = call_data(call, 4), centre = 0, first = 0;
  FRAME_TRY(check_counts(call, 2, call_size(call, 'm')));
  FRAME_TRY(check_counts(call, 3, call_size(call, 'n')));
  for (int64_t b = 0; b < call_size(call, 'b'); b++) {
    for (const int64_t end = centre + centre_counts[b]; centre < end; centre++) {
      int64_t *to = idx + centre * room;
      if (list_ball(call->task, centres + 3 * centre, points + 3 * first, counts[b], to, room) == 0) {
        to[0] = -1;
      }
    }
    first += counts[b];
  }
  return diopiSuccess;
}

diopiError_t diopiStackBallQueryMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t idx,
                                     diopiConstTensorHandle_t center_xyz, diopiConstTensorHandle_t center_xyz_batch_cnt,
                                     diopiConstTensorHandle_t xyz, diopiConstTensorHandle_t xyz_batch_cnt,
                                     float max_radius, int64_t sample_num) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, sample_num, 's');
  CALL_IN(&call, center_xyz, "d:m3");
  CALL_IN(&call, xyz, "d:n3");
  CALL_IN(&call, center_xyz_batch_cnt, "i:b");
  CALL_IN(&call, xyz_batch_cnt, "i:b");
  CALL_OUT(&call, idx, "i:ms");
  call.task = &(struct query_task){0, (double)max_radius * max_radius};
  return call_run(&call, run_stack_ball);
}

/// The `room` nearest of `count` points, nearest first.
static void list_nearest(const double *from, const double *points, int64_t count, int64_t dims, double none,
                         int64_t *idx, double *distances, int64_t room) {
  for (int64_t i = 0; i < room; i++) {
    idx[i] = 0;
    distances[i] = none;
  }
  for (int64_t k = 0; k < count; k++) {
    const double distance = get_distance(from, points + dims * k, dims);
    int64_t at = room;
    if (!(distance < distances[room - 1])) {
      continue;
    }
    for (; at > 0 && distance < distances[at - 1]; at--) {
      if (at < room) {
        idx[at] = idx[at - 1];
        distances[at] = distances[at - 1];
      }
    }
    idx[at] = k;
    distances[at] = distance;
  }
}

/// Tensors: 0 points that ask, 1 points to find, 2 indices, 3 distances.
static void query_nearest(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const double *from = call_data(call, 0), *points = call_data(call, 1);
  const int64_t many = call_size(call, 'm'), count = call_size(call, 'n'), room = call_size(call, 's');
  const double none = ((const struct query_task *)call->task)->high;
  for (int64_t i = begin; i < end; i++) {
    list_nearest(from + 3 * i, points + 3 * (i / many) * count, count, 3, none,
                 (int64_t *)call_data(call, 2) + i * room, (double *)call_data(call, 3) + i * room, room);
  }
}

static diopiError_t run_nearest(struct call *call) {
  call_loop(call, call_size(call, 'b') * call_size(call, 'm'), 16 * call_size(call, 'n'), query_nearest);
  return diopiSuccess;
}

diopiError_t diopiKnnMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t idx_tensor, diopiTensorHandle_t dist2_tensor,
                          diopiConstTensorHandle_t xyz_tensor, diopiConstTensorHandle_t new_xyz_tensor, int64_t b,
                          int64_t n, int64_t m, int64_t nsample) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, b, 'b');
  CALL_SET(&call, n, 'n');
  CALL_SET(&call, m, 'm');
  CALL_SET_POSITIVE(&call, nsample, 's');
  CALL_IN(&call, new_xyz_tensor, "d:bm3");
  CALL_IN(&call, xyz_tensor, "d:bn3");
  CALL_OUT(&call, idx_tensor, "i:bms");
  CALL_OUT(&call, dist2_tensor, "d:bms");
  call.task = &(struct query_task){0, 1e10};
  return call_run(&call, run_nearest);
}

diopiError_t diopiThreeNnMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t dist2, diopiTensorHandle_t idx,
                              diopiConstTensorHandle_t unknown, diopiConstTensorHandle_t known, int64_t b, int64_t n,
                              int64_t m) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, b, 'b');
  FRAME_TRY(call_set(&call, "n", n, 'm', 0));
  FRAME_TRY(call_set(&call, "m", m, 'n', 0));
  FRAME_TRY(call_set(&call, "3", 3, 's', 0));
  CALL_IN(&call, unknown, "d:bm3");
  CALL_IN(&call, known, "d:bn3");
  CALL_OUT(&call, idx, "i:bms");
  CALL_OUT(&call, dist2, "d:bms");
  call.task = &(struct query_task){0, 1e40};
  return call_run(&call, run_nearest);
}

// Chamfer distance: 0, 1 points; 2, 3 distances; 4, 5 indices

static void chamfer_points(const struct call *call, int side, int64_t begin, int64_t end) {
  const double *from = call_data(call, side), *to = call_data(call, 1 - side);
  const int64_t many = call_size(call, side ? 'm' : 'n'), count = call_size(call, side ? 'n' : 'm');
  const int64_t dims = call_size(call, 'd');
  for (int64_t i = begin; i < end; i++) {
    list_nearest(from + dims * i, to + dims * (i / many) * count, count, dims, DBL_MAX,
                 (int64_t *)call_data(call, 4 + side) + i, (double *)call_data(call, 2 + side) + i, 1);
  }
}
static void chamfer_first(void *call, int64_t begin, int64_t end) {
  chamfer_points(call, 0, begin, end);
}
static void chamfer_second(void *call, int64_t begin, int64_t end) {
  chamfer_points(call, 1, begin, end);
}

static diopiError_t run_chamfer(struct call *call) {
  const int64_t batch = call_size(call, 'b'), n = call_size(call, 'n'), m = call_size(call, 'm');
  call_loop(call, batch * n, 8 * m, chamfer_first);
  call_loop(call, batch * m, 8 * n, chamfer_second);
  return diopiSuccess;
}

diopiError_t diopiChamferDistanceMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t dist1, diopiTensorHandle_t dist2,
                                      diopiTensorHandle_t idx1, diopiTensorHandle_t idx2, diopiConstTensorHandle_t xyz1,
                                      diopiConstTensorHandle_t xyz2) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, xyz1, "d:bnd");
  CALL_IN(&call, xyz2, "d:bmd");
  CALL_CHECK(&call, (call_size(&call, 'n') > 0) == (call_size(&call, 'm') > 0),
             "one of 'xyz1' and 'xyz2' has no points");
  CALL_OUT(&call, dist1, "d:bn");
  CALL_OUT(&call, dist2, "d:bm");
  CALL_OUT(&call, idx1, "i:bn");
  CALL_OUT(&call, idx2, "i:bm");
  return call_run(&call, run_chamfer);
}

/// Points `side` of one batch and their neighbours: 0, 1 points; 2, 3 gradients of points; 4, 5 gradients of distances;
/// 6, 7 indices.
static void pull_together(const struct call *call, int side, int64_t b) {
  const int64_t many = call_size(call, side ? 'm' : 'n'), count = call_size(call, side ? 'n' : 'm');
  const int64_t dims = call_size(call, 'd'), *idx = call_data(call, 6 + side);
  const double *from = call_data(call, side), *to = call_data(call, 1 - side), *grad = call_data(call, 4 + side);
  double *grad_from = call_data(call, 2 + side), *grad_to = call_data(call, 3 - side);
  for (int64_t i = b * many; i < (b + 1) * many; i++) {
    const int64_t other = b * count + idx[i];
    for (int64_t d = 0; d < dims; d++) {
      const double part = 2 * grad[i] * (from[i * dims + d] - to[other * dims + d]);
      grad_from[i * dims + d] += part;
      grad_to[other * dims + d] -= part;
    }
  }
}

static void chamfer_backward(void *argument, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; b++) {
    pull_together(argument, 0, b);
    pull_together(argument, 1, b);
  }
}

static diopiError_t run_chamfer_backward(struct call *call) {
  call_zero(call, 2);
  call_zero(call, 3);
  call_loop(call, call_size(call, 'b'), 16 * (call_size(call, 'n') + call_size(call, 'm')), chamfer_backward);
  return diopiSuccess;
}

diopiError_t diopiChamferDistanceBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_xyz1,
                                              diopiTensorHandle_t grad_xyz2, diopiConstTensorHandle_t xyz1,
                                              diopiConstTensorHandle_t xyz2, diopiConstTensorHandle_t idx1,
                                              diopiConstTensorHandle_t idx2, diopiConstTensorHandle_t grad_dist1,
                                              diopiConstTensorHandle_t grad_dist2) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, xyz1, "d:bnd");
  CALL_IN(&call, xyz2, "d:bmd");
  CALL_OUT(&call, grad_xyz1, "d:bnd");
  CALL_OUT(&call, grad_xyz2, "d:bmd");
  CALL_IN(&call, grad_dist1, "d:bn");
  CALL_IN(&call, grad_dist2, "d:bm");
  CALL_IN(&call, idx1, "i:bn");
  CALL_IN(&call, idx2, "i:bm");
  call_limit(&call, 6, 0, call_size(&call, 'm') - 1);
  call_limit(&call, 7, 0, call_size(&call, 'n') - 1);
  return call_run(&call, run_chamfer_backward);
}

// Farthest point sampling: 0 points or distances, 1 temp, 2 idx

static void sample_farthest(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t count = call_size(call, 'n'), wanted = call_size(call, 'm');
  const bool given = call->task != NULL;
  for (int64_t b = begin; b < end; b++) {
    const double *points = (const double *)call_data(call, 0) + b * count * (given ? count : 3);
    double *temp = (double *)call_data(call, 1) + b * count;
    int64_t *idx = (int64_t *)call_data(call, 2) + b * wanted, last = 0;
    for (int64_t i = 0; i < wanted; i++) {
      double farthest = -1;
      int64_t next = 0;
      idx[i] = last;
      for (int64_t k = 0; i + 1 < wanted && k < count; k++) {
        const double d = given ? points[last * count + k] : get_distance(points + 3 * last, points + 3 * k, 3);
        temp[k] = d < temp[k] ? d : temp[k];
        if (temp[k] > farthest) {
          farthest = temp[k];
          next = k;
        }
      }
      last = next;
    }
  }
}

static diopiError_t run_farthest(struct call *call) {
  call_loop(call, call_size(call, 'b'), 8 * call_size(call, 'n') * call_size(call, 'm'), sample_farthest);
  return diopiSuccess;
}

diopiError_t diopiFurthestPointSamplingMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t temp_tensor,
                                            diopiTensorHandle_t idx_tensor, diopiConstTensorHandle_t points_xyz,
                                            int64_t B, int64_t N, int64_t num_points) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, B, 'b');
  CALL_SET_POSITIVE(&call, N, 'n');
  CALL_SET(&call, num_points, 'm');
  CALL_IN(&call, points_xyz, "d:bn3");
  CALL_INOUT(&call, temp_tensor, "d:bn");
  CALL_OUT(&call, idx_tensor, "i:bm");
  return call_run(&call, run_farthest);
}

diopiError_t diopiFurthestPointSamplingWithDistMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t temp_tensor,
                                                    diopiTensorHandle_t idx_tensor,
                                                    diopiConstTensorHandle_t points_dist, int64_t B, int64_t N,
                                                    int64_t num_points) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, B, 'b');
  CALL_SET_POSITIVE(&call, N, 'n');
  CALL_SET(&call, num_points, 'm');
  CALL_IN(&call, points_dist, "d:bnn");
  CALL_INOUT(&call, temp_tensor, "d:bn");
  CALL_OUT(&call, idx_tensor, "i:bm");
  call.task = "given";
  return call_run(&call, run_farthest);
}
