/// Optional functions of an operator library that the published standard does not have.
///
/// A library may export any of them; a caller looks each up by name and goes on without it. diopiExtGetVersion comes
/// first: a library that exports another function of this file exports it too, and a caller ignores all of them when
/// its major number is not DIOPI_EXT_MAJOR.
#ifndef DIOPI_EXTENSION_H
#define DIOPI_EXTENSION_H

#include "diopi/diopirt.h"

#define DIOPI_EXT_MAJOR 1
#define DIOPI_EXT_MINOR 0
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
  int64_t ndim;  ///< -1: depends on values
  diopiDtype_t dtype;
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
/// Shapes and dtypes of the results of one call; output tensors among the arguments are ignored. `outputs` has room for
/// *count results; *count becomes their number. diopiNoImplement: the library cannot tell.
DIOPI_API diopiError_t diopiExtInferOutputs(const char *function, const diopiExtArgument_t *arguments, int64_t length,
                                            diopiExtOutput_t *outputs, int64_t *count);
/// The calling thread's last error text: that of its own last call that failed, "" when there was none. Valid until the
/// thread's next call.
DIOPI_API const char *diopiExtGetLastErrorString(void);

DIOPI_EXTERN_C_END

#endif
