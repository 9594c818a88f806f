/// Batch norm for one type (see norm_batch.c). Planes: a channel's elements of one sample lie together; lines: the
/// channels of one point lie together.

/// Sums over channel c in planes: of x (pass 0), of (x - mean)^2 (pass 1), of g and g * (x - mean) (pass 2).
static void NAME(sum_planes)(const struct batch_task *task, int pass, int64_t begin, int64_t end) {
  const int64_t area = task->area, step = task->channels * area;
  for (int64_t c = begin; c < end; c++) {
    double sum = 0, dot = 0;
    for (int64_t n = 0; n < task->samples; n++) {
      const int64_t at = n * step + c * area;
      if (pass == 0) {
        sum += NAME(data_sum)(&task->x, at, area);
      } else if (pass == 1) {
        sum += NAME(data_sum_squares)(&task->x, at, area, (REAL)task->mean[c]);
      } else {
        double s, d;
        NAME(data_dot_centered)(&task->g, &task->x, at, area, (REAL)task->mean[c], &s, &d);
        sum += s;
        dot += d;
      }
    }
    task->sum[c] = sum;
    task->dot[c] = dot;
  }
}

/// The same in lines: rows [begin, end) of `channels` elements into sum and dot, float over SUM_STEP rows at a time.
KERNEL_INLINE void BODY(add_line)(REAL *restrict sum, REAL *restrict dot, const REAL *restrict x,
                                  const REAL *restrict g, const REAL *restrict mean, int64_t count, int pass) {
  if (pass == 0) {
    for (int64_t i = 0; i < count; i++) {
      sum[i] += x[i];
    }
  } else if (pass == 1) {
    for (int64_t i = 0; i < count; i++) {
      sum[i] += (x[i] - mean[i]) * (x[i] - mean[i]);
    }
  } else {
    for (int64_t i = 0; i < count; i++) {
      sum[i] += g[i];
      dot[i] += g[i] * (x[i] - mean[i]);
    }
  }
}
KERNEL_MULTI(static, NAME(add_line),
             (REAL *restrict sum, REAL *restrict dot, const REAL *restrict x, const REAL *restrict g,
              const REAL *restrict mean, int64_t count, int pass),
             (sum, dot, x, g, mean, count, pass))

/// Rows of few channels are taken several at a time, as one line in which the channels repeat.
static int64_t NAME(count_together)(int64_t channels) {
  return channels < LINE_BLOCK ? LINE_BLOCK / channels : 1;
}

/// Running sums into the totals of `channels` channels, and back to 0.
static void NAME(flush_line)(double *total, REAL *line, int64_t count, int64_t channels) {
  for (int64_t at = 0; at < count; at += channels) {
    for (int64_t i = 0; i < channels; i++) {
      total[i] += (double)line[at + i];
      line[at + i] = 0;
    }
  }
}

static void NAME(sum_lines)(const struct batch_task *task, int pass, int64_t chunk) {
  const int64_t channels = task->channels, rows = task->samples * task->area;
  const int64_t first = chunk * task->chunk, last = first + task->chunk < rows ? first + task->chunk : rows;
  double *total = task->partial + chunk * 2 * channels;
  REAL sum[LINE_BLOCK], dot[LINE_BLOCK], mean[LINE_BLOCK], rooms[2][LINE_BLOCK];
  for (int64_t at = 0; at < channels; at += LINE_BLOCK) {
    const int64_t n = channels - at < LINE_BLOCK ? channels - at : LINE_BLOCK,
                  together = NAME(count_together)(channels);
    for (int64_t i = 0; i < n * together; i++) {
      mean[i] = pass == 0 ? 0 : (REAL)task->mean[at + i % n];
      sum[i] = dot[i] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
      total[at + i] = total[channels + at + i] = 0;
    }
    for (int64_t row = first, line = 0; row < last; row += together, line++) {
      const int64_t count = n * (last - row < together ? last - row : together), place = row * channels + at;
      if (task->x.dtype == DIT_DTYPE_BF16 && pass < 2) {
        add_bfloats((float *)(void *)sum, get_bfloats(&task->x, place), (const float *)(void *)mean, count, pass == 1);
      } else {
        const REAL *x = NAME(data_fetch)(&task->x, place, count, rooms[0]);
        const REAL *g = pass == 2 ? NAME(data_fetch)(&task->g, place, count, rooms[1]) : x;
        NAME(add_line)(sum, dot, x, g, mean, count, pass);
      }
      if (line % SUM_STEP == SUM_STEP - 1 || row + together >= last) {
        NAME(flush_line)(total + at, sum, n * together, n);
        NAME(flush_line)(total + channels + at, dot, pass == 2 ? n * together : 0, n);
      }
    }
  }
}

KERNEL_INLINE void BODY(combine_line)(REAL *out, const REAL *x, const REAL *g, const REAL *a, const REAL *b,
                                      const REAL *c, int64_t count) {
  if (g) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = a[i] * g[i] + (b[i] * x[i] + c[i]);
    }
  } else {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = b[i] * (x[i] - a[i]) + c[i];
    }
  }
}
KERNEL_MULTI(static, NAME(combine_line),
             (REAL * out, const REAL *x, const REAL *g, const REAL *a, const REAL *b, const REAL *c, int64_t count),
             (out, x, g, a, b, c, count))

/// out = a * g + b * x + c with a, b, c per channel; without g: b * (x - a) + c. Planes [begin, end) of samples *
/// channels.
static void NAME(apply_planes)(const struct batch_task *task, int64_t begin, int64_t end) {
  const int64_t area = task->area;
  for (int64_t plane = begin; plane < end; plane++) {
    const int64_t c = plane % task->channels, at = plane * area;
    if (task->g.data) {
      NAME(data_combine)
      (&task->out, &task->g, &task->x, at, area, (REAL)task->a[c], (REAL)task->b[c], (REAL)task->c[c]);
    } else {
      NAME(data_centered)(&task->out, &task->x, at, area, (REAL)task->a[c], (REAL)task->b[c], (REAL)task->c[c]);
    }
  }
}

static void NAME(apply_lines)(const struct batch_task *task, int64_t begin, int64_t end) {
  const int64_t channels = task->channels;
  for (int64_t at = 0; at < channels; at += LINE_BLOCK) {
    const int64_t n = channels - at < LINE_BLOCK ? channels - at : LINE_BLOCK,
                  together = NAME(count_together)(channels);
    REAL a[LINE_BLOCK], b[LINE_BLOCK], c[LINE_BLOCK], rooms[2][LINE_BLOCK];
    for (int64_t i = 0; i < n * together; i++) {
      a[i] = (REAL)task->a[at + i % n];
      b[i] = (REAL)task->b[at + i % n];
      c[i] = (REAL)task->c[at + i % n];
    }
    for (int64_t row = begin; row < end; row += together) {
      const int64_t place = row * channels + at, count = n * (end - row < together ? end - row : together);
      if (task->x.dtype == DIT_DTYPE_BF16 && task->out.dtype == DIT_DTYPE_BF16 && !task->g.data) {
        combine_bfloats(get_bfloats(&task->out, place), get_bfloats(&task->x, place), (const float *)(void *)a,
                        (const float *)(void *)b, (const float *)(void *)c, count);
        continue;
      }
      REAL *out = NAME(data_get)(&task->out, place, rooms[0]);
      const REAL *x = NAME(data_fetch)(&task->x, place, count, rooms[0]);
      NAME(combine_line)
      (out, x, task->g.data ? NAME(data_fetch)(&task->g, place, count, rooms[1]) : NULL, a, b, c, count);
      NAME(data_put)(&task->out, place, count, out);
    }
  }
}
