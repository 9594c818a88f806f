/// The loops of RoiAlign for one type; included once for float and once for double, which define REAL, NAME(x), CEIL.
///
/// Samples of a bin lie in a grid, so rows and columns are looked at alone: a tap is the two pixels around a place on
/// one side and their weights.

struct NAME(tap) {
  int64_t low, high;
  REAL low_weight, high_weight;
  bool outside;
};

/// One side of a region: `bins` bins of `samples` taps each.
struct NAME(side) {
  REAL start, bin;
  int64_t samples;
};

static void NAME(set_side)(const struct roi_align *call, REAL from, REAL to, int64_t bins, struct NAME(side) * side) {
  const REAL scale = (REAL)call->scale, shift = call->aligned ? (REAL)0.5 : 0;
  side->start = from * scale - shift;
  REAL length = to * scale - shift - side->start;
  length = !call->aligned && length < 1 ? 1 : length;
  side->bin = length / (REAL)bins;
  const REAL fit = CEIL(side->bin);
  side->samples = call->samples > 0 ? call->samples : fit > 0 ? (int64_t)fit : 0;
}

static void NAME(set_taps)(const struct NAME(side) * side, int64_t bins, int64_t size, struct NAME(tap) * taps) {
  for (int64_t i = 0; i < bins * side->samples; i++) {
    const int64_t bin = i / side->samples, sample = i % side->samples;
    REAL at = side->start + (REAL)bin * side->bin + ((REAL)sample + (REAL)0.5) * side->bin / (REAL)side->samples;
    struct NAME(tap) *tap = &taps[i];
    tap->outside = at < -1 || at > (REAL)size || size == 0;
    at = at < 0 ? 0 : at;
    tap->low = tap->outside ? 0 : (int64_t)at;
    if (tap->low >= size - 1) {
      tap->low = tap->high = size > 0 ? size - 1 : 0;
      at = (REAL)tap->low;
    } else {
      tap->high = tap->low + 1;
    }
    tap->high_weight = at - (REAL)tap->low;
    tap->low_weight = 1 - tap->high_weight;
  }
}

/// Taps of both sides of region `number`, behind each other in `room`; false when there are too many of them.
static bool NAME(set_region)(const struct roi_align *call, const REAL *roi, struct NAME(side) * y,
                             struct NAME(side) * x) {
  NAME(set_side)(call, roi[2], roi[4], call->bins_y, y);
  NAME(set_side)(call, roi[1], roi[3], call->bins_x, x);
  return y->samples <= ROI_MAX_SAMPLES && x->samples <= ROI_MAX_SAMPLES;
}

static bool NAME(check)(const struct roi_align *call, const REAL *rois, int64_t *bad) {
  for (int64_t i = 0; i < call->rois.sizes[0]; i++) {
    const REAL *roi = rois + 5 * i;
    struct NAME(side) y, x;
    bool valid = roi[0] >= 0 && roi[0] < (REAL)call->images;
    for (int j = 1; j < 5; j++) {
      valid = valid && isfinite(roi[j] * (REAL)call->scale) && FABS(roi[j] * (REAL)call->scale) < (REAL)(1 << 24);
    }
    if (!valid || !NAME(set_region)(call, roi, &y, &x)) {
      *bad = i;
      return false;
    }
  }
  return true;
}

static REAL NAME(mix)(const REAL *image, int64_t width, const struct NAME(tap) * y, const struct NAME(tap) * x) {
  const REAL *low = image + y->low * width, *high = image + y->high * width;
  return y->low_weight * (x->low_weight * low[x->low] + x->high_weight * low[x->high]) +
         y->high_weight * (x->low_weight * high[x->low] + x->high_weight * high[x->high]);
}

static void NAME(spread)(REAL *image, int64_t width, const struct NAME(tap) * y, const struct NAME(tap) * x,
                         REAL grad) {
  REAL *low = image + y->low * width, *high = image + y->high * width;
  low[x->low] += grad * y->low_weight * x->low_weight;
  low[x->high] += grad * y->low_weight * x->high_weight;
  high[x->low] += grad * y->high_weight * x->low_weight;
  high[x->high] += grad * y->high_weight * x->high_weight;
}

/// One bin of one channel: its mean, or (backward) its gradient into the image.
static void NAME(run_bin)(const struct roi_align *call, const struct NAME(tap) * ys, int64_t y_count,
                          const struct NAME(tap) * xs, int64_t x_count, REAL *image, REAL *bin) {
  const int64_t all = y_count * x_count;
  const REAL count = (REAL)(all > 0 ? all : 1);
  REAL sum = 0;
  for (int64_t i = 0; i < y_count; i++) {
    for (int64_t j = 0; j < x_count; j++) {
      if (ys[i].outside || xs[j].outside) {
        continue;
      }
      if (call->backward) {
        NAME(spread)(image, call->width, &ys[i], &xs[j], *bin / count);
      } else {
        sum += NAME(mix)(image, call->width, &ys[i], &xs[j]);
      }
    }
  }
  if (!call->backward) {
    *bin = sum / count;
  }
}

/// Channels [begin, end) of all regions (regions and channels in one number when forward).
static void NAME(run)(void *context, int64_t begin, int64_t end) {
  struct roi_run *run = context;
  const struct roi_align *call = run->call;
  const int64_t regions = call->rois.sizes[0];
  const int64_t first = call->backward ? 0 : begin, last = call->backward ? regions : end;
  struct NAME(tap) *taps = NULL;
  for (int64_t k = first; k < last; k++) {
    const REAL *roi = (const REAL *)run->rois + 5 * k;
    struct NAME(side) y, x;
    NAME(set_region)(call, roi, &y, &x);
    const int64_t y_all = y.samples * call->bins_y, x_all = x.samples * call->bins_x;
    taps = scratch_take(sizeof *taps * (size_t)(y_all + x_all) + 1);
    if (!taps) {
      atomic_store(&run->failed, true);
      return;
    }
    NAME(set_taps)(&y, call->bins_y, call->height, taps);
    NAME(set_taps)(&x, call->bins_x, call->width, taps + y_all);
    for (int64_t c = call->backward ? begin : 0; c < (call->backward ? end : call->channels); c++) {
      REAL *image = (REAL *)run->images + ((int64_t)roi[0] * call->channels + c) * call->height * call->width;
      REAL *bins = (REAL *)run->bins + (k * call->channels + c) * call->bins_y * call->bins_x;
      for (int64_t i = 0; i < call->bins_y * call->bins_x; i++) {
        const int64_t row = i / call->bins_x, column = i % call->bins_x;
        NAME(run_bin)
        (call, taps + row * y.samples, y.samples, taps + y_all + column * x.samples, x.samples, image, bins + i);
      }
    }
    scratch_give(taps);
  }
}

#undef REAL
#undef NAME
#undef CEIL
#undef FABS
