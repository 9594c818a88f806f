/// The expressions of the logical and bitwise operators.
///
/// Each is written once: included by logical.c it defines the host's loops, by the kernel file of vendors/cuda CUDA's
/// kernels.
#undef LOOP_FAMILY
#define LOOP_FAMILY logical

LOOP_2(logical_and, uint8_t, uint8_t, uint32_t, x &y)
LOOP_2(logical_or, uint8_t, uint8_t, uint32_t, x | y)
LOOP_1(logical_not, uint8_t, uint8_t, uint32_t, x == 0)
#define BITWISE(tag, type, arith)            \
  LOOP_2(and_##tag, type, type, arith, x &y) \
  LOOP_2(or_##tag, type, type, arith, x | y) \
  LOOP_1(not_##tag, type, type, arith, ~x)
LOOP_LIST_BITS(BITWISE)
