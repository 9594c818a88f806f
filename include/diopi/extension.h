/// Optional functions of an operator library that the published standard does not have.
///
/// A library may export any of them; a caller looks each up by name and goes on without it. diopiExtGetVersion comes
/// first: a library that exports another function of this file exports it too, and a caller ignores all of them when
/// its major number is not DIOPI_EXT_MAJOR.
#ifndef DIOPI_EXTENSION_H
#define DIOPI_EXTENSION_H

#include "diopi/diopirt.h"

#define DIOPI_EXT_MAJOR 1
#define DIOPI_EXT_MINOR 1
#define DIOPI_EXT_VERSION (DIOPI_EXT_MAJOR * 65536 + DIOPI_EXT_MINOR)

DIOPI_EXTERN_C_BEGIN

/// What a function takes. Bits of `dtypes` are 1 << diopiDtype_t.
typedef struct diopiExtSupport_ {
  uint32_t struct_size;  ///< sizeof of the caller's struct; a library fills no more
  uint32_t dtypes;       ///< dtypes of the first input
  uint32_t layouts;      ///< diopiExtLayout_t
  uint32_t flags;        ///< diopiExtFlag_t
} diopiExtSupport_t;

typedef enum {
  diopiExtContiguous = 1,    ///< row-major
  diopiExtChannelsLast = 2,  ///< dense, channels innermost
  diopiExtStrided = 4,       ///< any strides and offset, expanded ones too
} diopiExtLayout_t;

typedef enum {
  diopiExtInPlace = 1,        ///< the output may be the first input
  diopiExtDeterministic = 2,  ///< equal inputs give equal bits
  diopiExtSynchronous = 4,    ///< the work is done when the function returns
} diopiExtFlag_t;

/// Shape and dtype of one result.
typedef struct diopiExtOutput_ {
  int64_t sizes[24];
  int64_t ndim;        ///< -1: depends on values, or on the caller's wish alone (diopiExpand)
  diopiDtype_t dtype;  ///< diopi_dtype_unsupported: the caller chooses it (diopiCastDtype)
} diopiExtOutput_t;

/// One argument of a function after its context, in the order of its parameters; which member counts follows from the
/// parameter's type (lists of tensors: `tensors` and `count`).
typedef struct diopiExtArgument_ {
  diopiConstTensorHandle_t tensor;
  const diopiConstTensorHandle_t *tensors;
  diopiSize_t size;
  const diopiScalar_t *scalar;
  const char *string;
  double fval;
  int64_t ival;
  int64_t count;
  int32_t given;  ///< 0: an optional argument that is absent
} diopiExtArgument_t;

/// DIOPI_EXT_VERSION of the header the library was built with.
DIOPI_API uint32_t diopiExtGetVersion(void);
/// What the function with this name takes. diopiNoImplement: the library does not have it.
DIOPI_API diopiError_t diopiExtGetSupport(const char *function, diopiExtSupport_t *support);
/// Shapes and dtypes of the results of one call: one for each parameter that may be written (diopiTensorHandle_t, and
/// diopiTensorHandle_t * for a result that the library makes), one for each tensor of a list, in the order of the
/// parameters. Output tensors among the arguments are ignored, except that a tensor which is read too (in-place
/// operators) is its own model; when it is absent its result has ndim -1. `outputs` has room for *count results; *count
/// becomes their number, also when that is more, and only those that there is room for are written. A dimension that
/// the standard lets the caller keep (diopiSum) counts as reduced. diopiNoImplement: the library cannot tell; with
/// `arguments` NULL and `length` 0 that is all that is asked. Any other code: the arguments are wrong, and nothing was
/// written.
DIOPI_API diopiError_t diopiExtInferOutputs(const char *function, const diopiExtArgument_t *arguments, int64_t length,
                                            diopiExtOutput_t *outputs, int64_t *count);
/// The calls of this thread up to diopiExtListEnd are the positions of one list operator: the same function on one
/// tensor after another, and none reads or writes what another one writes. The library may put off their work until the
/// end and do it together. Both functions are called with a context of the calls' device and stream; the memory of the
/// calls lives until the end.
DIOPI_API diopiError_t diopiExtListBegin(diopiContextHandle_t ctx);
/// Answers for work that was put off, too.
DIOPI_API diopiError_t diopiExtListEnd(diopiContextHandle_t ctx);
/// The calling thread's last error text: that of its own last call that failed, "" when there was none. Valid until the
/// thread's next call.
DIOPI_API const char *diopiExtGetLastErrorString(void);

/// What a failed call failed of. The standard has one code, diopiErrorOccurred, for all that can go wrong. After a
/// wrong argument nothing was written, and a framework may ask a kernel of its own, which raises its own exception in
/// its own words.
typedef enum {
  diopiExtFailureOther = 0,     ///< the device, memory, or unknown
  diopiExtFailureArgument = 1,  ///< an argument is wrong
  diopiExtFailureRange = 2,     ///< a value is beyond its dimension: 'index' holds 7, valid are -5 to 4
} diopiExtFailure_t;
/// About the calling thread's last call that failed.
DIOPI_API diopiExtFailure_t diopiExtGetLastFailure(void);

DIOPI_EXTERN_C_END

#endif
