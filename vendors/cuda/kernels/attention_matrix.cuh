/// Tiles of attention by matrix instructions (tensor cores): float16 and bfloat16 with float sums.
///
/// Four warps with 16 rows each. A product of rows leaves its results where the next product wants its left operand, so
/// that scores never go through memory. mma.m16n8k16 and ldmatrix have twins in tests/cuda_emulator/emulator_matrix.h.
#ifndef DIT_CUDA_ATTENTION_MATRIX_CUH
#define DIT_CUDA_ATTENTION_MATRIX_CUH

#include "attention_gradient.cuh"

/// A place in shared memory, counted in bytes: an address of 32 bits, to which instructions add constants.
#ifdef __CUDACC__
typedef uint32_t shared_place;
KERNEL_INLINE shared_place get_shared_place(const void *address) {
  return (uint32_t)__cvta_generic_to_shared(address);
}
#else
typedef const char *shared_place;
KERNEL_INLINE shared_place get_shared_place(const void *address) {
  return (const char *)address;
}
#endif

/// Four 8 x 8 matrices from shared memory; lane i brings the place of row i % 8 of matrix i / 8. Volatile keeps the
/// order of barriers and loads; what is between barriers the assembler orders as it likes.
template <bool TRANSPOSED>
KERNEL_INLINE void load_matrices(uint32_t (&out)[4], shared_place row) {
#ifdef __CUDACC__
  if (TRANSPOSED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row));
  }
#else
  emulator_load_matrices(out, row, TRANSPOSED);
#endif
}

template <class E>
struct matrix_type;
template <>
struct matrix_type<half_bits> {
  static __device__ uint32_t join(float low, float high) {
#ifdef __CUDACC__
    const __half2 pair = __floats2half2_rn(low, high);
    return *(const uint32_t *)(const void *)&pair;
#else
    return half_from_float(low) | (uint32_t)half_from_float(high) << 16;
#endif
  }
  /// d (16 x 8) += a (16 x 16) b (16 x 8)
  static __device__ void multiply(float *d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef __CUDACC__
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    const uint32_t b[2] = {b0, b1};
    emulator_multiply_matrices(d, a, b, half_to_float);
#endif
  }
};
template <>
struct matrix_type<bfloat_bits> {
  static __device__ uint32_t join(float low, float high) {
#ifdef __CUDACC__
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)(const void *)&pair;
#else
    return bfloat_from_float(low) | (uint32_t)bfloat_from_float(high) << 16;
#endif
  }
  static __device__ void multiply(float *d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef __CUDACC__
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    const uint32_t b[2] = {b0, b1};
    emulator_multiply_matrices(d, a, b, bfloat_to_float);
#endif
  }
};

template <class E, int COLUMNS_, int WIDTH_, int OUT_>
struct matrix_tiles {
  typedef E element;
  typedef float work;
  static constexpr int THREADS = ATTENTION_MATRIX_THREADS, STAGES = 2;
  static constexpr int ROWS = 64, COLUMNS = COLUMNS_, WIDTH = WIDTH_, OUT = OUT_;
  static constexpr int STRIDE = WIDTH + 8;  // 16 bytes more: the 8 rows of a matrix lie in different banks
  static constexpr int SCORES = COLUMNS / 2, TOTALS = OUT / 2, SLOTS = 2;

  int lane, warp;

  __device__ explicit matrix_tiles(E *) : lane((int)threadIdx.x % 32), warp((int)threadIdx.x / 32) {}
  __device__ bool is_first() const { return lane % 4 == 0; }
  __device__ int get_row(int slot) const { return warp * 16 + lane / 4 + 8 * slot; }
  __device__ int get_slot(int n) const { return n % 4 / 2; }
  __device__ int get_column(int n) const { return n / 4 * 8 + lane % 4 * 2 + n % 2; }
  __device__ int get_total_slot(int n) const { return get_slot(n); }
  __device__ int get_total_column(int n) const { return get_column(n); }
  __device__ float exponential(float x) const {
#ifdef __CUDACC__
    return __expf(x);
#else
    return expf(x);
#endif
  }
  __device__ float logarithm(float x) const { return logf(x); }
  template <class Join>
  __device__ float reduce_row(float value, Join join) const {
    value = join(value, __shfl_xor_sync(WARP_ALL, value, 2));
    return join(value, __shfl_xor_sync(WARP_ALL, value, 1));
  }
  __device__ void multiply_rows(float *scores, const E *a, const E *b) const {
    const shared_place left_place = get_shared_place(a + (warp * 16 + lane % 16) * STRIDE + lane / 16 * 8);
    const shared_place right_place = get_shared_place(b + (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8);
#pragma unroll
    for (int depth = 0; depth < WIDTH; depth += 16) {
      uint32_t left[4];
      load_matrices<false>(left, left_place + depth * 2);
#pragma unroll
      for (int column = 0; column < COLUMNS; column += 16) {
        uint32_t right[4];
        load_matrices<false>(right, right_place + (column * STRIDE + depth) * 2);
        matrix_type<E>::multiply(scores + column / 2, left, right[0], right[1]);
        matrix_type<E>::multiply(scores + column / 2 + 4, left, right[2], right[3]);
      }
    }
  }
  __device__ void multiply_scores(float *totals, const float *scores, const E *b) const {
    const shared_place right_place = get_shared_place(b + lane % 16 * STRIDE + lane / 16 * 8);
#pragma unroll
    for (int key = 0; key < COLUMNS; key += 16) {
      const float *s = scores + key / 2;
      const uint32_t left[4] = {matrix_type<E>::join(s[0], s[1]), matrix_type<E>::join(s[2], s[3]),
                                matrix_type<E>::join(s[4], s[5]), matrix_type<E>::join(s[6], s[7])};
#pragma unroll
      for (int column = 0; column < OUT; column += 16) {
        uint32_t right[4];
        load_matrices<true>(right, right_place + (key * STRIDE + column) * 2);
        matrix_type<E>::multiply(totals + column / 2, left, right[0], right[1]);
        matrix_type<E>::multiply(totals + column / 2 + 4, left, right[2], right[3]);
      }
    }
  }
};

#endif
