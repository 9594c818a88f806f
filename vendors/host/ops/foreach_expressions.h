/// The expressions of the list operators: LOOP(name, result, operand type, arithmetic type, expression), as in
/// binary_expressions.h; included by foreach.c and by the kernel file of vendors/cuda.
#undef LOOP_FAMILY
#define LOOP_FAMILY foreach

#define BITS(tag, type, arith)                \
  LOOP_2(add_##tag, type, type, arith, x + y) \
  LOOP_2(mul_##tag, type, type, arith, x *y)
LOOP_LIST_BITS(BITS)
LOOP_LIST_FLOAT(BITS)
#ifdef LOOP_COMPLEX
#define PAIR(tag, type, arith)                      \
  LOOP_PLAIN_2(add_##tag, type, type, arith, x + y) \
  LOOP_PLAIN_2(mul_##tag, type, type, arith, x *y)
LOOP_LIST_COMPLEX(PAIR)
#endif
LOOP_1(add_number_f32, float, float, float, x + k0)
LOOP_1(mul_number_f32, float, float, float, x *k0)
LOOP_2(add_bool, uint8_t, uint8_t, uint32_t, (x | y) != 0)
LOOP_2(mul_bool, uint8_t, uint8_t, uint32_t, (x & y) != 0)
