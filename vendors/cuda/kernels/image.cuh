/// Where a thread of an image kernel is (see image.h).
#ifndef DIT_CUDA_IMAGE_CUH
#define DIT_CUDA_IMAGE_CUH

#include "image.h"

#include "kernel.cuh"

struct image_place {
  int64_t n;
  int c, z, y, x;
};

/// The remainder, and `rest` divided.
template <int K>
KERNEL_INLINE int take_place(const image_walk &walk, int64_t *rest) {
  if (walk.is_wide) {
    const int64_t place = *rest % walk.sizes[K];
    *rest /= walk.sizes[K];
    return (int)place;
  }
  const uint32_t value = (uint32_t)*rest;
  const uint32_t quotient =
      (uint32_t)(((uint64_t)__umulhi(value, walk.divisors[K].magic) + value) >> walk.divisors[K].shift);
  *rest = quotient;
  return (int)(value - quotient * walk.divisors[K].divisor);
}

KERNEL_INLINE image_place get_place(const image_walk &walk, int64_t i) {
  const int a = take_place<0>(walk, &i), b = take_place<1>(walk, &i), c = take_place<2>(walk, &i),
            d = take_place<3>(walk, &i);
  image_place place = {i, d, c, b, a};
  if (walk.is_last) {
    place.c = a;
    place.x = b;
    place.y = c;
    place.z = d;
  }
  return place;
}

KERNEL_INLINE char *get_plane(const image_data &image, const image_place &place) {
  return image.data + place.n * image.strides[0] + place.c * image.strides[1];
}
KERNEL_INLINE int64_t get_offset(const image_data &image, int z, int y, int x) {
  return z * image.strides[2] + y * image.strides[3] + x * image.strides[4];
}

#define IMAGE_LOOP(walk)                                                                          \
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (walk).numel;              \
       i += (int64_t)gridDim.x * blockDim.x)

#endif
