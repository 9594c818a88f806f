/// The forward pass of attention for half types in its common form: no dropout, no slopes, a positive scale, rows that
/// begin at multiples of 16 bytes. attention.cuh has the general one.
///
/// Shaped for speed: a warp has 32 queries in two bands of 16, so that what it reads of keys and values serves two
/// matrix instructions each time; the scale goes into the exponent (one multiplication and addition, a power of two);
/// masks are looked at only in tiles that have an edge; a warp passes over tiles that none of its queries sees; results
/// are rescaled only when a maximum grew; one barrier per tile, while the next tile is on its way.
#ifndef DIT_CUDA_ATTENTION_FLASH_CUH
#define DIT_CUDA_ATTENTION_FLASH_CUH

#include "attention_matrix.cuh"

#define LOG2_E 1.4426950408889634f

KERNEL_INLINE float power_of_two(float x) {
#ifdef __CUDACC__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return exp2f(x);
#endif
}

/// As copy_async, to a place.
KERNEL_INLINE void copy_async_place(shared_place to, const void *from, int bytes) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#else
  emulator_copy_later((void *)(uintptr_t)to, from, bytes);
#endif
}

/// One thread's part in copying tiles of WIDTH columns to shared memory, 16 bytes at a time.
template <class E, int WIDTH, int STRIDE, int THREADS>
struct tile_copy {
  static constexpr int LINE = WIDTH / 8, STEP = THREADS / LINE;

  int row, offset;  ///< offset: to its place in the tile, in bytes
  bool is_inside;   ///< its columns are columns of the tensor

  __device__ explicit tile_copy(int width) {
    const int column = (int)threadIdx.x % LINE * 8;
    row = (int)threadIdx.x / LINE;
    offset = (row * STRIDE + column) * 2;
    is_inside = column < width;
  }
  /// Where the thread reads of a tensor whose tile begins at `from`.
  __device__ const E *locate(const E *from, int64_t stride) const {
    return from + row * stride + (int)threadIdx.x % LINE * 8;
  }
  /// COUNT rows; zeros beyond `rows` and beyond the width.
  template <int COUNT>
  __device__ void load(shared_place to, const E *from, int64_t stride, int rows) const {
    static_assert(COUNT % STEP == 0, "all threads have the same number of copies");
    const int left = is_inside ? rows - row : 0;
#pragma unroll
    for (int i = 0; i < COUNT; i += STEP) {
      copy_async_place(to + offset + i * STRIDE * 2, from, i < left ? 16 : 0);
      from += STEP * stride;
    }
  }
};

/// The same number; what follows from it is computed here and not kept in registers from an earlier place.
KERNEL_INLINE int compute_here(int number) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(number));
#endif
  return number;
}

/// Rows of the other side that a row sees: [low, high].
struct seen_range {
  int low, high;
};
/// `own`: the row's own position there; `before` and `after`: -1 is all. All are below 2^30.
KERNEL_INLINE seen_range find_seen(int own, int before, int after, int rows) {
  const int low = before < 0 ? 0 : own - before, high = after < 0 ? rows - 1 : own + after;
  return {low < 0 ? 0 : low, high < rows - 1 ? high : rows - 1};
}
KERNEL_INLINE seen_range find_keys(const attention_kernel &p, const attention_place &place, int query) {
  return find_seen(query + place.shift, (int)p.left, (int)p.right, place.keys);
}

template <class E_, int COLUMNS_, int WIDTH_>
struct flash_tiles {
  typedef E_ E;
  static constexpr int THREADS = ATTENTION_MATRIX_THREADS, ROWS = ATTENTION_FLASH_ROWS, COLUMNS = COLUMNS_;
  static constexpr int WIDTH = WIDTH_, STRIDE = WIDTH + 8, TILE = COLUMNS * STRIDE;
  static constexpr int BANDS = ROWS / (THREADS / 32 * 16), WARP_ROWS = BANDS * 16;
  static constexpr int DEPTHS = WIDTH / 16;

  shared_place queries;
  float totals[BANDS][WIDTH / 8][4], maxima[BANDS][2], sums[BANDS][2];

  __device__ void load_queries(uint32_t (&out)[BANDS][4], int depth) const {
#pragma unroll
    for (int band = 0; band < BANDS; band++) {
      load_matrices<false>(out[band], queries + (band * 16 * STRIDE + depth * 16) * 2);
    }
  }
  __device__ void start() {
#pragma unroll
    for (int band = 0; band < BANDS; band++) {
#pragma unroll
      for (int n = 0; n < WIDTH / 8; n++) {
        totals[band][n][0] = totals[band][n][1] = totals[band][n][2] = totals[band][n][3] = 0;
      }
      maxima[band][0] = maxima[band][1] = -INFINITY;
      sums[band][0] = sums[band][1] = 0;
    }
  }
  /// scores = queries keys^T
  __device__ void multiply_keys(float (&scores)[BANDS][COLUMNS / 8][4], shared_place keys) const {
#pragma unroll
    for (int depth = 0; depth < DEPTHS; depth++) {
      uint32_t left[BANDS][4];
      load_queries(left, depth);
#pragma unroll
      for (int n = 0; n < COLUMNS / 8; n += 2) {
        uint32_t right[4];
        load_matrices<false>(right, keys + (n * 8 * STRIDE + depth * 16) * 2);
#pragma unroll
        for (int band = 0; band < BANDS; band++) {
          matrix_type<E>::multiply(scores[band][n], left[band], right[0], right[1]);
          matrix_type<E>::multiply(scores[band][n + 1], left[band], right[2], right[3]);
        }
      }
    }
  }
  /// totals += scores values
  __device__ void multiply_values(const float (&scores)[BANDS][COLUMNS / 8][4], shared_place values) {
#pragma unroll
    for (int key = 0; key < COLUMNS / 16; key++) {
      uint32_t left[BANDS][4];
#pragma unroll
      for (int band = 0; band < BANDS; band++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float *pair = &scores[band][key * 2 + i / 2][i % 2 * 2];
          left[band][i] = matrix_type<E>::join(pair[0], pair[1]);
        }
      }
#pragma unroll
      for (int n = 0; n < WIDTH / 8; n += 2) {
        uint32_t right[4];
        load_matrices<true>(right, values + (key * 16 * STRIDE + n * 8) * 2);
#pragma unroll
        for (int band = 0; band < BANDS; band++) {
          matrix_type<E>::multiply(totals[band][n], left[band], right[0], right[1]);
          matrix_type<E>::multiply(totals[band][n + 1], left[band], right[2], right[3]);
        }
      }
    }
  }
  /// Scores of one row of a band become probabilities; the factor for what was summed before.
  __device__ float join_row(float (&scores)[COLUMNS / 8][4], int half, float scale, float *maximum, float *sum) const {
    const float before = *maximum;
    float most = before;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) {
      most = fmaxf(most, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
    }
    most = fmaxf(most, __shfl_xor_sync(WARP_ALL, most, 2));
    most = fmaxf(most, __shfl_xor_sync(WARP_ALL, most, 1));
    const float base = most == -INFINITY ? 0.0f : most * scale, factor = power_of_two(before * scale - base);
    float total = *sum * factor;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) {
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; i++) {
        scores[n][i] = power_of_two(scores[n][i] * scale - base);
        total += scores[n][i];
      }
    }
    *maximum = most;
    *sum = total;
    return factor;
  }
  __device__ void join_scores(float (&scores)[BANDS][COLUMNS / 8][4], float scale) {
    float factors[BANDS][2];
    bool grew = false;
#pragma unroll
    for (int band = 0; band < BANDS; band++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        factors[band][half] = join_row(scores[band], half, scale, &maxima[band][half], &sums[band][half]);
        grew = grew || factors[band][half] != 1;
      }
    }
    if (__ballot_sync(WARP_ALL, grew)) {
#pragma unroll
      for (int band = 0; band < BANDS; band++) {
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
#pragma unroll
          for (int i = 0; i < 4; i++) {
            totals[band][n][i] *= factors[band][i / 2];
          }
        }
      }
    }
  }
};

/// Scores that are not seen become -inf; `query` and `key` are those of the lane's first score.
template <class T>
KERNEL_INLINE void hide_scores(const attention_kernel &p, const attention_place &place,
                               float (&scores)[T::BANDS][T::COLUMNS / 8][4], int query, int key) {
#pragma unroll
  for (int band = 0; band < T::BANDS; band++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const seen_range seen = find_keys(p, place, query + band * 16 + half * 8);
#pragma unroll
      for (int n = 0; n < T::COLUMNS / 8; n++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float &score = scores[band][n][half * 2 + i];
          const int own = key + n * 8 + i;
          score = own < seen.low || own > seen.high ? -INFINITY : score;
        }
      }
    }
  }
}

/// Results of a warp by way of its own rows in shared memory, so that each lane writes 16 bytes.
template <class T>
KERNEL_INLINE void store_rows(const attention_kernel &p, const attention_place &place, const T &tiles,
                              typename T::E *room, int row) {
  typedef typename T::E E;
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int band = 0; band < T::BANDS; band++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int line = band * 16 + half * 8 + lane / 4, query = row + line;
      float sum = tiles.sums[band][half];
      sum += __shfl_xor_sync(WARP_ALL, sum, 2);
      sum += __shfl_xor_sync(WARP_ALL, sum, 1);
      const float factor = sum == 0 ? 0.0f : 1.0f / sum;
      if (lane % 4 == 0 && query < p.queries) {
        store_as(locate_lse(p, place, query), p.lse_dtype,
                 query < place.queries ? tiles.maxima[band][half] * (float)p.scale + logf(sum) : -INFINITY);
      }
#pragma unroll
      for (int n = 0; n < T::WIDTH / 8; n++) {
        const float *pair = &tiles.totals[band][n][half * 2];
        *(uint32_t *)(void *)(room + line * T::STRIDE + n * 8 + lane % 4 * 2) =
            matrix_type<E>::join(pair[0] * factor, pair[1] * factor);
      }
    }
  }
  __syncwarp();
  constexpr int LINE = T::WIDTH / 8;
  E *out = locate<E>(p.out, place, place.query_start + row, place.head);
#pragma unroll
  for (int i = lane; i < T::WARP_ROWS * LINE; i += 32) {
    const int line = i / LINE, column = i % LINE * 8;
    if (row + line < place.queries && column < p.width) {
      *(pack<uint32_t, 4> *)(void *)(out + line * p.out.row + column) =
          *(const pack<uint32_t, 4> *)(const void *)(room + line * T::STRIDE + column);
    }
  }
}

template <class T>
KERNEL_INLINE void run_flash(const attention_kernel &p) {
  typedef typename T::E E;
  typedef tile_copy<E, T::WIDTH, T::STRIDE, T::THREADS> copy;
  SHARED_MEMORY(E, room);
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  // the last tiles of a causal head have most to do: those of all heads first
  const unsigned heads = (unsigned)p.heads, lines = (unsigned)p.sequences * heads, line = blockIdx.x % lines;
  const int row = ((int)p.tiles - 1 - (int)(blockIdx.x / lines)) * T::ROWS, warp_row = row + warp * T::WARP_ROWS;
  const attention_place place = find_place(p, line / heads, line % heads);
  const int64_t key_head = (line % heads) / (heads / (unsigned)p.key_heads);
  const int rows = place.queries - row < T::ROWS ? place.queries - row : T::ROWS;
  int first, end;
  find_range((int64_t)row + place.shift, rows, p.left, p.right, place.keys, &first, &end);
  first = first / T::COLUMNS * T::COLUMNS;
  end = rows > 0 ? end : first;
  const copy copier(p.width);
  const E *keys = copier.locate(locate<E>(p.k, place, place.key_start + first, key_head), p.k.row);
  const E *values = copier.locate(locate<E>(p.v, place, place.key_start + first, key_head), p.v.row);
  const shared_place q = get_shared_place(room);
  const shared_place pairs = q + T::ROWS * T::STRIDE * 2;  // of each stage: keys, then values
  copier.template load<T::ROWS>(q, copier.locate(locate<E>(p.q, place, place.query_start + row, place.head), p.q.row),
                                p.q.row, rows);
  if (first < end) {
    copier.template load<T::COLUMNS>(pairs, keys, p.k.row, place.keys - first);
    copier.template load<T::COLUMNS>(pairs + T::TILE * 2, values, p.v.row, place.keys - first);
  }
  const seen_range first_seen = find_keys(p, place, warp_row);
  const seen_range last_seen = find_keys(p, place, warp_row + T::WARP_ROWS - 1);
  const float scale = (float)p.scale * LOG2_E;
  // where the lane finds its rows of matrices: left operands and transposed right ones, right ones
  const int left_row = (lane % 16 * T::STRIDE + lane / 16 * 8) * 2;
  const int right_row = ((lane / 16 * 8 + lane % 8) * T::STRIDE + lane / 8 % 2 * 8) * 2;
  T tiles;
  tiles.queries = q + warp * T::WARP_ROWS * T::STRIDE * 2 + left_row;
  tiles.start();
  int stage = 0;
  for (int column = first; column < end; column += T::COLUMNS) {
    copy_async_finish();
    __syncthreads();  // the tile is there, and nobody reads the other one any more
    const shared_place pair = pairs + stage * T::TILE * 4;
    stage = 1 - stage;
    keys += T::COLUMNS * p.k.row;
    values += T::COLUMNS * p.v.row;
    if (column + T::COLUMNS < end) {
      const shared_place next = pairs + stage * T::TILE * 4;
      copier.template load<T::COLUMNS>(next, keys, p.k.row, place.keys - column - T::COLUMNS);
      copier.template load<T::COLUMNS>(next + T::TILE * 2, values, p.v.row, place.keys - column - T::COLUMNS);
    }
    const int last = column + T::COLUMNS - 1;
    if (column > last_seen.high || last < first_seen.low) {
      continue;
    }
    float scores[T::BANDS][T::COLUMNS / 8][4] = {};
    tiles.multiply_keys(scores, pair + right_row);
    if (column < last_seen.low || last > first_seen.high) {
      hide_scores<T>(p, place, scores, compute_here(warp_row) + lane / 4, column + lane % 4 * 2);
    }
    tiles.join_scores(scores, scale);
    tiles.multiply_values(scores, pair + T::TILE * 2 + left_row);
  }
  copy_async_finish();
  __syncthreads();
  store_rows(p, place, tiles, room + warp * T::WARP_ROWS * T::STRIDE, warp_row);
}

#endif
