/// Parameters of the pointwise kernels, as the host side (engine/pointwise.c) fills them. Plain C.
///
/// Operand 0 is the output. A flat kernel reads vectors of 16 bytes, all in one run or in rows; a strided one walks
/// `ndim` dimensions, innermost first, strides in bytes, and converts between dtypes element by element.
#ifndef DIT_CUDA_KERNELS_POINTWISE_H
#define DIT_CUDA_KERNELS_POINTWISE_H

#include <stdint.h>

#define DIT_KERNEL_ALIGN __attribute__((aligned(16)))

#define POINTWISE_KERNEL_OPERANDS 4
#define POINTWISE_KERNEL_DIMS 12
#define POINTWISE_KERNEL_ROW_DIMS 4  ///< above rows of vectors
#define POINTWISE_KERNEL_THREADS 256
#define POINTWISE_KERNEL_VECTORS 2  ///< vectors of one thread that are read before it computes

enum pointwise_mode {
  POINTWISE_WALK,    ///< an element per element
  POINTWISE_NUMBER,  ///< a number: its place in `numbers` is `number`
  POINTWISE_ONE,     ///< one element in memory for all
};

struct pointwise_divisor {
  uint32_t divisor, magic, shift;
};

/// One run of many in a launch; `first`: its first block.
struct pointwise_entry {
  char *data[POINTWISE_KERNEL_OPERANDS];
  int64_t numel;
  uint32_t first, blocks;
  DIT_KERNEL_ALIGN char numbers[64];
};

/// With `list`, the operands, their number of elements and the numbers are those of the block's entry. With `ndim` > 0
/// the innermost dimension alone lies packed: rows of whole vectors, with strides in bytes from row to
/// row; an operand that is `spread` has one element for a row.
struct pointwise_flat {
  char *data[POINTWISE_KERNEL_OPERANDS];
  int64_t numel;
  const struct pointwise_entry *list;  ///< on the device; NULL: one run
  uint8_t mode[POINTWISE_KERNEL_OPERANDS], number[POINTWISE_KERNEL_OPERANDS], is_spread[POINTWISE_KERNEL_OPERANDS];
  int32_t ndim, listed;          ///< listed: entries of the list
  struct pointwise_divisor row;  ///< vectors of a row
  struct pointwise_divisor divisors[POINTWISE_KERNEL_ROW_DIMS];
  int64_t strides[POINTWISE_KERNEL_ROW_DIMS][POINTWISE_KERNEL_OPERANDS];
  DIT_KERNEL_ALIGN char numbers[64];  ///< k0 to k3 at 16-byte steps
};

struct pointwise_strided {
  char *data[POINTWISE_KERNEL_OPERANDS];
  int64_t numel;
  uint8_t mode[POINTWISE_KERNEL_OPERANDS], number[POINTWISE_KERNEL_OPERANDS];
  int16_t dtype[POINTWISE_KERNEL_OPERANDS];
  uint8_t as_bool[POINTWISE_KERNEL_OPERANDS];  ///< the work type is bool
  int16_t rounded;                             ///< F16 or BF16: operands of another dtype are rounded to it; 0: no
  int16_t ndim;
  int16_t is_signed;  ///< the result is a signed integer, also where the kernel calls it unsigned
  int32_t is_wide;    ///< more than 31 bits of elements: `sizes` instead of `divisors`
  struct pointwise_divisor divisors[POINTWISE_KERNEL_DIMS];
  int64_t sizes[POINTWISE_KERNEL_DIMS];
  int64_t strides[POINTWISE_KERNEL_DIMS][POINTWISE_KERNEL_OPERANDS];
  DIT_KERNEL_ALIGN char numbers[64];
};

#endif
