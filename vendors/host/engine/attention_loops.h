/// The loops of attention for one type; included once for float and once for double.
///
/// The including file defines REAL, EXP, NAME(x) and BODY(x). A row is one query's scores for the keys of a tile.

/// *max: the largest of `count` elements and itself.
KERNEL_INLINE void BODY(row_max)(const REAL *row, int64_t count, REAL *max) {
  REAL lanes[ATTENTION_LANES];
  int64_t i = 0;
  for (int j = 0; j < ATTENTION_LANES; j++) {
    lanes[j] = *max;
  }
  for (; i + ATTENTION_LANES <= count; i += ATTENTION_LANES) {
    for (int j = 0; j < ATTENTION_LANES; j++) {
      lanes[j] = row[i + j] > lanes[j] ? row[i + j] : lanes[j];
    }
  }
  for (; i < count; i++) {
    lanes[0] = row[i] > lanes[0] ? row[i] : lanes[0];
  }
  for (int j = 0; j < ATTENTION_LANES; j++) {
    *max = lanes[j] > *max ? lanes[j] : *max;
  }
}

/// row[i] = exp(row[i] - max); *sum += their total.
KERNEL_INLINE void BODY(row_exp)(REAL *row, int64_t count, REAL max, REAL *sum) {
  REAL lanes[ATTENTION_LANES] = {0};
  int64_t i = 0;
  for (; i + ATTENTION_LANES <= count; i += ATTENTION_LANES) {
    KERNEL_LANES
    for (int j = 0; j < ATTENTION_LANES; j++) {
      row[i + j] = EXP(row[i + j] - max);
      lanes[j] += row[i + j];
    }
  }
  for (; i < count; i++) {
    row[i] = EXP(row[i] - max);
    lanes[0] += row[i];
  }
  for (int half = ATTENTION_LANES / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; j++) {
      lanes[j] += lanes[j + half];
    }
  }
  *sum += lanes[0];
}

/// One row of a tile joins the running softmax: row becomes exp(row - max), *rescale the factor for what was summed.
KERNEL_INLINE void BODY(join_row)(REAL *row, int64_t count, REAL *max, REAL *sum, REAL *rescale) {
  const REAL before = *max;
  REAL total = 0;
  BODY(row_max)(row, count, max);
  const REAL base = *max == -(REAL)INFINITY ? 0 : *max;
  *rescale = before == -(REAL)INFINITY ? 0 : EXP(before - base);
  BODY(row_exp)(row, count, base, &total);
  *sum = *sum * *rescale + total;
}
KERNEL_MULTI(static, NAME(join_row), (REAL * row, int64_t count, REAL *max, REAL *sum, REAL *rescale),
             (row, count, max, sum, rescale))

KERNEL_INLINE void BODY(scale_row)(REAL *row, int64_t count, REAL factor) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    row[i] *= factor;
  }
}
KERNEL_MULTI(static, NAME(scale_row), (REAL * row, int64_t count, REAL factor), (row, count, factor))

/// row = exp(row - lse): the probabilities again.
KERNEL_INLINE void BODY(recall_row)(REAL *row, int64_t count, REAL lse) {
  REAL unused = 0;
  BODY(row_exp)(row, count, lse, &unused);
}
KERNEL_MULTI(static, NAME(recall_row), (REAL * row, int64_t count, REAL lse), (row, count, lse))

/// grad = p * (grad - delta): through the softmax.
KERNEL_INLINE void BODY(grad_row)(REAL *restrict grad, const REAL *restrict p, int64_t count, REAL delta) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    grad[i] = p[i] * (grad[i] - delta);
  }
}
KERNEL_MULTI(static, NAME(grad_row), (REAL *restrict grad, const REAL *restrict p, int64_t count, REAL delta),
             (grad, p, count, delta))

static REAL NAME(dot)(const REAL *a, const REAL *b, int64_t count) {
  REAL sum = 0;
  for (int64_t i = 0; i < count; i++) {
    sum += a[i] * b[i];
  }
  return sum;
}

/// Scores of keys that the mask hides become -inf.
static void NAME(hide_row)(const struct attention_task *task, const struct attention_tile *tile, int64_t query,
                           int64_t first, int64_t last, REAL *row) {
  const struct attention_shape *s = task->shape;
  const int64_t *strides = s->mask_strides;
  const uint8_t *mask =
      s->mask + tile->sequence * strides[0] + tile->head * strides[1] + query * strides[2] + tile->key * strides[3];
  for (int64_t j = first; j < last; j++) {
    row[j] = mask[j * strides[3]] ? -(REAL)INFINITY : row[j];
  }
}

/// The scores of a tile: scale Q K^T, the bias, and 0 where a key is not seen (visible[2 i] to visible[2 i + 1] are).
static void NAME(score_tile)(const struct attention_task *task, const struct attention_tile *tile, REAL *scores,
                             int64_t *visible) {
  const struct attention_shape *s = task->shape;
  multiply(task, tile->queries, tile->keys, s->width, s->scale, locate(task, &task->q, tile, tile->query), task->q.row,
           1, locate(task, &task->k, tile, tile->key), 1, task->k.row, 0, scores, tile->keys);
  for (int64_t i = 0; i < tile->queries; i++) {
    REAL *row = scores + i * tile->keys;
    int64_t first, last;
    find_visible(s, tile, tile->query + i, &first, &last);
    visible[2 * i] = first;
    visible[2 * i + 1] = last;
    for (int64_t j = 0; j < first; j++) {
      row[j] = 0;
    }
    for (int64_t j = last; j < tile->keys; j++) {
      row[j] = 0;
    }
    if (s->slopes) {
      const REAL slope = (REAL)s->slopes[tile->sequence * s->slope_sequence + tile->head * s->slope_head];
      const int64_t own = tile->query + i + tile->all_keys - tile->all_queries;
      for (int64_t j = first; j < last; j++) {
        const int64_t distance = own - (tile->key + j);
        row[j] -= slope * (REAL)(distance < 0 ? -distance : distance);
      }
    }
    if (s->mask) {
      NAME(hide_row)(task, tile, tile->query + i, first, last, row);
    }
  }
}

/// Multiply a row of a tile by its dropout mask, scaled to keep the mean.
static void NAME(drop_row)(const struct attention_task *task, const struct attention_tile *tile, int64_t query,
                           int64_t first, int64_t last, REAL *row) {
  const struct attention_shape *s = task->shape;
  const REAL scale = (REAL)(1 / (1 - s->dropout));
  const uint64_t limit = (uint64_t)((1 - s->dropout) * 4294967296.0);
  const uint64_t start =
      (uint64_t)(((tile->sequence * s->heads + tile->head) * s->queries + query) * s->keys + tile->key);
  uint32_t words[4] = {0};
  for (int64_t j = first; j < last; j++) {
    const uint64_t element = start + (uint64_t)j;
    if (j == first || element % 4 == 0) {
      dit_philox_generate(s->seed, 0, s->offset + element / 4, words);
    }
    row[j] = words[element % 4] < limit ? row[j] * scale : 0;
  }
}

/// All keys for one tile of queries.
static void NAME(forward_queries)(const struct attention_task *task, struct attention_tile *tile, REAL *room) {
  const struct attention_shape *s = task->shape;
  REAL *scores = room, *sums = scores + TILE_QUERIES * TILE_KEYS, *maxima = sums + TILE_QUERIES;
  REAL *total = maxima + TILE_QUERIES;
  int64_t visible[2 * TILE_QUERIES];
  memset(total, 0, sizeof(REAL) * (size_t)(tile->queries * s->width));
  for (int64_t i = 0; i < tile->queries; i++) {
    sums[i] = 0;
    maxima[i] = -(REAL)INFINITY;
  }
  for (tile->key = 0; tile->key < tile->all_keys; tile->key += TILE_KEYS) {
    tile->keys = min_of(tile->all_keys - tile->key, TILE_KEYS);
    if (!is_seen(s, tile)) {
      continue;
    }
    NAME(score_tile)(task, tile, scores, visible);
    for (int64_t i = 0; i < tile->queries; i++) {
      REAL *row = scores + i * tile->keys, rescale;
      const int64_t first = visible[2 * i], last = visible[2 * i + 1];
      NAME(join_row)(row + first, last - first, &maxima[i], &sums[i], &rescale);
      NAME(scale_row)(total + i * s->width, s->width, rescale);
      if (s->dropout > 0) {
        NAME(drop_row)(task, tile, tile->query + i, first, last, row);
      }
    }
    multiply(task, tile->queries, s->width, tile->keys, 1, scores, tile->keys, 1,
             locate(task, &task->v, tile, tile->key), task->v.row, 1, 1, total, s->width);
  }
  REAL *lse = (REAL *)task->lse + (tile->sequence * s->heads + tile->head) * s->queries + tile->query;
  for (int64_t i = 0; i < tile->queries; i++) {
    REAL *out = locate(task, &task->out, tile, tile->query + i);
    const REAL factor = sums[i] == 0 ? 0 : 1 / sums[i];
    for (int64_t j = 0; j < s->width; j++) {
      out[j] = total[i * s->width + j] * factor;
    }
    lse[i] = maxima[i] + (REAL)log((double)sums[i]);
  }
}

/// One tile of queries against one tile of keys, backwards.
static void NAME(backward_tile)(const struct attention_task *task, struct attention_tile *tile, const REAL *delta,
                                REAL *room) {
  const struct attention_shape *s = task->shape;
  REAL *p = room, *grad_p = p + TILE_QUERIES * TILE_KEYS, *dropped = grad_p + TILE_QUERIES * TILE_KEYS;
  int64_t visible[2 * TILE_QUERIES];
  const REAL *lse = (const REAL *)task->lse + (tile->sequence * s->heads + tile->head) * s->queries + tile->query;
  void *grad = locate(task, &task->grad, tile, tile->query), *q = locate(task, &task->q, tile, tile->query);
  void *k = locate(task, &task->k, tile, tile->key), *v = locate(task, &task->v, tile, tile->key);
  NAME(score_tile)(task, tile, p, visible);
  multiply(task, tile->queries, tile->keys, s->width, 1, grad, task->grad.row, 1, v, 1, task->v.row, 0, grad_p,
           tile->keys);
  for (int64_t i = 0; i < tile->queries; i++) {
    REAL *row = p + i * tile->keys;
    const int64_t first = visible[2 * i], last = visible[2 * i + 1];
    NAME(recall_row)(row + first, last - first, lse[i] == -(REAL)INFINITY ? 0 : lse[i]);
    if (s->dropout > 0) {
      memcpy(dropped + i * tile->keys, row, sizeof(REAL) * (size_t)tile->keys);
      NAME(drop_row)(task, tile, tile->query + i, first, last, dropped + i * tile->keys);
      NAME(drop_row)(task, tile, tile->query + i, first, last, grad_p + i * tile->keys);
    }
    NAME(grad_row)(grad_p + i * tile->keys, row, tile->keys, delta[tile->query + i]);
  }
  multiply(task, tile->keys, s->width, tile->queries, 1, s->dropout > 0 ? dropped : p, 1, tile->keys, grad,
           task->grad.row, 1, 1, locate(task, &task->grad_v, tile, tile->key), task->grad_v.row);
  multiply(task, tile->queries, s->width, tile->keys, s->scale, grad_p, tile->keys, 1, k, task->k.row, 1, 1,
           locate(task, &task->grad_q, tile, tile->query), task->grad_q.row);
  multiply(task, tile->keys, s->width, tile->queries, s->scale, grad_p, 1, tile->keys, q, task->q.row, 1, 1,
           locate(task, &task->grad_k, tile, tile->key), task->grad_k.row);
}

/// One query head of a sequence, backwards; adds to the gradients of its key head.
static void NAME(backward_head)(const struct attention_task *task, struct attention_tile *tile, REAL *room) {
  const struct attention_shape *s = task->shape;
  REAL *delta = room, *rest = room + s->queries;
  for (int64_t i = 0; i < tile->all_queries; i++) {
    delta[i] = NAME(dot)(locate(task, &task->grad, tile, i), locate(task, &task->out, tile, i), s->width);
    memset(locate(task, &task->grad_q, tile, i), 0, sizeof(REAL) * (size_t)s->width);
  }
  for (tile->key = 0; tile->key < tile->all_keys; tile->key += TILE_KEYS) {
    tile->keys = min_of(tile->all_keys - tile->key, TILE_KEYS);
    for (tile->query = 0; tile->query < tile->all_queries; tile->query += TILE_QUERIES) {
      tile->queries = min_of(tile->all_queries - tile->query, TILE_QUERIES);
      if (is_seen(s, tile)) {
        NAME(backward_tile)(task, tile, delta, rest);
      }
    }
  }
}

#undef REAL
#undef EXP
#undef NAME
#undef BODY
