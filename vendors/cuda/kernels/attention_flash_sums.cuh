/// The gradient of queries as a sum over blocks (attention_flash_gradient.cuh): whose turn it is to add, what is made
/// ready before (run_prepare: delta, zeros) and done afterwards (run_finish: the sums to their dtype).
///
/// Sums lie in the order of the registers: 16 rows, 8 columns, lane, 4 numbers.
#ifndef DIT_CUDA_ATTENTION_FLASH_SUMS_CUH
#define DIT_CUDA_ATTENTION_FLASH_SUMS_CUH

#include "attention_flash.cuh"

/// What the gradient needs of a query: the logarithm (to base 2) of its sum, +inf where it sees nothing, and delta.
typedef pack<float, 2> query_state;

/// How many have added; asked early, so that the answer is there when it is needed.
KERNEL_INLINE uint32_t read_count(const uint32_t *count) {
#ifdef __CUDACC__
  uint32_t seen;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count));
  return seen;
#else
  return *count;
#endif
}
/// Sums are only added to in turns, never read, so that seeing the count is enough: what the others added came first.
KERNEL_INLINE void wait_for_turn(uint32_t seen, const uint32_t *count, uint32_t turn) {
#ifdef __CUDACC__
  while (seen != turn) {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count) : "memory");
  }
#else
  if (seen != turn || *count != turn) {
    __builtin_trap();  // blocks run one after another here: the turn has come, or never will
  }
#endif
}
/// What the block wrote before its last barrier is seen by whoever sees the turn.
KERNEL_INLINE void pass_turn(uint32_t *count, uint32_t turn) {
#ifdef __CUDACC__
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(count), "r"(turn) : "memory");
#else
  *count = turn;
#endif
}
KERNEL_INLINE void add_four(float *to, const float (&values)[4]) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(values[0]), "f"(values[1]),
               "f"(values[2]), "f"(values[3])
               : "memory");
#else
  for (int i = 0; i < 4; i++) {
    atomicAdd(to + i, values[i]);
  }
#endif
}

/// A row of E by 16 bytes.
template <class E>
struct eight {
  pack<E, 8> value;
  __device__ explicit eight(const E *from) : value(*(const pack<E, 8> *)(const void *)from) {}
  __device__ float get(int i) const { return to_work(value.value[i]); }
};

/// States of all queries, zeros for their sums and for the counts of turns. Eight lanes per row.
template <class E, int QUERIES, int WIDTH>
KERNEL_INLINE void run_prepare(const attention_kernel &p) {
  const unsigned rows = (unsigned)p.query_tiles * QUERIES,
                 number = blockIdx.x * (ATTENTION_DELTA_THREADS / 8) + threadIdx.x / 8;
  const unsigned line = number / rows, lane = threadIdx.x % 8, heads = (unsigned)p.heads;
  const int query = (int)(number % rows);
  const bool is_row = line < (unsigned)p.sequences * heads;
  float sum = 0;
  attention_place place = {};
  if (is_row) {
    place = find_place(p, line / heads, line % heads);
    if (query < place.queries) {
      const E *grad = locate<E>(p.grad, place, place.query_start + query, place.head);
      const E *out = locate<E>(p.out, place, place.query_start + query, place.head);
      for (int j = (int)lane * 8; j < p.width; j += 64) {
        const eight<E> x(grad + j), y(out + j);
#pragma unroll
        for (int i = 0; i < 8; i++) {
          sum += x.get(i) * y.get(i);
        }
      }
    }
    pack<float, 4> *zeros = (pack<float, 4> *)(void *)p.sums + (int64_t)number * (WIDTH / 4);
#pragma unroll
    for (int i = 0; i < WIDTH / 32; i++) {
      zeros[i * 8 + lane] = {};
    }
  }
#pragma unroll
  for (int lanes = 4; lanes > 0; lanes >>= 1) {
    sum += __shfl_xor_sync(WARP_ALL, sum, lanes);
  }
  if (is_row && lane == 0) {
    float lse = INFINITY;
    if (query < place.queries) {
      lse = load_as<float>(locate_lse(p, place, query), p.lse_dtype, false) * LOG2_E;
      lse = lse == -INFINITY ? INFINITY : lse;
    }
    ((query_state *)p.delta)[number] = {{lse, sum}};
    if (query % QUERIES == 0) {
      p.turns[1 + number / QUERIES] = 0;
    }
    if (number == 0) {
      p.turns[0] = 0;
    }
  }
}

/// The sums of queries to their dtype: one warp per 16 rows.
template <class E, int QUERIES, int WIDTH>
KERNEL_INLINE void run_finish(const attention_kernel &p) {
  constexpr int STRIDE = WIDTH + 8, LINE = WIDTH / 8;
  __shared__ pack<uint32_t, 4> rooms[ATTENTION_DELTA_THREADS / 32][16 * STRIDE / 8];
  const unsigned bands = (unsigned)p.query_tiles * (QUERIES / 16), heads = (unsigned)p.heads;
  const unsigned number = blockIdx.x * (ATTENTION_DELTA_THREADS / 32) + threadIdx.x / 32, line = number / bands;
  const int lane = (int)threadIdx.x % 32, row = (int)(number % bands) * 16;
  if (line >= (unsigned)p.sequences * heads) {
    return;
  }
  const attention_place place = find_place(p, line / heads, line % heads);
  E *room = (E *)(void *)rooms[threadIdx.x / 32];
  const pack<float, 4> *sums = (const pack<float, 4> *)(const void *)p.sums + (int64_t)number * (16 * WIDTH / 4) + lane;
  const float scale = (float)p.scale;
#pragma unroll
  for (int n = 0; n < LINE; n++) {
    const pack<float, 4> four = sums[n * 32];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      *(uint32_t *)(void *)(room + (lane / 4 + half * 8) * STRIDE + n * 8 + lane % 4 * 2) =
          matrix_type<E>::join(four.value[half * 2] * scale, four.value[half * 2 + 1] * scale);
    }
  }
  __syncwarp();
  E *out = locate<E>(p.grad_q, place, place.query_start + row, place.head);
#pragma unroll
  for (int i = lane; i < 16 * LINE; i += 32) {
    const int own = i / LINE, column = i % LINE * 8;
    if (row + own < place.queries && column < p.width) {
      *(pack<E, 8> *)(void *)(out + own * p.grad_q.row + column) =
          *(const pack<E, 8> *)(const void *)(room + own * STRIDE + column);
    }
  }
}

#endif
