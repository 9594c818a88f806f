/// The expressions of the comparisons.
///
/// Each is written once: included by compare.c it defines the host's loops, by the kernel file of vendors/cuda CUDA's
/// kernels.
#undef LOOP_FAMILY
#define LOOP_FAMILY compare

#define ORDER(tag, type, arith)                 \
  LOOP_2(ge_##tag, uint8_t, type, type, x >= y) \
  LOOP_2(gt_##tag, uint8_t, type, type, x > y)  \
  LOOP_2(le_##tag, uint8_t, type, type, x <= y) \
  LOOP_2(lt_##tag, uint8_t, type, type, x < y)
LOOP_LIST_INT(ORDER)
LOOP_LIST_FLOAT(ORDER)
#define EQUALITY(tag, type, arith)              \
  LOOP_2(eq_##tag, uint8_t, type, type, x == y) \
  LOOP_2(ne_##tag, uint8_t, type, type, x != y)
LOOP_LIST_BITS(EQUALITY)
LOOP_LIST_FLOAT(EQUALITY)
#ifdef LOOP_COMPLEX
#define PAIR_EQUALITY(tag, type, arith)               \
  LOOP_PLAIN_2(eq_##tag, uint8_t, type, type, x == y) \
  LOOP_PLAIN_2(ne_##tag, uint8_t, type, type, x != y)
LOOP_LIST_COMPLEX(PAIR_EQUALITY)
#endif
// the most frequent scalar forms keep the number in a register
#define NUMBER(name, op) LOOP_1(name##_number, uint8_t, float, float, x op k0)
NUMBER(eq, ==)
NUMBER(ne, !=)
NUMBER(ge, >=)
NUMBER(gt, >)
NUMBER(le, <=)
NUMBER(lt, <)
