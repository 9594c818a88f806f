/// Template: sums in SUM_LANES fixed lanes with vectors of SIMD_BYTES bytes (see SIMD_MULTI_WIDTHS in core/simd.h).
///
/// Element i goes to lane i mod SUM_LANES whatever the width, and the lanes are folded as one tree: every width gives
/// the same bits, provided that the including file is compiled without contraction or forms exact products alone.
/// LANES_KERNELS is what the including file makes of the parts. No include guard: included once for each SIMD_BYTES,
/// which it undefines.
#if SIMD_X86 && SIMD_BYTES == 64
#define PART static inline __attribute__((always_inline, target(SIMD_V4_SET)))
#define KERNEL SIMD_V4 static
#elif SIMD_X86 && SIMD_BYTES == 32
#define PART static inline __attribute__((always_inline, target(SIMD_V3_SET)))
#define KERNEL SIMD_V3 static
#else
#define PART SIMD_INLINE
#define KERNEL static
#endif

#define WIDTH (SIMD_BYTES / 8)
#define VECTORS (SUM_LANES / WIDTH)

#define DOUBLES SIMD_NAME(doubles)
#define LONGS SIMD_NAME(longs)
#define FLOATS SIMD_NAME(floats)
typedef double DOUBLES __attribute__((vector_size(SIMD_BYTES)));
typedef int64_t LONGS __attribute__((vector_size(SIMD_BYTES)));
typedef float FLOATS __attribute__((vector_size(SIMD_BYTES / 2)));

/// Where the compiler's own code for vectors of this width is poor, the instruction itself.
#if SIMD_X86 && SIMD_BYTES == 64
#define CONVERT(narrow) (DOUBLES) _mm512_cvtps_pd((__m256)(narrow))
#define LARGER(x, y) (DOUBLES) _mm512_max_pd((__m512d)(x), (__m512d)(y))
#define WIDEN_BRAIN(at) _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(at))), 16)
#define WIDEN_HALF(at) _mm256_cvtph_ps(_mm_loadu_si128((const void *)(at)))
#define ANY(bits) (_mm512_test_epi64_mask((__m512i)(bits), (__m512i)(bits)) != 0)
#elif SIMD_X86 && SIMD_BYTES == 32
#define CONVERT(narrow) (DOUBLES) _mm256_cvtps_pd((__m128)(narrow))
#define LARGER(x, y) (DOUBLES) _mm256_max_pd((__m256d)(x), (__m256d)(y))
#define ANY(bits) (!_mm256_testz_si256((__m256i)(bits), (__m256i)(bits)))
#elif SIMD_X86
#define CONVERT(narrow) __builtin_convertvector(narrow, DOUBLES)
#define LARGER(x, y) (DOUBLES) _mm_max_pd((__m128d)(x), (__m128d)(y))
#define ANY(bits) (((bits)[0] | (bits)[1]) != 0)
#else
#define CONVERT(narrow) __builtin_convertvector(narrow, DOUBLES)
#define LARGER(x, y) SIMD_NAME(get_larger)(x, y)
#define ANY(bits) (((bits)[0] | (bits)[1]) != 0)
PART DOUBLES SIMD_NAME(get_larger)(DOUBLES x, DOUBLES y) {
  LONGS first = x > y;
  return (DOUBLES)(((LONGS)x & first) | ((LONGS)y & ~first));
}
#endif

/// The `vector`-th WIDTH numbers from `values`.
PART DOUBLES SIMD_NAME(load)(const void *values, int vector, enum lane_source source) {
  DOUBLES x;
  FLOATS narrow;
  int64_t first = vector * WIDTH;
  if (source == LANE_DOUBLE) {
    memcpy(&x, (const double *)values + first, sizeof(x));
    return x;
  }
#ifdef WIDEN_HALF
  if (source == LANE_BRAIN) {
    return CONVERT(WIDEN_BRAIN((const uint16_t *)values + first));
  }
  if (source == LANE_HALF) {
    return CONVERT(WIDEN_HALF((const uint16_t *)values + first));
  }
#endif
  memcpy(&narrow, (const float *)values + first, sizeof(narrow));
  return CONVERT(narrow);
}

/// The lanes' sum: lane i with lane i + 8, then + 4, + 2, + 1.
PART double SIMD_NAME(fold)(DOUBLES *sums) {
  for (int half = VECTORS / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; k++) {
      sums[k] += sums[k + half];
    }
  }
  double lanes[8] = {0};
  memcpy(lanes, sums, sizeof(*sums));
  if (WIDTH == 8) {
    lanes[0] += lanes[4], lanes[1] += lanes[5], lanes[2] += lanes[6], lanes[3] += lanes[7];
  }
  if (WIDTH >= 4) {
    lanes[0] += lanes[2], lanes[1] += lanes[3];
  }
  return lanes[0] + lanes[1];
}

PART double SIMD_NAME(fold_larger)(const DOUBLES *x) {
  double lanes[SUM_LANES], larger = 0;
  memcpy(lanes, x, sizeof(lanes));
  for (int lane = 0; lane < SUM_LANES; lane++) {
    larger = lanes[lane] > larger ? lanes[lane] : larger;
  }
  return larger;
}

PART const void *SIMD_NAME(reach)(const void *values, int64_t index, enum lane_source source) {
  int64_t size = source == LANE_DOUBLE ? sizeof(double) : source == LANE_FLOAT ? sizeof(float) : sizeof(uint16_t);
  return (const char *)values + index * size;
}

/// A copy of the last `count` numbers, fewer than SUM_LANES, filled up with `fill` (16-bit floats: with 0).
PART void SIMD_NAME(copy_rest)(const void *at, int64_t count, enum lane_source source, double fill, double *room) {
  for (int64_t lane = 0; lane < SUM_LANES; lane++) {
    if (source == LANE_DOUBLE) {
      room[lane] = fill;
    } else {
      ((float *)room)[lane] = (float)fill;
    }
  }
  memcpy(room, at, (size_t)((const char *)SIMD_NAME(reach)(at, count, source) - (const char *)at));
}

struct SIMD_NAME(single_lanes) {
  DOUBLES sum[VECTORS], square[VECTORS];
};

/// The next SUM_LANES numbers.
PART void SIMD_NAME(add_one)(struct SIMD_NAME(single_lanes) * lanes, const void *at, enum lane_source source,
                             bool shifted, double shift) {
  for (int k = 0; k < VECTORS; k++) {
    DOUBLES x = SIMD_NAME(load)(at, k, source);
    x = shifted ? x - shift : x;
    lanes->sum[k] += x;
    lanes->square[k] += x * x;
  }
}

/// Sums of x - shift and of its square; `shifted` false: of x itself.
PART void SIMD_NAME(sum_one)(const void *values, int64_t count, enum lane_source source, bool shifted, double shift,
                             struct single_sums *out) {
  struct SIMD_NAME(single_lanes) lanes;
  int64_t i = 0;
  for (int k = 0; k < VECTORS; k++) {
    lanes.sum[k] = lanes.square[k] = (DOUBLES){0};
  }
  for (; i + SUM_LANES <= count; i += SUM_LANES) {
    SIMD_NAME(add_one)(&lanes, SIMD_NAME(reach)(values, i, source), source, shifted, shift);
  }
  if (i < count) {
    double room[SUM_LANES];
    SIMD_NAME(copy_rest)(SIMD_NAME(reach)(values, i, source), count - i, source, shifted ? shift : 0, room);
    SIMD_NAME(add_one)(&lanes, room, source, shifted, shift);
  }
  out->sum = SIMD_NAME(fold)(lanes.sum);
  out->square = SIMD_NAME(fold)(lanes.square);
}

struct SIMD_NAME(pair_lanes) {
  DOUBLES dot[VECTORS], square_a[VECTORS], square_b[VECTORS], abs_diff[VECTORS], max_diff[VECTORS];
};

PART void SIMD_NAME(add_two)(struct SIMD_NAME(pair_lanes) * lanes, const void *a, const void *b,
                             enum lane_source source) {
  for (int k = 0; k < VECTORS; k++) {
    DOUBLES x = SIMD_NAME(load)(a, k, source), y = SIMD_NAME(load)(b, k, source);
    DOUBLES diff = (DOUBLES)((LONGS)(x - y) & INT64_MAX);
    lanes->dot[k] += x * y;
    lanes->square_a[k] += x * x;
    lanes->square_b[k] += y * y;
    lanes->abs_diff[k] += diff;
    lanes->max_diff[k] = LARGER(diff, lanes->max_diff[k]);
  }
}

PART void SIMD_NAME(sum_two)(const void *a, const void *b, int64_t count, enum lane_source source,
                             struct pair_sums *out) {
  struct SIMD_NAME(pair_lanes) lanes;
  int64_t i = 0;
  for (int k = 0; k < VECTORS; k++) {
    lanes.dot[k] = lanes.square_a[k] = lanes.square_b[k] = lanes.abs_diff[k] = lanes.max_diff[k] = (DOUBLES){0};
  }
  for (; i + SUM_LANES <= count; i += SUM_LANES) {
    SIMD_NAME(add_two)(&lanes, SIMD_NAME(reach)(a, i, source), SIMD_NAME(reach)(b, i, source), source);
  }
  if (i < count) {
    double room[2][SUM_LANES];
    SIMD_NAME(copy_rest)(SIMD_NAME(reach)(a, i, source), count - i, source, 0, room[0]);
    SIMD_NAME(copy_rest)(SIMD_NAME(reach)(b, i, source), count - i, source, 0, room[1]);
    SIMD_NAME(add_two)(&lanes, room[0], room[1], source);
  }
  out->dot = SIMD_NAME(fold)(lanes.dot);
  out->square_a = SIMD_NAME(fold)(lanes.square_a);
  out->square_b = SIMD_NAME(fold)(lanes.square_b);
  out->abs_diff = SIMD_NAME(fold)(lanes.abs_diff);
  out->max_diff = SIMD_NAME(fold_larger)(lanes.max_diff);
}

/// Do SUM_LANES floats have the same bits on both sides?
PART bool SIMD_NAME(is_same)(const float *a, const float *b) {
  LONGS differ = {0}, x, y;
  for (int k = 0; k < SUM_LANES; k += (int)(sizeof(x) / sizeof(float))) {
    memcpy(&x, a + k, sizeof(x));
    memcpy(&y, b + k, sizeof(y));
    differ |= x ^ y;
  }
  return !ANY(differ);
}

PART void SIMD_NAME(split)(const float *a, const float *b, int64_t count, struct pair_split *out) {
  DOUBLES square[VECTORS];
  int64_t other = 0, i = 0;
  for (int k = 0; k < VECTORS; k++) {
    square[k] = (DOUBLES){0};
  }
  for (; i + SUM_LANES <= count; i += SUM_LANES) {
    if (!SIMD_NAME(is_same)(a + i, b + i)) {
      memcpy(out->left + other, a + i, SUM_LANES * sizeof(float));
      memcpy(out->right + other, b + i, SUM_LANES * sizeof(float));
      other += SUM_LANES;
      continue;
    }
    for (int k = 0; k < VECTORS; k++) {
      DOUBLES x = SIMD_NAME(load)(a + i, k, LANE_FLOAT);
      square[k] += x * x;
    }
  }
  memcpy(out->left + other, a + i, (size_t)(count - i) * sizeof(float));
  memcpy(out->right + other, b + i, (size_t)(count - i) * sizeof(float));
  out->square = SIMD_NAME(fold)(square);
  out->count = other + count - i;
}

LANES_KERNELS

#undef PART
#undef KERNEL
#undef WIDTH
#undef VECTORS
#undef DOUBLES
#undef LONGS
#undef FLOATS
#undef CONVERT
#undef LARGER
#undef WIDEN_BRAIN
#undef WIDEN_HALF
#undef ANY
#undef SIMD_BYTES
