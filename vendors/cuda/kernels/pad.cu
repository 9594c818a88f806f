/// Pad, roll and flip: every element of the result is one of the input or a number (vendors/host/engine/pad.h).
#include "pad.h"

#include "kernel.cuh"

template <class E>
KERNEL_INLINE void run_pad(const pad_kernel &p) {
  const E element = *(const E *)(const void *)p.element;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t rest = i, to = 0, from = 0;
    bool inside = true;
    for (int dim = 0; dim < p.ndim; dim++) {
      int64_t place, next;
      if (p.is_wide) {
        next = rest / p.sizes[dim];
        place = rest - next * p.sizes[dim];
      } else {
        const pointwise_divisor by = p.divisors[dim];
        const uint32_t quotient = (uint32_t)(((uint64_t)__umulhi((uint32_t)rest, by.magic) + (uint32_t)rest) >> by.shift);
        place = (uint32_t)rest - quotient * by.divisor;
        next = quotient;
      }
      rest = next;
      to += place * p.out_strides[dim];
      bool found = false;
      for (int k = 0; k < p.counts[dim]; k++) {
        const pad_kernel_piece &piece = p.pieces[dim][k];
        if (place >= piece.to && place < piece.to + piece.count) {
          from += (piece.from + (place - piece.to) * piece.step) * p.in_strides[dim];
          found = true;
        }
      }
      inside = inside && found;
    }
    *(E *)(void *)(p.out + to) = inside ? *(const E *)(const void *)(p.in + from) : element;
  }
}

KERNEL(PAD_KERNEL_THREADS, pad_1, pad_kernel) {
  run_pad<uint8_t>(p);
}
KERNEL(PAD_KERNEL_THREADS, pad_2, pad_kernel) {
  run_pad<uint16_t>(p);
}
KERNEL(PAD_KERNEL_THREADS, pad_4, pad_kernel) {
  run_pad<uint32_t>(p);
}
KERNEL(PAD_KERNEL_THREADS, pad_8, pad_kernel) {
  run_pad<uint64_t>(p);
}
KERNEL(PAD_KERNEL_THREADS, pad_16, pad_kernel) {
  run_pad<pack<uint64_t, 2>>(p);
}
