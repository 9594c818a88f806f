/// Pooling: the largest element or the mean of windows, and the gradients (rules: vendors/host/ops/pool.c).
///
/// A thread per result. Gradients are gathered: an element of the input asks the windows that it lies in, in their
/// order, so that nothing is added by atomics and results do not change from run to run. Indices are those that the
/// forward pass made: one outside of its window is not found.
#include "image.cuh"
#include "math.cuh"

struct window {
  int begin, count, extent;
};

KERNEL_INLINE window get_window(const pool_kernel &p, const pool_kernel_axis &axis, int o) {
  if (p.is_adaptive) {
    const int begin = (int)((int64_t)o * axis.in / axis.out);
    const int end = (int)(((int64_t)(o + 1) * axis.in + axis.out - 1) / axis.out);
    return {begin, end - begin, end - begin};
  }
  if (axis.dilation == 1) {  // without a division
    const int start = o * axis.stride - axis.padding, reach = start + axis.kernel, begin = start > 0 ? start : 0;
    const int end = reach < axis.in ? reach : axis.in, limit = axis.in + axis.padding;
    const int count = end > begin ? end - begin : 0;
    return {begin < axis.in ? begin : axis.in - 1, count,
            p.counts_padding ? (reach < limit ? reach : limit) - start : count};
  }
  const int64_t start = (int64_t)o * axis.stride - axis.padding;
  const int64_t reach = start + (int64_t)(axis.kernel - 1) * axis.dilation + 1, end = reach < axis.in ? reach : axis.in;
  const int64_t padded =
      start + axis.kernel < (int64_t)axis.in + axis.padding ? start + axis.kernel : (int64_t)axis.in + axis.padding;
  const int64_t begin = start < 0 ? start + (-start + axis.dilation - 1) / axis.dilation * axis.dilation : start;
  const int count = end > begin ? (int)((end - begin + axis.dilation - 1) / axis.dilation) : 0;
  return {(int)(begin < axis.in ? begin : axis.in - 1), count, p.counts_padding ? (int)(padded - start) : count};
}

/// Windows [begin, begin + count) can hold position `i`.
KERNEL_INLINE window get_windows_of(const pool_kernel &p, const pool_kernel_axis &axis, int i) {
  int first, last;
  if (p.is_adaptive) {
    first = (int)((int64_t)i * axis.out / axis.in);
    last = (int)(((int64_t)(i + 1) * axis.out + axis.in - 1) / axis.in) - 1;
  } else {
    const int least = i + axis.padding - (axis.kernel - 1) * axis.dilation, most = i + axis.padding;
    if (axis.stride == 1 || axis.stride == 2) {  // the common ones without a division
      const int shift = axis.stride - 1;
      first = least <= 0 ? 0 : (least + shift) >> shift;
      last = most >> shift;
    } else {
      first = least <= 0 ? 0 : (least + axis.stride - 1) / axis.stride;
      last = most / axis.stride;
    }
  }
  last = last < axis.out ? last : axis.out - 1;
  return {first, last >= first ? last - first + 1 : 0, 0};
}

template <class W>
struct lowest {
  static __device__ W get() { return -(W)INFINITY; }
};
template <>
struct lowest<int64_t> {
  static __device__ int64_t get() { return INT64_MIN; }
};

/// Elements by their type, or of any integer dtype by its number.
template <class E>
struct access {
  typedef typename work_type<E>::type W;
  static __device__ W load(const char *address, int) { return to_work(*(const E *)(const void *)address); }
  static __device__ void store(char *address, int, W value) { *(E *)(void *)address = element<E>::from(value); }
};
template <>
struct access<int64_t> {
  typedef int64_t W;
  static __device__ int64_t load(const char *address, int dtype) { return load_as<int64_t>(address, dtype, false); }
  static __device__ void store(char *address, int dtype, int64_t value) { store_as(address, dtype, value); }
};

template <class E>
KERNEL_INLINE void run_max(const pool_kernel &p) {
  typedef typename access<E>::W W;
  IMAGE_LOOP(p.walk) {
    const image_place at = get_place(p.walk, i);
    const window wz = get_window(p, p.axis[0], at.z), wy = get_window(p, p.axis[1], at.y),
                 wx = get_window(p, p.axis[2], at.x);
    const char *plane = get_plane(p.x, at);
    W best = lowest<W>::get();
    int64_t where = ((int64_t)wz.begin * p.axis[1].in + wy.begin) * p.axis[2].in + wx.begin;
    for (int dz = 0; dz < wz.count; dz++) {
      const int z = wz.begin + dz * (p.is_adaptive ? 1 : p.axis[0].dilation);
      for (int dy = 0; dy < wy.count; dy++) {
        const int y = wy.begin + dy * (p.is_adaptive ? 1 : p.axis[1].dilation);
        for (int dx = 0; dx < wx.count; dx++) {
          const int x = wx.begin + dx * (p.is_adaptive ? 1 : p.axis[2].dilation);
          const W value = access<E>::load(plane + get_offset(p.x, z, y, x), p.dtype);
          if (value > best || value != value) {
            best = value;
            where = ((int64_t)z * p.axis[1].in + y) * p.axis[2].in + x;
          }
        }
      }
    }
    access<E>::store(get_plane(p.pooled, at) + get_offset(p.pooled, at.z, at.y, at.x), p.dtype, best);
    if (p.indices.data) {
      store_as(get_plane(p.indices, at) + get_offset(p.indices, at.z, at.y, at.x), p.index_dtype, where);
    }
  }
}

/// Windows of K x K in planes, not dilated: all elements of a window are in flight before the first is compared.
template <class E, int K>
KERNEL_INLINE void run_max_square(const pool_kernel &p) {
  typedef typename access<E>::W W;
  const int height = p.axis[1].in, width = p.axis[2].in;
  IMAGE_LOOP(p.walk) {
    const image_place at = get_place(p.walk, i);
    const int y0 = at.y * p.axis[1].stride - p.axis[1].padding, x0 = at.x * p.axis[2].stride - p.axis[2].padding;
    const char *from = get_plane(p.x, at) + get_offset(p.x, 0, y0, x0);
    W value[K][K], best = lowest<W>::get();
#pragma unroll
    for (int dy = 0; dy < K; dy++) {
#pragma unroll
      for (int dx = 0; dx < K; dx++) {
        const bool is_there = (unsigned)(y0 + dy) < (unsigned)height && (unsigned)(x0 + dx) < (unsigned)width;
        value[dy][dx] = is_there ? access<E>::load(from + get_offset(p.x, 0, dy, dx), p.dtype) : lowest<W>::get();
      }
    }
    const int begin_y = y0 > 0 ? y0 : 0, begin_x = x0 > 0 ? x0 : 0;
    int where = (begin_y < height ? begin_y : height - 1) * width + (begin_x < width ? begin_x : width - 1);
#pragma unroll
    for (int dy = 0; dy < K; dy++) {
#pragma unroll
      for (int dx = 0; dx < K; dx++) {
        if (value[dy][dx] > best || value[dy][dx] != value[dy][dx]) {
          best = value[dy][dx];
          where = (y0 + dy) * width + x0 + dx;
        }
      }
    }
    access<E>::store(get_plane(p.pooled, at) + get_offset(p.pooled, 0, at.y, at.x), p.dtype, best);
    if (p.indices.data) {
      *(int64_t *)(void *)(get_plane(p.indices, at) + get_offset(p.indices, 0, at.y, at.x)) = where;
    }
  }
}

template <class W>
KERNEL_INLINE W get_divisor(const pool_kernel &p, window z, window y, window x) {
  return (W)(p.divisor ? p.divisor : (int64_t)z.extent * y.extent * x.extent);
}

template <class E>
KERNEL_INLINE void run_mean(const pool_kernel &p) {
  typedef typename access<E>::W W;
  IMAGE_LOOP(p.walk) {
    const image_place at = get_place(p.walk, i);
    const window wz = get_window(p, p.axis[0], at.z), wy = get_window(p, p.axis[1], at.y),
                 wx = get_window(p, p.axis[2], at.x);
    const char *plane = get_plane(p.x, at);
    W sum = 0;
    for (int dz = 0; dz < wz.count; dz++) {
      for (int dy = 0; dy < wy.count; dy++) {
        const char *row = plane + get_offset(p.x, wz.begin + dz, wy.begin + dy, wx.begin);
        for (int dx = 0; dx < wx.count; dx++) {
          sum += access<E>::load(row + dx * p.x.strides[4], p.dtype);
        }
      }
    }
    const bool empty = wz.count == 0 || wy.count == 0 || wx.count == 0;
    access<E>::store(get_plane(p.pooled, at) + get_offset(p.pooled, at.z, at.y, at.x), p.dtype,
                     empty ? (W)0 : (W)(sum / get_divisor<W>(p, wz, wy, wx)));
  }
}

template <class E>
KERNEL_INLINE void run_max_backward(const pool_kernel &p) {
  typedef typename access<E>::W W;
  IMAGE_LOOP(p.walk) {
    const image_place at = get_place(p.walk, i);
    const window oz = get_windows_of(p, p.axis[0], at.z), oy = get_windows_of(p, p.axis[1], at.y),
                 ox = get_windows_of(p, p.axis[2], at.x);
    const int64_t own = ((int64_t)at.z * p.axis[1].in + at.y) * p.axis[2].in + at.x;
    const char *grad = get_plane(p.pooled, at), *indices = get_plane(p.indices, at);
    W sum = 0;
    for (int z = oz.begin; z < oz.begin + oz.count; z++) {
      for (int y = oy.begin; y < oy.begin + oy.count; y++) {
        for (int x = ox.begin; x < ox.begin + ox.count; x++) {
          const char *index = indices + get_offset(p.indices, z, y, x);
          if (load_as<int64_t>(index, p.index_dtype, false) == own) {
            sum += access<E>::load(grad + get_offset(p.pooled, z, y, x), p.dtype);
          }
        }
      }
    }
    access<E>::store(get_plane(p.x, at) + get_offset(p.x, at.z, at.y, at.x), p.dtype, sum);
  }
}

template <class E>
KERNEL_INLINE void run_mean_backward(const pool_kernel &p) {
  typedef typename access<E>::W W;
  IMAGE_LOOP(p.walk) {
    const image_place at = get_place(p.walk, i);
    const window oz = get_windows_of(p, p.axis[0], at.z), oy = get_windows_of(p, p.axis[1], at.y),
                 ox = get_windows_of(p, p.axis[2], at.x);
    const char *grad = get_plane(p.pooled, at);
    W sum = 0;
    for (int z = oz.begin; z < oz.begin + oz.count; z++) {
      const window wz = get_window(p, p.axis[0], z);
      for (int y = oy.begin; y < oy.begin + oy.count; y++) {
        const window wy = get_window(p, p.axis[1], y);
        for (int x = ox.begin; x < ox.begin + ox.count; x++) {
          const window wx = get_window(p, p.axis[2], x);
          if (wz.count > 0 && wy.count > 0 && wx.count > 0) {
            sum += access<E>::load(grad + get_offset(p.pooled, z, y, x), p.dtype) / get_divisor<W>(p, wz, wy, wx);
          }
        }
      }
    }
    access<E>::store(get_plane(p.x, at) + get_offset(p.x, at.z, at.y, at.x), p.dtype, sum);
  }
}

#define FORWARD_KERNELS(tag, E)                                \
  KERNEL(IMAGE_KERNEL_THREADS, pool_max_##tag, pool_kernel) {  \
    run_max<E>(p);                                             \
  }                                                            \
  KERNEL(IMAGE_KERNEL_THREADS, pool_mean_##tag, pool_kernel) { \
    run_mean<E>(p);                                            \
  }
#define BACKWARD_KERNELS(tag, E)                                        \
  KERNEL(IMAGE_KERNEL_THREADS, pool_max_backward_##tag, pool_kernel) {  \
    run_max_backward<E>(p);                                             \
  }                                                                     \
  KERNEL(IMAGE_KERNEL_THREADS, pool_mean_backward_##tag, pool_kernel) { \
    run_mean_backward<E>(p);                                            \
  }
#define SQUARE_KERNELS(tag, E)                                  \
  KERNEL(IMAGE_KERNEL_THREADS, pool_max_2_##tag, pool_kernel) { \
    run_max_square<E, 2>(p);                                    \
  }                                                             \
  KERNEL(IMAGE_KERNEL_THREADS, pool_max_3_##tag, pool_kernel) { \
    run_max_square<E, 3>(p);                                    \
  }
SQUARE_KERNELS(f32, float)
SQUARE_KERNELS(f16, half_bits)
SQUARE_KERNELS(bf16, bfloat_bits)
FORWARD_KERNELS(f32, float)
FORWARD_KERNELS(f64, double)
FORWARD_KERNELS(f16, half_bits)
FORWARD_KERNELS(bf16, bfloat_bits)
FORWARD_KERNELS(any, int64_t)
BACKWARD_KERNELS(f32, float)
BACKWARD_KERNELS(f64, double)
BACKWARD_KERNELS(f16, half_bits)
BACKWARD_KERNELS(bf16, bfloat_bits)
