/// Samples along borders and at the corners of each place's box (border_align.c), for REAL elements.
#include "sample_loops.h"

/// Tensors: 0 boxes (B, K, 4), 1 picture (B, 4C, H, W), 2 result (B, C, K, 4), 3 its places.
static void NAME(border_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct border_task *task = call->task;
  const int64_t height = call_size(call, 'h'), width = call_size(call, 'w'), boxes = call_size(call, 'k');
  const int64_t channels = task->channels;
  for (int64_t at = begin; at < end; at++) {  // (b, c)
    const int64_t b = at / channels, c = at % channels;
    for (int64_t i = 0; i < boxes * 4; i++) {
      const double *box = (const double *)call_data(call, 0) + (b * boxes + i / 4) * 4;
      const REAL *plane = (const REAL *)call_data(call, 1) + ((b * 4 + i % 4) * channels + c) * height * width;
      struct sample sample;
      double largest = 0;
      int64_t place = 0;
      for (int64_t step = 0; step <= task->steps; step++) {
        double y, x;
        find_border(box, (int)(i % 4), (double)step / (double)task->steps, &y, &x);
        sample_find(&sample, height, width, y, x);
        const double value = NAME(sample_read)(&sample, plane);
        if (step == 0 || value > largest) {
          largest = value;
          place = step;
        }
      }
      ((REAL *)call_data(call, 2))[at * boxes * 4 + i] = (REAL)largest;
      ((int64_t *)call_data(call, 3))[at * boxes * 4 + i] = place;
    }
  }
}

static void NAME(border_backward_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct border_task *task = call->task;
  const int64_t height = call_size(call, 'h'), width = call_size(call, 'w'), boxes = call_size(call, 'k');
  const int64_t channels = task->channels, *places = call_data(call, 3);
  const REAL *grad = call_data(call, 2);
  for (int64_t at = begin; at < end; at++) {
    const int64_t b = at / channels, c = at % channels;
    for (int64_t i = 0; i < boxes * 4; i++) {
      const double *box = (const double *)call_data(call, 0) + (b * boxes + i / 4) * 4;
      REAL *plane = (REAL *)call_data(call, 1) + ((b * 4 + i % 4) * channels + c) * height * width;
      const int64_t from = at * boxes * 4 + i;
      struct sample sample;
      double y, x;
      find_border(box, (int)(i % 4), (double)places[from] / (double)task->steps, &y, &x);
      sample_find(&sample, height, width, y, x);
      if (sample.inside) {
        NAME(sample_add)(&sample, plane, (double)grad[from]);
      }
    }
  }
}

/// Tensors: 0 boxes (N, H, W, 5), 1 picture (or the result's gradient), 2 result (or the picture's gradient). Loops
/// over (n, c).
static void NAME(feature_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct feature_task *task = call->task;
  const int64_t height = call_size(call, 'h'), width = call_size(call, 'w'), plane = height * width;
  for (int64_t at = begin; at < end; at++) {
    const double *boxes = (const double *)call_data(call, 0) + at / call_size(call, 'c') * plane * 5;
    const REAL *from = (const REAL *)call_data(call, 1) + at * plane;
    REAL *to = (REAL *)call_data(call, 2) + at * plane;
    for (int64_t i = 0; i < plane; i++) {
      double y[5], x[5], sum = (double)from[i];
      find_corners(task, boxes + i * 5, y, x);
      for (int64_t p = 0; p < task->points; p++) {
        struct sample sample;
        sample_find(&sample, height, width, y[p], x[p]);
        sum += NAME(sample_read)(&sample, from);
      }
      to[i] = (REAL)sum;
    }
  }
}

static void NAME(feature_backward_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct feature_task *task = call->task;
  const int64_t height = call_size(call, 'h'), width = call_size(call, 'w'), plane = height * width;
  for (int64_t at = begin; at < end; at++) {
    const double *boxes = (const double *)call_data(call, 0) + at / call_size(call, 'c') * plane * 5;
    const REAL *from = (const REAL *)call_data(call, 1) + at * plane;
    REAL *to = (REAL *)call_data(call, 2) + at * plane;
    for (int64_t i = 0; i < plane; i++) {
      double y[5], x[5];
      find_corners(task, boxes + i * 5, y, x);
      to[i] += from[i];
      for (int64_t p = 0; p < task->points; p++) {
        struct sample sample;
        sample_find(&sample, height, width, y[p], x[p]);
        if (sample.inside) {
          NAME(sample_add)(&sample, to, (double)from[i]);
        }
      }
    }
  }
}
