/// Means and maxima of sampling points (roi_align.c), for REAL elements. Tensors: 0 boxes, 1 the picture (or its
/// gradient), 2 the bins (or their gradient), 3 and 4 places of maxima or offset and its gradient.
#include "sample_loops.h"

/// Points of a bin come in pieces of this many, so that their weights serve all channels.
#ifndef ROI_PIECE
#define ROI_PIECE 64
#endif

static void NAME(add_piece)(const struct call *call, const struct roi *roi, const struct sample *samples, int count,
                            int64_t k, int64_t bin, double factor) {
  const struct roi_task *task = call->task;
  const int64_t channels = call_size(call, 'c'), plane = call_size(call, 'h') * call_size(call, 'w');
  const int64_t bins = task->pooled_h * task->pooled_w, many = task->orientations;
  const REAL *input = (const REAL *)call_data(call, 1) + roi->picture * channels * plane;
  REAL *output = (REAL *)call_data(call, 2) + k * channels * bins + bin;
  for (int64_t c = 0; c < channels; c++) {
    const int64_t group = c / many * many, from = group + (c % many - roi->turn + many) % many;
    double sum = 0, next = 0;
    for (int i = 0; i < count; i++) {
      sum += NAME(sample_read)(&samples[i], input + from * plane);
    }
    if (roi->part > 0) {
      const int64_t other = group + (from - group + 1) % many;
      for (int i = 0; i < count; i++) {
        next += NAME(sample_read)(&samples[i], input + other * plane);
      }
    }
    output[c * bins] += (REAL)(((1 - roi->part) * sum + roi->part * next) * factor);
  }
}

/// Where bin `bin` of box `k` is moved to by deformable pooling.
static void NAME(find_move)(const struct call *call, const struct roi *roi, int64_t k, int64_t bin, double *y,
                            double *x) {
  const struct roi_task *task = call->task;
  const int64_t bins = task->pooled_h * task->pooled_w;
  const REAL *offset = task->gamma != 0 ? call_data(call, 3) : NULL;
  *y = offset ? task->gamma * roi->height * (double)offset[(2 * k + 1) * bins + bin] : 0;
  *x = offset ? task->gamma * roi->width * (double)offset[2 * k * bins + bin] : 0;
}

static void NAME(mean_boxes)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct roi_task *task = call->task;
  const int64_t height = call_size(call, 'h'), width = call_size(call, 'w'), bins = task->pooled_h * task->pooled_w;
  struct sample samples[ROI_PIECE];
  for (int64_t k = begin; k < end; k++) {
    struct roi roi;
    roi_read(task, call_data(call, 0), k, &roi);
    const int64_t points = roi.grid_h * roi.grid_w;
    for (int64_t bin = 0; bin < bins; bin++) {
      double move_y, move_x, y, x;
      NAME(find_move)(call, &roi, k, bin, &move_y, &move_x);
      for (int64_t first = 0; first < points; first += ROI_PIECE) {
        const int count = points - first < ROI_PIECE ? (int)(points - first) : ROI_PIECE;
        for (int i = 0; i < count; i++) {
          roi_place(&roi, bin / task->pooled_w, bin % task->pooled_w, first + i, move_y, move_x, &y, &x);
          sample_find(&samples[i], height, width, y, x);
        }
        NAME(add_piece)(call, &roi, samples, count, k, bin, 1 / (double)points);
      }
    }
  }
}

/// Channels begin to end - 1 (groups of them, where they have orientations) of the picture's gradient.
static void NAME(mean_backward_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct roi_task *task = call->task;
  const int64_t height = call_size(call, 'h'), width = call_size(call, 'w'), bins = task->pooled_h * task->pooled_w;
  const int64_t channels = call_size(call, 'c'), many = task->orientations, plane = height * width;
  for (int64_t k = 0; k < call_size(call, 'k'); k++) {
    struct roi roi;
    roi_read(task, call_data(call, 0), k, &roi);
    const int64_t points = roi.grid_h * roi.grid_w;
    const REAL *grad = (const REAL *)call_data(call, 2) + k * channels * bins;
    REAL *out = (REAL *)call_data(call, 1) + roi.picture * channels * plane;
    for (int64_t at = 0; at < bins * points; at++) {
      struct sample sample;
      double move_y, move_x, y, x;
      const int64_t bin = at / points;
      NAME(find_move)(call, &roi, k, bin, &move_y, &move_x);
      roi_place(&roi, bin / task->pooled_w, bin % task->pooled_w, at % points, move_y, move_x, &y, &x);
      sample_find(&sample, height, width, y, x);
      for (int64_t c = begin * many; sample.inside && c < end * many; c++) {
        const int64_t group = c / many * many, from = group + (c % many - roi.turn + many) % many;
        const double value = (double)grad[c * bins + bin] / (double)points;
        NAME(sample_add)(&sample, out + from * plane, (1 - roi.part) * value);
        if (roi.part > 0) {
          NAME(sample_add)(&sample, out + (group + (from - group + 1) % many) * plane, roi.part * value);
        }
      }
    }
  }
}

/// The largest sample of each bin and its place.
static void NAME(largest_boxes)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct roi_task *task = call->task;
  const int64_t height = call_size(call, 'h'), width = call_size(call, 'w'), channels = call_size(call, 'c');
  const int64_t bins = task->pooled_h * task->pooled_w;
  REAL *output = call_data(call, 2), *place_y = call_data(call, 3), *place_x = call_data(call, 4);
  for (int64_t k = begin; k < end; k++) {
    struct roi roi;
    roi_read(task, call_data(call, 0), k, &roi);
    const REAL *input = (const REAL *)call_data(call, 1) + roi.picture * channels * height * width;
    for (int64_t i = 0; i < channels * bins; i++) {
      output[k * channels * bins + i] = -FLT_MAX;
      place_y[k * channels * bins + i] = place_x[k * channels * bins + i] = -1;
    }
    for (int64_t at = 0; at < bins * roi.grid_h * roi.grid_w; at++) {
      struct sample sample;
      double y, x;
      const int64_t points = roi.grid_h * roi.grid_w, bin = at / points;
      roi_place(&roi, bin / task->pooled_w, bin % task->pooled_w, at % points, 0, 0, &y, &x);
      sample_find(&sample, height, width, y, x);
      for (int64_t c = 0; c < channels; c++) {
        const int64_t to = (k * channels + c) * bins + bin;
        const REAL value = (REAL)NAME(sample_read)(&sample, input + c * height * width);
        if (value > output[to]) {
          output[to] = value;
          place_y[to] = (REAL)y;
          place_x[to] = (REAL)x;
        }
      }
    }
  }
}

static void NAME(largest_backward_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct roi_task *task = call->task;
  const int64_t height = call_size(call, 'h'), width = call_size(call, 'w'), channels = call_size(call, 'c');
  const int64_t bins = task->pooled_h * task->pooled_w;
  const REAL *grad = call_data(call, 2), *place_y = call_data(call, 3), *place_x = call_data(call, 4);
  for (int64_t k = 0; k < call_size(call, 'k'); k++) {
    struct roi roi;
    roi_read(task, call_data(call, 0), k, &roi);
    for (int64_t c = begin; c < end; c++) {
      REAL *plane = (REAL *)call_data(call, 1) + (roi.picture * channels + c) * height * width;
      for (int64_t at = (k * channels + c) * bins; at < (k * channels + c + 1) * bins; at++) {
        struct sample sample;
        sample_find(&sample, height, width, (double)place_y[at], (double)place_x[at]);
        if (place_y[at] != -1 && sample.inside) {
          NAME(sample_add)(&sample, plane, (double)grad[at]);
        }
      }
    }
  }
}

/// Gradient with respect to the offsets of deformable pooling: 4 is it, 5 the picture.
static void NAME(offset_boxes)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct roi_task *task = call->task;
  const int64_t height = call_size(call, 'h'), width = call_size(call, 'w'), channels = call_size(call, 'c');
  const int64_t bins = task->pooled_h * task->pooled_w;
  REAL *grad_offset = call_data(call, 4);
  for (int64_t k = begin; k < end; k++) {
    struct roi roi;
    roi_read(task, call_data(call, 0), k, &roi);
    const int64_t points = roi.grid_h * roi.grid_w;
    const REAL *grad = (const REAL *)call_data(call, 2) + k * channels * bins;
    const REAL *input = (const REAL *)call_data(call, 5) + roi.picture * channels * height * width;
    for (int64_t bin = 0; bin < bins; bin++) {
      double move_y, move_x, y, x, sum_y = 0, sum_x = 0;
      NAME(find_move)(call, &roi, k, bin, &move_y, &move_x);
      for (int64_t at = 0; at < points; at++) {
        struct sample s;
        roi_place(&roi, bin / task->pooled_w, bin % task->pooled_w, at, move_y, move_x, &y, &x);
        sample_find(&s, height, width, y, x);
        for (int64_t c = 0; s.inside && c < channels; c++) {
          const REAL *p = input + c * height * width;
          const double a = (double)p[s.at[0]], b = (double)p[s.at[1]], d = (double)p[s.at[2]], e = (double)p[s.at[3]];
          const double value = (double)grad[c * bins + bin] / (double)points;
          sum_x += s.free_x ? value * ((1 - s.y) * (b - a) + s.y * (e - d)) : 0;
          sum_y += s.free_y ? value * ((1 - s.x) * (d - a) + s.x * (e - b)) : 0;
        }
      }
      grad_offset[2 * k * bins + bin] = (REAL)(task->gamma * roi.width * sum_x);
      grad_offset[(2 * k + 1) * bins + bin] = (REAL)(task->gamma * roi.height * sum_y);
    }
  }
}
