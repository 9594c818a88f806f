/// One body, three instruction sets: loops are written once as always-inlined C and compiled for the baseline, AVX2+FMA
/// and AVX-512; other architectures get the baseline alone.
///
/// SIMD_MULTI(level, linkage, name, (params), (args)) defines `name`, which calls `name_body` as compiled for the
/// processor level that the int `level` holds: 0 baseline, 3 AVX2+FMA, 4 AVX-512 (names of the x86-64 levels). The
/// choice is one load and a predictable branch, not an ifunc, so sanitizers and other C libraries need nothing special.
/// Each library sets its level once when it is loaded, with simd_get_level.
#ifndef DIT_CORE_SIMD_H
#define DIT_CORE_SIMD_H

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

#define SIMD_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__)
#define SIMD_X86 1
#define SIMD_V3_SET "avx2,fma,f16c,bmi,bmi2"
#define SIMD_V3 __attribute__((target(SIMD_V3_SET), noinline))
#define SIMD_V4_SET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2"
#if defined(__clang__)
#define SIMD_V4 __attribute__((target(SIMD_V4_SET), min_vector_width(512), noinline))
#else
#define SIMD_V4 __attribute__((target(SIMD_V4_SET ",prefer-vector-width=512"), noinline))
#endif
#else
#define SIMD_X86 0
#endif

#if SIMD_X86
#define SIMD_MULTI(level, linkage, name, params, args) \
  SIMD_V4 static void name##_v4 params {               \
    name##_body args;                                  \
  }                                                    \
  SIMD_V3 static void name##_v3 params {               \
    name##_body args;                                  \
  }                                                    \
  linkage void name params {                           \
    if (level == 4) {                                  \
      name##_v4 args;                                  \
    } else if (level == 3) {                           \
      name##_v3 args;                                  \
    } else {                                           \
      name##_body args;                                \
    }                                                  \
  }
#else
#define SIMD_MULTI(level, linkage, name, params, args) \
  linkage void name params {                           \
    name##_body args;                                  \
  }
#endif

/// The same for kernels that are written with vector types: a template header, included once per width with SIMD_BYTES
/// 16, 32 and 64, defines one body for each (`name_16` ...; SIMD_NAME adds the suffix) with the attributes of its
/// level, so that no compiler has to split vectors that are wider than the registers.
#if SIMD_X86
#define SIMD_MULTI_WIDTHS(level, linkage, name, params, args) \
  linkage void name params {                                  \
    if (level == 4) {                                         \
      name##_64 args;                                         \
    } else if (level == 3) {                                  \
      name##_32 args;                                         \
    } else {                                                  \
      name##_16 args;                                         \
    }                                                         \
  }
#else
#define SIMD_MULTI_WIDTHS(level, linkage, name, params, args) \
  linkage void name params {                                  \
    name##_16 args;                                           \
  }
#endif
#define SIMD_JOIN_BYTES(name, bytes) name##_##bytes
#define SIMD_JOIN(name, bytes) SIMD_JOIN_BYTES(name, bytes)
#define SIMD_NAME(name) SIMD_JOIN(name, SIMD_BYTES)

#if SIMD_X86
/// Not every compiler's __builtin_cpu_supports knows the float16 conversions.
static inline int simd_has_f16c(void) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}
#endif

/// The level of this processor, at most `max` (builds with a smaller `max` test the code of smaller processors).
static inline int simd_get_level(int max) {
  int level = 0;
#if SIMD_X86
  __builtin_cpu_init();
  if (!simd_has_f16c()) {
    level = 0;
  } else if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("fma")) {
    level = 4;
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    level = 3;
  }
#endif
  return level > max ? max : level;
}

#endif
