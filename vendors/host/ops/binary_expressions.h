/// The expressions of the elementwise operators of two operands.
///
/// Each is written once: included by binary.c it defines the host's loops, by the kernel file of vendors/cuda CUDA's
/// kernels.
#undef LOOP_FAMILY
#define LOOP_FAMILY binary

#define BITS(tag, type, arith)                        \
  LOOP_2(add_##tag, type, type, arith, x + y)         \
  LOOP_2(scaled_##tag, type, type, arith, x + k3 * y) \
  LOOP_2(sub_##tag, type, type, arith, x - y)         \
  LOOP_2(mul_##tag, type, type, arith, x *y)
LOOP_LIST_BITS(BITS)
#define REAL(tag, type, arith) BITS(tag, type, arith) LOOP_2(div_##tag, type, type, arith, x / y)
LOOP_LIST_FLOAT(REAL)
#ifdef LOOP_COMPLEX
/// Products as PyTorch's, without C's care for infinite parts: (a + ib)(c + id) = (ac - bd) + i(ad + bc). Two parts lie
/// side by side, so a vector of them is x * (c, c) + swapped x * (-d, d).
#if defined(__clang__)
#define SHUFFLE(type, x, ...) __builtin_shufflevector(x, x, __VA_ARGS__)
#else
#define SHUFFLE(type, x, ...) __builtin_shuffle(x, (type){__VA_ARGS__})
#endif
typedef int32_t places_c64 __attribute__((vector_size(32)));
typedef int64_t places_c128 __attribute__((vector_size(32)));
#define COMPLEX_PRODUCT(tag, type, lanes, signs, real, imaginary, swapped)                             \
  KERNEL_INLINE void mul_##tag##_body LOOP_PARAMS {                                                    \
    typedef type vector __attribute__((vector_size(32), aligned(sizeof(type)), may_alias));            \
    type *o = out[0];                                                                                  \
    const type *p = in[0], *q = in[1];                                                                 \
    const vector sign = {signs};                                                                       \
    int64_t i = 0;                                                                                     \
    (void)parameters;                                                                                  \
    for (; i + lanes <= 2 * count; i += lanes) {                                                       \
      const vector x = *(const vector *)(p + i), y = *(const vector *)(q + i);                         \
      const vector c = SHUFFLE(places_##tag, y, real), d = SHUFFLE(places_##tag, y, imaginary) * sign; \
      *(vector *)(o + i) = x * c + SHUFFLE(places_##tag, x, swapped) * d;                              \
    }                                                                                                  \
    for (; i < 2 * count; i += 2) {                                                                    \
      const type a = p[i], b = p[i + 1], c = q[i], d = q[i + 1];                                       \
      o[i] = a * c - b * d;                                                                            \
      o[i + 1] = a * d + b * c;                                                                        \
    }                                                                                                  \
  }                                                                                                    \
  KERNEL_MULTI(static, mul_##tag, LOOP_PARAMS, LOOP_ARGS)
#define LIST(...) __VA_ARGS__
COMPLEX_PRODUCT(c64, float, 8, LIST(-1, 1, -1, 1, -1, 1, -1, 1), LIST(0, 0, 2, 2, 4, 4, 6, 6),
                LIST(1, 1, 3, 3, 5, 5, 7, 7), LIST(1, 0, 3, 2, 5, 4, 7, 6))
COMPLEX_PRODUCT(c128, double, 4, LIST(-1, 1, -1, 1), LIST(0, 0, 2, 2), LIST(1, 1, 3, 3), LIST(1, 0, 3, 2))
/// Sums are those of the parts.
#define PARTS(op, tag, part)                     \
  static void op##_##tag LOOP_PARAMS {           \
    op##_##part(parameters, out, in, 2 * count); \
  }
PARTS(add, c64, f32)
PARTS(add, c128, f64)
PARTS(sub, c64, f32)
PARTS(sub, c128, f64)
#define PAIR(tag, type, arith)                                    \
  LOOP_2(scaled_##tag, type, type, arith, x + times_##tag(k3, y)) \
  LOOP_2(div_##tag, type, type, arith, over_##tag(x, y))
LOOP_LIST_COMPLEX(PAIR)
#endif
LOOP_2(add_bool, uint8_t, uint8_t, uint32_t, (x | y) != 0)
LOOP_2(scaled_bool, uint8_t, uint8_t, uint32_t, (x | (y & k3)) != 0)
LOOP_2(mul_bool, uint8_t, uint8_t, uint32_t, (x & y) != 0)

// bfloat16 in one pass
LOOP_BF16_2(add_bf16, x + y)
LOOP_BF16_2(sub_bf16, x - y)
LOOP_BF16_2(mul_bf16, x *y)
LOOP_BF16_2(div_bf16, x / y)
LOOP_BF16_2(scaled_bf16, x + k3 * y)
LOOP_BF16_PICK_2(maximum_bf16, ((x > y) | (x != x)) ? x : y)
LOOP_BF16_PICK_2(minimum_bf16, ((x < y) | (x != x)) ? x : y)

// the number on the right stays in a register: the most frequent scalar forms
#define NUMBER(name, expression)                             \
  LOOP_1(name##_number_f32, float, float, float, expression) \
  LOOP_BF16_1(name##_number_bf16, expression)
NUMBER(sub, x - k0)
NUMBER(div, x / k0)
NUMBER(add, x + k0)
NUMBER(mul, x *k0)

#define ORDERED(tag, type, arith)                                        \
  LOOP_2(maximum_##tag, type, type, arith, ((x > y) | (x != x)) ? x : y) \
  LOOP_2(minimum_##tag, type, type, arith, ((x < y) | (x != x)) ? x : y)
LOOP_LIST_INT(ORDERED)
LOOP_LIST_FLOAT(ORDERED)

/// Integer division: the most negative number by -1 wraps. A divisor 0 was refused before; one that another thread
/// wrote since gives 0, because the processor's own answer would end the program.
#define IS_PLAIN(y) (((y) != -1) & ((y) != 0))
#define TRUNC_INT(x, y) \
  (IS_PLAIN(y) ? (int64_t)(x) / (int64_t)(y) : (y) == 0 ? INT64_C(0) : (int64_t)(0 - (uint64_t)(x)))
/// Numbers of 32 bits, as most are, are divided in half the time. y is neither 0 nor -1.
KERNEL_INLINE int64_t divide_whole(int64_t x, int64_t y) {
  const bool is_small = ((uint64_t)x | (uint64_t)y) >> 32 == 0;
  return is_small ? (int64_t)((uint32_t)x / (uint32_t)y) : x / y;
}
KERNEL_INLINE int64_t floor_int(int64_t x, int64_t y) {
  if (!IS_PLAIN(y)) {
    return TRUNC_INT(x, y);
  }
  const int64_t quotient = divide_whole(x, y);
  return quotient - (quotient * y != x && (x < 0) != (y < 0));
}
KERNEL_INLINE int64_t remainder_int(int64_t x, int64_t y) {
  if (!IS_PLAIN(y)) {
    return 0;
  }
  const int64_t rest = x - divide_whole(x, y) * y;
  return rest != 0 && (x < 0) != (y < 0) ? rest + y : rest;
}

KERNEL_INLINE int64_t pow_int(int64_t base, int64_t exponent) {
  uint64_t result = 1, factor = (uint64_t)base;
  if (exponent < 0) {
    return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  }
  for (; exponent; exponent >>= 1) {
    result *= exponent & 1 ? factor : 1;
    factor *= factor;
  }
  return (int64_t)result;
}

#define INTEGER(tag, type, arith)                                       \
  LOOP_PLAIN_2(div_trunc_##tag, type, type, arith, TRUNC_INT(x, y))     \
  LOOP_PLAIN_2(div_floor_##tag, type, type, arith, floor_int(x, y))     \
  LOOP_PLAIN_2(remainder_##tag, type, type, arith, remainder_int(x, y)) \
  LOOP_PLAIN_2(power_##tag, type, type, int64_t, pow_int(x, y))
LOOP_LIST_INT(INTEGER)
LOOP_PLAIN_2(power_bool, uint8_t, uint8_t, uint32_t, x | (y == 0))

#define FLOAT_PARTS(tag, type, fmod_, floor_, copysign_)                     \
  KERNEL_INLINE type remainder_one_##tag(type x, type y) {                   \
    const type mod = fmod_(x, y);                                            \
    return mod != 0 && (y < 0) != (mod < 0) ? mod + y : mod;                 \
  }                                                                          \
  KERNEL_INLINE type floor_one_##tag(type x, type y) {                       \
    if (y == 0) {                                                            \
      return x / y;                                                          \
    }                                                                        \
    const type mod = fmod_(x, y);                                            \
    type quotient = (x - mod) / y;                                           \
    quotient = mod != 0 && (y < 0) != (mod < 0) ? quotient - 1 : quotient;   \
    if (quotient == 0) {                                                     \
      return copysign_((type)0, x / y);                                      \
    }                                                                        \
    const type whole = floor_(quotient);                                     \
    return quotient - whole > (type)0.5 ? whole + 1 : whole;                 \
  }                                                                          \
  LOOP_PLAIN_2(remainder_##tag, type, type, type, remainder_one_##tag(x, y)) \
  LOOP_PLAIN_2(div_floor_##tag, type, type, type, floor_one_##tag(x, y))
FLOAT_PARTS(f32, float, fmodf, floorf, copysignf)
FLOAT_PARTS(f64, double, fmod, floor, copysign)
#ifdef LOOP_PARAMS
/// The remainder by division in double is exact while the quotient has few bits: such blocks become SIMD, the others go
/// element by element.
#define QUOTIENT_MAX 0x1p28f
#define EXACT_BLOCK 256
KERNEL_INLINE float fmod_f32(float x, float y) {
  const double quotient = trunc((double)x / (double)y);
  return copysignf((float)((double)x - quotient * (double)y), x);
}
KERNEL_INLINE float remainder_fast(float x, float y) {
  const float mod = fmod_f32(x, y);
  return ((mod != 0) & ((y < 0) != (mod < 0))) ? mod + y : mod;
}
KERNEL_INLINE float floor_fast(float x, float y) {
  const float mod = fmod_f32(x, y), full = (x - mod) / y;
  const float quotient = ((mod != 0) & ((y < 0) != (mod < 0))) ? full - 1 : full;
  const float whole = floorf(quotient), value = quotient - whole > 0.5f ? whole + 1 : whole;
  return quotient == 0 ? copysignf(0, x / y) : value;
}
#define EXACT(name, fast)                                                                                             \
  LOOP_2(name##_block, float, float, float, fast(x, y))                                                               \
  static void name##_loop LOOP_PARAMS {                                                                               \
    for (int64_t i = 0; i < count; i += EXACT_BLOCK) {                                                                \
      const float *p = (const float *)in[0] + i, *q = (const float *)in[1] + i;                                       \
      const int64_t n = count - i < EXACT_BLOCK ? count - i : EXACT_BLOCK;                                            \
      int is_large = 0;                                                                                               \
      for (int64_t k = 0; k < n; k++) {                                                                               \
        is_large |= !(fabsf(p[k]) < QUOTIENT_MAX * fabsf(q[k])) | !(fabsf(q[k]) < INFINITY);                          \
      }                                                                                                               \
      (is_large ? name##_f32 : name##_block)(parameters, (void *[]){(float *)out[0] + i}, (const void *[]){p, q}, n); \
    }                                                                                                                 \
  }
EXACT(remainder, remainder_fast)
EXACT(div_floor, floor_fast)
/// Whole numbers below 2^53 by division in double: a fraction is further from the next whole number than its rounding
/// reaches.
#define WHOLE_BITS 53
LOOP_2(div_floor_whole_block, int64_t, int64_t, int64_t, (int64_t)floor((double)x / (double)y))
static void div_floor_whole LOOP_PARAMS {
  for (int64_t i = 0; i < count; i += EXACT_BLOCK) {
    const int64_t *p = (const int64_t *)in[0] + i, *q = (const int64_t *)in[1] + i;
    const int64_t n = count - i < EXACT_BLOCK ? count - i : EXACT_BLOCK;
    uint64_t bits = 0;
    int is_zero = 0;
    for (int64_t k = 0; k < n; k++) {
      bits |= (uint64_t)(p[k] ^ p[k] >> 63) | (uint64_t)(q[k] ^ q[k] >> 63);
      is_zero |= q[k] == 0;
    }
    (is_zero | (bits >> WHOLE_BITS != 0) ? div_floor_i64 : div_floor_whole_block)(
        parameters, (void *[]){(int64_t *)out[0] + i}, (const void *[]){p, q}, n);
  }
}
#else
LOOP_PLAIN_2(div_floor_whole, int64_t, int64_t, int64_t, floor_int(x, y))
LOOP_2(remainder_loop, float, float, float, remainder_one_f32(x, y))
LOOP_2(div_floor_loop, float, float, float, floor_one_f32(x, y))
#endif
LOOP_2(div_trunc_f32, float, float, float, truncf(x / y))
LOOP_2(div_trunc_f64, double, double, double, trunc(x / y))
// PyTorch divides half types in their own precision before it cuts
LOOP_2(div_trunc_f16, float, float, float, truncf(half_to_float(half_from_float(x / y))))
LOOP_2(div_trunc_bf16, float, float, float, truncf(bfloat_to_float(bfloat_from_float(x / y))))
LOOP_2(power_f32, float, float, float, pow_f32(x, y))
LOOP_PLAIN_2(power_f64, double, double, double, pow(x, y))
#ifdef LOOP_COMPLEX
#define WHOLE_POWERS(tag, type, arith)                       \
  LOOP_1(square_##tag, type, type, arith, times_##tag(x, x)) \
  LOOP_1(cube_##tag, type, type, arith, times_##tag(times_##tag(x, x), x))
LOOP_LIST_COMPLEX(WHOLE_POWERS)
LOOP_PLAIN_2(power_c64, float _Complex, float _Complex, float _Complex, cpowf(x, y))
LOOP_PLAIN_2(power_c128, double _Complex, double _Complex, double _Complex, cpow(x, y))
#endif

// x ^ number for the exponents that have a shorter way
#define POWERS(X)                      \
  X(square, 2.0, x *x)                 \
  X(cube, 3.0, x *x *x)                \
  X(inverse, -1.0, 1 / x)              \
  X(inverse_square, -2.0, 1 / (x * x)) \
  X(root, 0.5, LOOP_SQRT(x))           \
  X(inverse_root, -0.5, 1 / LOOP_SQRT(x))
#define POWER_LOOPS(name, exponent, expression)          \
  LOOP_1(name##_f32, float, float, float, expression)    \
  LOOP_1(name##_f64, double, double, double, expression) \
  LOOP_BF16_1(name##_bf16, expression)
POWERS(POWER_LOOPS)
