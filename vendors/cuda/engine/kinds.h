/// The kinds that kernels come in, by the ends of their names, and the choice among them.
#ifndef DIT_CUDA_ENGINE_KINDS_H
#define DIT_CUDA_ENGINE_KINDS_H

#include "dit/dtype.h"

/// Elements that are moved, by their bytes.
#define WIDTH_KINDS(X) X(1) X(2) X(4) X(8) X(16)
#define KIND_OF_WIDTH(name, width) \
  ((width) == 1   ? &name##_1      \
   : (width) == 2 ? &name##_2      \
   : (width) == 4 ? &name##_4      \
   : (width) == 8 ? &name##_8      \
                  : &name##_16)

#define FLOAT_KINDS(X) X(f32) X(f64) X(f16) X(bf16)
#define KIND_OF_FLOAT(name, dtype)          \
  ((dtype) == DIT_DTYPE_F32   ? &name##_f32 \
   : (dtype) == DIT_DTYPE_F64 ? &name##_f64 \
   : (dtype) == DIT_DTYPE_F16 ? &name##_f16 \
                              : &name##_bf16)

/// Elements that are added up.
#define ELEMENT_KINDS(X) FLOAT_KINDS(X) X(u8) X(u16) X(u32) X(u64) X(bool)

#endif
