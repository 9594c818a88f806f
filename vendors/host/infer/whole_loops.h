/// Template: dot products of int8 rows for vectors of SIMD_BYTES bytes (see SIMD_MULTI_WIDTHS in core/simd.h), which it
/// undefines. No include guard.
///
/// out[r * 4 + j] = a row r . b row j for WHOLE_ROWS by 4 rows; a is widened already and padded with zeros to
/// WHOLE_PAD elements. 16 bit products are added in pairs: sums of up to WHOLE_DEPTH elements fit 32 bits.
#if SIMD_X86 && SIMD_BYTES == 64
#define VECTOR __m512i
#define ZERO _mm512_setzero_si512()
#define WIDEN(at) _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(at)))
#define LOAD(at) _mm512_loadu_si512((const void *)(at))
#define ADD_PRODUCTS(sum, x, y) _mm512_add_epi32(sum, _mm512_madd_epi16(x, y))
#define HALF(x) _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1))
#define STEP 32
#define ROWS 4
#elif SIMD_X86 && SIMD_BYTES == 32
#define VECTOR __m256i
#define ZERO _mm256_setzero_si256()
#define WIDEN(at) _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(at)))
#define LOAD(at) _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define ADD_PRODUCTS(sum, x, y) _mm256_add_epi32(sum, _mm256_madd_epi16(x, y))
#define HALF(x) (x)
#define STEP 16
#define ROWS 2
#endif

#ifdef STEP
#if SIMD_BYTES == 64
SIMD_V4
#else
SIMD_V3
#endif
static void SIMD_NAME(dot_whole)(int32_t *out, const int16_t *const *a, const int8_t *const *b, int64_t width) {
  for (int first = 0; first < WHOLE_ROWS; first += ROWS) {
    VECTOR sums[ROWS][4];
    for (int r = 0; r < ROWS; r++) {
      sums[r][0] = sums[r][1] = sums[r][2] = sums[r][3] = ZERO;
    }
    for (int64_t i = 0; i < width; i += STEP) {
      VECTOR y[4];
      if (i + STEP <= width) {
        y[0] = WIDEN(b[0] + i), y[1] = WIDEN(b[1] + i), y[2] = WIDEN(b[2] + i), y[3] = WIDEN(b[3] + i);
      } else {
        for (int j = 0; j < 4; j++) {
          int8_t tail[STEP] = {0};
          memcpy(tail, b[j] + i, (size_t)(width - i));
          y[j] = WIDEN(tail);
        }
      }
      for (int r = 0; r < ROWS; r++) {
        const VECTOR x = LOAD(a[first + r] + i);
        sums[r][0] = ADD_PRODUCTS(sums[r][0], x, y[0]);
        sums[r][1] = ADD_PRODUCTS(sums[r][1], x, y[1]);
        sums[r][2] = ADD_PRODUCTS(sums[r][2], x, y[2]);
        sums[r][3] = ADD_PRODUCTS(sums[r][3], x, y[3]);
      }
    }
    for (int r = 0; r < ROWS; r++) {
      const __m256i front = _mm256_hadd_epi32(HALF(sums[r][0]), HALF(sums[r][1]));
      const __m256i back = _mm256_hadd_epi32(HALF(sums[r][2]), HALF(sums[r][3]));
      const __m256i all = _mm256_hadd_epi32(front, back);
      const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
      _mm_storeu_si128((__m128i *)(void *)(out + 4 * (first + r)), four);
    }
  }
}
#else
static void SIMD_NAME(dot_whole)(int32_t *out, const int16_t *const *a, const int8_t *const *b, int64_t width) {
  for (int i = 0; i < 4 * WHOLE_ROWS; i++) {
    const int16_t *x = a[i / 4];
    const int8_t *y = b[i % 4];
    int32_t sum = 0;
    for (int64_t k = 0; k < width; k++) {
      sum += (int32_t)x[k] * y[k];
    }
    out[i] = sum;
  }
}
#endif

#undef VECTOR
#undef ZERO
#undef WIDEN
#undef LOAD
#undef ADD_PRODUCTS
#undef HALF
#undef STEP
#undef ROWS
#undef SIMD_BYTES
