/// One body, three instruction sets: loops are written once as always-inlined C and compiled for the baseline, AVX2+FMA
/// and AVX-512.
///
/// KERNEL_MULTI(name, (params), (args)) defines `name`, which calls `name_body` as compiled for this processor. The
/// choice is one load and a predictable branch, not an ifunc, so sanitizers and other C libraries need nothing special.
/// Other architectures get the baseline alone.
#ifndef DIT_HOST_OPS_SIMD_H
#define DIT_HOST_OPS_SIMD_H

#define KERNEL_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__)
#define KERNEL_X86 1
#define KERNEL_V3 __attribute__((target("avx2,fma,f16c,bmi,bmi2"), noinline))
#define KERNEL_V4_SET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2"
#if defined(__clang__)
#define KERNEL_V4 __attribute__((target(KERNEL_V4_SET), min_vector_width(512), noinline))
#else
#define KERNEL_V4 __attribute__((target(KERNEL_V4_SET ",prefer-vector-width=512"), noinline))
#endif
#else
#define KERNEL_X86 0
#endif

/// Lanes do not depend on each other: an output may be exactly an input (in-place), never a shifted one.
#if defined(__clang__)
#define KERNEL_LANES _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define KERNEL_LANES _Pragma("GCC ivdep")
#else
#define KERNEL_LANES
#endif

/// 0 baseline, 3 AVX2+FMA, 4 AVX-512 (names of the x86-64 levels). Set once when the library is loaded.
extern int kernel_level;

#if KERNEL_X86
#define KERNEL_MULTI_EXPANDED(linkage, name, params, args) \
  KERNEL_V4 static void name##_v4 params {                 \
    name##_body args;                                      \
  }                                                        \
  KERNEL_V3 static void name##_v3 params {                 \
    name##_body args;                                      \
  }                                                        \
  linkage void name params {                               \
    if (kernel_level == 4) {                               \
      name##_v4 args;                                      \
    } else if (kernel_level == 3) {                        \
      name##_v3 args;                                      \
    } else {                                               \
      name##_body args;                                    \
    }                                                      \
  }
#else
#define KERNEL_MULTI_EXPANDED(linkage, name, params, args) \
  linkage void name params {                               \
    name##_body args;                                      \
  }
#endif
#define KERNEL_MULTI(linkage, name, params, args) KERNEL_MULTI_EXPANDED(linkage, name, params, args)

#endif
