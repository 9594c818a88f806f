/// One body, three instruction sets: loops are written once as always-inlined C and compiled for the baseline, AVX2 and
/// AVX-512; other architectures get the baseline alone.
///
/// NUMERIC_MULTI(linkage, name, (params), (args)) defines `name`, which calls `name_body` as compiled for this
/// processor. Sums are kept in a fixed number of lanes and nothing is contracted to FMA, so every instruction set gives
/// the same bits.
#ifndef DIT_NUMERICS_SIMD_H
#define DIT_NUMERICS_SIMD_H

#define NUMERIC_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__)
#define NUMERIC_X86 1
#define NUMERIC_V3 __attribute__((target("avx2,fma,f16c,bmi,bmi2"), noinline))
#define NUMERIC_V4_SET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2"
#if defined(__clang__)
#define NUMERIC_V4 __attribute__((target(NUMERIC_V4_SET), min_vector_width(512), noinline))
#else
#define NUMERIC_V4 __attribute__((target(NUMERIC_V4_SET ",prefer-vector-width=512"), noinline))
#endif
#else
#define NUMERIC_X86 0
#endif

/// 0 baseline, 3 AVX2, 4 AVX-512. Set once when the library is loaded (stage.c).
extern int numeric_level;

#if NUMERIC_X86
#define NUMERIC_MULTI(linkage, name, params, args) \
  NUMERIC_V4 static void name##_v4 params {        \
    name##_body args;                              \
  }                                                \
  NUMERIC_V3 static void name##_v3 params {        \
    name##_body args;                              \
  }                                                \
  linkage void name params {                       \
    if (numeric_level == 4) {                      \
      name##_v4 args;                              \
    } else if (numeric_level == 3) {               \
      name##_v3 args;                              \
    } else {                                       \
      name##_body args;                            \
    }                                              \
  }
#else
#define NUMERIC_MULTI(linkage, name, params, args) \
  linkage void name params {                       \
    name##_body args;                              \
  }
#endif

#endif
