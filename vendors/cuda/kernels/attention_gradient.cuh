/// The gradients of attention (attention.cuh): one kernel for queries, one for keys and values, both in a fixed order.
#ifndef DIT_CUDA_ATTENTION_GRADIENT_CUH
#define DIT_CUDA_ATTENTION_GRADIENT_CUH

#include "attention.cuh"

/// delta = sum(grad * out) of each row: one warp per row.
template <class E, class A>
KERNEL_INLINE void run_delta(const attention_kernel &p) {
  const int64_t count = p.sequences * p.heads * p.queries, warps = (int64_t)gridDim.x * (ATTENTION_DELTA_THREADS / 32);
  for (int64_t i = (int64_t)blockIdx.x * (ATTENTION_DELTA_THREADS / 32) + threadIdx.x / 32; i < count; i += warps) {
    const int64_t query = i % p.queries, line = i / p.queries;
    const attention_place place = find_place(p, line / p.heads, line % p.heads);
    A sum = 0;
    if (query < place.queries) {
      const E *grad = locate<E>(p.grad, place, place.query_start + query, place.head);
      const E *out = locate<E>(p.out, place, place.query_start + query, place.head);
      for (int j = (int)threadIdx.x % 32; j < p.width; j += 32) {
        sum += (A)to_work(grad[j]) * (A)to_work(out[j]);
      }
    }
    sum = warp_reduce(sum, join_sum());
    if (threadIdx.x % 32 == 0) {
      ((A *)p.delta)[i] = sum;
    }
  }
}

/// One pair of tiles of the other side to shared memory.
template <class T>
KERNEL_INLINE void load_pair(typename T::element *to, const typename T::element *first,
                             const typename T::element *second, const attention_operand &x, const attention_operand &y,
                             int row, int rows, int width) {
  load_tile<T, T::COLUMNS>(to, first + row * x.row, x, rows - row, width);
  load_tile<T, T::COLUMNS>(to + T::COLUMNS * T::STRIDE, second + row * y.row, y, rows - row, width);
}

template <class T>
KERNEL_INLINE void run_gradient_q(const attention_kernel &p) {
  typedef typename T::element E;
  typedef typename T::work A;
  constexpr int ROW_TILE = T::ROWS * T::STRIDE, COLUMN_TILE = T::COLUMNS * T::STRIDE;
  SHARED_MEMORY(E, room);
  E *q = room, *grad = q + ROW_TILE, *pairs = grad + ROW_TILE;
  const T engine(pairs + T::STAGES * 2 * COLUMN_TILE);
  const int64_t line = blockIdx.x / p.tiles, row = (p.tiles - 1 - blockIdx.x % p.tiles) * T::ROWS;
  const attention_place place = find_place(p, line / p.heads, line % p.heads);
  const int64_t key_head = place.head / (p.heads / p.key_heads), start = place.query_start + row;
  const int rows = (int)(place.queries - row < T::ROWS ? place.queries - row : T::ROWS);
  if (rows <= 0) {
    return;
  }
  int first, end;
  find_range(row + place.shift, rows, p.left, p.right, place.keys, &first, &end);
  first = first / T::COLUMNS * T::COLUMNS;
  const E *keys = locate<E>(p.k, place, place.key_start, key_head);
  const E *values = locate<E>(p.v, place, place.key_start, key_head);
  const A slope = get_slope<A>(p, place);
  A totals[T::TOTALS] = {}, lse[T::SLOTS], delta[T::SLOTS], factors[T::SLOTS];
#pragma unroll
  for (int slot = 0; slot < T::SLOTS; slot++) {
    const int64_t query = row + engine.get_row(slot);
    lse[slot] = query < place.queries ? load_as<A>(locate_lse(p, place, query), p.lse_dtype, false) : (A)0;
    delta[slot] = query < place.queries ? get_delta<A>(p, place, query) : (A)0;
    factors[slot] = (A)p.scale;
  }
  load_tile<T, T::ROWS>(q, locate<E>(p.q, place, start, place.head), p.q, rows, p.width);
  load_tile<T, T::ROWS>(grad, locate<E>(p.grad, place, start, place.head), p.grad, rows, p.width);
  if (first < end) {
    load_pair<T>(pairs, keys, values, p.k, p.v, first, place.keys, p.width);
  }
  copy_async_close();
  int stage = 0;
  for (int column = first; column < end; column += T::COLUMNS) {
    const int next = column + T::COLUMNS, other = (stage + 1) % T::STAGES;
    if (T::STAGES > 1 && next < end) {
      load_pair<T>(pairs + other * 2 * COLUMN_TILE, keys, values, p.k, p.v, next, place.keys, p.width);
    }
    copy_async_close();
    copy_async_wait();
    __syncthreads();
    const E *k = pairs + stage * 2 * COLUMN_TILE, *v = k + COLUMN_TILE;
    A scores[T::SCORES] = {}, grads[T::SCORES] = {};
    engine.multiply_rows(scores, q, k);
    engine.multiply_rows(grads, grad, v);
    const bool whole = is_whole(p, place, (int)row, T::ROWS, column, T::COLUMNS);
#pragma unroll
    for (int n = 0; n < T::SCORES; n++) {
      const int slot = engine.get_slot(n), query = (int)row + engine.get_row(slot), key = column + engine.get_column(n);
      const bool seen = whole || is_visible(p, place, query, key);
      const A score = get_score(p, scores[n], slope, query, key, place.shift);
      const A kept = p.has_dropout ? grads[n] * get_keep<A>(p, place, query, key) : grads[n];
      scores[n] = seen ? engine.exponential(score - lse[slot]) * (kept - delta[slot]) : (A)0;
    }
    engine.multiply_scores(totals, scores, k);
    __syncthreads();
    if (T::STAGES == 1 && next < end) {
      load_pair<T>(pairs, keys, values, p.k, p.v, next, place.keys, p.width);
      copy_async_close();
    }
    stage = other;
  }
  copy_async_finish();
  store_totals(engine, p.grad_q, locate<E>(p.grad_q, place, start, place.head), totals, factors, rows, p.width, 0);
}

/// The tiles of queries that a tile of keys walks over, head after head of its group.
struct query_walk {
  int first, tiles, steps;  ///< steps: tiles * heads of the group
};

template <class T>
KERNEL_INLINE void load_queries(const attention_kernel &p, attention_place place, int64_t head, int row,
                                typename T::element *pair, typename T::work *states) {
  typedef typename T::element E;
  typedef typename T::work A;
  place.head = head;
  load_pair<T>(pair, locate<E>(p.q, place, place.query_start, head), locate<E>(p.grad, place, place.query_start, head),
               p.q, p.grad, row, place.queries, p.width);
  for (int i = threadIdx.x; i < T::COLUMNS; i += T::THREADS) {
    const int query = row + i;
    states[i] = query < place.queries ? load_as<A>(locate_lse(p, place, query), p.lse_dtype, false) : (A)0;
    states[T::COLUMNS + i] = query < place.queries ? get_delta<A>(p, place, query) : (A)0;
  }
}

template <class T>
KERNEL_INLINE void run_gradient_kv(const attention_kernel &p) {
  typedef typename T::element E;
  typedef typename T::work A;
  constexpr int ROW_TILE = T::ROWS * T::STRIDE, COLUMN_TILE = T::COLUMNS * T::STRIDE;
  SHARED_MEMORY(E, room);
  __shared__ A states[T::STAGES * 2 * T::COLUMNS];
  E *k = room, *v = k + ROW_TILE, *pairs = v + ROW_TILE;
  const T engine(pairs + T::STAGES * 2 * COLUMN_TILE);
  const int part = (int)(blockIdx.x % p.parts);
  const int64_t block = blockIdx.x / p.parts, line = block / p.tiles, row = block % p.tiles * T::ROWS;
  const int64_t key_head = line % p.key_heads, group = p.heads / p.key_heads;
  attention_place place = find_place(p, line / p.key_heads, key_head * group);
  const int64_t start = place.key_start + row;
  const int rows = (int)(place.keys - row < T::ROWS ? place.keys - row : T::ROWS);
  if (rows <= 0) {
    return;
  }
  query_walk walk;
  int end;
  find_range(row - place.shift, rows, p.right, p.left, place.queries, &walk.first, &end);
  walk.first = walk.first / T::COLUMNS * T::COLUMNS;
  walk.tiles = end > walk.first ? (end - walk.first + T::COLUMNS - 1) / T::COLUMNS : 0;
  walk.steps = walk.tiles * (int)group;
  A keys[T::TOTALS] = {}, values[T::TOTALS] = {}, scale[T::SLOTS], one[T::SLOTS];
#pragma unroll
  for (int slot = 0; slot < T::SLOTS; slot++) {
    scale[slot] = (A)p.scale;
    one[slot] = 1;
  }
  load_tile<T, T::ROWS>(k, locate<E>(p.k, place, start, key_head), p.k, rows, p.width);
  load_tile<T, T::ROWS>(v, locate<E>(p.v, place, start, key_head), p.v, rows, p.width);
  if (walk.steps > 0) {
    load_queries<T>(p, place, place.head, walk.first, pairs, states);
  }
  copy_async_close();
  int stage = 0;
  for (int step = 0; step < walk.steps; step++) {
    const int other = (stage + 1) % T::STAGES;
    const int64_t next_head = key_head * group + (step + 1) / walk.tiles;
    const int next_row = walk.first + (step + 1) % walk.tiles * T::COLUMNS;
    if (T::STAGES > 1 && step + 1 < walk.steps) {
      load_queries<T>(p, place, next_head, next_row, pairs + other * 2 * COLUMN_TILE, states + other * 2 * T::COLUMNS);
    }
    copy_async_close();
    copy_async_wait();
    __syncthreads();
    place.head = key_head * group + step / walk.tiles;
    const int column = walk.first + step % walk.tiles * T::COLUMNS;
    const A slope = get_slope<A>(p, place), *state = states + stage * 2 * T::COLUMNS;
    const E *q = pairs + stage * 2 * COLUMN_TILE, *grad = q + COLUMN_TILE;
    A scores[T::SCORES] = {}, grads[T::SCORES] = {};
    engine.multiply_rows(scores, k, q);
    engine.multiply_rows(grads, v, grad);
    const bool whole = is_whole(p, place, column, T::COLUMNS, (int)row, T::ROWS);
#pragma unroll
    for (int n = 0; n < T::SCORES; n++) {
      const int key = (int)row + engine.get_row(engine.get_slot(n)), query = column + engine.get_column(n);
      const bool seen = whole || is_visible(p, place, query, key);
      const A score = get_score(p, scores[n], slope, query, key, place.shift);
      const A keep = p.has_dropout ? get_keep<A>(p, place, query, key) : (A)1;
      const A probability = seen ? engine.exponential(score - state[engine.get_column(n)]) : (A)0;
      scores[n] = probability * keep;
      grads[n] = seen ? probability * (grads[n] * keep - state[T::COLUMNS + engine.get_column(n)]) : (A)0;
    }
    engine.multiply_scores(values, scores, grad + part * T::OUT);
    engine.multiply_scores(keys, grads, q + part * T::OUT);
    __syncthreads();
    if (T::STAGES == 1 && step + 1 < walk.steps) {
      load_queries<T>(p, place, next_head, next_row, pairs, states);
      copy_async_close();
    }
    stage = other;
  }
  copy_async_finish();
  store_totals(engine, p.grad_k, locate<E>(p.grad_k, place, start, key_head), keys, scale, rows, p.width, part);
  store_totals(engine, p.grad_v, locate<E>(p.grad_v, place, start, key_head), values, one, rows, p.width, part);
}

#endif
