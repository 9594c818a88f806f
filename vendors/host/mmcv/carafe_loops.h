/// Content-aware upsampling and correlation (carafe.c), for REAL elements.

/// Pixel (i, j) of the kernel around output place (y, x): its place in the small picture; -1 outside.
static int64_t NAME(find_pixel)(const struct call *call, int64_t y, int64_t x, int64_t at) {
  const struct carafe_task *task = call->task;
  const int64_t half = (task->kernel - 1) / 2, height = call_size(call, 'h'), width = call_size(call, 'w');
  const int64_t row = y / task->scale + at / task->kernel - half, column = x / task->scale + at % task->kernel - half;
  return row < 0 || row >= height || column < 0 || column >= width ? -1 : row * width + column;
}

/// 0 features (n, c, h, w), 1 masks (n, m, y, x), 2 output (n, c, y, x). Loops over (n, c).
static void NAME(carafe_planes)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct carafe_task *task = call->task;
  const int64_t channels = call_size(call, 'c'), places = call_size(call, 'y') * call_size(call, 'x');
  const int64_t plane = call_size(call, 'h') * call_size(call, 'w'), kernel = task->kernel * task->kernel;
  for (int64_t at = begin; at < end; at++) {
    const int64_t n = at / channels, group = at % channels / task->share;
    const REAL *from = (const REAL *)call_data(call, 0) + at * plane;
    const REAL *mask = (const REAL *)call_data(call, 1) + (n * call_size(call, 'm') + group * kernel) * places;
    REAL *to = (REAL *)call_data(call, 2) + at * places;
    for (int64_t p = 0; p < places; p++) {
      double sum = 0;
      for (int64_t k = 0; k < kernel; k++) {
        const int64_t pixel = NAME(find_pixel)(call, p / call_size(call, 'x'), p % call_size(call, 'x'), k);
        sum += pixel < 0 ? 0 : (double)from[pixel] * (double)mask[k * places + p];
      }
      to[p] = (REAL)sum;
    }
  }
}

/// 2 gradient of the output, 3 that of the features. Loops over (n, c).
static void NAME(carafe_feature_planes)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct carafe_task *task = call->task;
  const int64_t channels = call_size(call, 'c'), places = call_size(call, 'y') * call_size(call, 'x');
  const int64_t plane = call_size(call, 'h') * call_size(call, 'w'), kernel = task->kernel * task->kernel;
  for (int64_t at = begin; at < end; at++) {
    const int64_t n = at / channels, group = at % channels / task->share;
    const REAL *grad = (const REAL *)call_data(call, 2) + at * places;
    const REAL *mask = (const REAL *)call_data(call, 1) + (n * call_size(call, 'm') + group * kernel) * places;
    REAL *to = (REAL *)call_data(call, 3) + at * plane;
    for (int64_t i = 0; i < places * kernel; i++) {
      const int64_t p = i / kernel, k = i % kernel;
      const int64_t pixel = NAME(find_pixel)(call, p / call_size(call, 'x'), p % call_size(call, 'x'), k);
      if (pixel >= 0) {
        to[pixel] += grad[p] * mask[k * places + p];
      }
    }
  }
}

/// 4 gradient of the masks. Loops over (n, m). Features are (n, c, h, w), or with task->last (n, h, w, c).
static void NAME(carafe_mask_planes)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct carafe_task *task = call->task;
  const int64_t channels = call_size(call, 'c'), places = call_size(call, 'y') * call_size(call, 'x');
  const int64_t plane = call_size(call, 'h') * call_size(call, 'w'), kernel = task->kernel * task->kernel;
  for (int64_t at = begin; at < end; at++) {
    const int64_t n = at / call_size(call, 'm'), group = at % call_size(call, 'm') / kernel;
    const int64_t last = (group + 1) * task->share < channels ? (group + 1) * task->share : channels;
    const REAL *features = (const REAL *)call_data(call, 0) + n * channels * plane;
    const REAL *grad = (const REAL *)call_data(call, 2) + n * channels * places;
    for (int64_t p = 0; p < places; p++) {
      const int64_t pixel = NAME(find_pixel)(call, p / call_size(call, 'x'), p % call_size(call, 'x'), at % kernel);
      double sum = 0;
      for (int64_t c = group * task->share; pixel >= 0 && c < last; c++) {
        sum += (double)grad[c * places + p] * (double)features[task->last ? pixel * channels + c : c * plane + pixel];
      }
      ((REAL *)call_data(call, 4))[at * places + p] = (REAL)sum;
    }
  }
}

/// (n, c, p) turned into (n, p, c).
static void NAME(turn)(const REAL *from, REAL *to, int64_t batch, int64_t channels, int64_t places) {
  for (int64_t i = 0; i < batch * channels * places; i++) {
    to[(i / (channels * places) * places + i % places) * channels + i / places % channels] = from[i];
  }
}

/// 0, 1 inputs (n, c, h, w); 2 output (n, i, j, y, x). Loops over (n, i, j).
static void NAME(correlate)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t shifts = call_size(call, 'i') * call_size(call, 'j');
  const int64_t places = call_size(call, 'y') * call_size(call, 'x'), channels = call_size(call, 'c');
  const int64_t plane = call_size(call, 'h') * call_size(call, 'w');
  for (int64_t at = begin; at < end; at++) {
    const REAL *a = (const REAL *)call_data(call, 0) + at / shifts * channels * plane;
    const REAL *b = (const REAL *)call_data(call, 1) + at / shifts * channels * plane;
    for (int64_t p = 0; p < places; p++) {
      double sum = 0;
      for (int64_t k = 0; k < count_window(call); k++) {
        int64_t first, second;
        for (int64_t c = 0; find_pair(call, at % shifts, p, k, &first, &second) && c < channels; c++) {
          sum += (double)a[c * plane + first] * (double)b[c * plane + second];
        }
      }
      ((REAL *)call_data(call, 2))[at * places + p] = (REAL)sum;
    }
  }
}

/// 3, 4 gradients of the inputs. Loops over (n, c).
static void NAME(correlate_backward)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t shifts = call_size(call, 'i') * call_size(call, 'j'), channels = call_size(call, 'c');
  const int64_t places = call_size(call, 'y') * call_size(call, 'x');
  const int64_t plane = call_size(call, 'h') * call_size(call, 'w');
  for (int64_t at = begin; at < end; at++) {
    const REAL *a = (const REAL *)call_data(call, 0) + at * plane, *b = (const REAL *)call_data(call, 1) + at * plane;
    const REAL *grad = (const REAL *)call_data(call, 2) + at / channels * shifts * places;
    REAL *grad_a = (REAL *)call_data(call, 3) + at * plane, *grad_b = (REAL *)call_data(call, 4) + at * plane;
    for (int64_t i = 0; i < shifts * places * count_window(call); i++) {
      const int64_t from = i / count_window(call);
      int64_t first, second;
      if (find_pair(call, from / places, from % places, i % count_window(call), &first, &second)) {
        grad_a[first] += grad[from] * b[second];
        grad_b[second] += grad[from] * a[first];
      }
    }
  }
}
