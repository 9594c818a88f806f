/// Sums of squared deviations from the mean, for variances.
#ifndef DIT_HOST_ENGINE_DEVIATIONS_H
#define DIT_HOST_ENGINE_DEVIATIONS_H

#include <stdint.h>

/// Sum of (p - mean of p)^2: never below 0, exactly 0 for constants, and as good far from 0 as near it.
double deviations_f32(const float *p, int64_t count);
double deviations_f64(const double *p, int64_t count);

#endif
