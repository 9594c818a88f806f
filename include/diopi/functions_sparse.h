/// Operators on sparse tensors.
///
/// Written by tools/gen_diopi.py from standard/diopi.tsv. Rules that hold for every operator: diopirt.h.
#ifndef DIOPI_FUNCTIONS_SPARSE_H
#define DIOPI_FUNCTIONS_SPARSE_H

#include "diopi/diopirt.h"

// clang-format off
DIOPI_EXTERN_C_BEGIN

// sparse

/// out = input @ mat2 for a sparse CSR matrix `input` (N, K) and a dense mat2 (K, M). One floating dtype.
DIOPI_API diopiError_t diopiSpMM(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 diopiConstTensorHandle_t mat2);

DIOPI_EXTERN_C_END
// clang-format on

#endif
