/// Resizing of images: nearest, linear and cubic, and the gradients (rules: vendors/host/ops/upsample.c).
///
/// Places and weights are computed as the host computes its tables, without fused operations, so that a rounding does not
/// choose another pixel. Gradients are gathered: a pixel of the small image looks through the positions of the large one
/// that can have read it, in their order.
#include "image.cuh"
#include "math.cuh"

#ifdef __CUDACC__
KERNEL_INLINE float multiply(float a, float b) {
  return __fmul_rn(a, b);
}
KERNEL_INLINE double multiply(double a, double b) {
  return __dmul_rn(a, b);
}
#else
template <class T>
KERNEL_INLINE T multiply(T a, T b) {
  return a * b;
}
#endif

/// 1, 2 or 4 places along one axis.
template <class W, int N>
struct taps {
  int place[N];
  W weight[N];
};

KERNEL_INLINE int clamp_place(int place, int size) {
  return place < 0 ? 0 : place >= size ? size - 1 : place;
}

template <class W>
KERNEL_INLINE W get_scale(const resize_kernel &p, int axis) {
  return p.align ? (p.out[axis] > 1 ? (W)(p.in[axis] - 1) / (W)(p.out[axis] - 1) : (W)0)
                 : (W)p.in[axis] / (W)p.out[axis];
}

KERNEL_INLINE int find_nearest(const resize_kernel &p, int axis, int o) {
  if (!p.is_used[axis] || p.in[axis] == p.out[axis]) {
    return o;
  }
  if (p.out[axis] == 2 * p.in[axis]) {
    return o >> 1;
  }
  const float scale = (float)p.in[axis] / (float)p.out[axis];
  return clamp_place((int)floorf(multiply((float)o, scale)), p.in[axis]);
}

/// In double, as on the host: terms of 3 cancel to weights of 0.01.
template <class W>
KERNEL_INLINE void set_cubic(W fraction, W *weights) {
  const double a = -0.75, t = (double)fraction, u = 1 - t;
  weights[0] = (W)(((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a);
  weights[1] = (W)(((a + 2) * t - (a + 3)) * t * t + 1);
  weights[2] = (W)(((a + 2) * u - (a + 3)) * u * u + 1);
  weights[3] = (W)(((a * (u + 1) - 5 * a) * (u + 1) + 8 * a) * (u + 1) - 4 * a);
}

template <class W, int N>
KERNEL_INLINE taps<W, N> get_taps(const resize_kernel &p, int axis, int o) {
  taps<W, N> result;
  if (N == 1) {
    result.place[0] = find_nearest(p, axis, o);
    result.weight[0] = 1;
    return result;
  }
  if (!p.is_used[axis]) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      result.place[k] = o;
      result.weight[k] = k == 0 ? (W)1 : (W)0;
    }
    return result;
  }
  const W scale = get_scale<W>(p, axis);
  W source = p.align ? multiply(scale, (W)o) : multiply(scale, (W)o + (W)0.5) - (W)0.5;
  source = N == 2 && source < 0 ? (W)0 : source;
  const int first = (int)floor(source);
  const W t = source - (W)first;
  if constexpr (N == 2) {
    result.place[0] = clamp_place(first, p.in[axis]);
    result.place[1] = clamp_place(first + 1, p.in[axis]);
    result.weight[0] = 1 - t;
    result.weight[1] = t;
  }
  if constexpr (N == 4) {
    set_cubic(t, result.weight);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      result.place[k] = clamp_place(first - 1 + k, p.in[axis]);
    }
  }
  return result;
}

/// N taps per axis; the cubic kernel has no third dimension.
template <class E, int N>
KERNEL_INLINE void run_enlarge(const resize_kernel &p) {
  typedef typename work_type<E>::type W;
  constexpr int depth = N == 4 ? 1 : N;
  IMAGE_LOOP(p.walk) {
    const image_place at = get_place(p.walk, i);
    const char *plane = get_plane(p.small, at);
    const taps<W, depth> tz = get_taps<W, depth>(p, 0, at.z);
    const taps<W, N> ty = get_taps<W, N>(p, 1, at.y), tx = get_taps<W, N>(p, 2, at.x);
    W sum = 0;
#pragma unroll
    for (int a = 0; a < depth; a++) {
      if (a > 0 && tz.weight[a] == 0) {
        continue;
      }
#pragma unroll
      for (int b = 0; b < N; b++) {
        if (b > 0 && !p.is_used[1]) {
          continue;
        }
        W row = 0;
#pragma unroll
        for (int c = 0; c < N; c++) {
          const char *place = plane + get_offset(p.small, tz.place[a], ty.place[b], tx.place[c]);
          const W value = to_work(*(const E *)(const void *)place);
          row = N == 1 ? value : row + tx.weight[c] * value;
        }
        sum = N == 1 ? row : sum + tz.weight[a] * ty.weight[b] * row;
      }
    }
    *(E *)(void *)(get_plane(p.large, at) + get_offset(p.large, at.z, at.y, at.x)) = element<E>::from(sum);
  }
}

/// Positions of the large image that can have read place `i` of an axis.
template <class W, int N>
KERNEL_INLINE void find_readers(const resize_kernel &p, int axis, int i, int *first, int *last) {
  const int out = p.out[axis];
  *first = 0;
  *last = out - 1;
  if (!p.is_used[axis]) {
    *first = *last = i;
    return;
  }
  const W scale = N == 1 ? (W)p.in[axis] / (W)out : get_scale<W>(p, axis);
  if (!(scale > 0)) {
    return;
  }
  const W shift = N == 1 || p.align ? (W)0 : (W)0.5;
  const W reach = N == 4 ? (W)2 : (W)1;
  if (i > (N == 4 ? 1 : 0)) {
    const W least = ((W)i - (N == 1 ? (W)0 : reach) + shift) / scale - shift - 1;
    *first = least > 0 ? (least < (W)out ? (int)least : out) : 0;
  }
  if (i < p.in[axis] - (N == 4 ? 2 : 1)) {
    const W most = ((W)i + reach + shift) / scale - shift + 1;
    *last = most < (W)(out - 1) ? (int)most : out - 1;
  }
}

template <class W, int N>
KERNEL_INLINE W get_weight(const resize_kernel &p, int axis, int o, int i) {
  const taps<W, N> found = get_taps<W, N>(p, axis, o);
  W weight = 0;
#pragma unroll
  for (int k = 0; k < N; k++) {
    weight += found.place[k] == i ? found.weight[k] : (W)0;
  }
  return weight;
}

template <class E, int N>
KERNEL_INLINE void run_shrink(const resize_kernel &p) {
  typedef typename work_type<E>::type W;
  constexpr int depth = N == 4 ? 1 : N;
  IMAGE_LOOP(p.walk) {
    const image_place at = get_place(p.walk, i);
    const char *plane = get_plane(p.large, at);
    int z0, z1, y0, y1, x0, x1;
    find_readers<W, depth>(p, 0, at.z, &z0, &z1);
    find_readers<W, N>(p, 1, at.y, &y0, &y1);
    find_readers<W, N>(p, 2, at.x, &x0, &x1);
    W sum = 0;
    for (int z = z0; z <= z1; z++) {
      const W wz = get_weight<W, depth>(p, 0, z, at.z);
      for (int y = y0; y <= y1 && wz != 0; y++) {
        const W wy = wz * get_weight<W, N>(p, 1, y, at.y);
        W row = 0;
        for (int x = x0; x <= x1 && wy != 0; x++) {
          const W wx = get_weight<W, N>(p, 2, x, at.x);
          if (wx != 0) {
            row += wx * to_work(*(const E *)(const void *)(plane + get_offset(p.large, z, y, x)));
          }
        }
        sum += wy * row;
      }
    }
    *(E *)(void *)(get_plane(p.small, at) + get_offset(p.small, at.z, at.y, at.x)) = element<E>::from(sum);
  }
}

#define RESIZE_KERNELS(name, tag, E, N)                                     \
  KERNEL(IMAGE_KERNEL_THREADS, enlarge_##name##_##tag, resize_kernel) {     \
    run_enlarge<E, N>(p);                                                   \
  }                                                                         \
  KERNEL(IMAGE_KERNEL_THREADS, shrink_##name##_##tag, resize_kernel) {      \
    run_shrink<E, N>(p);                                                    \
  }
#define RESIZE_TYPES(name, N)                    \
  RESIZE_KERNELS(name, f32, float, N)            \
  RESIZE_KERNELS(name, f64, double, N)           \
  RESIZE_KERNELS(name, f16, half_bits, N)        \
  RESIZE_KERNELS(name, bf16, bfloat_bits, N)
RESIZE_TYPES(nearest, 1)
RESIZE_TYPES(linear, 2)
RESIZE_TYPES(cubic, 4)

// Samples at given places (vendors/host/ops/grid_sample.c)

/// One axis: a pixel's place among the pixels, from -1 to 1.
template <class W>
KERNEL_INLINE W get_pixel(W place, int size) {
  return (multiply(place + 1, (W)size) - 1) / 2;
}

template <class W>
struct grid_taps {
  W base[2];       ///< the first pixel across and down
  W weight[2][4];  ///< of the pixels from there on
  int count;
};

template <class W>
KERNEL_INLINE grid_taps<W> get_grid_taps(const grid_sample_kernel &p, W x, W y) {
  grid_taps<W> result;
  const W place[2] = {x, y};
  result.count = p.mode == 0 ? 2 : p.mode == 1 ? 1 : 4;
#pragma unroll
  for (int axis = 0; axis < 2; axis++) {
    const W low = p.mode == 1 ? (W)rint(place[axis]) : (W)floor(place[axis]), t = place[axis] - low;
    result.base[axis] = p.mode == 2 ? low - 1 : low;
    if (p.mode == 2) {
      set_cubic(t, result.weight[axis]);
    } else {
      result.weight[axis][0] = p.mode == 1 ? (W)1 : 1 - t;
      result.weight[axis][1] = t;
    }
  }
  return result;
}

/// A thread has one place and every gridDim.y-th channel.
template <class E>
KERNEL_INLINE void run_grid_sample(const grid_sample_kernel &p) {
  typedef typename work_type<E>::type W;
  const int64_t count = p.batch * p.points, plane = (int64_t)p.height * p.width;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
    const int64_t image = i / p.points, point = i - image * p.points;
    const E *place = (const E *)(const void *)p.grid + 2 * i;
    const W x = get_pixel((W)to_work(place[0]), p.width), y = get_pixel((W)to_work(place[1]), p.height);
    const grid_taps<W> taps = get_grid_taps(p, x, y);
    for (int c = blockIdx.y; c < p.channels; c += gridDim.y) {
      const E *pixels = (const E *)(const void *)p.input + (image * p.channels + c) * plane;
      W sum = 0;
      for (int b = 0; b < taps.count; b++) {
        const W down = taps.base[1] + (W)b;
        for (int a = 0; a < taps.count; a++) {
          const W across = taps.base[0] + (W)a;
          if (across >= 0 && down >= 0 && across < (W)p.width && down < (W)p.height) {
            sum += taps.weight[0][a] * taps.weight[1][b] * (W)to_work(pixels[(int64_t)down * p.width + (int64_t)across]);
          }
        }
      }
      ((E *)(void *)p.out)[(image * p.channels + c) * p.points + point] = element<E>::from(sum);
    }
  }
}
KERNEL(IMAGE_KERNEL_THREADS, grid_sample_f32, grid_sample_kernel) {
  run_grid_sample<float>(p);
}
KERNEL(IMAGE_KERNEL_THREADS, grid_sample_f64, grid_sample_kernel) {
  run_grid_sample<double>(p);
}
KERNEL(IMAGE_KERNEL_THREADS, grid_sample_f16, grid_sample_kernel) {
  run_grid_sample<half_bits>(p);
}
KERNEL(IMAGE_KERNEL_THREADS, grid_sample_bf16, grid_sample_kernel) {
  run_grid_sample<bfloat_bits>(p);
}
