/// Parameters of the random kernels: fills, dropout, permutations, samples of a distribution. Plain C.
#ifndef DIT_CUDA_KERNELS_RANDOM_H
#define DIT_CUDA_KERNELS_RANDOM_H

#include <stdint.h>

#define RANDOM_KERNEL_THREADS 256
#define RANDOM_KERNEL_DIMS 12

/// A contiguous tensor. `a` and `b` (NULL: the numbers) are means and deviations, or probabilities, contiguous too.
struct random_kernel {
  char *out;
  const char *a, *b;
  int64_t numel;
  uint64_t seed, offset;
  double from, to;  ///< also mean and deviation
  uint64_t limit;   ///< of words that are a 1
  uint64_t one;     ///< the bits of a 1
  int64_t first;
  uint64_t range;  ///< 0: all 64-bit numbers
  int16_t dtype, a_dtype, b_dtype;
  int32_t is_wide;  ///< integers: two words per element
};

/// out = in * mask * scale. Flat kernels want contiguous memory; the strided one walks row-major, strides in bytes.
struct dropout_kernel {
  char *out, *mask;
  const char *in;
  int64_t numel;
  uint64_t seed, offset, limit;
  double scale;
  int16_t dtype, ndim;
  int32_t is_drawn;  ///< the mask is there already
  int64_t sizes[RANDOM_KERNEL_DIMS];
  int64_t strides[RANDOM_KERNEL_DIMS][3];  ///< of out, mask, in
};

/// Up to CHOICE_KERNEL_SHUFFLE elements are shuffled by one block, more are numbered by a cipher.
#define CHOICE_KERNEL_SHUFFLE 1024
#define CHOICE_KERNEL_ROUNDS 16
struct permutation_kernel {
  char *out;
  int64_t n, stride;  ///< in bytes
  uint64_t seed, offset;
  int32_t dtype;
  int32_t left, right;  ///< bits of the cipher's halves
};

/// [rows][classes] weights, sums or keys, [rows][samples] class numbers.
struct sample_kernel {
  const char *in;
  double *room;
  int64_t *out;
  int64_t rows, classes, samples;
  uint64_t seed, offset;
  int32_t dtype;
};

#endif
