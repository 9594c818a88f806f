/// The gradients of attention for half types in the common form of attention_flash.cuh: five products per pair of tiles
/// instead of the seven of attention_gradient.cuh.
///
/// A block has KEYS keys, BANDS * 16 for each of its warps, and walks over all queries that see them, the last ones
/// first. The gradients of keys and values stay in registers; that of queries is a sum over blocks. Blocks add to it in
/// turns, by the number of their keys, so that the order is fixed: a count per tile of queries says whose turn it is. A
/// block waits only for blocks that started before it (it takes its number when it starts), and those are ahead.
///
/// What bounds it is the reading of shared memory, not the products. Hence 32 keys per warp where registers allow it.
#ifndef DIT_CUDA_ATTENTION_FLASH_GRADIENT_CUH
#define DIT_CUDA_ATTENTION_FLASH_GRADIENT_CUH

#include "attention_flash_sums.cuh"

template <class E_, int BANDS_, int WIDTH_>
struct gradient_tiles {
  typedef E_ E;
  static constexpr int BANDS = BANDS_, WIDTH = WIDTH_, KEYS = ATTENTION_GRADIENT_KEYS, STRIDE = WIDTH + 8;
  static constexpr int THREADS = ATTENTION_GRADIENT_THREADS(WIDTH), QUERIES = ATTENTION_GRADIENT_QUERIES(WIDTH);
  static constexpr int WARP_KEYS = BANDS * 16, SCORE_STRIDE = QUERIES + 8;
  static_assert(KEYS == THREADS / 32 * WARP_KEYS, "every warp has its keys");
  // shared memory, in bytes: keys, values, two stages of queries and grads, two of states, gradients of scores
  static constexpr int TILE = KEYS * STRIDE * 2, PAIR = 2 * QUERIES * STRIDE * 2, STATES = QUERIES * 8;
  // the gradient of queries: warps in two rows; each has SUM_BANDS * 16 queries and SUM_COLUMNS columns
  static constexpr int SUM_BANDS = QUERIES / 32, SUM_COLUMNS = WIDTH / (THREADS / 64);
  typedef float scores[BANDS][QUERIES / 8][4];
  typedef float totals[BANDS][WIDTH / 8][4];
  typedef uint32_t operand[BANDS][QUERIES / 16][4];

  /// out = left right^T; left: rows of the warp, right: QUERIES rows
  static __device__ void multiply_rows(scores &out, shared_place left, shared_place right) {
#pragma unroll
    for (int depth = 0; depth < WIDTH; depth += 16) {
      uint32_t a[BANDS][4];
#pragma unroll
      for (int band = 0; band < BANDS; band++) {
        load_matrices<false>(a[band], left + (band * 16 * STRIDE + depth) * 2);
      }
#pragma unroll
      for (int n = 0; n < QUERIES / 8; n += 2) {
        uint32_t b[4];
        load_matrices<false>(b, right + (n * 8 * STRIDE + depth) * 2);
#pragma unroll
        for (int band = 0; band < BANDS; band++) {
          matrix_type<E>::multiply(out[band][n], a[band], b[0], b[1]);
          matrix_type<E>::multiply(out[band][n + 1], a[band], b[2], b[3]);
        }
      }
    }
  }
  /// out += left right; right: QUERIES rows
  static __device__ void multiply_operand(totals &out, const operand &left, shared_place right) {
#pragma unroll
    for (int query = 0; query < QUERIES / 16; query++) {
#pragma unroll
      for (int n = 0; n < WIDTH / 8; n += 2) {
        uint32_t b[4];
        load_matrices<true>(b, right + (query * 16 * STRIDE + n * 8) * 2);
#pragma unroll
        for (int band = 0; band < BANDS; band++) {
          matrix_type<E>::multiply(out[band][n], left[band][query], b[0], b[1]);
          matrix_type<E>::multiply(out[band][n + 1], left[band][query], b[2], b[3]);
        }
      }
    }
  }
  static __device__ void join(operand &out, const scores &in) {
#pragma unroll
    for (int band = 0; band < BANDS; band++) {
#pragma unroll
      for (int n = 0; n < QUERIES / 8; n++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          out[band][n / 2][n % 2 * 2 + half] = matrix_type<E>::join(in[band][n][half * 2], in[band][n][half * 2 + 1]);
        }
      }
    }
  }
  /// To shared memory, KEYS x QUERIES; `own`: of the lane's first score.
  static __device__ void store_operand(E *own, const operand &in) {
#pragma unroll
    for (int band = 0; band < BANDS; band++) {
#pragma unroll
      for (int n = 0; n < QUERIES / 8; n++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          *(uint32_t *)(void *)(own + (band * 16 + half * 8) * SCORE_STRIDE + n * 8) =
              in[band][n / 2][n % 2 * 2 + half];
        }
      }
    }
  }
  /// Scores and their gradients from the products: `out` become probabilities, `grads` their gradients.
  static __device__ void finish_scores(scores &out, scores &grads, const query_state *states, float scale) {
#pragma unroll
    for (int n = 0; n < QUERIES / 8; n++) {
      const pack<float, 4> two = *(const pack<float, 4> *)(const void *)(states + n * 8);
#pragma unroll
      for (int band = 0; band < BANDS; band++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          out[band][n][i] = power_of_two(out[band][n][i] * scale - two.value[i % 2 * 2]);
          grads[band][n][i] = out[band][n][i] * (grads[band][n][i] - two.value[i % 2 * 2 + 1]);
        }
      }
    }
  }
  /// The gradient of queries: scores (KEYS x QUERIES in shared memory)^T keys, added to the sums of the tile.
  static __device__ void add_queries(float *sums, shared_place left, shared_place right) {
    float total[SUM_BANDS][SUM_COLUMNS / 8][4] = {};
#pragma unroll
    for (int key = 0; key < KEYS; key += 16) {
      uint32_t a[SUM_BANDS][4];
#pragma unroll
      for (int i = 0; i < SUM_BANDS; i++) {
        load_matrices<true>(a[i], left + (key * SCORE_STRIDE + i * 16) * 2);
      }
#pragma unroll
      for (int n = 0; n < SUM_COLUMNS / 8; n += 2) {
        uint32_t b[4];
        load_matrices<true>(b, right + (key * STRIDE + n * 8) * 2);
#pragma unroll
        for (int i = 0; i < SUM_BANDS; i++) {
          matrix_type<E>::multiply(total[i][n], a[i], b[0], b[1]);
          matrix_type<E>::multiply(total[i][n + 1], a[i], b[2], b[3]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < SUM_BANDS; i++) {
#pragma unroll
      for (int n = 0; n < SUM_COLUMNS / 8; n++) {
        add_four(sums + (i * (WIDTH / 8) + n) * 128, total[i][n]);
      }
    }
  }
};

/// Queries that see a key.
KERNEL_INLINE seen_range find_queries(const attention_kernel &p, const attention_place &place, int key) {
  const seen_range range = find_seen(key - place.shift, (int)p.right, (int)p.left, place.queries);
  return {range.low, key < place.keys ? range.high : -1};
}

/// Where a key is not seen, both become 0; `query` and `key` are those of the lane's first score.
template <class T>
KERNEL_INLINE void hide_queries(const attention_kernel &p, const attention_place &place, typename T::scores &scores,
                                typename T::scores &grads, int query, int key) {
#pragma unroll
  for (int row = 0; row < T::BANDS * 2; row++) {
    const seen_range seen = find_queries(p, place, key + row * 8);
#pragma unroll
    for (int n = 0; n < T::QUERIES / 8; n++) {
#pragma unroll
      for (int i = row % 2 * 2; i < row % 2 * 2 + 2; i++) {
        const int own = query + n * 8 + i % 2;
        const bool hidden = own < seen.low || own > seen.high;
        scores[row / 2][n][i] = hidden ? 0.0f : scores[row / 2][n][i];
        grads[row / 2][n][i] = hidden ? 0.0f : grads[row / 2][n][i];
      }
    }
  }
}

/// Rows of a warp by way of shared memory.
template <class T>
KERNEL_INLINE void store_gradient(const attention_operand &x, typename T::E *to, const typename T::totals &totals,
                                  float scale, typename T::E *room, int rows, int width) {
  typedef typename T::E E;
  constexpr int LINE = T::WIDTH / 8;
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int row = 0; row < T::BANDS * 2; row++) {
#pragma unroll
    for (int n = 0; n < LINE; n++) {
      const float *pair = &totals[row / 2][n][row % 2 * 2];
      *(uint32_t *)(void *)(room + (lane / 4 + row * 8) * T::STRIDE + n * 8 + lane % 4 * 2) =
          matrix_type<E>::join(pair[0] * scale, pair[1] * scale);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = lane; i < T::WARP_KEYS * LINE; i += 32) {
    const int row = i / LINE, column = i % LINE * 8;
    if (row < rows && column < width) {
      *(pack<E, 8> *)(void *)(to + row * x.row + column) =
          *(const pack<E, 8> *)(const void *)(room + row * T::STRIDE + column);
    }
  }
}

/// The steps of a block: its group's heads one after another, each with its tiles of queries from the last to the
/// first.
struct gradient_walk {
  int first, last;  ///< tiles
  int tile;         ///< of the next step
  unsigned head;
  unsigned end_head;  ///< where there is nothing to do, the first one

  __device__ bool is_over() const { return head == end_head; }
  __device__ void advance() {
    const bool ends = tile == first;
    tile = ends ? last : tile - 1;
    head += ends ? 1 : 0;
  }
  /// Among all tiles of queries.
  __device__ unsigned get_number(const attention_kernel &p, const attention_place &place) const {
    return ((unsigned)place.sequence * (unsigned)p.heads + head) * (unsigned)p.query_tiles + (unsigned)tile;
  }
};

template <class T>
KERNEL_INLINE gradient_walk find_walk(const attention_kernel &p, const attention_place &place, int row, int rows) {
  int first, end;
  find_range((int64_t)row - place.shift, rows, p.right, p.left, place.queries, &first, &end);
  const int last = (end - 1) / T::QUERIES;
  const unsigned head = (unsigned)place.head, group = (unsigned)p.heads / (unsigned)p.key_heads;
  return {first / T::QUERIES, last, last, head, end > first ? head + group : head};
}

/// Queries, grads and states of a step to shared memory.
template <class T>
KERNEL_INLINE void load_step(const attention_kernel &p, const attention_place &place, const gradient_walk &walk,
                             shared_place pair, shared_place states) {
  typedef typename T::E E;
  const tile_copy<E, T::WIDTH, T::STRIDE, T::THREADS> copier(p.width);
  const int64_t start = place.query_start + walk.tile * T::QUERIES, head = walk.head;
  const int rows = place.queries - walk.tile * T::QUERIES;
  copier.template load<T::QUERIES>(pair, copier.locate(locate<E>(p.q, place, start, head), p.q.row), p.q.row, rows);
  copier.template load<T::QUERIES>(pair + T::PAIR / 2, copier.locate(locate<E>(p.grad, place, start, head), p.grad.row),
                                   p.grad.row, rows);
  if (threadIdx.x < T::QUERIES / 2) {
    const query_state *from = (const query_state *)p.delta + (int64_t)walk.get_number(p, place) * T::QUERIES;
    copy_async_place(states + threadIdx.x * 16, from + threadIdx.x * 2, 16);
  }
}
template <class T>
KERNEL_INLINE void load_keys(const attention_kernel &p, const attention_place &place, int64_t head, int row, int rows,
                             shared_place keys) {
  typedef typename T::E E;
  const tile_copy<E, T::WIDTH, T::STRIDE, T::THREADS> copier(p.width);
  const int64_t start = place.key_start + row;
  copier.template load<T::KEYS>(keys, copier.locate(locate<E>(p.k, place, start, head), p.k.row), p.k.row, rows);
  copier.template load<T::KEYS>(keys + T::TILE, copier.locate(locate<E>(p.v, place, start, head), p.v.row), p.v.row,
                                rows);
}

/// How many blocks add to a tile of queries before the one with the keys of `row`.
template <class T>
KERNEL_INLINE uint32_t find_turn(const attention_kernel &p, const attention_place &place, int row, int tile) {
  const int64_t low = p.left < 0 ? 0 : (int64_t)tile * T::QUERIES + place.shift - p.left;
  return (uint32_t)(row / T::KEYS - (int)((low < 0 ? 0 : low) / T::KEYS));
}

/// What a warp needs to know of its keys: where they are, which queries see them.
template <class T>
struct warp_keys {
  int key;
  seen_range first, last;  ///< seen by the first and the last of them

  __device__ warp_keys(const attention_kernel &p, const attention_place &place, int key_) : key(key_) {
    const int end = key + T::WARP_KEYS < place.keys ? key + T::WARP_KEYS : place.keys;
    first = find_queries(p, place, key);
    last = find_queries(p, place, end - 1);
    if (key >= place.keys) {
      last.high = -1;
    }
  }
  __device__ bool is_seen(int query) const { return query <= last.high && query + T::QUERIES > first.low; }
  __device__ bool is_whole(const attention_place &place, int query) const {
    return query >= last.low && query + T::QUERIES - 1 <= first.high && key + T::WARP_KEYS <= place.keys;
  }
};

template <class T>
KERNEL_INLINE void run_flash_gradient(const attention_kernel &p) {
  typedef typename T::E E;
  SHARED_MEMORY(char, room);
  __shared__ unsigned shared_number;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  if (threadIdx.x == 0) {
    shared_number = atomicAdd(p.turns, 1u);
  }
  __syncthreads();
  // the first keys of a causal head have most to do: those of all heads first
  const unsigned heads = (unsigned)p.key_heads, lines = (unsigned)p.sequences * heads, line = shared_number % lines;
  const int row = (int)(shared_number / lines) * T::KEYS, key_head = (int)(line % heads);
  const attention_place place = find_place(p, line / heads, key_head * (p.heads / p.key_heads));
  const int rows = place.keys - row < T::KEYS ? place.keys - row : T::KEYS;
  if (rows <= 0) {
    return;
  }
  gradient_walk walk = find_walk<T>(p, place, row, rows);
  const shared_place keys = get_shared_place(room), pairs = keys + 2 * T::TILE, states = pairs + 2 * T::PAIR;
  char *room_states = room + 2 * T::TILE + 2 * T::PAIR;
  E *grads = (E *)(void *)(room_states + 2 * T::STATES);
  load_keys<T>(p, place, key_head, row, rows, keys);
  if (!walk.is_over()) {
    load_step<T>(p, place, walk, pairs, states);
  }
  const warp_keys<T> own(p, place, row + warp * T::WARP_KEYS);
  const float scale = (float)p.scale * LOG2_E;
  // where the lane finds its rows of matrices: left operands and transposed right ones, right ones, transposed left
  // ones
  const int left_row = (lane % 16 * T::STRIDE + lane / 16 * 8) * 2;
  const int right_row = ((lane / 16 * 8 + lane % 8) * T::STRIDE + lane / 8 % 2 * 8) * 2;
  const int grad_row = ((lane / 16 * 8 + lane % 8) * T::SCORE_STRIDE + lane / 8 % 2 * 8) * 2;
  const int band = warp % 2 * T::SUM_BANDS, column = warp / 2 * T::SUM_COLUMNS;
  const shared_place sum_left = get_shared_place(grads) + grad_row + band * 32;
  float *sums = p.sums + ((band * (T::WIDTH / 8) + column / 8) * 32 + lane) * 4;
  E *own_grads = grads + (warp * T::WARP_KEYS + lane / 4) * T::SCORE_STRIDE + lane % 4 * 2;
  const shared_place own_keys = keys + warp * T::WARP_KEYS * T::STRIDE * 2 + left_row;
  typename T::totals key_totals = {}, value_totals = {};
  uint32_t *last_count = nullptr, last_turn = 0;
  int stage = 0;
  while (!walk.is_over()) {
    copy_async_finish();
    __syncthreads();  // the tiles are there, and nobody reads the other ones or the scores any more
    const shared_place q = pairs + stage * T::PAIR, grad = q + T::PAIR / 2;
    const query_state *state = (const query_state *)(void *)(room_states + stage * T::STATES) + lane % 4 * 2;
    stage = 1 - stage;
    const int tile = walk.tile, query = tile * T::QUERIES;
    const unsigned number = walk.get_number(p, place);
    walk.advance();
    if (!walk.is_over()) {
      load_step<T>(p, place, walk, pairs + stage * T::PAIR, states + stage * T::STATES);
    }
    const uint32_t seen_count = read_count(p.turns + 1 + number);
    typename T::operand left = {}, left_grads = {};
    if (own.is_seen(query)) {
      typename T::scores scores = {}, score_grads = {};
      T::multiply_rows(scores, own_keys, q + right_row);
      T::multiply_rows(score_grads, own_keys + T::TILE, grad + right_row);
      T::finish_scores(scores, score_grads, state, scale);
      if (!own.is_whole(place, query)) {
        hide_queries<T>(p, place, scores, score_grads, query + lane % 4 * 2, compute_here(own.key) + lane / 4);
      }
      T::join(left, scores);
      T::join(left_grads, score_grads);
      T::store_operand(own_grads, left_grads);
      T::multiply_operand(value_totals, left, grad + left_row);
      T::multiply_operand(key_totals, left_grads, q + left_row);
    } else {
      T::store_operand(own_grads, left_grads);
    }
    if (threadIdx.x == 0) {
      wait_for_turn(seen_count, p.turns + 1 + number, find_turn<T>(p, place, row, tile));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      if (last_count) {
        pass_turn(last_count, last_turn);  // now, not at once: what was added has long arrived
      }
      last_count = p.turns + 1 + number;
      last_turn = find_turn<T>(p, place, row, tile) + 1;
    }
    __syncwarp();
    T::add_queries(sums + (int64_t)number * (T::QUERIES * T::WIDTH), sum_left, keys + left_row + column * 2);
  }
  copy_async_finish();
  __syncthreads();
  if (threadIdx.x == 0 && last_count) {
    pass_turn(last_count, last_turn);
  }
  __syncwarp();
  const int64_t start = place.key_start + own.key;
  E *own_room = (E *)(void *)room + warp * T::WARP_KEYS * T::STRIDE;
  store_gradient<T>(p.grad_k, locate<E>(p.grad_k, place, start, key_head), key_totals, (float)p.scale, own_room,
                    place.keys - own.key, p.width);
  store_gradient<T>(p.grad_v, locate<E>(p.grad_v, place, start, key_head), value_totals, 1, own_room + T::TILE / 2,
                    place.keys - own.key, p.width);
}

#endif
