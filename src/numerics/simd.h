/// The multiversioned loops of the numerics layer (core/simd.h). Sums are kept in a fixed number of lanes and nothing
/// but exact products (products.c) is contracted to FMA, so every instruction set gives the same bits.
#ifndef DIT_NUMERICS_SIMD_H
#define DIT_NUMERICS_SIMD_H

#include "core/simd.h"

#define NUMERIC_INLINE SIMD_INLINE

/// Set once when the library is loaded (stage.c).
extern int numeric_level;

#define NUMERIC_MULTI(linkage, name, params, args) SIMD_MULTI(numeric_level, linkage, name, params, args)

#endif
