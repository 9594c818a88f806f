/// Points to voxels in mmcv: hard and dynamic voxelisation, reduction of features per voxel and its gradient.
///
/// A point's voxel is floor((place - least) / size) in each of three dimensions, written z, y, x; points outside
/// coors_range have -1 in all. Hard: voxels are numbered in the order in which points meet them, up to max_voxels, each
/// with its first max_points points; the rest of voxels, coors and num_points_per_voxel is zero; the order of points is
/// always kept, whatever `deterministic` says. dynamic_point_to_voxel: voxels in ascending order of coordinates, points
/// with a negative one in none (-1 in the map); sum, mean or largest of their features; the gradient of a largest value
/// goes to the first point that has it. Floating dtypes; coordinates int32 or int64, map and counts int32.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "engine/scratch.h"

struct reduce_task {
  int64_t type;  ///< 0 sum, 1 mean, 2 largest
  bool *taken;
};

#define LOOPS "voxel_loops.h"
#include "twice.h"

// Voxels of points

struct grid {
  double least[3], size[3];
  int64_t cells[3];
};

/// 1 voxel_size, 2 coors_range.
static diopiError_t read_grid(struct call *call, struct grid *grid) {
  const double *size = call_data(call, 1), *range = call_data(call, 2);
  for (int i = 0; i < 3; i++) {
    const double cells = round((range[3 + i] - range[i]) / size[i]);
    CALL_CHECK(call, size[i] > 0 && cells >= 1 && cells < 1e9,
               "'voxel_size' %g and 'coors_range' %g to %g give no grid in dimension %d", size[i], range[i],
               range[3 + i], i);
    grid->least[i] = range[i];
    grid->size[i] = size[i];
    grid->cells[i] = (int64_t)cells;
  }
  return diopiSuccess;
}

/// z, y, x of the point's voxel, or -1 in all; is it inside?
static bool find_voxel(const struct grid *grid, const double *point, int64_t *coors) {
  bool inside = true;
  for (int i = 0; i < 3; i++) {
    const double cell = floor((point[i] - grid->least[i]) / grid->size[i]);
    inside = inside && cell >= 0 && cell < (double)grid->cells[i];
    coors[2 - i] = inside ? (int64_t)cell : -1;
  }
  for (int i = 0; !inside && i < 3; i++) {
    coors[i] = -1;
  }
  return inside;
}

/// Coordinates of point `i` of `points` (p, f), whatever it works in.
static void read_point(const struct call *call, int64_t i, double *point) {
  const int64_t at = i * call_size(call, 'f');
  for (int k = 0; k < 3; k++) {
    point[k] = call->work == DIT_DTYPE_F64 ? ((const double *)call_data(call, 0))[at + k]
                                           : (double)((const float *)call_data(call, 0))[at + k];
  }
}

static diopiError_t run_dynamic(struct call *call) {
  struct grid grid;
  int64_t *coors = call_data(call, 3);
  FRAME_TRY(read_grid(call, &grid));
  for (int64_t i = 0; i < call_size(call, 'p'); i++) {
    double point[3];
    read_point(call, i, point);
    (void)find_voxel(&grid, point, coors + 3 * i);
  }
  return diopiSuccess;
}

/// Points need three coordinates, and the operators have three dimensions.
static diopiError_t check_dimensions(struct call *call, int64_t ndim) {
  CALL_CHECK(call, ndim == 3, "'NDim' is %lld; valid: 3", (long long)ndim);
  CALL_CHECK(call, call_size(call, 'f') >= 3, "'points' has %lld numbers per point; it must have 3 or more",
             (long long)call_size(call, 'f'));
  return diopiSuccess;
}

diopiError_t diopiDynamicVoxelizeMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t coors,
                                      diopiConstTensorHandle_t points, diopiConstTensorHandle_t voxel_size,
                                      diopiConstTensorHandle_t coors_range, const int64_t NDim) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, points, "f:pf");
  CALL_IN(&call, voxel_size, "s:3");
  CALL_IN(&call, coors_range, "s:6");
  CALL_OUT(&call, coors, "i:p3");
  FRAME_TRY(check_dimensions(&call, NDim));
  return call_run(&call, run_dynamic);
}

/// Voxel numbers by cell: open addressing, room for twice the points.
struct cells {
  int64_t *keys, *numbers, mask;
};

static int64_t *find_number(const struct cells *cells, int64_t key) {
  uint64_t at = (uint64_t)key * UINT64_C(0x9E3779B97F4A7C15) >> 20;
  for (;; at++) {
    const int64_t slot = (int64_t)(at & (uint64_t)cells->mask);
    if (cells->keys[slot] == key || cells->keys[slot] < 0) {
      cells->keys[slot] = key;
      return &cells->numbers[slot];
    }
  }
}

/// 3 voxels, 4 coors, 5 numbers, 6 voxel_num.
static void put_points(struct call *call, const struct grid *grid, const struct cells *cells) {
  int64_t *coors = call_data(call, 4), *numbers = call_data(call, 5), *total = call_data(call, 6);
  *total = 0;
  for (int64_t i = 0; i < call_size(call, 'p'); i++) {
    double point[3];
    int64_t voxel[3];
    read_point(call, i, point);
    if (!find_voxel(grid, point, voxel)) {
      continue;
    }
    int64_t *number = find_number(cells, (voxel[0] * grid->cells[1] + voxel[1]) * grid->cells[0] + voxel[2]);
    if (*number < 0) {
      if (*total >= call_size(call, 'v')) {
        continue;
      }
      *number = (*total)++;
      memcpy(coors + 3 * *number, voxel, sizeof voxel);
    }
    if (numbers[*number] < call_size(call, 'k')) {
      (call->work == DIT_DTYPE_F64 ? put_point_f64 : put_point_f32)(call, i, *number, numbers[*number]);
      numbers[*number]++;
    }
  }
}

static diopiError_t run_hard(struct call *call) {
  struct grid grid;
  int64_t room = 16;
  FRAME_TRY(read_grid(call, &grid));
  while (room < 2 * call_size(call, 'p')) {
    room *= 2;
  }
  int64_t *slots = scratch_take(2 * sizeof(int64_t) * (size_t)room);
  if (!slots) {
    return dense_fail(&call->frame);
  }
  memset(slots, -1, 2 * sizeof(int64_t) * (size_t)room);
  for (int number = 3; number < 6; number++) {
    call_zero(call, number);
  }
  put_points(call, &grid, &(struct cells){slots, slots + room, room - 1});
  scratch_give(slots);
  return diopiSuccess;
}

diopiError_t diopiHardVoxelizeMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t voxels, diopiTensorHandle_t coors,
                                   diopiTensorHandle_t num_points_per_voxel, diopiTensorHandle_t voxel_num,
                                   diopiConstTensorHandle_t points, diopiConstTensorHandle_t voxel_size,
                                   diopiConstTensorHandle_t coors_range, const int64_t max_points,
                                   const int64_t max_voxels, const int64_t NDim, const bool deterministic) {
  struct call call;
  (void)deterministic;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, max_points, 'k');
  CALL_SET_POSITIVE(&call, max_voxels, 'v');
  CALL_IN(&call, points, "f:pf");
  CALL_IN(&call, voxel_size, "s:3");
  CALL_IN(&call, coors_range, "s:6");
  CALL_OUT(&call, voxels, "f:vkf");
  CALL_OUT(&call, coors, "i:v3");
  CALL_OUT(&call, num_points_per_voxel, "i:v");
  CALL_OUT(&call, voxel_num, "i:*");
  CALL_CHECK(&call, call_numel(&call, 6) == 1, "'voxel_num' has %lld elements; it must have 1",
             (long long)call_numel(&call, 6));
  FRAME_TRY(check_dimensions(&call, NDim));
  return call_run(&call, run_hard);
}

// Features per voxel

/// A point's coordinates and its number, for sorting.
struct item {
  int64_t coors[8], number;
};
#define MOST_DIMENSIONS 8

static int compare_items(const void *left, const void *right) {
  const struct item *a = left, *b = right;
  for (int i = 0; i < MOST_DIMENSIONS; i++) {
    if (a->coors[i] != b->coors[i]) {
      return a->coors[i] < b->coors[i] ? -1 : 1;
    }
  }
  return a->number < b->number ? -1 : a->number > b->number;
}

struct reduce_call {
  struct call call;
  diopiTensorHandle_t *outlist;
  int64_t type;
};

/// Points with their coordinates, those of no voxel left out: how many there are.
static int64_t list_items(const struct call *call, struct item *items) {
  const int64_t dims = call_size(call, 'd'), *coors = call_data(call, 1);
  int64_t count = 0;
  for (int64_t i = 0; i < call_size(call, 'n'); i++) {
    struct item item = {.number = i};
    bool inside = true;
    for (int64_t d = 0; d < dims; d++) {
      item.coors[d] = coors[i * dims + d];
      inside = inside && item.coors[d] >= 0;
    }
    if (inside) {
      items[count++] = item;
    }
  }
  qsort(items, (size_t)count, sizeof *items, compare_items);
  return count;
}

/// The voxel of each point, and the first item of each voxel.
static int64_t number_voxels(const struct item *items, int64_t count, int64_t *map, int64_t *firsts) {
  int64_t voxels = 0;
  for (int64_t i = 0; i < count; i++) {
    if (i == 0 || memcmp(items[i].coors, items[i - 1].coors, sizeof items[i].coors) != 0) {
      firsts[voxels++] = i;
    }
    map[items[i].number] = voxels - 1;
  }
  firsts[voxels] = count;
  return voxels;
}

static void store_integer(void *data, int dtype, int64_t at, int64_t value) {
  if (dtype == DIT_DTYPE_I64) {
    ((int64_t *)data)[at] = value;
  } else {
    ((int32_t *)data)[at] = (int32_t)value;
  }
}

static diopiError_t store_features(struct reduce_call *task, const int64_t *map, const int32_t *counts, int64_t voxels,
                                   diopiTensorHandle_t *made) {
  struct call *call = &task->call;
  const int64_t sizes[2] = {voxels, call_size(call, 'c')};
  const size_t width = dit_dtype_get_size(call->work);
  struct dit_tensor_view view;
  struct dense dense;
  if (!call_make_result(call, made, call->dtype, 2, sizes)) {
    return diopiErrorOccurred;
  }
  FRAME_TRY(frame_take(&call->frame, "out", *made, &view));
  if (!dense_reserve(&dense, &view, call->work)) {
    return dense_fail(&call->frame);
  }
  if (dense.data && width == 8) {
    reduce_points_f64(call, map, counts, voxels, task->type, dense.data);
  } else if (dense.data) {
    reduce_points_f32(call, map, counts, voxels, task->type, dense.data);
  }
  dense_store(&dense);
  dense_close(&dense);
  return diopiSuccess;
}

static diopiError_t store_voxels(struct reduce_call *task, const struct item *items, int64_t count, int64_t *map,
                                 int64_t *firsts) {
  struct call *call = &task->call;
  const int64_t points = call_size(call, 'n'), dims = call_size(call, 'd');
  const int64_t voxels = number_voxels(items, count, map, firsts), sizes[2] = {voxels, dims};
  const int dtype = call->tensors[1].view.dtype;
  diopiTensorHandle_t made[4];
  void *coors = call_make_result(call, &made[1], dtype, 2, sizes);
  int32_t *indices = call_make_result(call, &made[2], DIT_DTYPE_I32, 1, &points);
  int32_t *counts = call_make_result(call, &made[3], DIT_DTYPE_I32, 1, &voxels);
  if (!coors || !indices || !counts) {
    return diopiErrorOccurred;
  }
  for (int64_t v = 0; v < voxels; v++) {
    counts[v] = (int32_t)(firsts[v + 1] - firsts[v]);
    for (int64_t d = 0; d < dims; d++) {
      store_integer(coors, dtype, v * dims + d, items[firsts[v]].coors[d]);
    }
  }
  for (int64_t i = 0; i < points; i++) {
    indices[i] = (int32_t)map[i];
  }
  FRAME_TRY(store_features(task, map, counts, voxels, &made[0]));
  memcpy(task->outlist, made, sizeof made);
  return diopiSuccess;
}

static diopiError_t run_reduce(struct call *call) {
  struct reduce_call *task = (struct reduce_call *)(void *)call;
  const size_t points = (size_t)call_size(call, 'n');
  struct item *items = scratch_take((points + 1) * sizeof *items);
  int64_t *map = scratch_take((2 * points + 2) * sizeof *map);
  diopiError_t code = items && map ? diopiSuccess : dense_fail(&call->frame);
  if (code == diopiSuccess) {
    memset(map, -1, points * sizeof *map);
    code = store_voxels(task, items, list_items(call, items), map, map + points);
  }
  scratch_give(map);
  scratch_give(items);
  return code;
}

diopiError_t diopiDynamicPointToVoxelMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *outlist,
                                          diopiConstTensorHandle_t feats, diopiConstTensorHandle_t coors,
                                          int64_t reduce_type) {
  struct reduce_call task = {.outlist = outlist, .type = reduce_type};
  struct call *call = &task.call;
  CALL_BEGIN(call, ctx);
  CALL_CHECK(call, outlist, "'outlist' is NULL; it must be room for four handles");
  CALL_CHECK(call, reduce_type >= 0 && reduce_type <= 2, "'reduce_type' is %lld; valid: 0, 1, 2",
             (long long)reduce_type);
  CALL_IN(call, feats, "f:nc");
  CALL_IN(call, coors, "i:nd");
  CALL_CHECK(call, call_size(call, 'd') <= MOST_DIMENSIONS, "'coors' has %lld dimensions; valid: up to %d",
             (long long)call_size(call, 'd'), MOST_DIMENSIONS);
  return call_run(call, run_reduce);
}

static diopiError_t run_reduce_backward(struct call *call) {
  struct reduce_task task = {.type = *(const int64_t *)call->task};
  const int64_t cells = call_size(call, 'm') * call_size(call, 'c');
  task.taken = task.type == 2 ? scratch_take((size_t)cells + 1) : NULL;
  if (task.type == 2 && !task.taken) {
    return dense_fail(&call->frame);
  }
  if (task.taken) {
    memset(task.taken, 0, (size_t)cells);
  }
  call_zero(call, 0);
  call->task = &task;
  CALL_LOOP(call, call_size(call, 'c'), 4 * call_size(call, 'n'), voxel_backward_channels);
  scratch_give(task.taken);
  return diopiSuccess;
}

diopiError_t diopiDynamicPointToVoxelBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_feats,
                                                  diopiConstTensorHandle_t grad_reduced_feats,
                                                  diopiConstTensorHandle_t feats,
                                                  diopiConstTensorHandle_t reduced_feats,
                                                  diopiConstTensorHandle_t coors_idx,
                                                  diopiConstTensorHandle_t reduce_count, int64_t reduce_type) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, reduce_type >= 0 && reduce_type <= 2, "'reduce_type' is %lld; valid: 0, 1, 2",
             (long long)reduce_type);
  CALL_OUT(&call, grad_feats, "f:nc");
  CALL_IN(&call, grad_reduced_feats, "f:mc");
  CALL_IN(&call, feats, "f:nc");
  CALL_IN(&call, reduced_feats, "f:mc");
  CALL_IN(&call, coors_idx, "i:n");
  CALL_IN(&call, reduce_count, "i:m");
  call_limit(&call, 4, -1, call_size(&call, 'm') - 1);
  call_limit(&call, 5, 1, INT64_MAX);
  call.task = &reduce_type;
  return call_run(&call, run_reduce_backward);
}
