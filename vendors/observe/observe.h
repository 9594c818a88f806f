/// A library that only looks: every DIOPI call becomes one line of text and succeeds without touching a tensor's
/// memory.
///
/// tools/record_models.py runs the operator calls of a model on it, so that the operator table of src/ops itself says
/// which functions of the standard a call becomes, at sizes that no machine has the memory for. DIT_OBSERVE_FILE names
/// the file; a line has the function and an argument per parameter behind ctx, separated by blanks:
///
///   float32[2,3]  float32[2,3]{1,2}  tensor, with its strides where it is not row-major
///   ...@0         the same tensor as argument 0 (its memory and its layout)
///   (a;b)         list of tensors            <2,3>       sizes
///   float64:0.5   scalar                     "mean"      text
///   3  0.5        numbers, enums, bools      *3          number behind a pointer
///   -             absent                     ?           made or written by the library
///   g             generator
///
/// A function whose result the library makes is written down and fails: nobody can say its size.
#ifndef DIT_VENDORS_OBSERVE_H
#define DIT_VENDORS_OBSERVE_H

#include "dit/diopi.h"

/// Every forwarder comes here.
diopiError_t observe_call(int function, const union dit_diopi_value *values);

#endif
