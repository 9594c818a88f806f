/// Convolution with few channels per group, depthwise above all: no matrix is worth its tiles. A thread has one result,
/// for the weight's gradient a block.
#include "conv.cuh"

template <class E>
KERNEL_INLINE void run_forward(const conv_kernel &p) {
  typedef typename work_type<E>::type A;
  IMAGE_LOOP(p.walk) {
    const image_place at = get_place(p.walk, i);
    const int group = at.c / p.out_channels;
    const char *image = p.b.data + at.n * p.b.strides[0], *weight = p.a.data + at.c * p.a.strides[0];
    A sum = p.bias ? (A)to_work(((const E *)(const void *)p.bias)[at.c]) : (A)0;
    for (int c = 0; c < p.in_channels; c++) {
      const char *plane = image + (int64_t)(group * p.in_channels + c) * p.b.strides[1];
      const char *taps = weight + c * p.a.strides[1];
      for (int kz = 0; kz < p.kernel[0]; kz++) {
        const int z = at.z * p.stride[0] - p.padding[0] + kz * p.dilation[0];
        for (int ky = 0; ky < p.kernel[1] && z >= 0 && z < p.in[0]; ky++) {
          const int y = at.y * p.stride[1] - p.padding[1] + ky * p.dilation[1];
          for (int kx = 0; kx < p.kernel[2] && y >= 0 && y < p.in[1]; kx++) {
            const int x = at.x * p.stride[2] - p.padding[2] + kx * p.dilation[2];
            if (x >= 0 && x < p.in[2]) {
              sum += (A)to_work(*(const E *)(const void *)(plane + get_offset(p.b, z, y, x))) *
                     (A)to_work(*(const E *)(const void *)(taps + get_offset(p.a, kz, ky, kx)));
            }
          }
        }
      }
    }
    *(E *)(void *)(get_plane(p.c, at) + get_offset(p.c, at.z, at.y, at.x)) = element<E>::from(sum);
  }
}

/// The result's position that tap `k` took position `i` of the input to, or -1.
KERNEL_INLINE int find_result(const conv_kernel &p, int axis, int i, int k) {
  const int place = i + p.padding[axis] - k * p.dilation[axis];
  if (place < 0 || (p.has_stride && place % p.stride[axis] != 0)) {
    return -1;
  }
  const int o = p.has_stride ? place / p.stride[axis] : place;
  return o < p.out[axis] ? o : -1;
}

template <class E>
KERNEL_INLINE void run_input(const conv_kernel &p) {
  typedef typename work_type<E>::type A;
  IMAGE_LOOP(p.walk) {
    const image_place at = get_place(p.walk, i);
    const int group = at.c / p.in_channels, c = at.c - group * p.in_channels;
    const char *image = p.b.data + at.n * p.b.strides[0];
    A sum = p.bias ? (A)to_work(((const E *)(const void *)p.bias)[at.c]) : (A)0;
    for (int o = group * p.out_channels; o < (group + 1) * p.out_channels; o++) {
      const char *plane = image + o * p.b.strides[1], *taps = p.a.data + o * p.a.strides[0] + c * p.a.strides[1];
      for (int kz = 0; kz < p.kernel[0]; kz++) {
        const int z = find_result(p, 0, at.z, kz);
        for (int ky = 0; ky < p.kernel[1] && z >= 0; ky++) {
          const int y = find_result(p, 1, at.y, ky);
          for (int kx = 0; kx < p.kernel[2] && y >= 0; kx++) {
            const int x = find_result(p, 2, at.x, kx);
            if (x >= 0) {
              sum += (A)to_work(*(const E *)(const void *)(plane + get_offset(p.b, z, y, x))) *
                     (A)to_work(*(const E *)(const void *)(taps + get_offset(p.a, kz, ky, kx)));
            }
          }
        }
      }
    }
    *(E *)(void *)(get_plane(p.c, at) + get_offset(p.c, at.z, at.y, at.x)) = element<E>::from(sum);
  }
}

/// A block per element of the weight: its threads walk over images and positions.
template <class E>
KERNEL_INLINE void run_weight(const conv_kernel &p) {
  typedef typename work_type<E>::type A;
  __shared__ A sums[33];
  for (int64_t i = blockIdx.x; i < p.walk.numel; i += gridDim.x) {
    const image_place at = get_place(p.walk, i);  // n: out channel, c: in channel of the group, z y x: tap
    const int64_t channel = at.n / p.out_channels * p.in_channels + at.c;
    A sum = 0;
    for (int64_t k = threadIdx.x; k < p.depth; k += blockDim.x) {
      const conv_item item = split_item(p, p.positions, k);
      const int z = item.z * p.stride[0] - p.padding[0] + at.z * p.dilation[0];
      const int y = item.y * p.stride[1] - p.padding[1] + at.y * p.dilation[1];
      const int x = item.x * p.stride[2] - p.padding[2] + at.x * p.dilation[2];
      if (z >= 0 && y >= 0 && x >= 0 && z < p.in[0] && y < p.in[1] && x < p.in[2]) {
        const char *grad = p.a.data + item.outer * p.a.strides[0] + at.n * p.a.strides[1];
        const char *plane = p.b.data + item.outer * p.b.strides[0] + channel * p.b.strides[1];
        sum += (A)to_work(*(const E *)(const void *)(grad + get_offset(p.a, item.z, item.y, item.x))) *
               (A)to_work(*(const E *)(const void *)(plane + get_offset(p.b, z, y, x)));
      }
    }
    sum = block_reduce(sum, (A)0, sums, join_sum());
    if (threadIdx.x == 0) {
      *(E *)(void *)(get_plane(p.c, at) + get_offset(p.c, at.z, at.y, at.x)) = element<E>::from(sum);
    }
  }
}

#define DIRECT_KERNELS(tag, E)                                                \
  KERNEL(CONV_KERNEL_THREADS, conv_direct_forward_##tag, conv_kernel) {       \
    run_forward<E>(p);                                                        \
  }                                                                           \
  KERNEL(CONV_KERNEL_THREADS, conv_direct_input_##tag, conv_kernel) {         \
    run_input<E>(p);                                                          \
  }                                                                           \
  KERNEL_BLOCK(CONV_KERNEL_THREADS, conv_direct_weight_##tag, conv_kernel) {  \
    run_weight<E>(p);                                                         \
  }
DIRECT_KERNELS(f32, float)
DIRECT_KERNELS(f64, double)
DIRECT_KERNELS(f16, half_bits)
DIRECT_KERNELS(bf16, bfloat_bits)
