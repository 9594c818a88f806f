/// Element types. The numbers are PyTorch's own (c10::ScalarType), so no border needs a translation table.
#ifndef DIT_DTYPE_H
#define DIT_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

/// The one list of element types: X(enum suffix, number, torch name, bits, class).
/// Classes: BOOL, INT (signed), UINT, FLOAT, COMPLEX, QUANT, BITS (opaque).
#define DIT_DTYPE_LIST(X)                         \
  X(U8, 0, "uint8", 8, UINT)                      \
  X(I8, 1, "int8", 8, INT)                        \
  X(I16, 2, "int16", 16, INT)                     \
  X(I32, 3, "int32", 32, INT)                     \
  X(I64, 4, "int64", 64, INT)                     \
  X(F16, 5, "float16", 16, FLOAT)                 \
  X(F32, 6, "float32", 32, FLOAT)                 \
  X(F64, 7, "float64", 64, FLOAT)                 \
  X(C32, 8, "complex32", 32, COMPLEX)             \
  X(C64, 9, "complex64", 64, COMPLEX)             \
  X(C128, 10, "complex128", 128, COMPLEX)         \
  X(BOOL, 11, "bool", 8, BOOL)                    \
  X(QI8, 12, "qint8", 8, QUANT)                   \
  X(QU8, 13, "quint8", 8, QUANT)                  \
  X(QI32, 14, "qint32", 32, QUANT)                \
  X(BF16, 15, "bfloat16", 16, FLOAT)              \
  X(QU4X2, 16, "quint4x2", 8, QUANT)              \
  X(QU2X4, 17, "quint2x4", 8, QUANT)              \
  X(BITS1X8, 18, "bits1x8", 8, BITS)              \
  X(BITS2X4, 19, "bits2x4", 8, BITS)              \
  X(BITS4X2, 20, "bits4x2", 8, BITS)              \
  X(BITS8, 21, "bits8", 8, BITS)                  \
  X(BITS16, 22, "bits16", 16, BITS)               \
  X(F8_E5M2, 23, "float8_e5m2", 8, FLOAT)         \
  X(F8_E4M3FN, 24, "float8_e4m3fn", 8, FLOAT)     \
  X(F8_E5M2FNUZ, 25, "float8_e5m2fnuz", 8, FLOAT) \
  X(F8_E4M3FNUZ, 26, "float8_e4m3fnuz", 8, FLOAT) \
  X(U16, 27, "uint16", 16, UINT)                  \
  X(U32, 28, "uint32", 32, UINT)                  \
  X(U64, 29, "uint64", 64, UINT)                  \
  X(U1, 30, "uint1", 8, UINT)                     \
  X(U2, 31, "uint2", 8, UINT)                     \
  X(U3, 32, "uint3", 8, UINT)                     \
  X(U4, 33, "uint4", 8, UINT)                     \
  X(U5, 34, "uint5", 8, UINT)                     \
  X(U6, 35, "uint6", 8, UINT)                     \
  X(U7, 36, "uint7", 8, UINT)                     \
  X(I1, 37, "int1", 8, INT)                       \
  X(I2, 38, "int2", 8, INT)                       \
  X(I3, 39, "int3", 8, INT)                       \
  X(I4, 40, "int4", 8, INT)                       \
  X(I5, 41, "int5", 8, INT)                       \
  X(I6, 42, "int6", 8, INT)                       \
  X(I7, 43, "int7", 8, INT)                       \
  X(F8_E8M0FNU, 44, "float8_e8m0fnu", 8, FLOAT)   \
  X(F4_E2M1FN_X2, 45, "float4_e2m1fn_x2", 8, FLOAT)

enum dit_dtype {
#define DIT_DTYPE_ENUM(suffix, number, name, bits, klass) DIT_DTYPE_##suffix = number,
  DIT_DTYPE_LIST(DIT_DTYPE_ENUM)
#undef DIT_DTYPE_ENUM
      DIT_DTYPE_COUNT = 46,
};

enum dit_dtype_class {
  DIT_DTYPE_CLASS_BOOL,
  DIT_DTYPE_CLASS_UINT,
  DIT_DTYPE_CLASS_INT,
  DIT_DTYPE_CLASS_FLOAT,
  DIT_DTYPE_CLASS_COMPLEX,
  DIT_DTYPE_CLASS_QUANT,
  DIT_DTYPE_CLASS_BITS,
};

/// True for a number of the list above. The functions below accept any number and answer 0 / "?" for others.
DIT_API bool dit_dtype_is_valid(int dtype);
/// Bytes of one element as it lies in memory.
DIT_API size_t dit_dtype_get_size(int dtype);
/// The torch spelling without "torch.": "float32".
DIT_API const char *dit_dtype_get_name(int dtype);
/// Only for valid numbers; DIT_DTYPE_CLASS_BITS otherwise.
DIT_API enum dit_dtype_class dit_dtype_get_class(int dtype);
/// The number for "float32", "torch.float32" or an alias ("float", "half", "long", "double", "int", "short", "bfloat",
/// "cfloat", "cdouble", "chalf"); -1 when there is none.
DIT_API int dit_dtype_find(const char *name);
/// torch.promote_types(a, b); -1 where PyTorch refuses the pair (float8 with another type, quantized, bits ...).
DIT_API int dit_dtype_promote(int a, int b);
/// float -> itself; complex -> its real type; others -> themselves.
DIT_API int dit_dtype_get_real(int dtype);

DIT_EXTERN_C_END

#endif
