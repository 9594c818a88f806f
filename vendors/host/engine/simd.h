/// The multiversioned loops of the host device's kernels (core/simd.h).
#ifndef DIT_HOST_OPS_SIMD_H
#define DIT_HOST_OPS_SIMD_H

#include "core/simd.h"

#define KERNEL_INLINE SIMD_INLINE
#define KERNEL_X86 SIMD_X86
#if SIMD_X86
#define KERNEL_V3 SIMD_V3
#define KERNEL_V4 SIMD_V4
#endif

/// Lanes do not depend on each other: an output may be exactly an input (in-place), never a shifted one.
#if defined(__clang__)
#define KERNEL_LANES _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define KERNEL_LANES _Pragma("GCC ivdep")
#else
#define KERNEL_LANES
#endif

/// Set once when the library is loaded (level.c).
extern int kernel_level;

#define KERNEL_MULTI(linkage, name, params, args) SIMD_MULTI(kernel_level, linkage, name, params, args)

#endif
