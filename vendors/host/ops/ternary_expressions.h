/// The expressions of the elementwise operators of three operands.
///
/// Each is written once: included by ternary.c it defines the host's loops, by the kernel file of vendors/cuda CUDA's
/// kernels.
#undef LOOP_FAMILY
#define LOOP_FAMILY ternary

#define PRODUCTS(tag, type, arith) LOOP_3(addcmul_##tag, type, type, arith, x + k3 * y * z)
LOOP_LIST_BITS(PRODUCTS)
LOOP_LIST_FLOAT(PRODUCTS)
#define QUOTIENTS(tag, type, arith) LOOP_3(addcdiv_##tag, type, type, arith, x + k3 * y / z)
LOOP_LIST_FLOAT(QUOTIENTS)
#ifdef LOOP_COMPLEX
#define PAIR(tag, type, arith)                                                     \
  LOOP_3(addcmul_##tag, type, type, arith, x + times_##tag(times_##tag(k3, y), z)) \
  LOOP_3(addcdiv_##tag, type, type, arith, x + over_##tag(times_##tag(k3, y), z))  \
  LOOP_3(lerp_##tag, type, type, arith, LERP_OF(x, y, z, SIZE2(z), times_##tag))   \
  LOOP_2(lerp_number_##tag, type, type, arith, LERP_OF(x, y, k3, SIZE2(k3), times_##tag))
#define SIZE2(z) (__real__(z) * __real__(z) + __imag__(z) * __imag__(z))
#endif
/// PyTorch starts from the nearer end.
#define LERP_OF(x, y, w, near, times) ((near) < 0.25 ? (x) + times(w, (y) - (x)) : (y) - times((y) - (x), 1 - (w)))
#define LERP_TIMES(a, b) (a) * (b)
#define LERP(x, y, w, near) LERP_OF(x, y, w, near, LERP_TIMES)
#ifdef LOOP_COMPLEX
LOOP_LIST_COMPLEX(PAIR)
#endif
#define LERPS(tag, type, arith)                              \
  LOOP_3(lerp_##tag, type, type, arith, LERP(x, y, z, z *z)) \
  LOOP_2(lerp_number_##tag, type, type, arith, LERP(x, y, k3, k3 *k3))
LOOP_LIST_FLOAT(LERPS)
LOOP_BF16_3(addcmul_bf16, x + k3 * y * z)
LOOP_BF16_3(addcdiv_bf16, x + k3 * y / z)
LOOP_BF16_3(lerp_bf16, LERP(x, y, z, z *z))
LOOP_BF16_2(lerp_number_bf16, LERP(x, y, k3, k3 *k3))

// NaN of any operand wins; max wins over min
#define LOW(x, y) ((x) < (y) ? (y) : (x))
#define HIGH(x, y) ((x) > (y) ? (y) : (x))
#define CLAMP(tag, type, arith)                                                        \
  LOOP_3(clamp_##tag, type, type, arith, y != y ? y : z != z ? z : HIGH(LOW(x, y), z)) \
  LOOP_2(clamp_min_##tag, type, type, arith, y != y ? y : LOW(x, y))                   \
  LOOP_2(clamp_max_##tag, type, type, arith, y != y ? y : HIGH(x, y))                  \
  LOOP_1(clamp_numbers_##tag, type, type, arith, k0 != k0 ? k0 : k1 != k1 ? k1 : HIGH(LOW(x, k0), k1))
#define CLAMP_INT(tag, type, arith) CLAMP(tag, type, type)  // in its own width: more lanes
LOOP_LIST_INT(CLAMP_INT)
LOOP_LIST_FLOAT(CLAMP)
LOOP_BF16_1(clamp_numbers_bf16, k0 != k0 ? k0 : k1 != k1 ? k1 : HIGH(LOW(x, k0), k1))

// where moves elements and looks at nothing but the condition: one loop per width
struct wide {
  uint64_t part[2];
};
#ifdef LOOP_PARAMS
#define WHERE_BODY(tag, type)                         \
  KERNEL_INLINE void where_##tag##_body LOOP_PARAMS { \
    type *o = out[0];                                 \
    const uint8_t *c = in[0];                         \
    const type *p = in[1], *q = in[2];                \
    (void)parameters;                                 \
    KERNEL_LANES                                      \
    for (int64_t i = 0; i < count; i++) {             \
      const type a = p[i], b = q[i];                  \
      o[i] = c[i] ? a : b;                            \
    }                                                 \
  }                                                   \
  KERNEL_MULTI(static, where_##tag, LOOP_PARAMS, LOOP_ARGS)
#define LOOP_WHERE WHERE_BODY
#endif
LOOP_WHERE(1, uint8_t)
LOOP_WHERE(2, uint16_t)
LOOP_WHERE(4, uint32_t)
LOOP_WHERE(8, uint64_t)
LOOP_WHERE(16, struct wide)
