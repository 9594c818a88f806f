/// Pooling of points in boxes (points_box.c), for REAL features.

/// 0 boxes (n, 7), 1 points (p, 3), 2 features (p, c), 3 lists (n, x, y, z, m), 4 pooled (n, x, y, z, c), 5 argmax.
static void NAME(aware_boxes)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t voxels = call_size(call, 'x') * call_size(call, 'y') * call_size(call, 'z');
  const int64_t room = call_size(call, 'm'), channels = call_size(call, 'c');
  const REAL *features = call_data(call, 2);
  for (int64_t i = begin * voxels; i < end * voxels; i++) {
    const int64_t *list = (const int64_t *)call_data(call, 3) + i * room;
    for (int64_t c = 0; c < channels; c++) {
      int64_t place = -1;
      double sum = 0;
      for (int64_t k = 1; k <= list[0]; k++) {
        const REAL value = features[list[k] * channels + c];
        sum += (double)value;
        if (place < 0 || call_goes_before((double)value, (double)features[place * channels + c])) {
          place = list[k];
        }
      }
      REAL *pooled = (REAL *)call_data(call, 4) + i * channels + c;
      if (call->task) {  // means
        *pooled = (REAL)(list[0] > 0 ? sum / (double)list[0] : 0);
      } else {
        *pooled = place < 0 ? 0 : features[place * channels + c];
        ((int64_t *)call_data(call, 5))[i * channels + c] = place;
      }
    }
  }
}

/// 0 gradient (p, c), 1 lists, 2 argmax, 3 gradient of pooled. Channels begin to end - 1.
static void NAME(aware_backward_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t voxels = call_size(call, 'n') * call_size(call, 'x') * call_size(call, 'y') * call_size(call, 'z');
  const int64_t room = call_size(call, 'm'), channels = call_size(call, 'c');
  REAL *out = call_data(call, 0);
  for (int64_t i = 0; i < voxels; i++) {
    const int64_t *list = (const int64_t *)call_data(call, 1) + i * room;
    for (int64_t c = begin; c < end; c++) {
      const REAL grad = ((const REAL *)call_data(call, 3))[i * channels + c];
      if (!call->task) {
        const int64_t place = ((const int64_t *)call_data(call, 2))[i * channels + c];
        if (place >= 0) {
          out[place * channels + c] += grad;
        }
        continue;
      }
      for (int64_t k = 1; k <= list[0]; k++) {
        out[list[k] * channels + c] += grad / (REAL)list[0];
      }
    }
  }
}

/// 0 boxes (b, m, 7), 1 points (b, n, 3), 2 features (b, n, c), 3 pooled (b, m, s, 3 + c), 4 flags (b, m).
static void NAME(pool_boxes)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t count = call_size(call, 'n'), channels = call_size(call, 'c'), room = call_size(call, 's');
  for (int64_t i = begin; i < end; i++) {
    const double *box = (const double *)call_data(call, 0) + i * 7;
    const int64_t b = i / call_size(call, 'm');
    const double *points = (const double *)call_data(call, 1) + b * count * 3;
    const REAL *features = (const REAL *)call_data(call, 2) + b * count * channels;
    REAL *pooled = (REAL *)call_data(call, 3) + i * room * (3 + channels);
    int64_t found = 0;
    bool empty = true;
    for (int64_t k = 0; k < count && (empty || found < room); k++) {
      double x, y;
      if (!holds(box, points + 3 * k, &x, &y)) {
        continue;
      }
      empty = false;
      if (room == 0) {
        break;
      }
      REAL *to = pooled + found++ * (3 + channels);
      for (int64_t c = 0; c < 3 + channels; c++) {
        to[c] = c < 3 ? (REAL)points[3 * k + c] : features[k * channels + c - 3];
      }
    }
    for (int64_t at = found * (3 + channels); at < room * (3 + channels); at++) {
      pooled[at] = found > 0 ? pooled[at - found * (3 + channels)] : 0;
    }
    ((int64_t *)call_data(call, 4))[i] = empty;
  }
}
