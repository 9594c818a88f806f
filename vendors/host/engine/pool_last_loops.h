/// The loops of pool_last.c for one type: REAL, INDEX (an integer as wide), LOWEST, IS_NAN(x), NAME(x), BODY(x).

/// One element of the window, for `count` channels.
KERNEL_INLINE void BODY(take_max)(REAL *restrict best, INDEX *restrict where, const REAL *restrict p, int64_t count,
                                  INDEX here) {
  for (int64_t c = 0; c < count; c++) {
    const bool wins = (p[c] > best[c]) | IS_NAN(p[c]);
    best[c] = wins ? p[c] : best[c];
    where[c] = wins ? here : where[c];
  }
}
KERNEL_MULTI(static, NAME(take_max),
             (REAL *restrict best, INDEX *restrict where, const REAL *restrict p, int64_t count, INDEX here),
             (best, where, p, count, here))

KERNEL_INLINE void BODY(take_sum)(REAL *restrict sum, const REAL *restrict p, int64_t count) {
  for (int64_t c = 0; c < count; c++) {
    sum[c] += p[c];
  }
}
KERNEL_MULTI(static, NAME(take_sum), (REAL *restrict sum, const REAL *restrict p, int64_t count), (sum, p, count))

/// One position of the result, CHANNELS channels at a time; `indices` may be NULL.
static void NAME(max_position)(const struct last_task *task, const struct window *w, REAL *out, int64_t *indices,
                               const REAL *in) {
  INDEX where[CHANNELS];
  for (int64_t c = 0; c < task->channels; c += CHANNELS) {
    const int64_t n = task->channels - c < CHANNELS ? task->channels - c : CHANNELS;
    for (int64_t i = 0; i < n; i++) {
      out[c + i] = LOWEST;
      where[i] = (INDEX)w->first;
    }
    FOR_WINDOW(task->shape, w, at) {
      NAME(take_max)(out + c, where, in + at * task->channels + c, n, (INDEX)at);
    }
    for (int64_t i = 0; indices && i < n; i++) {
      indices[c + i] = where[i];
    }
  }
}

static void NAME(mean_position)(const struct last_task *task, const struct window *w, REAL *out, const REAL *in) {
  memset(out, 0, sizeof(REAL) * (size_t)task->channels);
  if (w->count[0] == 0 || w->count[1] == 0 || w->count[2] == 0) {
    return;
  }
  FOR_WINDOW(task->shape, w, at) {
    NAME(take_sum)(out, in + at * task->channels, task->channels);
  }
  for (int64_t c = 0; c < task->channels; c++) {
    out[c] /= (REAL)w->divisor;
  }
}
