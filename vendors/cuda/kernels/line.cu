/// Running sums along lines; keys of sorts and what is read back by them; gradients of norms and normalisation.
#include "line.h"

#include "kernel.cuh"
#include "math.cuh"
#include "scan.cuh"

// Running sums, in double or 64 bits

/// A block per line of neighbours.
template <class W, class A>
KERNEL_INLINE void scan_rows(const scan_kernel &p) {
  __shared__ A room[33];
  const int in_width = dtype_width(p.in_dtype), out_width = dtype_width(p.out_dtype);
  for (int64_t line = blockIdx.x; line < p.outer; line += gridDim.x) {
    A done = 0;
    for (int64_t first = 0; first < p.length; first += blockDim.x) {
      const int64_t i = first + threadIdx.x;
      const int64_t at = line * p.length + (p.is_reverse ? p.length - 1 - i : i);
      A total;
      const A own = i < p.length ? (A)load_as<W>(p.in + at * in_width, p.in_dtype, false) : (A)0;
      const A before = block_scan(own, (A)0, room, join_sum(), &total);
      if (i < p.length) {
        store_as(p.out + at * out_width, p.out_dtype, (W)(done + before + own));
      }
      done += total;
    }
  }
}
/// A thread per line; neighbouring threads have neighbouring lines.
template <class W, class A>
KERNEL_INLINE void scan_columns(const scan_kernel &p) {
  const int in_width = dtype_width(p.in_dtype), out_width = dtype_width(p.out_dtype);
  for (int64_t line = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; line < p.outer * p.inner;
       line += (int64_t)gridDim.x * blockDim.x) {
    const int64_t outer = line / p.inner, base = outer * p.length * p.inner + (line - outer * p.inner);
    A sum = 0;
    for (int64_t i = 0; i < p.length; i++) {
      const int64_t at = base + (p.is_reverse ? p.length - 1 - i : i) * p.inner;
      sum += (A)load_as<W>(p.in + at * in_width, p.in_dtype, false);
      store_as(p.out + at * out_width, p.out_dtype, (W)sum);
    }
  }
}
#define SCAN(tag, W, A)                                              \
  KERNEL_BLOCK(LINE_KERNEL_THREADS, scan_rows_##tag, scan_kernel) {  \
    scan_rows<W, A>(p);                                              \
  }                                                                  \
  KERNEL(LINE_KERNEL_THREADS, scan_columns_##tag, scan_kernel) {     \
    scan_columns<W, A>(p);                                           \
  }
SCAN(f32, float, double)
SCAN(f64, double, double)
SCAN(i64, int64_t, uint64_t)

// Sorting (vendors/host/engine/sort.h says what the keys are)

KERNEL_INLINE uint32_t get_short_key(const char *in, int dtype) {
  switch (dtype) {
    case DIT_DTYPE_U8:
    case DIT_DTYPE_BOOL:
      return *(const uint8_t *)in;
    case DIT_DTYPE_I8:
      return (uint32_t)(*(const int8_t *)in + 128);
    case DIT_DTYPE_I16:
      return (uint32_t)(*(const int16_t *)(const void *)in + 32768);
    case DIT_DTYPE_I32:
      return *(const uint32_t *)(const void *)in ^ 0x80000000u;
    case DIT_DTYPE_F32: {
      const uint32_t bits = *(const uint32_t *)(const void *)in;
      return (bits & 0x7FFFFFFFu) > 0x7F800000u ? UINT32_MAX
             : (bits & 0x7FFFFFFFu) == 0        ? 0x80000000u
                                                : bits ^ (bits >> 31 ? UINT32_MAX : 0x80000000u);
    }
    default: {
      const uint32_t bits = *(const uint16_t *)(const void *)in, top = dtype == DIT_DTYPE_F16 ? 0x7C00u : 0x7F80u;
      return (bits & 0x7FFFu) > top     ? 0xFFFFu
             : (bits & 0x7FFFu) == 0 ? 0x8000u
                                     : bits ^ (bits >> 15 ? 0xFFFFu : 0x8000u);
    }
  }
}
KERNEL_INLINE uint64_t get_long_key(const char *in, int dtype) {
  const uint64_t bits = *(const uint64_t *)(const void *)in, sign = UINT64_C(1) << 63;
  if (dtype == DIT_DTYPE_I64) {
    return bits ^ sign;
  }
  return (bits & ~sign) > UINT64_C(0x7FF0000000000000) ? UINT64_MAX
         : (bits & ~sign) == 0                         ? sign
                                                       : bits ^ (bits >> 63 ? UINT64_MAX : sign);
}
KERNEL(LINE_KERNEL_THREADS, sort_keys, sort_kernel) {
  const int64_t total = p.rows * p.length;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
    const char *in = p.in + i * p.width;
    if (p.width == 8) {
      const uint64_t key = get_long_key(in, p.dtype);
      ((uint64_t *)p.keys)[i] = p.is_descending ? ~key : key;
    } else {
      const uint32_t key = get_short_key(in, p.dtype);
      ((uint32_t *)p.keys)[i] = p.is_descending ? ~key : key;
    }
    p.places[i] = (uint32_t)i;
  }
}
/// The first `keep` places of every row.
KERNEL(LINE_KERNEL_THREADS, sort_read, sort_kernel) {
  const int64_t total = p.rows * p.keep;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
    const int64_t row = i / p.keep, from = p.places[row * p.length + (i - row * p.keep)];
    p.indices[i] = from - row * p.length;
    if (!p.values) {
      continue;
    }
    switch (p.width) {
      case 1:
        p.values[i] = p.in[from];
        break;
      case 2:
        ((uint16_t *)(void *)p.values)[i] = ((const uint16_t *)(const void *)p.in)[from];
        break;
      case 4:
        ((uint32_t *)(void *)p.values)[i] = ((const uint32_t *)(const void *)p.in)[from];
        break;
      default:
        ((uint64_t *)(void *)p.values)[i] = ((const uint64_t *)(const void *)p.in)[from];
    }
  }
}

// Norms of rows (formulas: vendors/host/ops/reduce_norm_loops.h), a block per row

KERNEL_INLINE float power_of(float x, float y) {
  return powf(x, y);
}
KERNEL_INLINE double power_of(double x, double y) {
  return pow(x, y);
}
template <class A>
KERNEL_INLINE A sign_of(A x) {
  return (A)((x > 0) - (x < 0));
}
KERNEL_INLINE bool is_infinite(double p) {
  return p > 1.7e308 || p < -1.7e308;
}

template <class A>
KERNEL_INLINE A get_norm(const norm_kernel &p, const char *x, double *room) {
  const int width = dtype_width(p.x_dtype);
  const bool is_least = p.p < -1.7e308;
  double total = is_least ? (double)INFINITY : 0;
  for (int64_t i = threadIdx.x; i < p.length; i += blockDim.x) {
    const A value = (A)fabs(load_as<A>(x + i * width, p.x_dtype, false));
    if (is_infinite(p.p)) {
      total = is_least ? join_min()((double)value, total) : join_max()((double)value, total);
    } else {
      total += p.p == 2   ? (double)value * (double)value
               : p.p == 1 ? (double)value
               : p.p == 0 ? (double)(value != 0)
                          : (double)power_of(value, (A)p.p);
    }
  }
  if (is_infinite(p.p)) {
    return (A)(is_least ? block_reduce(total, (double)INFINITY, room, join_min())
                        : block_reduce(total, 0.0, room, join_max()));
  }
  total = block_reduce(total, 0.0, room, join_sum());
  return (A)(p.p == 2 ? sqrt(total) : p.p == 1 || p.p == 0 ? total : pow(total, 1 / p.p));
}

/// factor * (derivative of the norm by x); `reached`: elements that an infinite norm is shared by.
template <class A>
KERNEL_INLINE A get_slope(const norm_kernel &p, A x, A norm, A factor, A reached) {
  if (p.p == 0) {
    return 0;
  }
  if (p.p == 1) {
    return sign_of(x) * factor;
  }
  if (p.p == 2) {
    return norm == 0 ? (A)0 : x * (factor / norm);
  }
  if (is_infinite(p.p)) {
    return fabs(x) == norm || x != x ? sign_of(x) * (factor / reached) : (A)0;
  }
  const A scale = norm == 0 ? (A)0 : factor * power_of(norm, (A)(1 - p.p));
  return p.p < 1 && x == 0 ? (A)0 : sign_of(x) * power_of((A)fabs(x), (A)(p.p - 1)) * scale;
}

template <class A>
KERNEL_INLINE void run_norms(const norm_kernel &p) {
  __shared__ double room[33];
  const int x_width = dtype_width(p.x_dtype), g_width = dtype_width(p.g_dtype), out_width = dtype_width(p.out_dtype);
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const char *x = p.x + row * p.length * x_width, *g = p.g ? p.g + (p.norm ? row : row * p.length) * g_width : NULL;
    const A norm =
        p.norm ? load_as<A>(p.norm + row * dtype_width(p.norm_dtype), p.norm_dtype, false) : get_norm<A>(p, x, room);
    const A floor = p.norm ? (A)1 : norm < (A)p.eps ? (A)p.eps : norm;  // NaN stays
    A factor = p.norm ? load_as<A>(g, p.g_dtype, false) : (A)0;
    double dot = 0, reached = 0;
    for (int64_t i = threadIdx.x; p.g && i < p.length; i += blockDim.x) {
      const A value = load_as<A>(x + i * x_width, p.x_dtype, false);
      dot += p.norm ? 0 : (double)load_as<A>(g + i * g_width, p.g_dtype, false) * (double)value;
      reached += fabs(value) == norm || value != value;
    }
    dot = block_reduce(dot, 0.0, room, join_sum());
    reached = block_reduce(reached, 0.0, room, join_sum());
    if (!p.norm && p.g && norm >= (A)p.eps) {
      factor = (A)(-dot / ((double)floor * (double)floor));
    }
    for (int64_t i = threadIdx.x; i < p.length; i += blockDim.x) {
      const A value = load_as<A>(x + i * x_width, p.x_dtype, false);
      A result;
      if (!p.g) {
        result = value / floor;
      } else {
        result = get_slope(p, value, norm, factor, (A)reached);
        result += p.norm ? (A)0 : load_as<A>(g + i * g_width, p.g_dtype, false) * ((A)1 / floor);
      }
      store_as(p.out + (row * p.length + i) * out_width, p.out_dtype, result);
    }
  }
}
KERNEL_BLOCK(LINE_KERNEL_THREADS, norm_rows_f32, norm_kernel) {
  run_norms<float>(p);
}
KERNEL_BLOCK(LINE_KERNEL_THREADS, norm_rows_f64, norm_kernel) {
  run_norms<double>(p);
}
