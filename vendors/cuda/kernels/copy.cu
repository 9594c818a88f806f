/// Copies of elements by their width, conversions between dtypes, fills, and numbers in steps.
#include "copy.h"

#include "pointwise.cuh"

struct wide {
  uint64_t part[2];
};

/// Operand 0 = operand 1, element for element.
template <class T>
KERNEL_INLINE void copy_strided(const pointwise_strided &p) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t offsets[2];
    find_offsets<2>(p, i, offsets);
    *(T *)(void *)(p.data[0] + offsets[0]) = *(const T *)(const void *)(p.data[1] + offsets[1]);
  }
}
KERNEL(256, copy_strided_1, pointwise_strided) {
  copy_strided<uint8_t>(p);
}
KERNEL(256, copy_strided_2, pointwise_strided) {
  copy_strided<uint16_t>(p);
}
KERNEL(256, copy_strided_4, pointwise_strided) {
  copy_strided<uint32_t>(p);
}
KERNEL(256, copy_strided_8, pointwise_strided) {
  copy_strided<uint64_t>(p);
}
KERNEL(256, copy_strided_16, pointwise_strided) {
  copy_strided<wide>(p);
}

/// Tiles through shared memory, so that both sides are read and written along neighbours.
template <class T>
KERNEL_INLINE void transpose(const transpose_kernel &p) {
  __shared__ T tile[TRANSPOSE_KERNEL_TILE][TRANSPOSE_KERNEL_TILE + 1];
  const int x = threadIdx.x % TRANSPOSE_KERNEL_TILE, y = threadIdx.x / TRANSPOSE_KERNEL_TILE;
  const int lanes = 256 / TRANSPOSE_KERNEL_TILE;
  const int64_t across = (p.columns + TRANSPOSE_KERNEL_TILE - 1) / TRANSPOSE_KERNEL_TILE;
  const int64_t down = (p.rows + TRANSPOSE_KERNEL_TILE - 1) / TRANSPOSE_KERNEL_TILE;
  for (int64_t number = blockIdx.x; number < p.tiles; number += gridDim.x) {
    int64_t rest = number / (across * down), in_matrix = number - rest * across * down;
    const int64_t row = in_matrix / across * TRANSPOSE_KERNEL_TILE;
    const int64_t column = in_matrix % across * TRANSPOSE_KERNEL_TILE;
    int64_t to = 0, from = 0;
    for (int dim = 0; dim < p.ndim; dim++) {
      const int64_t outer = rest / p.sizes[dim], place = rest - outer * p.sizes[dim];
      to += place * p.strides[dim][0];
      from += place * p.strides[dim][1];
      rest = outer;
    }
    __syncthreads();
    for (int k = y; k < TRANSPOSE_KERNEL_TILE; k += lanes) {
      if (row + x < p.rows && column + k < p.columns) {
        tile[k][x] = ((const T *)(const void *)(p.from + from + (column + k) * p.from_step))[row + x];
      }
    }
    __syncthreads();
    for (int k = y; k < TRANSPOSE_KERNEL_TILE; k += lanes) {
      if (row + k < p.rows && column + x < p.columns) {
        ((T *)(void *)(p.to + to + (row + k) * p.to_step))[column + x] = tile[x][k];
      }
    }
  }
}
KERNEL_BLOCK(256, transpose_2, transpose_kernel) {
  transpose<uint16_t>(p);
}
KERNEL_BLOCK(256, transpose_4, transpose_kernel) {
  transpose<uint32_t>(p);
}
KERNEL_BLOCK(256, transpose_8, transpose_kernel) {
  transpose<uint64_t>(p);
}

KERNEL_INLINE bool is_complex(int dtype) {
  return dtype == DIT_DTYPE_C32 || dtype == DIT_DTYPE_C64 || dtype == DIT_DTYPE_C128;
}
KERNEL_INLINE int get_part(int dtype) {
  return dtype == DIT_DTYPE_C32 ? DIT_DTYPE_F16 : dtype == DIT_DTYPE_C64 ? DIT_DTYPE_F32 : DIT_DTYPE_F64;
}
/// One of them is complex: a real number has no imaginary part, and only the real part becomes one.
static __device__ __noinline__ void convert_complex(char *to, int to_dtype, const char *from, int from_dtype) {
  double parts[2] = {0, 0};
  if (is_complex(from_dtype)) {
    const int part = get_part(from_dtype);
    parts[0] = load_as<double>(from, part, false);
    parts[1] = load_as<double>(from + dtype_width(part), part, false);
  } else {
    parts[0] = load_as<double>(from, from_dtype, false);
  }
  if (is_complex(to_dtype)) {
    const int part = get_part(to_dtype);
    store_as(to, part, parts[0]);
    store_as(to + dtype_width(part), part, parts[1]);
  } else if (to_dtype == DIT_DTYPE_BOOL) {
    *(uint8_t *)(void *)to = parts[0] != 0 || parts[1] != 0;
  } else {
    store_as(to, to_dtype, parts[0]);
  }
}

KERNEL(256, copy_convert, pointwise_strided) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t offsets[2];
    find_offsets<2>(p, i, offsets);
    if (is_complex(p.dtype[0]) || is_complex(p.dtype[1])) {
      convert_complex(p.data[0] + offsets[0], p.dtype[0], p.data[1] + offsets[1], p.dtype[1]);
    } else {
      convert_element(p.data[0] + offsets[0], p.dtype[0], p.data[1] + offsets[1], p.dtype[1]);
    }
  }
}

/// The conversions of mixed precision. Neighbouring threads read and write neighbouring vectors of four elements, 8 and
/// 16 bytes, so that every store fills whole sectors of memory; four are in flight for each thread.
template <class To, class From>
KERNEL_INLINE void convert_flat(const copy_flat &p) {
  const int LANES = 4, U = CONVERT_KERNEL_VECTORS;
  const int64_t step = blockDim.x, vectors = p.numel / LANES, begin = blockIdx.x * step * U + threadIdx.x;
  for (int64_t first = begin; first < vectors; first += gridDim.x * step * U) {
    pack<From, LANES> in[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (first + u * step < vectors) {
        in[u] = ((const pack<From, LANES> *)(const void *)p.from)[first + u * step];
      }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (first + u * step < vectors) {
        pack<To, LANES> out;
#pragma unroll
        for (int k = 0; k < LANES; k++) {
          out.value[k] = element<To>::from(to_work(in[u].value[k]));
        }
        ((pack<To, LANES> *)(void *)p.to)[first + u * step] = out;
      }
    }
  }
  const int64_t rest = vectors * LANES + (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (rest < p.numel) {
    ((To *)(void *)p.to)[rest] = element<To>::from(to_work(((const From *)(const void *)p.from)[rest]));
  }
}
KERNEL(256, convert_f32_bf16, copy_flat) {
  convert_flat<float, bfloat_bits>(p);
}
KERNEL(256, convert_bf16_f32, copy_flat) {
  convert_flat<bfloat_bits, float>(p);
}
KERNEL(256, convert_f32_f16, copy_flat) {
  convert_flat<float, half_bits>(p);
}
KERNEL(256, convert_f16_f32, copy_flat) {
  convert_flat<half_bits, float>(p);
}

/// 16 bytes at a time; `value` is the pattern.
KERNEL(256, fill_flat_16, fill_flat) {
  const wide value = *(const wide *)(const void *)p.value;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    ((wide *)(void *)p.to)[i] = value;
  }
}
template <class T>
KERNEL_INLINE void fill_strided(const pointwise_strided &p) {
  const T value = *(const T *)(const void *)p.numbers;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t offsets[1];
    find_offsets<1>(p, i, offsets);
    *(T *)(void *)(p.data[0] + offsets[0]) = value;
  }
}
KERNEL(256, fill_strided_1, pointwise_strided) {
  fill_strided<uint8_t>(p);
}
KERNEL(256, fill_strided_2, pointwise_strided) {
  fill_strided<uint16_t>(p);
}
KERNEL(256, fill_strided_4, pointwise_strided) {
  fill_strided<uint32_t>(p);
}
KERNEL(256, fill_strided_8, pointwise_strided) {
  fill_strided<uint64_t>(p);
}
KERNEL(256, fill_strided_16, pointwise_strided) {
  fill_strided<wide>(p);
}

KERNEL(256, ramp, ramp_kernel) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += (int64_t)gridDim.x * blockDim.x) {
    char *to = p.data + i * p.stride;
    if (p.is_integer) {
      store_as(to, p.dtype, (int64_t)((uint64_t)p.istart + (uint64_t)i * (uint64_t)p.istep));
    } else if (!p.is_linspace) {
      store_as(to, p.dtype, p.start + (double)i * p.step);
    } else {
      store_as(to, p.dtype, i < p.steps / 2 ? p.start + p.step * (double)i : p.end - p.step * (double)(p.steps - 1 - i));
    }
  }
}
