/// The loops of softmax for one work type; included once for float and once for double.
///
/// The including file defines REAL (the type), EXP (its exponential), NAME(x) (x with the type's suffix) and BODY(x)
/// (the same for the body of a multi-target loop). Row loops handle one line of
/// `count` neighbouring elements, column loops one step of many lines that lie side by side.

#define SOFTMAX_LANES 16

KERNEL_INLINE void BODY(row_max)(const REAL *p, int64_t count, REAL *result) {
  REAL lanes[SOFTMAX_LANES];
  int64_t i = 0;
  for (int j = 0; j < SOFTMAX_LANES; j++) {
    lanes[j] = *result;
  }
  for (; i + SOFTMAX_LANES <= count; i += SOFTMAX_LANES) {
    for (int j = 0; j < SOFTMAX_LANES; j++) {
      lanes[j] = p[i + j] > lanes[j] ? p[i + j] : lanes[j];
    }
  }
  for (; i < count; i++) {
    lanes[0] = p[i] > lanes[0] ? p[i] : lanes[0];
  }
  for (int j = 0; j < SOFTMAX_LANES; j++) {
    *result = lanes[j] > *result ? lanes[j] : *result;
  }
}
KERNEL_MULTI(static, NAME(row_max), (const REAL *p, int64_t count, REAL *result), (p, count, result))

/// *sum += total of exp(p[i] - max); the exponentials go to `out` when it is not NULL.
KERNEL_INLINE void BODY(row_exp)(REAL *out, const REAL *p, int64_t count, REAL max, REAL *sum) {
  REAL lanes[SOFTMAX_LANES] = {0};
  int64_t i = 0;
  for (; i + SOFTMAX_LANES <= count; i += SOFTMAX_LANES) {
    KERNEL_LANES
    for (int j = 0; j < SOFTMAX_LANES; j++) {
      REAL e = EXP(p[i + j] - max);
      out[i + j] = e;
      lanes[j] += e;
    }
  }
  for (; i < count; i++) {
    out[i] = EXP(p[i] - max);
    lanes[i % SOFTMAX_LANES] += out[i];
  }
  for (int width = SOFTMAX_LANES / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; j++) {
      lanes[j] += lanes[j + width];
    }
  }
  *sum += lanes[0];
}
KERNEL_MULTI(static, NAME(row_exp), (REAL * out, const REAL *p, int64_t count, REAL max, REAL *sum),
             (out, p, count, max, sum))

/// *sum += total of exp(p[i] - max), where nothing else is asked: parts too small to count are 0.
KERNEL_INLINE void BODY(row_sum)(const REAL *p, int64_t count, REAL max, REAL *sum) {
  REAL lanes[SOFTMAX_LANES] = {0};
  int64_t i = 0;
  for (; i + SOFTMAX_LANES <= count; i += SOFTMAX_LANES) {
    KERNEL_LANES
    for (int j = 0; j < SOFTMAX_LANES; j++) {
      lanes[j] += EXP_NEGATIVE(p[i + j] - max);
    }
  }
  for (; i < count; i++) {
    lanes[i % SOFTMAX_LANES] += EXP_NEGATIVE(p[i] - max);
  }
  for (int width = SOFTMAX_LANES / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; j++) {
      lanes[j] += lanes[j + width];
    }
  }
  *sum += lanes[0];
}
KERNEL_MULTI(static, NAME(row_sum), (const REAL *p, int64_t count, REAL max, REAL *sum), (p, count, max, sum))

/// The logarithms: out = p - max - offset.
KERNEL_INLINE void BODY(row_shift)(REAL *out, const REAL *p, int64_t count, REAL max, REAL offset) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = p[i] - max - offset;
  }
}
KERNEL_MULTI(static, NAME(row_shift), (REAL * out, const REAL *p, int64_t count, REAL max, REAL offset),
             (out, p, count, max, offset))

KERNEL_INLINE void BODY(row_scale)(REAL *out, const REAL *p, int64_t count, REAL scale) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = p[i] * scale;
  }
}
KERNEL_MULTI(static, NAME(row_scale), (REAL * out, const REAL *p, int64_t count, REAL scale), (out, p, count, scale))

KERNEL_INLINE void BODY(column_max)(REAL *max, const REAL *p, int64_t count) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    max[i] = p[i] > max[i] ? p[i] : max[i];
  }
}
KERNEL_MULTI(static, NAME(column_max), (REAL * max, const REAL *p, int64_t count), (max, p, count))

KERNEL_INLINE void BODY(column_exp)(REAL *out, REAL *sum, const REAL *p, const REAL *max, int64_t count) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    REAL e = EXP(p[i] - max[i]);
    out[i] = e;
    sum[i] += e;
  }
}
KERNEL_MULTI(static, NAME(column_exp), (REAL * out, REAL *sum, const REAL *p, const REAL *max, int64_t count),
             (out, sum, p, max, count))

KERNEL_INLINE void BODY(column_scale)(REAL *out, const REAL *p, const REAL *scale, int64_t count) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = p[i] * scale[i];
  }
}
KERNEL_MULTI(static, NAME(column_scale), (REAL * out, const REAL *p, const REAL *scale, int64_t count),
             (out, p, scale, count))

/// Softmax: out = exp(p - max) * scale; log-softmax: out = p - max - scale.
KERNEL_INLINE void BODY(column_finish)(REAL *out, const REAL *p, const REAL *max, const REAL *scale, int64_t count,
                                       bool log) {
  if (log) {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = p[i] - max[i] - scale[i];
    }
  } else {
    KERNEL_LANES
    for (int64_t i = 0; i < count; i++) {
      out[i] = EXP(p[i] - max[i]) * scale[i];
    }
  }
}
KERNEL_MULTI(static, NAME(column_finish),
             (REAL * out, const REAL *p, const REAL *max, const REAL *scale, int64_t count, bool log),
             (out, p, max, scale, count, log))

/// One line that is not read in place. A short one is loaded once; of a long one, blocks are loaded, converted and
/// written one after the other, in three passes.
static void NAME(run_short_row)(const struct softmax_task *task, char *out, const char *in) {
  REAL line[SOFTMAX_SHORT], max = -(REAL)INFINITY, sum = 0;
  const int64_t length = task->length;
  load_line(task, in, task->in_step, length, line);
  NAME(row_max)(line, length, &max);
  for (int64_t i = 0; i < length; i += NEST_BLOCK) {
    const int64_t n = length - i < NEST_BLOCK ? length - i : NEST_BLOCK;
    if (task->log) {
      NAME(row_sum)(line + i, n, max, &sum);
    } else {
      NAME(row_exp)(line + i, line + i, n, max, &sum);
    }
  }
  if (task->log) {
    NAME(row_shift)(line, line, length, max, (REAL)log((double)sum));
  } else {
    NAME(row_scale)(line, line, length, 1 / sum);
  }
  store_line(task, out, task->out_step, length, line);
}

static void NAME(run_row)(const struct softmax_task *task, char *out, const char *in) {
  REAL block[NEST_BLOCK], result[NEST_BLOCK], max = -(REAL)INFINITY, sum = 0;
  if (task->length <= SOFTMAX_SHORT) {
    NAME(run_short_row)(task, out, in);
    return;
  }
  for (int64_t i = 0; i < task->length; i += NEST_BLOCK) {
    int64_t n = task->length - i < NEST_BLOCK ? task->length - i : NEST_BLOCK;
    load_block(task, in + i * task->in_step, task->in_step, n, block);
    NAME(row_max)(block, n, &max);
  }
  for (int64_t i = 0; i < task->length; i += NEST_BLOCK) {
    int64_t n = task->length - i < NEST_BLOCK ? task->length - i : NEST_BLOCK;
    load_block(task, in + i * task->in_step, task->in_step, n, block);
    NAME(row_sum)(block, n, max, &sum);
  }
  for (int64_t i = 0; i < task->length; i += NEST_BLOCK) {
    int64_t n = task->length - i < NEST_BLOCK ? task->length - i : NEST_BLOCK;
    REAL unused = 0;
    load_block(task, in + i * task->in_step, task->in_step, n, block);
    if (task->log) {
      NAME(row_shift)(result, block, n, max, (REAL)log((double)sum));
    } else {
      NAME(row_exp)(result, block, n, max, &unused);
      NAME(row_scale)(result, result, n, 1 / sum);
    }
    store_block(task, out + i * task->out_step, task->out_step, n, result);
  }
}

/// Short lines, each contiguous on both sides: everything about one in registers, sums as row_exp takes them. `shape`
/// has the bytes from line to line in out and in, the length and the number of lines.
KERNEL_INLINE void BODY(short_rows)(char *out, const char *in, const int64_t *shape, bool log_) {
  const int64_t length = shape[2], filled = (length + SOFTMAX_LANES - 1) / SOFTMAX_LANES * SOFTMAX_LANES;
  REAL line[SHORT_ROW];
  for (int64_t j = length; j < filled; j++) {
    line[j] = -(REAL)INFINITY;
  }
  for (int64_t row = 0; row < shape[3]; row++) {
    REAL *to = (REAL *)(void *)(out + row * shape[0]), max = -(REAL)INFINITY;
    const REAL *from = (const REAL *)(const void *)(in + row * shape[1]);
    REAL lanes[SOFTMAX_LANES], sums[SOFTMAX_LANES] = {0};
    for (int64_t j = 0; j < length; j++) {
      line[j] = from[j];
    }
    for (int j = 0; j < SOFTMAX_LANES; j++) {
      lanes[j] = -(REAL)INFINITY;
    }
    for (int64_t i = 0; i < filled; i += SOFTMAX_LANES) {
      for (int j = 0; j < SOFTMAX_LANES; j++) {
        lanes[j] = line[i + j] > lanes[j] ? line[i + j] : lanes[j];
      }
    }
    for (int j = 0; j < SOFTMAX_LANES; j++) {
      max = lanes[j] > max ? lanes[j] : max;
    }
    REAL exps[SHORT_ROW];
    for (int64_t i = 0; i < filled; i += SOFTMAX_LANES) {
      KERNEL_LANES
      for (int j = 0; j < SOFTMAX_LANES; j++) {
        exps[i + j] = EXP(line[i + j] - max);
        sums[j] += exps[i + j];
      }
    }
    for (int width = SOFTMAX_LANES / 2; width > 0; width /= 2) {
      for (int j = 0; j < width; j++) {
        sums[j] += sums[j + width];
      }
    }
    const REAL scale = log_ ? (REAL)log((double)sums[0]) : 1 / sums[0];
    for (int64_t j = 0; j < length; j++) {
      to[j] = log_ ? line[j] - max - scale : exps[j] * scale;
    }
  }
}
KERNEL_MULTI(static, NAME(short_rows), (char *out, const char *in, const int64_t *shape, bool log_),
             (out, in, shape, log_))

/// `count` short lines; those of another dtype are converted many at a time. False: they do not lie together.
static bool NAME(run_short_rows)(const struct softmax_task *task, char *out, const char *in, int64_t count) {
  const int64_t length = task->length, in_stride = task->nest.strides[1][0], out_stride = task->nest.strides[0][0];
  const int64_t width = (int64_t)sizeof(REAL), most = NEST_BLOCK / length;
  if (length > SHORT_ROW || task->in_step != task->in_width || task->out_step != task->out_width) {
    return false;
  }
  if (task->in_dtype == task->work && task->out_dtype == task->work) {
    NAME(short_rows)(out, in, (int64_t[]){out_stride, in_stride, length, count}, task->log);
    return true;
  }
  if (in_stride != length * task->in_width || out_stride != length * task->out_width) {
    return false;
  }
  for (int64_t row = 0, n; row < count; row += n) {
    REAL block[NEST_BLOCK];
    n = count - row < most ? count - row : most;
    cast_block(task->work, block, task->in_dtype, in + row * in_stride, n * length);
    NAME(short_rows)((char *)block, (char *)block, (int64_t[]){length * width, length * width, length, n}, task->log);
    cast_block(task->out_dtype, out + row * out_stride, task->work, block, n * length);
  }
  return true;
}

/// One line of work-type elements, contiguous on both sides.
static void NAME(run_row_direct)(const struct softmax_task *task, char *out, const char *in) {
  REAL max = -(REAL)INFINITY, sum = 0, *to = (REAL *)out;
  const REAL *from = (const REAL *)in;
  NAME(row_max)(from, task->length, &max);
  if (task->log) {
    for (int64_t i = 0; i < task->length; i += NEST_BLOCK) {
      NAME(row_sum)(from + i, task->length - i < NEST_BLOCK ? task->length - i : NEST_BLOCK, max, &sum);
    }
    NAME(row_shift)(to, from, task->length, max, (REAL)log((double)sum));
    return;
  }
  for (int64_t i = 0; i < task->length; i += NEST_BLOCK) {
    NAME(row_exp)(to + i, from + i, task->length - i < NEST_BLOCK ? task->length - i : NEST_BLOCK, max, &sum);
  }
  NAME(row_scale)(to, to, task->length, 1 / sum);
}

/// `columns` lines side by side; strides between them are those of the nest's innermost dimension.
static void NAME(run_columns)(const struct softmax_task *task, char *out, const char *in, int64_t columns) {
  REAL max[COLUMN_BLOCK], sum[COLUMN_BLOCK], part[COLUMN_BLOCK], block[COLUMN_BLOCK], result[COLUMN_BLOCK];
  const int64_t in_stride = task->nest.strides[1][0], out_stride = task->nest.strides[0][0];
  bool direct = task->in_dtype == task->work && in_stride == (int64_t)sizeof(REAL);
  for (int64_t i = 0; i < columns; i++) {
    max[i] = -(REAL)INFINITY;
    sum[i] = part[i] = 0;
  }
#define LOAD_STEP(j)                                 \
  (direct ? (const REAL *)(in + (j) * task->in_step) \
          : (load_block(task, in + (j) * task->in_step, in_stride, columns, block), block))
  for (int64_t j = 0; j < task->length; j++) {
    NAME(column_max)(max, LOAD_STEP(j), columns);
  }
  const bool is_home = !task->log && task->out_dtype == task->work && out_stride == (int64_t)sizeof(REAL);
  const size_t kept = is_home || task->log ? 0 : (size_t)(task->length * columns) * sizeof(REAL);
  REAL *exps = kept > 0 && kept <= SOFTMAX_KEPT ? scratch_take(kept) : NULL;
  for (int64_t j = 0; j < task->length; j++) {
    REAL *to = is_home ? (REAL *)(void *)(out + j * task->out_step) : exps ? exps + j * columns : result;
    NAME(column_exp)(to, part, LOAD_STEP(j), max, columns);
    if (j % COLUMN_STEP == COLUMN_STEP - 1 || j == task->length - 1) {  // two levels keep long sums exact
      for (int64_t i = 0; i < columns; i++) {
        sum[i] += part[i];
        part[i] = 0;
      }
    }
  }
  for (int64_t i = 0; i < columns; i++) {
    sum[i] = task->log ? (REAL)log((double)sum[i]) : 1 / sum[i];
  }
  for (int64_t j = 0; j < task->length; j++) {
    if (is_home) {
      REAL *line = (REAL *)(void *)(out + j * task->out_step);
      NAME(column_scale)(line, line, sum, columns);
      continue;
    }
    if (exps) {
      NAME(column_scale)(result, exps + j * columns, sum, columns);
    } else {
      NAME(column_finish)(result, LOAD_STEP(j), max, sum, columns, task->log);
    }
    store_block(task, out + j * task->out_step, out_stride, columns, result);
  }
  scratch_give(exps);
#undef LOAD_STEP
}

#undef SOFTMAX_LANES
