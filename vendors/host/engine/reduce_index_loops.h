/// The loops of reduce_index.c for one work type: REAL, INDEX (an integer as wide), NAME, BODY, WORK (its dtype),
/// IS_NAN(x).

KERNEL_INLINE void BODY(take_max)(REAL *restrict best, INDEX *restrict at, const REAL *restrict p, int64_t count,
                                  INDEX step) {
  for (int64_t i = 0; i < count; i++) {
    const bool wins = (p[i] > best[i]) | (IS_NAN(p[i]) & !IS_NAN(best[i]));
    best[i] = wins ? p[i] : best[i];
    at[i] = wins ? step : at[i];
  }
}
KERNEL_MULTI(static, NAME(take_max),
             (REAL *restrict best, INDEX *restrict at, const REAL *restrict p, int64_t count, INDEX step),
             (best, at, p, count, step))

KERNEL_INLINE void BODY(take_min)(REAL *restrict best, INDEX *restrict at, const REAL *restrict p, int64_t count,
                                  INDEX step) {
  for (int64_t i = 0; i < count; i++) {
    const bool wins = (p[i] < best[i]) | (IS_NAN(p[i]) & !IS_NAN(best[i]));
    best[i] = wins ? p[i] : best[i];
    at[i] = wins ? step : at[i];
  }
}
KERNEL_MULTI(static, NAME(take_min),
             (REAL *restrict best, INDEX *restrict at, const REAL *restrict p, int64_t count, INDEX step),
             (best, at, p, count, step))

/// Passes blocks of WIDTH elements without a match.
#define SKIP(WIDTH, MATCH)                     \
  for (; i + (WIDTH) <= count; i += (WIDTH)) { \
    INDEX found = 0;                           \
    for (int j = 0; j < (WIDTH); j++) {        \
      found |= (INDEX)(MATCH(p[i + j]));       \
    }                                          \
    if (found) {                               \
      break;                                   \
    }                                          \
  }
#define IS_BEST(x) ((x) == best)

/// The first of `count` elements that is `best` (a NaN: the first NaN); `count` when there is none.
KERNEL_INLINE void BODY(find_first)(const REAL *p, int64_t count, REAL best, int64_t *first) {
  int64_t i = 0;
  if (IS_NAN(best)) {
    SKIP(1, IS_NAN)
  } else {
    SKIP(8 * FIND_BLOCK, IS_BEST)
    SKIP(FIND_BLOCK, IS_BEST)
    SKIP(1, IS_BEST)
  }
  *first = i;
}
#undef SKIP
#undef IS_BEST
KERNEL_MULTI(static, NAME(find_first), (const REAL *p, int64_t count, REAL best, int64_t *first),
             (p, count, best, first))

static int64_t NAME(find_row)(const struct index_task *task, const char *in) {
  _Alignas(64) char room[NEST_BLOCK * 8];
  const int64_t step = task->direct ? ROW_BLOCK_DIRECT : NEST_BLOCK;
  int64_t at = 0;
  REAL best = 0;
  for (int64_t i = 0; i < task->length; i += step) {
    REAL top;
    const int64_t n = task->length - i < step ? task->length - i : step;
    reduce_fold_rows(task->fold, load_block(task, in + i * task->in_step, task->in_step, n, room), n, 1, 0, 0, &top);
    if (i == 0 || (task->largest ? top > best : top < best) || IS_NAN(top)) {
      best = top;
      at = i;
      if (IS_NAN(top)) {
        break;
      }
    }
  }
  const int64_t n = task->length - at < step ? task->length - at : step;
  const REAL *p = (const REAL *)load_block(task, in + at * task->in_step, task->in_step, n, room);
  int64_t first;
  NAME(find_first)(p, n, best, &first);
  return first < n ? at + first : at;
}

static void NAME(find_columns)(const struct index_task *task, const char *in, int64_t columns, int64_t *found) {
  REAL best[COLUMN_BLOCK];
  INDEX at[COLUMN_BLOCK];
  _Alignas(64) char room[NEST_BLOCK * 8];
  const int64_t stride = task->nest.strides[0][0];
  memcpy(best, load_block(task, in, stride, columns, room), sizeof(REAL) * (size_t)columns);
  memset(at, 0, sizeof at);
  for (int64_t j = 1; j < task->length; j++) {
    const REAL *p = (const REAL *)load_block(task, in + j * task->in_step, stride, columns, room);
    (task->largest ? NAME(take_max) : NAME(take_min))(best, at, p, columns, (INDEX)j);
  }
  for (int64_t i = 0; i < columns; i++) {
    found[i] = at[i];
  }
}
