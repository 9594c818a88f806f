/// Elements of a few dtypes as numbers: uint8, int16, int32, int64, bool, bfloat16, float32, float64. The number must
/// be one that the dtype has. Little-endian, as all of ditorch.
#ifndef DIT_DOCTOR_ELEMENT_H
#define DIT_DOCTOR_ELEMENT_H

#include <stdint.h>

void element_put(void *at, int dtype, double value);
double element_get(const void *at, int dtype);

#endif
