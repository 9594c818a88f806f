/// Elements that move, and small filters (move.c), for REAL elements.

/// 0 masks (n, m, h, w), 1 planes (n, hw, h, w); backward copies from 1 to 0.
static void NAME(psa_images)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct psa_task *task = call->task;
  const int64_t high = call_size(call, 'h'), wide = call_size(call, 'w'), plane = high * wide;
  for (int64_t i = begin * plane; i < end * plane; i++) {  // (n, h, w)
    const int64_t n = i / plane, y = i / wide % high, x = i % wide;
    for (int64_t k = 0; k < task->mask_h * task->mask_w; k++) {
      const int64_t row = k / task->mask_w + y - task->half_h, column = k % task->mask_w + x - task->half_w;
      REAL *mask = (REAL *)call_data(call, 0) + ((n * task->mask_h * task->mask_w + k) * high + y) * wide + x;
      if (row < 0 || row >= high || column < 0 || column >= wide) {
        continue;
      }
      const int64_t here = y * wide + x, there = row * wide + column;
      REAL *full = (REAL *)call_data(call, 1) + n * plane * plane +
                   (task->distributes ? here * plane + there : there * plane + here);
      if (task->backward) {
        *mask = *full;
      } else {
        *full = *mask;
      }
    }
  }
}

/// 0 from, 1 to (n, t, c, l), 2 shift (n, g); the sign of the shift in call->task. Loops over (n, c).
static void NAME(shift_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t channels = call_size(call, 'c'), times = call_size(call, 't'), length = call_size(call, 'l');
  const int64_t groups = call_size(call, 'g'), *shifts = call_data(call, 2), sign = *(const int64_t *)call->task;
  for (int64_t at = begin; at < end; at++) {
    const int64_t n = at / channels, c = at % channels, shift = sign * shifts[n * groups + c / (channels / groups)];
    for (int64_t t = 0; t < times; t++) {
      const int64_t from = t - shift;
      for (int64_t l = 0; l < length; l++) {
        ((REAL *)call_data(call, 1))[((n * times + t) * channels + c) * length + l] =
            from >= 0 && from < times
                ? ((const REAL *)call_data(call, 0))[((n * times + from) * channels + c) * length + l]
                : 0;
      }
    }
  }
}

/// 0 weights (o, i, e), 1 rotated (o, r, i, e), 2 indices (e, r) from 1 on. Loops over (o, i).
static void NAME(rotate_filters)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct filter_task *task = call->task;
  const int64_t inputs = call_size(call, 'i'), *indices = call_data(call, 2);
  for (int64_t at = begin; at < end; at++) {
    for (int64_t k = 0; k < task->entries * task->rotations; k++) {
      const int64_t entry = k / task->rotations, turn = k % task->rotations;
      REAL *weight = (REAL *)call_data(call, 0) + at * task->entries + entry;
      REAL *rotated = (REAL *)call_data(call, 1) +
                      ((at / inputs * task->rotations + turn) * inputs + at % inputs) * task->entries + indices[k] - 1;
      if (task->backward) {
        *weight += *rotated;
      } else {
        *rotated = *weight;
      }
    }
  }
}

/// 0 picture (1, c, h, w), 1 columns, 2 and 3 rows and columns of places (m). Loops over c.
static void NAME(take_windows)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct window_task *task = call->task;
  const int64_t high = call_size(call, 'h'), wide = call_size(call, 'w'), places = call_size(call, 'm');
  const int64_t *rows = call_data(call, 2), *columns = call_data(call, 3), window = task->kernel_h * task->kernel_w;
  for (int64_t i = begin * window * places; i < end * window * places; i++) {
    const int64_t c = i / places / window, k = i / places % window;
    const int64_t y = rows[i % places] - task->pad_h + k / task->kernel_w;
    const int64_t x = columns[i % places] - task->pad_w + k % task->kernel_w;
    ((REAL *)call_data(call, 1))[i] =
        y >= 0 && y < high && x >= 0 && x < wide ? ((const REAL *)call_data(call, 0))[(c * high + y) * wide + x] : 0;
  }
}
static void NAME(put_places)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t high = call_size(call, 'h'), wide = call_size(call, 'w'), places = call_size(call, 'm');
  const int64_t *rows = call_data(call, 2), *columns = call_data(call, 3);
  for (int64_t i = begin * places; i < end * places; i++) {
    ((REAL *)call_data(call, 0))[(i / places * high + rows[i % places]) * wide + columns[i % places]] =
        ((const REAL *)call_data(call, 1))[i];
  }
}

/// 0 input (a, h, w, b), 1 kernel (i, j), 2 result (a, y, x, b). Loops over (a, y).
static void NAME(filter_rows)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct resample_task *task = call->task;
  const int64_t high = call_size(call, 'h'), wide = call_size(call, 'w'), minor = call_size(call, 'b');
  const int64_t kernel_h = call_size(call, 'i'), kernel_w = call_size(call, 'j');
  const REAL *kernel = call_data(call, 1);
  for (int64_t at = begin; at < end; at++) {
    const int64_t a = at / task->out_h, y = at % task->out_h;
    for (int64_t i = 0; i < task->out_w * minor; i++) {
      double sum = 0;
      for (int64_t k = 0; k < kernel_h * kernel_w; k++) {
        const int64_t row = y * task->down_y - task->pad_y + k / kernel_w;
        const int64_t column = i / minor * task->down_x - task->pad_x + k % kernel_w;
        if (row < 0 || column < 0 || row % task->up_y || column % task->up_x || row / task->up_y >= high ||
            column / task->up_x >= wide) {
          continue;
        }
        const int64_t from = ((a * high + row / task->up_y) * wide + column / task->up_x) * minor + i % minor;
        sum += (double)((const REAL *)call_data(call, 0))[from] * (double)kernel[kernel_h * kernel_w - 1 - k];
      }
      ((REAL *)call_data(call, 2))[at * task->out_w * minor + i] = (REAL)sum;
    }
  }
}

/// 0 input, 1 bias, 2 refer, 3 result.
static void NAME(activate)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct leaky_task *task = call->task;
  const REAL *input = call_data(call, 0), *bias = call_data(call, 1), *refer = call_data(call, 2);
  REAL *out = call_data(call, 3);
  for (int64_t i = begin; i < end; i++) {
    const double x = (double)input[i] + (bias ? (double)bias[i / task->step % task->channels] : 0);
    const double by = task->grad == 1 ? (refer ? (double)refer[i] : 0) : x;
    const double y = task->grad == 2 ? 0 : task->act == 3 && !(by > 0) ? x * task->alpha : x;
    out[i] = (REAL)(y * task->scale);
  }
}
