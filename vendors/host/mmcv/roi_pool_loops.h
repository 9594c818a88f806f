/// Pooling over whole bins (roi_pool.c), for REAL elements. Tensors: 0 boxes, 1 the picture (or its gradient), 2 the
/// bins (or their gradient), 3 places of maxima (or the bins' values).

static void NAME(pool_boxes)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct pool_task *task = call->task;
  const int64_t channels = call_size(call, 'c'), height = call_size(call, 'h'), width = call_size(call, 'w');
  const int64_t bins = task->pooled_h * task->pooled_w;
  const double *rois = call_data(call, 0);
  for (int64_t k = begin; k < end; k++) {
    const REAL *input = (const REAL *)call_data(call, 1) + (int64_t)rois[k * 5] * channels * height * width;
    for (int64_t bin = 0; bin < bins; bin++) {
      int64_t y1, y2, x1, x2;
      find_pixels(task, rois + k * 5, bin, height, width, &y1, &y2, &x1, &x2);
      for (int64_t c = 0; c < channels; c++) {
        const int64_t to = (k * channels + c) * bins + bin;
        const REAL *plane = input + c * height * width;
        REAL largest = 0;
        int64_t place = -1;
        for (int64_t y = y1; y < y2; y++) {
          for (int64_t x = x1; x < x2; x++) {
            if (place < 0 || call_goes_before((double)plane[y * width + x], (double)largest)) {
              place = y * width + x;
              largest = plane[place];
            }
          }
        }
        ((REAL *)call_data(call, 2))[to] = largest;
        ((int64_t *)call_data(call, 3))[to] = place;
      }
    }
  }
}

static void NAME(pool_backward_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct pool_task *task = call->task;
  const int64_t channels = call_size(call, 'c'), plane = call_size(call, 'h') * call_size(call, 'w');
  const int64_t bins = task->pooled_h * task->pooled_w, *place = call_data(call, 3);
  const double *rois = call_data(call, 0);
  const REAL *grad = call_data(call, 2);
  for (int64_t k = 0; k < call_size(call, 'k'); k++) {
    for (int64_t c = begin; c < end; c++) {
      REAL *out = (REAL *)call_data(call, 1) + ((int64_t)rois[k * 5] * channels + c) * plane;
      for (int64_t at = (k * channels + c) * bins; at < (k * channels + c + 1) * bins; at++) {
        if (place[at] >= 0) {
          out[place[at]] += grad[at];
        }
      }
    }
  }
}

/// sum over pixels of weights(y) weights(x) plane(y, x)
static double NAME(weigh)(const struct span *y, const struct span *x, const REAL *plane, int64_t width,
                          double (*by_y)(const struct span *, int64_t), double (*by_x)(const struct span *, int64_t)) {
  double sum = 0;
  for (int64_t i = y->first; i <= y->last; i++) {
    double row = 0;
    for (int64_t j = x->first; j <= x->last; j++) {
      row += by_x(x, j) * (double)plane[i * width + j];
    }
    sum += by_y(y, i) * row;
  }
  return sum;
}

static void NAME(precise_boxes)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct pool_task *task = call->task;
  const int64_t channels = call_size(call, 'c'), height = call_size(call, 'h'), width = call_size(call, 'w');
  const int64_t bins = task->pooled_h * task->pooled_w;
  const double *rois = call_data(call, 0);
  REAL *output = call_data(call, 2);
  for (int64_t k = begin; k < end; k++) {
    const REAL *input = (const REAL *)call_data(call, 1) + (int64_t)rois[k * 5] * channels * height * width;
    for (int64_t bin = 0; bin < bins; bin++) {
      struct span y, x;
      find_spans(task, rois + k * 5, bin, height, width, &y, &x);
      const double area = (y.end - y.begin) * (x.end - x.begin);
      for (int64_t c = 0; c < channels; c++) {
        const double sum = NAME(weigh)(&y, &x, input + c * height * width, width, span_integral, span_integral);
        output[(k * channels + c) * bins + bin] = (REAL)(area > 0 ? sum / area : 0);
      }
    }
  }
}

static void NAME(precise_backward_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct pool_task *task = call->task;
  const int64_t channels = call_size(call, 'c'), height = call_size(call, 'h'), width = call_size(call, 'w');
  const int64_t bins = task->pooled_h * task->pooled_w;
  const double *rois = call_data(call, 0);
  const REAL *grad = call_data(call, 2);
  for (int64_t at = 0; at < call_size(call, 'k') * bins; at++) {
    const int64_t k = at / bins, bin = at % bins;
    struct span y, x;
    find_spans(task, rois + k * 5, bin, height, width, &y, &x);
    const double area = (y.end - y.begin) * (x.end - x.begin);
    for (int64_t c = begin; area > 0 && c < end; c++) {
      REAL *plane = (REAL *)call_data(call, 1) + ((int64_t)rois[k * 5] * channels + c) * height * width;
      const double value = (double)grad[(k * channels + c) * bins + bin] / area;
      for (int64_t i = y.first; i <= y.last; i++) {
        const double row = value * span_integral(&y, i);
        for (int64_t j = x.first; j <= x.last; j++) {
          plane[i * width + j] += (REAL)(row * span_integral(&x, j));
        }
      }
    }
  }
}

/// 4 is the gradient of the boxes. A bin's mean m changes with its right edge by (integral along it - height m) / area.
static void NAME(precise_coordinate_boxes)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct pool_task *task = call->task;
  const int64_t channels = call_size(call, 'c'), height = call_size(call, 'h'), width = call_size(call, 'w');
  const int64_t bins = task->pooled_h * task->pooled_w;
  const double *rois = call_data(call, 0);
  const REAL *grad = call_data(call, 2), *means = call_data(call, 3);
  for (int64_t k = begin; k < end; k++) {
    const REAL *input = (const REAL *)call_data(call, 1) + (int64_t)rois[k * 5] * channels * height * width;
    double sums[4] = {0, 0, 0, 0};
    for (int64_t bin = 0; bin < bins; bin++) {
      struct span y, x;
      find_spans(task, rois + k * 5, bin, height, width, &y, &x);
      const double high = y.end - y.begin, wide = x.end - x.begin;
      const double ph = (double)(bin / task->pooled_w), pw = (double)(bin % task->pooled_w);
      const double above = ph / (double)task->pooled_h, left = pw / (double)task->pooled_w;
      const double below = (ph + 1) / (double)task->pooled_h, right = (pw + 1) / (double)task->pooled_w;
      for (int64_t c = 0; high * wide > 0 && c < channels; c++) {
        const REAL *plane = input + c * height * width;
        const int64_t at = (k * channels + c) * bins + bin;
        const double factor = (double)grad[at] * task->scale / (high * wide), mean = (double)means[at];
        const double x1 = high * mean - NAME(weigh)(&y, &x, plane, width, span_integral, span_at_begin);
        const double x2 = NAME(weigh)(&y, &x, plane, width, span_integral, span_at_end) - high * mean;
        const double y1 = wide * mean - NAME(weigh)(&y, &x, plane, width, span_at_begin, span_integral);
        const double y2 = NAME(weigh)(&y, &x, plane, width, span_at_end, span_integral) - wide * mean;
        sums[0] += factor * (x1 * (1 - left) + x2 * (1 - right));
        sums[1] += factor * (y1 * (1 - above) + y2 * (1 - below));
        sums[2] += factor * (x1 * left + x2 * right);
        sums[3] += factor * (y1 * above + y2 * below);
      }
    }
    REAL *out = (REAL *)call_data(call, 4) + k * 5;
    out[0] = 0;
    for (int i = 0; i < 4; i++) {
      out[i + 1] = (REAL)sums[i];
    }
  }
}
