/// The types that families of loops are written for; read by the host's loops and by the kernels of vendors/cuda.
#ifndef DIT_HOST_ENGINE_LOOP_LISTS_H
#define DIT_HOST_ENGINE_LOOP_LISTS_H

/// X(tag, type, arith): the types of a family.
#define LOOP_LIST_FLOAT(X) X(f32, float, float) X(f64, double, double)
#define LOOP_LIST_INT(X)  \
  X(u8, uint8_t, int32_t) \
  X(i8, int8_t, int32_t) X(i16, int16_t, int32_t) X(i32, int32_t, int32_t) X(i64, int64_t, int64_t)
#define LOOP_LIST_UINT(X) X(u16, uint16_t, uint32_t) X(u32, uint32_t, uint32_t) X(u64, uint64_t, uint64_t)
#define LOOP_LIST_BITS(X) \
  X(u8, uint8_t, uint32_t) X(u16, uint16_t, uint32_t) X(u32, uint32_t, uint32_t) X(u64, uint64_t, uint64_t)

#endif
