/// Attention without the matrix of scores: what forward pass and gradients share, and the forward pass, for any engine
/// of tiles.
///
/// A block has ROWS rows of one head (queries; keys in gradient_kv) and walks over the other side in tiles of COLUMNS
/// rows. An engine T (attention_scalar.cuh, attention_matrix.cuh) says how a block multiplies tiles and which places of
/// a product each thread holds:
///   T::element, T::work          in memory, in registers
///   T::ROWS, COLUMNS, WIDTH, OUT   sizes of tiles; OUT columns of the result (WIDTH, or a part of it)
///   T::SCORES, TOTALS, SLOTS     numbers per thread: scores, results, rows
///   get_row(slot), get_column(n), get_slot(n), get_total_slot(n), get_total_column(n)
///   multiply_rows(scores, a, b)  scores += a b^T, a: ROWS x WIDTH, b: COLUMNS x WIDTH
///   multiply_scores(totals, scores, b)  totals += scores b, b: COLUMNS x OUT columns of a tile
///   reduce_row(x, join)          over the threads that share rows
///   exponential(x)
/// Formulas: vendors/host/engine/attention.c. Sums have a fixed order: two gradient kernels instead of atomics.
#ifndef DIT_CUDA_ATTENTION_CUH
#define DIT_CUDA_ATTENTION_CUH

#include "attention.h"
#include "copy_async.cuh"
#include "kernel.cuh"

/// One sequence and head, and where its rows begin.
struct attention_place {
  int64_t sequence, head;
  int64_t query_start, key_start;  ///< rows before the sequence, where they follow each other
  int32_t queries, keys, shift;    ///< shift: a query's own position among the keys is query + shift
};

KERNEL_INLINE int64_t read_end(const attention_ends &ends, int64_t number) {
  const int64_t end = ends.dtype == DIT_DTYPE_I64 ? ((const int64_t *)(const void *)ends.data)[number * ends.stride]
                                                  : ((const int32_t *)(const void *)ends.data)[number * ends.stride];
  return end < 0 ? 0 : end > ends.rows ? ends.rows : end;
}
KERNEL_INLINE int32_t find_rows(const attention_ends &ends, int64_t sequence, int64_t most, int64_t *start) {
  *start = 0;
  if (!ends.data) {
    return (int32_t)most;
  }
  *start = read_end(ends, sequence);
  const int64_t count = read_end(ends, sequence + 1) - *start;
  return (int32_t)(count < 0 ? 0 : count > most ? most : count);
}
KERNEL_INLINE attention_place find_place(const attention_kernel &p, int64_t sequence, int64_t head) {
  attention_place place;
  place.sequence = sequence;
  place.head = head;
  place.queries = find_rows(p.query_ends, sequence, p.queries, &place.query_start);
  place.keys = find_rows(p.key_ends, sequence, p.keys, &place.key_start);
  place.shift = place.keys - place.queries;
  return place;
}
template <class E>
KERNEL_INLINE E *locate(const attention_operand &x, const attention_place &place, int64_t start, int64_t head) {
  return (E *)(void *)x.data + place.sequence * x.sequence + start * x.row + head * x.head;
}

/// `count` rows of a tile to shared memory, zeros beyond `rows` and beyond the width; copies wait for copy_async_wait.
template <class T, int COUNT>
KERNEL_INLINE void load_tile(typename T::element *to, const typename T::element *from, const attention_operand &x,
                             int rows, int width) {
  typedef typename T::element E;
  constexpr int V = 16 / sizeof(E), ROW = T::WIDTH / V;
#pragma unroll 4
  for (int i = threadIdx.x; i < COUNT * ROW; i += T::THREADS) {
    const int row = i / ROW, column = i % ROW * V, left = row < rows ? width - column : 0;
    E *place = to + row * T::STRIDE + column;
    if (left > 0 && x.is_aligned) {
      copy_async(place, from + row * x.row + column, left < V ? left * (int)sizeof(E) : 16);
    } else {
      pack<E, V> values = {};
      for (int j = 0; j < V && j < left; j++) {
        values.value[j] = from[row * x.row + column + j];
      }
      *(pack<E, V> *)(void *)place = values;
    }
  }
}

/// Does the query see the key?
KERNEL_INLINE bool is_visible(const attention_kernel &p, const attention_place &place, int query, int key) {
  const int own = query + place.shift;
  return query < place.queries && key < place.keys && (p.left < 0 || key >= own - p.left) &&
         (p.right < 0 || key <= own + p.right);
}
/// Do all of these queries see all of these keys?
KERNEL_INLINE bool is_whole(const attention_kernel &p, const attention_place &place, int query, int queries, int key,
                            int keys) {
  const int own = query + place.shift;
  return query + queries <= place.queries && key + keys <= place.keys &&
         (p.left < 0 || key >= own + queries - 1 - p.left) && (p.right < 0 || key + keys - 1 <= own + p.right);
}
/// First and last + 1 of the other side's rows that [row, row + count) may see; `before` and `after` are -1 for all.
KERNEL_INLINE void find_range(int64_t row, int64_t count, int64_t before, int64_t after, int64_t rows, int *first,
                              int *end) {
  const int64_t low = before < 0 ? 0 : row - before, high = after < 0 ? rows : row + count + after;
  *first = (int)(low < 0 ? 0 : low > rows ? rows : low);
  *end = (int)(high < 0 ? 0 : high > rows ? rows : high);
}

template <class A>
KERNEL_INLINE A get_slope(const attention_kernel &p, const attention_place &place) {
  return p.slopes ? (A)p.slopes[place.sequence * p.slope_sequence + place.head * p.slope_head] : (A)0;
}
template <class A>
KERNEL_INLINE A get_score(const attention_kernel &p, A product, A slope, int query, int key, int shift) {
  if (!p.slopes) {
    return product * (A)p.scale;
  }
  const int distance = query + shift - key;
  return product * (A)p.scale - slope * (A)(distance < 0 ? -distance : distance);
}

/// Philox 4x32-10 of (seed, 0, counter): one of its four words (include/dit/random.h).
static __device__ __noinline__ uint32_t draw_word(uint64_t seed, uint64_t counter, int word) {
  uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c[0]), low0 = 0xD2511F53u * c[0];
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c[2]), low1 = 0xCD9E8D57u * c[2];
    c[0] = high1 ^ c[1] ^ key0;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ key1;
    c[3] = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return word == 0 ? c[0] : word == 1 ? c[1] : word == 2 ? c[2] : c[3];
}
/// What dropout multiplies a probability by. All lanes ask for all places, seen or not, so that a warp stays together.
template <class A>
KERNEL_INLINE A get_keep(const attention_kernel &p, const attention_place &place, int query, int key) {
  const uint64_t number =
      (uint64_t)(((place.sequence * p.heads + place.head) * p.queries + query) * p.keys + key);
  return draw_word(p.seed, p.offset + number / 4, (int)(number % 4)) < p.keep_limit ? (A)p.keep : (A)0;
}

KERNEL_INLINE char *locate_lse(const attention_kernel &p, const attention_place &place, int64_t query) {
  const int64_t offset =
      place.sequence * p.lse_strides[0] + place.head * p.lse_strides[1] + query * p.lse_strides[2];
  return p.lse + offset * dtype_width(p.lse_dtype);
}
template <class A>
KERNEL_INLINE A get_delta(const attention_kernel &p, const attention_place &place, int64_t query) {
  return ((const A *)p.delta)[(place.sequence * p.heads + place.head) * p.queries + query];
}

/// Results of a block to memory, `part` * OUT columns further right.
template <class T>
KERNEL_INLINE void store_totals(const T &engine, const attention_operand &x, typename T::element *to,
                                const typename T::work *totals, const typename T::work *factors, int rows, int width,
                                int part) {
#pragma unroll
  for (int n = 0; n < T::TOTALS; n++) {
    const int row = engine.get_row(engine.get_total_slot(n)), column = part * T::OUT + engine.get_total_column(n);
    if (row < rows && column < width) {
      to[row * x.row + column] = element<typename T::element>::from(totals[n] * factors[engine.get_total_slot(n)]);
    }
  }
}

// Forward: one tile of queries, all keys

/// The scores of a tile join the running softmax: they become probabilities, what was summed is rescaled.
template <class T>
KERNEL_INLINE void join_scores(const T &engine, typename T::work *scores, typename T::work *maxima,
                               typename T::work *sums, typename T::work *totals) {
  typedef typename T::work A;
  A factors[T::SLOTS], before[T::SLOTS];
#pragma unroll
  for (int slot = 0; slot < T::SLOTS; slot++) {
    before[slot] = maxima[slot];
  }
#pragma unroll
  for (int n = 0; n < T::SCORES; n++) {
    A &most = maxima[engine.get_slot(n)];
    most = scores[n] > most ? scores[n] : most;
  }
#pragma unroll
  for (int slot = 0; slot < T::SLOTS; slot++) {
    maxima[slot] = engine.reduce_row(maxima[slot], join_max());
    const A base = maxima[slot] == -(A)INFINITY ? (A)0 : maxima[slot];
    factors[slot] = before[slot] == -(A)INFINITY ? (A)0 : engine.exponential(before[slot] - base);
    sums[slot] *= factors[slot];
  }
#pragma unroll
  for (int n = 0; n < T::SCORES; n++) {
    const int slot = engine.get_slot(n);
    scores[n] = engine.exponential(scores[n] - (maxima[slot] == -(A)INFINITY ? (A)0 : maxima[slot]));
    sums[slot] += scores[n];
  }
#pragma unroll
  for (int n = 0; n < T::TOTALS; n++) {
    totals[n] *= factors[engine.get_total_slot(n)];
  }
}

template <class T>
KERNEL_INLINE void run_forward(const attention_kernel &p) {
  typedef typename T::element E;
  typedef typename T::work A;
  constexpr int COLUMN_TILE = T::COLUMNS * T::STRIDE;
  SHARED_MEMORY(E, room);
  E *q = room, *k = q + T::ROWS * T::STRIDE, *v = k + T::STAGES * COLUMN_TILE;
  const T engine(v + T::STAGES * COLUMN_TILE);
  // the last tiles of a causal head have most to do: first
  const int64_t line = blockIdx.x / p.tiles, row = (p.tiles - 1 - blockIdx.x % p.tiles) * T::ROWS;
  const attention_place place = find_place(p, line / p.heads, line % p.heads);
  const int64_t key_head = place.head / (p.heads / p.key_heads);
  const int rows = (int)(place.queries - row < T::ROWS ? place.queries - row : T::ROWS);
  int first, end;
  find_range(row + place.shift, rows, p.left, p.right, place.keys, &first, &end);
  first = first / T::COLUMNS * T::COLUMNS;
  end = rows > 0 ? end : first;
  const E *keys = locate<E>(p.k, place, place.key_start, key_head);
  const E *values = locate<E>(p.v, place, place.key_start, key_head);
  const A slope = get_slope<A>(p, place);
  A totals[T::TOTALS] = {}, maxima[T::SLOTS], sums[T::SLOTS] = {};
#pragma unroll
  for (int slot = 0; slot < T::SLOTS; slot++) {
    maxima[slot] = -(A)INFINITY;
  }
  load_tile<T, T::ROWS>(q, locate<E>(p.q, place, place.query_start + row, place.head), p.q, rows, p.width);
  if (first < end) {
    load_tile<T, T::COLUMNS>(k, keys + first * p.k.row, p.k, place.keys - first, p.width);
    load_tile<T, T::COLUMNS>(v, values + first * p.v.row, p.v, place.keys - first, p.width);
  }
  copy_async_close();
  int stage = 0;
  for (int column = first; column < end; column += T::COLUMNS) {
    const int next = column + T::COLUMNS, other = (stage + 1) % T::STAGES;
    if (T::STAGES > 1 && next < end) {
      load_tile<T, T::COLUMNS>(k + other * COLUMN_TILE, keys + next * p.k.row, p.k, place.keys - next, p.width);
      load_tile<T, T::COLUMNS>(v + other * COLUMN_TILE, values + next * p.v.row, p.v, place.keys - next, p.width);
    }
    copy_async_close();
    copy_async_wait();  // all but the group just closed
    __syncthreads();
    A scores[T::SCORES] = {};
    engine.multiply_rows(scores, q, k + stage * COLUMN_TILE);
    const bool whole = is_whole(p, place, (int)row, T::ROWS, column, T::COLUMNS);
#pragma unroll
    for (int n = 0; n < T::SCORES; n++) {
      const int query = (int)row + engine.get_row(engine.get_slot(n)), key = column + engine.get_column(n);
      scores[n] = get_score(p, scores[n], slope, query, key, place.shift);
      scores[n] = whole || is_visible(p, place, query, key) ? scores[n] : -(A)INFINITY;
    }
    join_scores(engine, scores, maxima, sums, totals);
    if (p.has_dropout) {
#pragma unroll
      for (int n = 0; n < T::SCORES; n++) {
        const int query = (int)row + engine.get_row(engine.get_slot(n));
        scores[n] *= get_keep<A>(p, place, query, column + engine.get_column(n));
      }
    }
    engine.multiply_scores(totals, scores, v + stage * COLUMN_TILE);
    __syncthreads();
    if (T::STAGES == 1 && next < end) {
      load_tile<T, T::COLUMNS>(k, keys + next * p.k.row, p.k, place.keys - next, p.width);
      load_tile<T, T::COLUMNS>(v, values + next * p.v.row, p.v, place.keys - next, p.width);
      copy_async_close();
    }
    stage = other;
  }
  copy_async_finish();
  A factors[T::SLOTS];
#pragma unroll
  for (int slot = 0; slot < T::SLOTS; slot++) {
    const A sum = engine.reduce_row(sums[slot], join_sum());
    const int64_t query = row + engine.get_row(slot);
    factors[slot] = sum == 0 ? (A)0 : (A)1 / sum;
    if (engine.is_first() && query < p.queries) {
      store_as(locate_lse(p, place, query), p.lse_dtype,
               query < place.queries ? maxima[slot] + engine.logarithm(sum) : -(A)INFINITY);
    }
  }
  E *out = locate<E>(p.out, place, place.query_start + row, place.head);
  store_totals(engine, p.out, out, totals, factors, rows, p.width, 0);
}

#endif
