/// Tiles of attention by plain multiplications: float and double. 16 x 16 threads; thread (x, y) has the rows y + 16 i.
#ifndef DIT_CUDA_ATTENTION_SCALAR_CUH
#define DIT_CUDA_ATTENTION_SCALAR_CUH

#include "attention_gradient.cuh"

KERNEL_INLINE float exp_of(float x) {
  return expf(x);
}
KERNEL_INLINE double exp_of(double x) {
  return exp(x);
}
KERNEL_INLINE float log_of(float x) {
  return logf(x);
}
KERNEL_INLINE double log_of(double x) {
  return log(x);
}

template <class E, int ROWS_, int COLUMNS_, int WIDTH_>
struct scalar_tiles {
  typedef E element;
  typedef E work;
  static constexpr int V = 16 / sizeof(E), THREADS = ATTENTION_SCALAR_THREADS, STAGES = 1;
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, WIDTH = WIDTH_, OUT = WIDTH, STRIDE = WIDTH + V;
  static constexpr int R = ROWS / 16, C = COLUMNS / 16, P = COLUMNS + V, VECTORS = OUT / (16 * V);
  static constexpr int SCORES = R * C, TOTALS = R * VECTORS * V, SLOTS = R;
  typedef pack<E, V> vector;

  E *scores_room;  ///< ROWS x P
  int x, y;

  __device__ explicit scalar_tiles(E *room)
      : scores_room(room), x((int)threadIdx.x % 16), y((int)threadIdx.x / 16) {}
  __device__ bool is_first() const {
    return x == 0;
  }
  __device__ int get_row(int slot) const {
    return y + 16 * slot;
  }
  __device__ int get_slot(int n) const {
    return n / C;
  }
  __device__ int get_column(int n) const {
    return x + 16 * (n % C);
  }
  __device__ int get_total_slot(int n) const {
    return n / (VECTORS * V);
  }
  __device__ int get_total_column(int n) const {
    return n % (VECTORS * V) / V * 16 * V + x * V + n % V;
  }
  __device__ E exponential(E value) const {
    return exp_of(value);
  }
  __device__ E logarithm(E value) const {
    return log_of(value);
  }
  template <class Join>
  __device__ E reduce_row(E value, Join join) const {
#pragma unroll
    for (int lanes = 8; lanes > 0; lanes >>= 1) {
      value = join(value, __shfl_xor_sync(WARP_ALL, value, lanes));
    }
    return value;
  }
  __device__ void multiply_rows(E *scores, const E *a, const E *b) const {
#pragma unroll 4
    for (int d = 0; d < WIDTH; d += V) {
      vector u[R], w[C];
#pragma unroll
      for (int i = 0; i < R; i++) {
        u[i] = *(const vector *)(const void *)(a + (y + 16 * i) * STRIDE + d);
      }
#pragma unroll
      for (int j = 0; j < C; j++) {
        w[j] = *(const vector *)(const void *)(b + (x + 16 * j) * STRIDE + d);
      }
#pragma unroll
      for (int i = 0; i < R; i++) {
#pragma unroll
        for (int j = 0; j < C; j++) {
#pragma unroll
          for (int e = 0; e < V; e++) {
            scores[i * C + j] += u[i].value[e] * w[j].value[e];
          }
        }
      }
    }
  }
  /// The scores go through shared memory; only the 16 threads of a row meet there.
  __device__ void multiply_scores(E *totals, const E *scores, const E *b) const {
    __syncwarp();
#pragma unroll
    for (int n = 0; n < SCORES; n++) {
      scores_room[get_row(get_slot(n)) * P + get_column(n)] = scores[n];
    }
    __syncwarp();
#pragma unroll 1
    for (int key = 0; key < COLUMNS; key += V) {
      vector u[R];
#pragma unroll
      for (int i = 0; i < R; i++) {
        u[i] = *(const vector *)(const void *)(scores_room + get_row(i) * P + key);
      }
#pragma unroll
      for (int e = 0; e < V; e++) {
#pragma unroll
        for (int j = 0; j < VECTORS; j++) {
          const vector w = *(const vector *)(const void *)(b + (key + e) * STRIDE + j * 16 * V + x * V);
#pragma unroll
          for (int i = 0; i < R; i++) {
#pragma unroll
            for (int f = 0; f < V; f++) {
              totals[(i * VECTORS + j) * V + f] += u[i].value[e] * w.value[f];
            }
          }
        }
      }
    }
  }
};

#endif
