/// Automatic mixed precision: gradients of many tensors times *inv_scale, and whether one is not finite; the next scale
/// (formulas: vendors/host/ops/amp.c). Blocks that find something write the same number, so their order does not matter.
#include "amp.h"

#include "kernel.cuh"

template <class E>
KERNEL_INLINE bool unscale_one(E *place, float factor) {
  typedef typename work_type<E>::type W;
  const W x = to_work(*place);
  if (factor != 1.0f) {
    *place = element<E>::from(x * (W)factor);
  }
  return !(x - x == 0);
}

/// Elements [begin, end): vectors of 16 bytes where the tensor begins at one.
template <class E>
KERNEL_INLINE bool unscale_chunk(char *data, int64_t begin, int64_t end, float factor) {
  constexpr int size = 16 / (int)sizeof(E);
  E *x = (E *)(void *)data;
  bool bad = false;
  int64_t done = begin;
  if ((uintptr_t)data % 16 == 0) {
    const int64_t vectors = (end - begin) / size;
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
      pack<E, size> *place = (pack<E, size> *)(void *)(x + begin) + i;
      pack<E, size> vector = *place;
#pragma unroll
      for (int k = 0; k < size; k++) {
        bad |= unscale_one(&vector.value[k], factor);
      }
      if (factor != 1.0f) {
        *place = vector;
      }
    }
    done = begin + vectors * size;
  }
  for (int64_t i = done + threadIdx.x; i < end; i += blockDim.x) {
    bad |= unscale_one(&x[i], factor);
  }
  return bad;
}

KERNEL(AMP_KERNEL_THREADS, amp_unscale_list, amp_kernel) {
  const float factor = *p.inv_scale;
  bool bad = false;
  for (int64_t chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
    int low = 0, high = p.count - 1;
    while (low < high) {  // the last tensor that begins at or before the chunk
      const int middle = (low + high + 1) / 2;
      if (p.first[middle] <= chunk) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int64_t begin = (chunk - p.first[low]) * AMP_KERNEL_CHUNK;
    const int64_t end = begin + AMP_KERNEL_CHUNK < p.numel[low] ? begin + AMP_KERNEL_CHUNK : p.numel[low];
    switch (p.dtype[low]) {
      case DIT_DTYPE_F16:
        bad |= unscale_chunk<half_bits>(p.data[low], begin, end, factor);
        break;
      case DIT_DTYPE_BF16:
        bad |= unscale_chunk<bfloat_bits>(p.data[low], begin, end, factor);
        break;
      case DIT_DTYPE_F64:
        bad |= unscale_chunk<double>(p.data[low], begin, end, factor);
        break;
      default:
        bad |= unscale_chunk<float>(p.data[low], begin, end, factor);
    }
  }
  if (bad) {
    *p.found_inf = 1.0f;
  }
}

KERNEL(32, amp_update_scale, amp_update_kernel) {
  if (threadIdx.x > 0) {
    return;
  }
  if (*p.found != 0) {
    *p.scale = (float)((double)*p.scale * p.backoff);
    *p.tracker = 0;
    return;
  }
  const int32_t good = *p.tracker + 1;
  if (good != p.interval) {
    *p.tracker = good;
    return;
  }
  const float grown = (float)((double)*p.scale * p.growth);
  if (grown - grown == 0) {
    *p.scale = grown;
  }
  *p.tracker = 0;
}
