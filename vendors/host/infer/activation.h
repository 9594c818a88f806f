/// The gate of an MLP, for the operators that have one inside.
#ifndef DIT_HOST_INFER_ACTIVATION_H
#define DIT_HOST_INFER_ACTIVATION_H

#include <stdint.h>

/// out = silu(gate) * up.
void infer_gate_row(float *out, const float *gate, const float *up, int64_t count);

#endif
