/// Template: the loops of panel.c for vectors of SIMD_BYTES bytes (see SIMD_MULTI_WIDTHS in core/simd.h), which it
/// undefines. No include guard.
#if SIMD_X86 && SIMD_BYTES == 64
#define PART static inline __attribute__((always_inline, target(SIMD_V4_SET)))
#define LOOP SIMD_V4 static
#elif SIMD_X86 && SIMD_BYTES == 32
#define PART static inline __attribute__((always_inline, target(SIMD_V3_SET)))
#define LOOP SIMD_V3 static
#else
#define PART SIMD_INLINE
#define LOOP static
#endif

#define WIDTH (SIMD_BYTES / 4)
#define FLOATS SIMD_NAME(panel_floats)
typedef float FLOATS __attribute__((vector_size(SIMD_BYTES), aligned(4), may_alias));

/// WIDTH elements of a dtype as floats.
#if SIMD_X86 && SIMD_BYTES == 64
#define LOAD_F32(at) (*(const FLOATS *)(const void *)(at))
#define LOAD_BF16(at) \
  (FLOATS) _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(at))), 16)
#define LOAD_F16(at) (FLOATS) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(at)))
#define LOAD_I8(at) \
  (FLOATS) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(at))))
#elif SIMD_X86 && SIMD_BYTES == 32
#define LOAD_F32(at) (*(const FLOATS *)(const void *)(at))
#define LOAD_BF16(at) \
  (FLOATS) _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(at))), 16)
#define LOAD_F16(at) (FLOATS) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(at)))
#define LOAD_I8(at) \
  (FLOATS) _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(at))))
#else
#define LOAD_F32(at) (*(const FLOATS *)(const void *)(at))
#define LOAD_BF16(at) SIMD_NAME(load_narrow)(at, bfloat_to_float)
#define LOAD_F16(at) SIMD_NAME(load_narrow)(at, half_to_float)
#define LOAD_I8(at) SIMD_NAME(load_bytes)(at)
PART FLOATS SIMD_NAME(load_narrow)(const char *at, float (*widen)(uint16_t)) {
  uint16_t from[WIDTH];
  FLOATS x;
  memcpy(from, at, sizeof from);
  for (int i = 0; i < WIDTH; i++) {
    x[i] = widen(from[i]);
  }
  return x;
}
PART FLOATS SIMD_NAME(load_bytes)(const char *at) {
  FLOATS x;
  for (int i = 0; i < WIDTH; i++) {
    x[i] = (float)((const int8_t *)at)[i];
  }
  return x;
}
#endif

/// `count` < WIDTH elements, zeros behind them.
#define LOAD_TAIL(x, load, at, count, size)            \
  do {                                                 \
    _Alignas(SIMD_BYTES) char tail_[SIMD_BYTES] = {0}; \
    memcpy(tail_, at, (size_t)((count) * (size)));     \
    (x) = load(tail_);                                 \
  } while (0)

/// Sums of the lanes of four vectors.
PART void SIMD_NAME(fold)(float *out, FLOATS a, FLOATS b, FLOATS c, FLOATS d) {
#if SIMD_X86 && SIMD_BYTES >= 32
#if SIMD_BYTES == 64
#define HALVES(x) _mm256_add_ps(_mm512_castps512_ps256((__m512)(x)), _mm512_extractf32x8_ps((__m512)(x), 1))
#else
#define HALVES(x) (__m256)(x)
#endif
  const __m256 ab = _mm256_hadd_ps(HALVES(a), HALVES(b)), cd = _mm256_hadd_ps(HALVES(c), HALVES(d));
  const __m256 all = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
#undef HALVES
#else
  const FLOATS *const vectors[4] = {&a, &b, &c, &d};
  for (int i = 0; i < 4; i++) {
    float sum = 0;
    for (int l = 0; l < WIDTH; l++) {
      sum += (*vectors[i])[l];
    }
    out[i] = sum;
  }
#endif
}

/// Asks for rows j + PANEL_AHEAD on, one head of them.
PART void SIMD_NAME(look_ahead)(const struct panel_few *f, int64_t j, int64_t n, int64_t offset, int64_t bytes) {
  const int64_t all = f->count + f->ahead, end = j + PANEL_AHEAD + n < all ? j + PANEL_AHEAD + n : all;
  for (int64_t row = j + PANEL_AHEAD; row < end; row++) {
    for (int64_t i = 0; i < bytes; i += 64) {
      __builtin_prefetch(f->rows[row] + offset + i);
    }
  }
}

/// `R` rows of x by four rows.
#define DOT_BLOCK(kind, size, R)                                                                        \
  PART void SIMD_NAME(dot_##kind##_##R)(float *out, int64_t out_row, const float *x, int64_t x_row,     \
                                        const char *const *rows, int64_t offset, int64_t width) {       \
    FLOATS sums[R][4] = {{{0}}};                                                                        \
    const char *const k[4] = {rows[0] + offset, rows[1] + offset, rows[2] + offset, rows[3] + offset};  \
    int64_t i = 0;                                                                                      \
    for (; i + WIDTH <= width; i += WIDTH) {                                                            \
      const FLOATS k0 = LOAD_##kind(k[0] + i * (size)), k1 = LOAD_##kind(k[1] + i * (size));            \
      const FLOATS k2 = LOAD_##kind(k[2] + i * (size)), k3 = LOAD_##kind(k[3] + i * (size));            \
      _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {                                             \
        const FLOATS q = *(const FLOATS *)(x + r * x_row + i);                                          \
        sums[r][0] += q * k0, sums[r][1] += q * k1, sums[r][2] += q * k2, sums[r][3] += q * k3;         \
      }                                                                                                 \
    }                                                                                                   \
    if (i < width) {                                                                                    \
      FLOATS t[4];                                                                                      \
      for (int j = 0; j < 4; j++) {                                                                     \
        LOAD_TAIL(t[j], LOAD_##kind, k[j] + i * (size), width - i, size);                               \
      }                                                                                                 \
      _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {                                             \
        const FLOATS q = *(const FLOATS *)(x + r * x_row + i);                                          \
        sums[r][0] += q * t[0], sums[r][1] += q * t[1], sums[r][2] += q * t[2], sums[r][3] += q * t[3]; \
      }                                                                                                 \
    }                                                                                                   \
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {                                               \
      SIMD_NAME(fold)(out + r * out_row, sums[r][0], sums[r][1], sums[r][2], sums[r][3]);               \
    }                                                                                                   \
  }

/// Four rows for all heads, then the next four; the last, incomplete four repeat the last one, whose sums are not kept.
#define DOT(kind, size)                                                                                          \
  DOT_BLOCK(kind, size, 1)                                                                                       \
  DOT_BLOCK(kind, size, 2)                                                                                       \
  DOT_BLOCK(kind, size, 4)                                                                                       \
  PART void SIMD_NAME(dot_head_##kind)(const struct panel_few *f, const char *const *rows, int64_t j, int64_t n, \
                                       int64_t head) {                                                           \
    const int64_t offset = f->offset + head * f->head;                                                           \
    SIMD_NAME(look_ahead)(f, j, n, offset, f->width * (size));                                                   \
    for (int64_t r = 0; r < f->few;) {                                                                           \
      const int64_t step = f->few - r >= 4 ? 4 : f->few - r >= 2 ? 2 : 1, out_row = n == 4 ? f->out_row : 4;     \
      float room[16], *last = f->out + head * f->out_head + r * f->out_row + j, *out = n == 4 ? last : room;     \
      const float *x = f->x + head * f->x_head + r * f->x_row;                                                   \
      if (step == 4) {                                                                                           \
        SIMD_NAME(dot_##kind##_4)(out, out_row, x, f->x_row, rows, offset, f->width);                            \
      } else if (step == 2) {                                                                                    \
        SIMD_NAME(dot_##kind##_2)(out, out_row, x, f->x_row, rows, offset, f->width);                            \
      } else {                                                                                                   \
        SIMD_NAME(dot_##kind##_1)(out, out_row, x, f->x_row, rows, offset, f->width);                            \
      }                                                                                                          \
      for (int64_t i = 0; i < step && n < 4; i++) {                                                              \
        memcpy(last + i * f->out_row, room + i * 4, sizeof(float) * (size_t)n);                                  \
      }                                                                                                          \
      r += step;                                                                                                 \
    }                                                                                                            \
  }                                                                                                              \
  LOOP void SIMD_NAME(dot_##kind)(const struct panel_few *f) {                                                   \
    for (int64_t j = 0; j < f->count; j += 4) {                                                                  \
      const int64_t n = f->count - j < 4 ? f->count - j : 4;                                                     \
      const char *rows[4];                                                                                       \
      for (int64_t i = 0; i < 4; i++) {                                                                          \
        rows[i] = f->rows[j + (i < n ? i : n - 1)];                                                              \
      }                                                                                                          \
      for (int64_t head = 0; head < f->heads; head++) {                                                          \
        SIMD_NAME(dot_head_##kind)(f, rows, j, n, head);                                                         \
      }                                                                                                          \
    }                                                                                                            \
  }

/// `R` rows of out, `V` vectors of each, from element `i` on.
#define ADD_BLOCK(kind, size, R, V)                                                                                \
  PART void SIMD_NAME(add_##kind##_##R##_##V)(float *out, int64_t out_row, const float *x, int64_t x_row,          \
                                              const char *const *rows, int64_t offset, int64_t count, int64_t i) { \
    FLOATS sums[R][V];                                                                                             \
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {                                                          \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; v++) {                                                        \
        sums[r][v] = *(const FLOATS *)(out + r * out_row + i + v * WIDTH);                                         \
      }                                                                                                            \
    }                                                                                                              \
    for (int64_t j = 0; j < count; j++) {                                                                          \
      const char *at = rows[j] + offset + i * (size);                                                              \
      FLOATS row[V];                                                                                               \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; v++) {                                                        \
        row[v] = LOAD_##kind(at + v * WIDTH * (size));                                                             \
      }                                                                                                            \
      _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {                                                        \
        const float factor = x[r * x_row + j];                                                                     \
        _Pragma("GCC unroll 4") for (int v = 0; v < V; v++) {                                                      \
          sums[r][v] += factor * row[v];                                                                           \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {                                                          \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; v++) {                                                        \
        *(FLOATS *)(out + r * out_row + i + v * WIDTH) = sums[r][v];                                               \
      }                                                                                                            \
    }                                                                                                              \
  }

#define ADD_ROWS(kind, size, R)                                                                                  \
  ADD_BLOCK(kind, size, R, 4)                                                                                    \
  ADD_BLOCK(kind, size, R, 1)                                                                                    \
  PART void SIMD_NAME(add_##kind##_##R)(float *out, int64_t out_row, const float *x, int64_t x_row,              \
                                        const char *const *rows, int64_t offset, int64_t count, int64_t width) { \
    int64_t i = 0;                                                                                               \
    for (; i + 4 * WIDTH <= width; i += 4 * WIDTH) {                                                             \
      SIMD_NAME(add_##kind##_##R##_4)(out, out_row, x, x_row, rows, offset, count, i);                           \
    }                                                                                                            \
    for (; i + WIDTH <= width; i += WIDTH) {                                                                     \
      SIMD_NAME(add_##kind##_##R##_1)(out, out_row, x, x_row, rows, offset, count, i);                           \
    }                                                                                                            \
    for (int64_t j = 0; j < count && i < width; j++) {                                                           \
      FLOATS row;                                                                                                \
      LOAD_TAIL(row, LOAD_##kind, rows[j] + offset + i * (size), width - i, size);                               \
      for (int r = 0; r < R; r++) {                                                                              \
        *(FLOATS *)(out + r * out_row + i) += x[r * x_row + j] * row;                                            \
      }                                                                                                          \
    }                                                                                                            \
  }

/// Eight rows for all heads, then the next eight.
#define ADD(kind, size)                                                                                 \
  ADD_ROWS(kind, size, 1)                                                                               \
  ADD_ROWS(kind, size, 2)                                                                               \
  ADD_ROWS(kind, size, 4)                                                                               \
  PART void SIMD_NAME(add_head_##kind)(const struct panel_few *f, int64_t j, int64_t n, int64_t head) { \
    const int64_t offset = f->offset + head * f->head;                                                  \
    SIMD_NAME(look_ahead)(f, j, n, offset, f->width * (size));                                          \
    for (int64_t r = 0; r < f->few;) {                                                                  \
      const int64_t step = f->few - r >= 4 ? 4 : f->few - r >= 2 ? 2 : 1;                               \
      float *out = f->out + head * f->out_head + r * f->out_row;                                        \
      const float *x = f->x + head * f->x_head + r * f->x_row + j;                                      \
      if (step == 4) {                                                                                  \
        SIMD_NAME(add_##kind##_4)(out, f->out_row, x, f->x_row, f->rows + j, offset, n, f->width);      \
      } else if (step == 2) {                                                                           \
        SIMD_NAME(add_##kind##_2)(out, f->out_row, x, f->x_row, f->rows + j, offset, n, f->width);      \
      } else {                                                                                          \
        SIMD_NAME(add_##kind##_1)(out, f->out_row, x, f->x_row, f->rows + j, offset, n, f->width);      \
      }                                                                                                 \
      r += step;                                                                                        \
    }                                                                                                   \
  }                                                                                                     \
  LOOP void SIMD_NAME(add_##kind)(const struct panel_few *f) {                                          \
    for (int64_t j = 0; j < f->count; j += 8) {                                                         \
      for (int64_t head = 0; head < f->heads; head++) {                                                 \
        SIMD_NAME(add_head_##kind)(f, j, f->count - j < 8 ? f->count - j : 8, head);                    \
      }                                                                                                 \
    }                                                                                                   \
  }

DOT(F32, 4)
DOT(BF16, 2)
DOT(F16, 2)
DOT(I8, 1)
ADD(F32, 4)
ADD(BF16, 2)
ADD(F16, 2)
ADD(I8, 1)

/// `M` rows of c, `V` vectors of each: they stay in registers.
#define MULTIPLY_BLOCK(M, V)                                                                        \
  PART void SIMD_NAME(multiply_##M##_##V)(const struct panel_product *p, int64_t i, int64_t lane) { \
    FLOATS sums[M][V] = {{{0}}};                                                                    \
    float *c = p->c + i * p->c_row + lane;                                                          \
    const float *a = p->a + i * p->a_row, *b = p->b + lane;                                         \
    const int64_t a_row = p->a_row, a_column = p->a_column, b_row = p->b_row;                       \
    for (int64_t k = 0; k < p->k; k++, a += a_column, b += b_row) {                                 \
      FLOATS x[V];                                                                                  \
      _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) {                                         \
        x[v] = *(const FLOATS *)(b + v * WIDTH);                                                    \
      }                                                                                             \
      _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                         \
        const float factor = a[m * a_row];                                                          \
        _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) {                                       \
          sums[m][v] += factor * x[v];                                                              \
        }                                                                                           \
      }                                                                                             \
    }                                                                                               \
    _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                           \
      _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) {                                         \
        FLOATS *to = (FLOATS *)(c + m * p->c_row + v * WIDTH);                                      \
        if (p->adds) {                                                                              \
          sums[m][v] += *to;                                                                        \
        }                                                                                           \
        *to = sums[m][v];                                                                           \
      }                                                                                             \
    }                                                                                               \
  }
MULTIPLY_BLOCK(8, 1)
MULTIPLY_BLOCK(1, 1)
#if SIMD_BYTES == 64  // narrower ones have half as many registers
MULTIPLY_BLOCK(4, 4)
MULTIPLY_BLOCK(1, 4)
#endif

LOOP void SIMD_NAME(multiply)(const struct panel_product *p) {
  int64_t lane = 0;
#if SIMD_BYTES == 64
  for (; lane + 4 * WIDTH <= p->lanes; lane += 4 * WIDTH) {
    int64_t i = 0;
    for (; i + 4 <= p->m; i += 4) {
      SIMD_NAME(multiply_4_4)(p, i, lane);
    }
    for (; i < p->m; i++) {
      SIMD_NAME(multiply_1_4)(p, i, lane);
    }
  }
#endif
  for (; lane < p->lanes; lane += WIDTH) {
    int64_t i = 0;
    for (; i + 8 <= p->m; i += 8) {
      SIMD_NAME(multiply_8_1)(p, i, lane);
    }
    for (; i < p->m; i++) {
      SIMD_NAME(multiply_1_1)(p, i, lane);
    }
  }
}

#undef PART
#undef LOOP
#undef WIDTH
#undef FLOATS
#undef LOAD_F32
#undef LOAD_BF16
#undef LOAD_F16
#undef LOAD_I8
#undef LOAD_TAIL
#undef DOT_BLOCK
#undef DOT
#undef ADD_BLOCK
#undef ADD_ROWS
#undef ADD
#undef MULTIPLY_BLOCK
#undef SIMD_BYTES
