/// Template: 4-bit weights as floats for vectors of SIMD_BYTES bytes (see SIMD_MULTI_WIDTHS in core/simd.h), which it
/// undefines. No include guard.
#if SIMD_X86 && SIMD_BYTES == 64
#define TARGET SIMD_V4
#elif SIMD_X86 && SIMD_BYTES == 32
#define TARGET SIMD_V3
#else
#define TARGET
#endif
#define WIDTH (SIMD_BYTES / 4)

/// tile[k][j] = nibble j of row k, less 8, for TILE / 8 words of each row; `turn` turns the highest bits of signed
/// ones.
TARGET static void SIMD_NAME(unpack_rows)(float *tile, const uint32_t *words, int64_t row_words, int64_t depth,
                                          uint32_t turn) {
  typedef float floats __attribute__((vector_size(SIMD_BYTES), aligned(4), may_alias));
  typedef uint32_t whole __attribute__((vector_size(SIMD_BYTES)));
  whole shift;
  for (int l = 0; l < WIDTH; l++) {
    shift[l] = 4 * (uint32_t)l % 32;
  }
#if SIMD_X86 && SIMD_BYTES == 64
  whole pick;
  for (int l = 0; l < WIDTH; l++) {
    pick[l] = (uint32_t)l / 8;
  }
#endif
  for (int64_t k = 0; k < depth; k++, words += row_words, tile += TILE) {
#if SIMD_X86 && SIMD_BYTES == 64
    const __m512i all = _mm512_xor_si512(_mm512_loadu_si512((const void *)words), _mm512_set1_epi32((int)turn));
#endif
    _Pragma("GCC unroll 32") for (int v = 0; v < TILE / WIDTH; v++) {
#if SIMD_X86 && SIMD_BYTES == 64
      whole x = (whole)_mm512_permutexvar_epi32((__m512i)(pick + 2 * (uint32_t)v), all);
#else
      whole x = (whole){0} + ((words[v * WIDTH / 8] ^ turn) >> (uint32_t)(4 * (v * WIDTH % 8)));
#endif
      x = ((x >> shift) & 15) - 8;
      *(floats *)(tile + v * WIDTH) = __builtin_convertvector((__typeof__((floats){0} < (floats){0}))x, floats);
    }
  }
}

#if SIMD_X86 && SIMD_BYTES == 64
/// sums[r][j] = or += x row r . column j of the unpacked weights, which are looked up and stay in registers, for M rows
/// (of fewer the last one is repeated) and V vectors at a time.
#define MULTIPLY_PACKED(M, V)                                                                                       \
  SIMD_V4 static void multiply_packed_##M(float *sums, const float *x, int64_t rows, int64_t x_row,                 \
                                          const uint32_t *words, int64_t row_words, int64_t depth, uint32_t turn,   \
                                          bool adds) {                                                              \
    const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);              \
    const __m512i pick = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);                         \
    const __m512 numbers = turn ? _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1)            \
                                : _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);           \
    const float *a[M];                                                                                              \
    for (int m = 0; m < M; m++) {                                                                                   \
      a[m] = x + (m < rows ? m : rows - 1) * x_row;                                                                 \
    }                                                                                                               \
    for (int first = 0; first < TILE / 16; first += V) {                                                            \
      __m512 c[M][V];                                                                                               \
      __m512i place[V];                                                                                             \
      _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) {                                                         \
        place[v] = _mm512_add_epi32(pick, _mm512_set1_epi32(2 * (first + v)));                                      \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                       \
          c[m][v] = adds ? _mm512_loadu_ps(sums + m * TILE + 16 * (first + v)) : _mm512_setzero_ps();               \
        }                                                                                                           \
      }                                                                                                             \
      for (int64_t k = 0; k < depth; k++) {                                                                         \
        const __m512i all = _mm512_loadu_si512((const void *)(words + k * row_words));                              \
        _mm_prefetch((const char *)(words + (k + PACKED_AHEAD) * row_words), _MM_HINT_T0);                          \
        __m512 w[V];                                                                                                \
        _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) {                                                       \
          w[v] = _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_permutexvar_epi32(place[v], all), shift), numbers); \
        }                                                                                                           \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                       \
          const __m512 factor = _mm512_set1_ps(a[m][k]);                                                            \
          _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) {                                                     \
            c[m][v] = _mm512_fmadd_ps(factor, w[v], c[m][v]);                                                       \
          }                                                                                                         \
        }                                                                                                           \
      }                                                                                                             \
      _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                         \
        _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) {                                                       \
          _mm512_storeu_ps(sums + m * TILE + 16 * (first + v), c[m][v]);                                            \
        }                                                                                                           \
      }                                                                                                             \
    }                                                                                                               \
  }
MULTIPLY_PACKED(1, 8)
MULTIPLY_PACKED(4, 4)
MULTIPLY_PACKED(8, 2)
#undef MULTIPLY_PACKED

/// The same for M rows of bfloat16 (exactly M; x holds two neighbours of row 0, of row 1 ...) by processors that add
/// products of such pairs. A nibble less 8 is exact in bfloat16: 32 of them, of two rows of weights, are two
/// permutations and a shift.
#define MULTIPLY_PAIRS(M, V)                                                                                          \
  SIMD_PAIRS static void multiply_pairs_##M(float *sums, const uint32_t *x, const uint32_t *words, int64_t row_words, \
                                            int64_t depth, uint32_t turn, bool adds) {                                \
    const __m512i numbers = _mm512_loadu_si512((const void *)(turn ? pair_signed : pair_unsigned));                   \
    const __m512i shift = _mm512_loadu_si512((const void *)pair_shift);                                               \
    const __m512i front = _mm512_loadu_si512((const void *)pair_place);                                               \
    const __m512i place[2] = {front, _mm512_add_epi16(front, _mm512_set1_epi16(4))};                                  \
    for (int first = 0; first < TILE / 16; first += V) {                                                              \
      __m512 c[M][V];                                                                                                 \
      _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                           \
        _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) {                                                         \
          c[m][v] = adds ? _mm512_loadu_ps(sums + m * TILE + 16 * (first + v)) : _mm512_setzero_ps();                 \
        }                                                                                                             \
      }                                                                                                               \
      for (int64_t k = 0; k < depth; k += 2) {                                                                        \
        const uint32_t *even = words + k * row_words + 2 * first, *odd = even + row_words;                            \
        _mm_prefetch((const char *)(even + PACKED_AHEAD * row_words), _MM_HINT_T0);                                   \
        _mm_prefetch((const char *)(odd + PACKED_AHEAD * row_words), _MM_HINT_T0);                                    \
        __m512bh w[V];                                                                                                \
        _Pragma("GCC unroll 8") for (int v = 0; v < V; v += 2) {                                                      \
          const __m256i both = _mm256_inserti128_si256(                                                               \
              _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(even + 2 * v))),                 \
              _mm_loadu_si128((const __m128i *)(const void *)(odd + 2 * v)), 1);                                      \
          _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++) {                                                       \
            const __m512i q = _mm512_permutexvar_epi16(place[i], _mm512_castsi256_si512(both));                       \
            w[v + i] = (__m512bh)_mm512_permutexvar_epi16(_mm512_srlv_epi16(q, shift), numbers);                      \
          }                                                                                                           \
        }                                                                                                             \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                         \
          const __m512bh factor = (__m512bh)_mm512_set1_epi32((int)x[k / 2 * M + m]);                                 \
          _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) {                                                       \
            c[m][v] = _mm512_dpbf16_ps(c[m][v], w[v], factor);                                                        \
          }                                                                                                           \
        }                                                                                                             \
      }                                                                                                               \
      _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                           \
        _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) {                                                         \
          _mm512_storeu_ps(sums + m * TILE + 16 * (first + v), c[m][v]);                                              \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
  }
MULTIPLY_PAIRS(1, 8)
MULTIPLY_PAIRS(4, 4)
MULTIPLY_PAIRS(8, 2)
#undef MULTIPLY_PAIRS
#endif

#undef TARGET
#undef WIDTH
#undef SIMD_BYTES
