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

/// tile[k][j] = nibble j of row k + zeros[j], for TILE / 8 words of each row.
TARGET static void SIMD_NAME(unpack_rows)(float *tile, const uint32_t *words, int64_t row_words, const float *zeros,
                                          int64_t depth, uint32_t turn) {
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
    const __m512i all = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)words));
#endif
    _Pragma("GCC unroll 16") for (int v = 0; v < TILE / WIDTH; v++) {
#if SIMD_X86 && SIMD_BYTES == 64
      whole x = (whole)_mm512_permutexvar_epi32((__m512i)(pick + 2 * (uint32_t)v), all);
#else
      whole x = (whole){0} + (words[v * WIDTH / 8] >> (uint32_t)(4 * (v * WIDTH % 8)));
#endif
      x = ((x ^ turn) >> shift) & 15;
      *(floats *)(tile + v * WIDTH) = __builtin_convertvector((__typeof__((floats){0} < (floats){0}))x, floats) +
                                      *(const floats *)(zeros + v * WIDTH);
    }
  }
}

#undef TARGET
#undef WIDTH
#undef SIMD_BYTES
