/// The loops of convolution for one type; included once for float and once for double.
///
/// The including file defines REAL, NAME(x) and BODY(x). A line is a row of output positions along the last dimension;
/// lines are numbered over the other two.

/// x[i * step] += factor * line[i]
KERNEL_INLINE void BODY(spread_scaled)(REAL *restrict x, int64_t step, const REAL *restrict line, REAL factor,
                                       int64_t count) {
  if (step == 1) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      x[i] += factor * line[i];
    }
  } else {
    for (int64_t i = 0; i < count; i++) {
      x[i * step] += factor * line[i];
    }
  }
}
KERNEL_MULTI(static, NAME(spread_scaled),
             (REAL *restrict x, int64_t step, const REAL *restrict line, REAL factor, int64_t count),
             (x, step, line, factor, count))

/// *sum += total of `count` elements.
KERNEL_INLINE void BODY(add_total)(double *sum, const REAL *x, int64_t count) {
  for (int64_t at = 0; at < count; at += CONV_RUN) {
    const int64_t end = count - at < CONV_RUN ? count : at + CONV_RUN;
    REAL lanes[CONV_LANES] = {0};
    int64_t i = at;
    for (; i + CONV_LANES <= end; i += CONV_LANES) {
      for (int j = 0; j < CONV_LANES; j++) {
        lanes[j] += x[i + j];
      }
    }
    for (; i < end; i++) {
      lanes[0] += x[i];
    }
    double total = 0;
    for (int j = 0; j < CONV_LANES; j++) {
      total += (double)lanes[j];
    }
    *sum += total;
  }
}
KERNEL_MULTI(static, NAME(add_total), (double *sum, const REAL *x, int64_t count), (sum, x, count))

/// Columns of channels [0, channels) at `in` for the lines [first, last); rows are `ld` elements apart.
static void NAME(gather)(const struct conv_shape *s, int64_t channels, const REAL *in, int64_t first, int64_t last,
                         REAL *columns, int64_t ld) {
  const int64_t plane = s->in[0] * s->in[1] * s->in[2], width = s->out[2], step = s->stride[2];
  const int64_t volume = s->kernel[0] * s->kernel[1] * s->kernel[2];
  for (int64_t row = 0; row < channels * volume; row++) {
    const REAL *image = in + row / volume * plane;
    struct conv_tap tap;
    conv_set_tap(s, row % volume, &tap);
    REAL *to = columns + row * ld;
    for (int64_t line = first; line < last; line++, to += width) {
      const int64_t source = conv_find_line(s, &tap, line);
      if (source < 0 || tap.end == tap.begin) {
        memset(to, 0, sizeof(REAL) * (size_t)width);
        continue;
      }
      const REAL *from = image + source * s->in[2] + tap.from;
      for (int64_t i = 0; i < tap.begin; i++) {
        to[i] = 0;
      }
      REAL *inside = to + tap.begin;
      if (step == 1) {
        for (int64_t i = 0; i < tap.end - tap.begin; i++) {
          inside[i] = from[i];
        }
      } else {
        for (int64_t i = 0; i < tap.end - tap.begin; i++) {
          inside[i] = from[i * step];
        }
      }
      for (int64_t i = tap.end; i < width; i++) {
        to[i] = 0;
      }
    }
  }
}

/// The way back: adds to `in`.
static void NAME(scatter)(const struct conv_shape *s, int64_t channels, REAL *in, int64_t first, int64_t last,
                          const REAL *columns, int64_t ld) {
  const int64_t plane = s->in[0] * s->in[1] * s->in[2], width = s->out[2], step = s->stride[2];
  const int64_t volume = s->kernel[0] * s->kernel[1] * s->kernel[2];
  for (int64_t row = 0; row < channels * volume; row++) {
    REAL *image = in + row / volume * plane;
    struct conv_tap tap;
    conv_set_tap(s, row % volume, &tap);
    const REAL *from = columns + row * ld;
    for (int64_t line = first; line < last; line++, from += width) {
      const int64_t target = conv_find_line(s, &tap, line);
      if (target >= 0 && tap.end > tap.begin) {
        NAME(spread_scaled)(image + target * s->in[2] + tap.from, step, from + tap.begin, 1, tap.end - tap.begin);
      }
    }
  }
}

static void NAME(set_line)(REAL *line, REAL value, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    line[i] = value;
  }
}

#undef REAL
#undef NAME
#undef BODY
