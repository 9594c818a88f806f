/// Elements that are not zero: how many, where, and moving those of a mask together or apart; masked_fill.
///
/// Tiles of neighbouring elements are counted first; one block turns the counts into starts.
#include "pack.h"

#include "pointwise.cuh"
#include "scan.cuh"

KERNEL_INLINE bool is_set(const char *data, int width, uint64_t bits) {
  switch (width) {
    case 1:
      return (*(const uint8_t *)(const void *)data & bits) != 0;
    case 2:
      return (*(const uint16_t *)(const void *)data & bits) != 0;
    case 4:
      return (*(const uint32_t *)(const void *)data & bits) != 0;
    case 8:
      return (*(const uint64_t *)(const void *)data & bits) != 0;
    default:
      return ((((const uint64_t *)(const void *)data)[0] | ((const uint64_t *)(const void *)data)[1]) & bits) != 0;
  }
}

/// Which of the thread's neighbours are set, as bits.
KERNEL_INLINE unsigned test_items(const pack_kernel &p, int64_t first) {
  unsigned set = 0;
#pragma unroll
  for (int i = 0; i < PACK_KERNEL_ITEMS; i++) {
    if (first + i < p.walk.numel) {
      int64_t offset;
      find_offsets<1>(p.walk, first + i, &offset);
      set |= (unsigned)is_set(p.walk.data[0] + offset, p.width, p.bits) << i;
    }
  }
  return set;
}

KERNEL_BLOCK(PACK_KERNEL_THREADS, pack_count, pack_kernel) {
  __shared__ int64_t room[33];
  for (int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const unsigned set = test_items(p, tile * PACK_KERNEL_TILE + threadIdx.x * PACK_KERNEL_ITEMS);
    const int64_t sum = block_reduce((int64_t)__popc(set), (int64_t)0, room, join_sum());
    if (threadIdx.x == 0) {
      p.starts[tile] = sum;
    }
  }
}

/// One block.
KERNEL_BLOCK(PACK_KERNEL_THREADS, pack_scan, pack_kernel) {
  __shared__ int64_t room[33];
  int64_t done = 0;
  for (int64_t first = 0; first < p.tiles; first += PACK_KERNEL_THREADS) {
    const int64_t at = first + threadIdx.x;
    int64_t total;
    const int64_t before = block_scan(at < p.tiles ? p.starts[at] : (int64_t)0, (int64_t)0, room, join_sum(), &total);
    if (at < p.tiles) {
      p.starts[at] = done + before;
    }
    done += total;
  }
  if (threadIdx.x == 0) {
    p.starts[p.tiles] = done;
  }
}

KERNEL_BLOCK(PACK_KERNEL_THREADS, pack_list, pack_kernel) {
  __shared__ int room[33];
  for (int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const int64_t first = tile * PACK_KERNEL_TILE + threadIdx.x * PACK_KERNEL_ITEMS;
    unsigned set = test_items(p, first);
    int total;
    int64_t at = p.starts[tile] + block_scan(__popc(set), 0, room, join_sum(), &total);
    for (int i = 0; set; i++, set >>= 1) {
      if (set & 1) {
        int64_t rest = first + i;
        for (int dim = p.ndim - 1; dim >= 0; dim--) {
          const int64_t outer = rest / p.sizes[dim];
          p.list[at * p.row_step + dim * p.dim_step] = rest - outer * p.sizes[dim];
          rest = outer;
        }
        at++;
      }
    }
  }
}

struct wide {
  uint64_t part[2];
};

template <class T>
KERNEL_INLINE void move(const pack_kernel &p) {
  __shared__ int room[33];
  for (int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const int64_t first = tile * PACK_KERNEL_TILE + threadIdx.x * PACK_KERNEL_ITEMS;
    unsigned set = test_items(p, first);
    int total;
    int64_t at = p.starts[tile] + block_scan(__popc(set), 0, room, join_sum(), &total);
    for (int i = 0; set; i++, set >>= 1) {
      if (set & 1) {
        int64_t offsets[2];
        find_offsets<2>(p.walk, first + i, offsets);
        T *whole = (T *)(void *)(p.walk.data[1] + offsets[1]), *packed = (T *)(void *)(p.packed + at * p.packed_step);
        if (at >= p.packed_count) {
          __trap();  // the source has too few elements
        } else if (p.is_unpack) {
          *whole = *packed;
        } else {
          *packed = *whole;
        }
        at++;
      }
    }
  }
}

/// Operands: out, input, mask.
template <class T>
KERNEL_INLINE void fill(const pointwise_strided &p) {
  const T value = *(const T *)(const void *)p.numbers;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t offsets[3];
    find_offsets<3>(p, i, offsets);
    *(T *)(void *)(p.data[0] + offsets[0]) =
        *(const uint8_t *)(p.data[2] + offsets[2]) ? value : *(const T *)(const void *)(p.data[1] + offsets[1]);
  }
}
#define PACK_WIDTH(width, T)                                          \
  KERNEL_BLOCK(PACK_KERNEL_THREADS, pack_move_##width, pack_kernel) { \
    move<T>(p);                                                       \
  }                                                                   \
  KERNEL(PACK_KERNEL_THREADS, masked_fill_##width, pointwise_strided) { \
    fill<T>(p);                                                       \
  }
PACK_WIDTH(1, uint8_t)
PACK_WIDTH(2, uint16_t)
PACK_WIDTH(4, uint32_t)
PACK_WIDTH(8, uint64_t)
PACK_WIDTH(16, wide)

/// The same over packed tensors, four bytes of the mask and their elements at a time.
template <class T>
KERNEL_INLINE void fill_flat(const pointwise_strided &p) {
  const T value = *(const T *)(const void *)p.numbers;
  const int64_t step = (int64_t)gridDim.x * blockDim.x, first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  const pack<T, 4> *in = (const pack<T, 4> *)(const void *)p.data[1];
  for (int64_t i = first; i < p.numel / 4; i += step) {
    const uint32_t mask = ((const uint32_t *)(const void *)p.data[2])[i];
    pack<T, 4> x = in[i];
#pragma unroll
    for (int lane = 0; lane < 4; lane++) {
      x.value[lane] = mask >> (8 * lane) & 255 ? value : x.value[lane];
    }
    ((pack<T, 4> *)(void *)p.data[0])[i] = x;
  }
  const int64_t rest = p.numel / 4 * 4 + first;
  if (rest < p.numel) {
    ((T *)(void *)p.data[0])[rest] = p.data[2][rest] ? value : ((const T *)(const void *)p.data[1])[rest];
  }
}
KERNEL(PACK_KERNEL_THREADS, masked_fill_flat_2, pointwise_strided) {
  fill_flat<uint16_t>(p);
}
KERNEL(PACK_KERNEL_THREADS, masked_fill_flat_4, pointwise_strided) {
  fill_flat<uint32_t>(p);
}
