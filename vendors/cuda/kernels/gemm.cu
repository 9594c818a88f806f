/// The built-in matrix product: tiles of 64 x 64 in shared memory, 16 results per thread, any strides.
///
/// Where cuBLASLt is there, it takes the shapes that it can (engine/gemm.c); this is for the others. Half types are
/// accumulated in float.
#include "gemm.h"

#include "kernel.cuh"

#define TILE GEMM_KERNEL_TILE
#define DEPTH 16

template <class E, class A>
KERNEL_INLINE void run_gemm(const gemm_kernel &p) {
  __shared__ A left[DEPTH][TILE + 1], right[DEPTH][TILE + 1];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const int64_t row = (int64_t)blockIdx.y * TILE, column = (int64_t)blockIdx.x * TILE;
  for (int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    const E *a = (const E *)p.a + batch * p.a_strides[0], *b = (const E *)p.b + batch * p.b_strides[0];
    A sums[4][4] = {};
    for (int64_t begin = 0; begin < p.depth; begin += DEPTH) {
      // neighbouring threads read along the dimension that lies packed in memory
      for (int i = threadIdx.x; i < TILE * DEPTH; i += GEMM_KERNEL_THREADS) {
        const bool packed = p.a_strides[2] == 1;
        const int m = packed ? i / DEPTH : i % TILE, k = packed ? i % DEPTH : i / TILE;
        const bool inside = row + m < p.rows && begin + k < p.depth;
        left[k][m] = inside ? (A)to_work(a[(row + m) * p.a_strides[1] + (begin + k) * p.a_strides[2]]) : (A)0;
      }
      for (int i = threadIdx.x; i < TILE * DEPTH; i += GEMM_KERNEL_THREADS) {
        const bool packed = p.b_strides[2] == 1;
        const int n = packed ? i % TILE : i / DEPTH, k = packed ? i / TILE : i % DEPTH;
        const bool inside = column + n < p.columns && begin + k < p.depth;
        right[k][n] = inside ? (A)to_work(b[(begin + k) * p.b_strides[1] + (column + n) * p.b_strides[2]]) : (A)0;
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < DEPTH; k++) {
        A u[4], v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          u[i] = left[k][y + 16 * i];
          v[i] = right[k][x + 16 * i];
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
          for (int j = 0; j < 4; j++) {
            sums[i][j] += u[i] * v[j];
          }
        }
      }
      __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
      for (int j = 0; j < 4; j++) {
        const int64_t m = row + y + 16 * i, n = column + x + 16 * j;
        if (m < p.rows && n < p.columns) {
          A value = (A)p.alpha * sums[i][j];
          if (p.bias) {
            const E *bias = (const E *)p.bias;
            value += (A)p.beta *
                     (A)to_work(bias[batch * p.bias_strides[0] + m * p.bias_strides[1] + n * p.bias_strides[2]]);
          }
          ((E *)p.out)[batch * p.out_strides[0] + m * p.out_strides[1] + n * p.out_strides[2]] =
              element<E>::from(value);
        }
      }
    }
  }
}

KERNEL_BLOCK(GEMM_KERNEL_THREADS, gemm_f32, gemm_kernel) {
  run_gemm<float, float>(p);
}
KERNEL_BLOCK(GEMM_KERNEL_THREADS, gemm_f64, gemm_kernel) {
  run_gemm<double, double>(p);
}
KERNEL_BLOCK(GEMM_KERNEL_THREADS, gemm_f16, gemm_kernel) {
  run_gemm<half_bits, float>(p);
}
KERNEL_BLOCK(GEMM_KERNEL_THREADS, gemm_bf16, gemm_kernel) {
  run_gemm<bfloat_bits, float>(p);
}
