/// Windows of images as columns, and columns added back into images (vendors/host/ops/im2col.c). A pixel gathers what
/// came from it, tap after tap, so that sums have one order.
#include "image.cuh"

template <class E>
KERNEL_INLINE void run_unfold(const columns_kernel &p) {
  const int taps = p.kernel[0] * p.kernel[1];
  IMAGE_LOOP(p.walk) {
    const image_place at = get_place(p.walk, i);
    const int ky = at.z / p.kernel[1], kx = at.z - ky * p.kernel[1];
    const int y = at.y * p.stride[0] - p.padding[0] + ky * p.dilation[0];
    const int x = at.x * p.stride[1] - p.padding[1] + kx * p.dilation[1];
    const bool inside = y >= 0 && x >= 0 && y < p.in[0] && x < p.in[1];
    const int64_t line = (int64_t)at.c * taps + at.z, position = (int64_t)at.y * p.out[1] + at.x;
    *(E *)(void *)(p.columns + at.n * p.strides[0] + line * p.strides[1] + position * p.strides[2]) =
        inside ? *(const E *)(const void *)(get_plane(p.image, at) + get_offset(p.image, 0, y, x)) : E();
  }
}

/// The window that has place `i` under tap `k`, or -1.
KERNEL_INLINE int find_window(const columns_kernel &p, int axis, int i, int k) {
  const int place = i + p.padding[axis] - k * p.dilation[axis];
  if (place < 0 || place % p.stride[axis] != 0) {
    return -1;
  }
  return place / p.stride[axis] < p.out[axis] ? place / p.stride[axis] : -1;
}

template <class E>
KERNEL_INLINE void run_fold(const columns_kernel &p) {
  typedef typename work_type<E>::type W;
  const int taps = p.kernel[0] * p.kernel[1];
  IMAGE_LOOP(p.walk) {
    const image_place at = get_place(p.walk, i);
    const char *lines = p.columns + at.n * p.strides[0] + (int64_t)at.c * taps * p.strides[1];
    W sum = 0;
    for (int ky = 0; ky < p.kernel[0]; ky++) {
      const int y = find_window(p, 0, at.y, ky);
      for (int kx = 0; kx < p.kernel[1] && y >= 0; kx++) {
        const int x = find_window(p, 1, at.x, kx);
        if (x >= 0) {
          const int64_t position = (int64_t)y * p.out[1] + x;
          sum += to_work(*(const E *)(const void *)(lines + (ky * p.kernel[1] + kx) * p.strides[1] +
                                                    position * p.strides[2]));
        }
      }
    }
    *(E *)(void *)(get_plane(p.image, at) + get_offset(p.image, 0, at.y, at.x)) = element<E>::from(sum);
  }
}

#define FOLD_KERNEL(tag, E)                                          \
  KERNEL(IMAGE_KERNEL_THREADS, columns_fold_##tag, columns_kernel) { \
    run_fold<E>(p);                                                  \
  }
FOLD_KERNEL(f32, float)
FOLD_KERNEL(f64, double)
FOLD_KERNEL(f16, half_bits)
FOLD_KERNEL(bf16, bfloat_bits)
KERNEL(IMAGE_KERNEL_THREADS, columns_unfold_2, columns_kernel) {
  run_unfold<uint16_t>(p);
}
KERNEL(IMAGE_KERNEL_THREADS, columns_unfold_4, columns_kernel) {
  run_unfold<uint32_t>(p);
}
KERNEL(IMAGE_KERNEL_THREADS, columns_unfold_8, columns_kernel) {
  run_unfold<uint64_t>(p);
}
