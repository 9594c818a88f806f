/// The loops of panel_loops.h for each vector width, and the choice among them.
#include "panel.h"

#include <string.h>

#include "dit/dtype.h"
#include "engine/scalar.h"
#include "engine/simd.h"

#if SIMD_X86
#include <immintrin.h>
#endif

#define SIMD_BYTES 16
#include "panel_loops.h"
#if SIMD_X86
#define SIMD_BYTES 32
#include "panel_loops.h"
#define SIMD_BYTES 64
#include "panel_loops.h"
#endif

#define DEFINE_FEW(name) SIMD_MULTI_WIDTHS(kernel_level, static, name, (const struct panel_few *f), (f))
DEFINE_FEW(dot_F32)
DEFINE_FEW(dot_BF16)
DEFINE_FEW(dot_F16)
DEFINE_FEW(dot_I8)
DEFINE_FEW(add_F32)
DEFINE_FEW(add_BF16)
DEFINE_FEW(add_F16)
DEFINE_FEW(add_I8)
SIMD_MULTI_WIDTHS(kernel_level, static, multiply, (const struct panel_product *p), (p))

void panel_dot(const struct panel_few *few) {
  (few->dtype == DIT_DTYPE_F32    ? dot_F32
   : few->dtype == DIT_DTYPE_BF16 ? dot_BF16
   : few->dtype == DIT_DTYPE_F16  ? dot_F16
                                  : dot_I8)(few);
}

void panel_add(const struct panel_few *few) {
  (few->dtype == DIT_DTYPE_F32    ? add_F32
   : few->dtype == DIT_DTYPE_BF16 ? add_BF16
   : few->dtype == DIT_DTYPE_F16  ? add_F16
                                  : add_I8)(few);
}

void panel_multiply(const struct panel_product *product) {
  multiply(product);
}
