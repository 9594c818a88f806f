/// What blocks do together: the last one combines; and sums in units that keep squares in range.
///
/// Three units, by the largest |x| so far: bin 0 counts in 2^-600 (all |x| < 2^-400), bin 1 in 1, bin 2 in 2^600 (some
/// |x| > 2^400). What is lost when a bin is raised is below the rounding of the rest. Part of helper_kernels.cu.
#ifndef DIT_CUDA_HELPER_BLOCK_CUH
#define DIT_CUDA_HELPER_BLOCK_CUH

#include "helper_element.cuh"

/// True in every thread of the block that ends last; what the others wrote before is then visible.
DEVICE bool block_is_last(struct kernel_scratch *scratch, int tensor, uint32_t blocks) {
  __shared__ int last;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&scratch->ticket[tensor], 1U) == blocks - 1;
    if (last) {
      scratch->ticket[tensor] = 0;
    }
    __threadfence();
  }
  __syncthreads();
  return last != 0;
}

/// Copy past the first-level cache: other blocks wrote it.
DEVICE void fetch_words(void *target, const void *source, int words) {
  for (int i = 0; i < words; i++) {
    uint64_t word = ((const volatile raw64 *)source)[i];
    memcpy((char *)target + i * (int)sizeof(word), &word, sizeof(word));
  }
}

#if defined(__CUDACC__)
DEVICE void atomic_raise(uint64_t *target, uint64_t value) {
  atomicMax((unsigned long long *)target, (unsigned long long)value);
}

DEVICE void atomic_increase(uint64_t *target, uint64_t value) {
  atomicAdd((unsigned long long *)target, (unsigned long long)value);
}
#endif

// Scaled sums

#define BIN_LOW 0
#define BIN_PLAIN 1
#define BIN_HIGH 2

/// Real numbers are multiplied by this in a bin: 2^600, 1, 2^-600.
DEVICE double bin_get_scale(int bin) {
  return bin == BIN_PLAIN ? 1.0 : double_from_bits((uint64_t)(bin == BIN_LOW ? 1023 + 600 : 1023 - 600) << 52);
}

DEVICE int bin_get(double x) {
  double size = fabs(x);
  return size > 0x1p400 ? BIN_HIGH : size < 0x1p-400 ? BIN_LOW : BIN_PLAIN;
}

/// A sum from one bin's unit to a higher one's.
DEVICE double bin_raise(double sum, int from, int to) {
  sum = from < to ? sum * 0x1p-600 : sum;
  return from + 1 < to ? sum * 0x1p-600 : sum;
}

/// The same for a sum of squares or products of `steps` raised factors.
DEVICE double bin_raise_square(double sum, int from, int to) {
  return bin_raise(bin_raise(sum, from, to), from, to);
}

/// A sum in a bin's unit as an ordinary number (which may be infinite or 0).
DEVICE double bin_leave(double sum, int bin) {
  return bin == BIN_PLAIN ? sum : sum * bin_get_scale(BIN_HIGH - bin);
}

DEVICE double smaller_get(double a, double b) {
  return a < b ? a : b;
}

DEVICE double larger_get(double a, double b) {
  return a > b ? a : b;
}

#endif
