/// The kernels of vendors/host/ops/foreach_expressions.h, and those that take a list of tensors in one launch.
#include "foreach.h"

#include "pointwise.cuh"
#include "ops/foreach_expressions.h"

template <class E>
KERNEL_INLINE E apply_number(E x, typename work_type<E>::type number, bool is_product) {
  return element<E>::from(is_product ? to_work(x) * number : to_work(x) + number);
}

template <class E>
KERNEL_INLINE void run_list(const foreach_kernel &p) {
  typedef typename work_type<E>::type T;
  constexpr int V = 16 / sizeof(E);
  typedef pack<E, V> vector;
  int place = 0;
  while (place + 1 < p.count && p.first[place + 1] <= (int)blockIdx.x) {
    place++;
  }
  const foreach_tensor &tensor = p.tensors[place];
  const T number = p.other ? to_work(*(const E *)(const void *)p.other) : (T)p.number;
  const int64_t begin = (int64_t)((int)blockIdx.x - p.first[place]) * FOREACH_LIST_CHUNK;
  const int64_t end = begin + FOREACH_LIST_CHUNK < tensor.numel ? begin + FOREACH_LIST_CHUNK : tensor.numel;
  const int64_t whole = tensor.is_aligned ? begin + (end - begin) / V * V : begin;
  const E *in = (const E *)(const void *)tensor.in;
  E *out = (E *)(void *)tensor.out;
  for (int64_t i = begin + (int64_t)threadIdx.x * V; i < whole; i += POINTWISE_KERNEL_THREADS * V) {
    vector values = *(const vector *)(const void *)(in + i);
#pragma unroll
    for (int lane = 0; lane < V; lane++) {
      values.value[lane] = apply_number(values.value[lane], number, p.is_product != 0);
    }
    *(vector *)(void *)(out + i) = values;
  }
  for (int64_t i = whole + threadIdx.x; i < end; i += POINTWISE_KERNEL_THREADS) {
    out[i] = apply_number(in[i], number, p.is_product != 0);
  }
}

#define LIST(tag, E)                                                           \
  KERNEL(POINTWISE_KERNEL_THREADS, foreach_list_##tag, foreach_kernel) {       \
    run_list<E>(p);                                                            \
  }
LIST(f32, float)
LIST(f64, double)
LIST(f16, half_bits)
LIST(bf16, bfloat_bits)
