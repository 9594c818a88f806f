/// Columns of deformable convolution (deform_conv.c), for REAL elements. Loops over channels of image task->image.

/// Where position p (of P places, K kernel positions) of group g is read.
static bool NAME(find_tap)(const struct call *call, int64_t group, int64_t k, int64_t p, struct tap *tap,
                           double *factor) {
  const struct deform_task *task = call->task;
  const int64_t places = task->out_h * task->out_w, kernel = task->kernel_h * task->kernel_w;
  const int64_t lead = (task->image * task->deform_groups + group) * kernel + k;
  const REAL *offset = (const REAL *)call_data(call, OFFSET) + 2 * lead * places + p;
  const REAL *mask = call_data(call, MASK);
  const int64_t row = p / task->out_w * task->stride_h - task->pad_h + k / task->kernel_w * task->dilation_h;
  const int64_t column = p % task->out_w * task->stride_w - task->pad_w + k % task->kernel_w * task->dilation_w;
  *factor = mask ? (double)mask[lead * places + p] : 1;
  return tap_find(tap, call_size(call, 'h'), call_size(call, 'w'), (double)row + (double)offset[0],
                  (double)column + (double)offset[places]);
}

static void NAME(make_columns)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct deform_task *task = call->task;
  const int64_t places = task->out_h * task->out_w, kernel = task->kernel_h * task->kernel_w;
  const int64_t channels = call_size(call, 'c'), plane = call_size(call, 'h') * call_size(call, 'w');
  const int64_t share = channels / task->deform_groups;
  for (int64_t at = begin; at < end; at++) {  // (group, kernel position)
    const int64_t group = at / kernel, k = at % kernel;
    for (int64_t p = 0; p < places; p++) {
      struct tap tap;
      double factor;
      const bool inside = NAME(find_tap)(call, group, k, p, &tap, &factor);
      for (int64_t c = group * share; c < (group + 1) * share; c++) {
        const REAL *from = (const REAL *)call_data(call, INPUT) + (task->image * channels + c) * plane;
        double sum = 0;
        for (int i = 0; inside && i < 4; i++) {
          sum += tap.weight[i] * (double)from[tap.at[i]];
        }
        ((REAL *)task->columns)[(c * kernel + k) * places + p] = (REAL)(sum * factor);
      }
    }
  }
}

/// The picture's gradient from that of the columns. Channels begin to end - 1.
static void NAME(spread_columns)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct deform_task *task = call->task;
  const int64_t places = task->out_h * task->out_w, kernel = task->kernel_h * task->kernel_w;
  const int64_t channels = call_size(call, 'c'), plane = call_size(call, 'h') * call_size(call, 'w');
  const int64_t share = channels / task->deform_groups;
  for (int64_t c = begin; c < end; c++) {
    REAL *to = (REAL *)call_data(call, GRAD_INPUT) + (task->image * channels + c) * plane;
    for (int64_t at = 0; at < kernel * places; at++) {
      struct tap tap;
      double factor;
      if (NAME(find_tap)(call, c / share, at / places, at % places, &tap, &factor)) {
        const double value = factor * (double)((const REAL *)task->columns)[c * kernel * places + at];
        for (int i = 0; i < 4; i++) {
          to[tap.at[i]] += (REAL)(tap.weight[i] * value);
        }
      }
    }
  }
}

/// Gradients of offsets and masks. Loops over (group, kernel position).
static void NAME(move_offsets)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct deform_task *task = call->task;
  const int64_t places = task->out_h * task->out_w, kernel = task->kernel_h * task->kernel_w;
  const int64_t channels = call_size(call, 'c'), plane = call_size(call, 'h') * call_size(call, 'w');
  const int64_t share = channels / task->deform_groups;
  REAL *grad_mask = call_data(call, GRAD_MASK);
  for (int64_t at = begin; at < end; at++) {
    const int64_t group = at / kernel, k = at % kernel;
    const int64_t lead = (task->image * task->deform_groups + group) * kernel + k;
    for (int64_t p = 0; p < places; p++) {
      struct tap tap;
      double factor, by_y = 0, by_x = 0, by_mask = 0;
      const bool inside = NAME(find_tap)(call, group, k, p, &tap, &factor);
      for (int64_t c = group * share; inside && c < (group + 1) * share; c++) {
        const REAL *from = (const REAL *)call_data(call, INPUT) + (task->image * channels + c) * plane;
        const double grad = (double)((const REAL *)task->columns)[(c * kernel + k) * places + p];
        for (int i = 0; i < 4; i++) {
          const double value = grad * (double)from[tap.at[i]];
          by_y += tap.by_y[i] * value;
          by_x += tap.by_x[i] * value;
          by_mask += tap.weight[i] * value;
        }
      }
      REAL *to = (REAL *)call_data(call, GRAD_OFFSET) + 2 * lead * places + p;
      to[0] = (REAL)(by_y * factor);
      to[places] = (REAL)(by_x * factor);
      if (grad_mask) {
        grad_mask[lead * places + p] = (REAL)by_mask;
      }
    }
  }
}

/// to += factor * from
static void NAME(add_scaled)(REAL *to, const REAL *from, int64_t count, double factor) {
  for (int64_t i = 0; i < count; i++) {
    to[i] += (REAL)(factor * (double)from[i]);
  }
}

/// Bias onto the result, or its gradient.
static void NAME(add_bias)(const struct call *call) {
  const int64_t channels = call_size(call, 'o'), places = call_size(call, 'y') * call_size(call, 'x');
  const REAL *bias = call_data(call, BIAS);
  REAL *out = call_data(call, OUTPUT);
  for (int64_t i = 0; bias && i < call_numel(call, OUTPUT); i++) {
    out[i] += bias[i / places % channels];
  }
}
static void NAME(sum_bias)(const struct call *call) {
  const int64_t channels = call_size(call, 'o'), places = call_size(call, 'y') * call_size(call, 'x');
  const REAL *grad = call_data(call, OUTPUT);
  REAL *out = call_data(call, GRAD_BIAS);
  for (int64_t c = 0; out && c < channels; c++) {
    double sum = 0;
    for (int64_t i = 0; i < call_size(call, 'n') * places; i++) {
      sum += (double)grad[(i / places * channels + c) * places + i % places];
    }
    out[c] = (REAL)sum;
  }
}
