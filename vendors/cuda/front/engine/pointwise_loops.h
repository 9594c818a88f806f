/// The shared expressions as the C side of the CUDA library sees them: each LOOP is a name under which its kernels are
/// found. The kernels themselves come from kernels/pointwise.cuh, which reads the same files.
#ifndef DIT_HOST_ENGINE_POINTWISE_LOOPS_H
#define DIT_HOST_ENGINE_POINTWISE_LOOPS_H

#include "engine/loop_lists.h"
#include "engine/mathd.h"
#include "engine/mathf.h"
#include "engine/pointwise.h"

#define LOOP_TEXT_(text) #text
#define LOOP_TEXT(text) LOOP_TEXT_(text)
#define LOOP_VARIANT(loop, ending) {.module = LOOP_TEXT(LOOP_FAMILY), .name = LOOP_TEXT(LOOP_FAMILY) "_" #loop ending}
#define LOOP_KERNELS(name, inputs, where, states)                                                                \
  __attribute__((unused)) static struct pointwise_kernels name[1] = {                                            \
      {{LOOP_VARIANT(name, "_v"), LOOP_VARIANT(name, "_h"), LOOP_VARIANT(name, "_b"), LOOP_VARIANT(name, "_s")}, \
       inputs,                                                                                                   \
       where,                                                                                                    \
       states}};
#define LOOP_1(name, result, type, arith, expression) LOOP_KERNELS(name, 1, false, 0)
#define LOOP_2(name, result, type, arith, expression) LOOP_KERNELS(name, 2, false, 0)
#define LOOP_3(name, result, type, arith, expression) LOOP_KERNELS(name, 3, false, 0)
#define LOOP_WHERE(width, type) LOOP_KERNELS(where_##width, 3, true, 0)
#define LOOP_STEP(name, states, statements)  \
  LOOP_KERNELS(name##_f32, 0, false, states) \
  LOOP_KERNELS(name##_f64, 0, false, states) \
  static loop_table name##_loops = {ROWS_FLOAT(name)};
#define LOOP_PLAIN_1 LOOP_1
#define LOOP_PLAIN_2 LOOP_2
#define LOOP_PLAIN_3 LOOP_3
// half types in memory are variants of float's kernels
#define LOOP_HALF_1(name, expression) enum { name };
#define LOOP_BF16_1(name, expression) enum { name };
#define LOOP_BF16_2(name, expression) enum { name };
#define LOOP_BF16_3(name, expression) enum { name };
#define LOOP_BF16_PICK_2(name, expression) enum { name };
#define LOOP_SQRT(x) sqrt(x)

#define LOOP_TYPES (DIT_DTYPE_U64 + 1)
typedef pointwise_loop *const loop_table[LOOP_TYPES];
#define ROWS_FLOAT(op) [DIT_DTYPE_F32] = op##_f32, [DIT_DTYPE_F64] = op##_f64
#define ROWS_INT(op)                                                                                          \
  [DIT_DTYPE_U8] = op##_u8, [DIT_DTYPE_I8] = op##_i8, [DIT_DTYPE_I16] = op##_i16, [DIT_DTYPE_I32] = op##_i32, \
  [DIT_DTYPE_I64] = op##_i64
#define ROWS_UINT(op) [DIT_DTYPE_U16] = op##_u16, [DIT_DTYPE_U32] = op##_u32, [DIT_DTYPE_U64] = op##_u64
#define ROWS_BITS(op)                                                                                         \
  [DIT_DTYPE_U8] = op##_u8, [DIT_DTYPE_I8] = op##_u8, [DIT_DTYPE_I16] = op##_u16, [DIT_DTYPE_I32] = op##_u32, \
  [DIT_DTYPE_I64] = op##_u64, ROWS_UINT(op)
#define ROWS_BITS_SIGNED(op)                                                                                  \
  [DIT_DTYPE_U8] = op##_u8, [DIT_DTYPE_I8] = op##_u8, [DIT_DTYPE_I16] = op##_u16, [DIT_DTYPE_I32] = op##_u32, \
  [DIT_DTYPE_I64] = op##_u64
// complex numbers have no kernels yet
#define ROWS_COMPLEX(op) [DIT_DTYPE_C64] = NULL, [DIT_DTYPE_C128] = NULL

#endif
