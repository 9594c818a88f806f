/// The door's C side: one operator call as a flat array of plain C values, and the table of operators written in C.
///
/// A call travels: dispatcher -> adapter fills struct dit_call -> dit_op.run infers shapes and dtypes, asks the
/// framework for outputs through call->services, and launches kernels on call->stream -> adapter returns the results.
#ifndef DIT_OP_H
#define DIT_OP_H

#include "dit/tensor.h"

DIT_EXTERN_C_BEGIN

#define DIT_MAX_ARGS 32
#define DIT_MAX_RETS 8

enum dit_value_tag {
  DIT_VALUE_NONE = 0,
  DIT_VALUE_TENSOR,
  DIT_VALUE_INT,
  DIT_VALUE_DOUBLE,
  DIT_VALUE_BOOL,
  DIT_VALUE_COMPLEX,
  DIT_VALUE_STRING,
  DIT_VALUE_INTS,
  DIT_VALUE_DOUBLES,
  DIT_VALUE_TENSORS,
  DIT_VALUE_GENERATOR,
};

/// INT, DOUBLE, BOOL and COMPLEX also carry the framework's "Scalar" arguments, INT its dtype, layout and memory format
/// enums (PyTorch's own numbers), and INTS also lists of bools (0 and 1).
struct dit_value {
  enum dit_value_tag tag;
  union {
    struct dit_tensor_view tensor;
    int64_t i;
    double d;
    struct {
      double re, im;
    } complex;
    const char *string;
    struct {
      const int64_t *data;
      int64_t size;
    } ints;
    struct {
      const double *data;
      int64_t size;
    } doubles;
    struct {
      struct dit_tensor_view *data;  ///< handle == NULL: absent element of an optional list
      int64_t size;
    } tensors;
    void *generator;  ///< framework object; draw numbers through services->random_reserve
  } v;
};

struct dit_call;
struct dit_kernel_vtable;
struct dit_diopi_library;

/// What the framework offers to a running operator. All tensors live on call->device.
struct dit_call_services {
  /// A new, uninitialised device tensor. `strides` NULL: contiguous. The view stays valid until the call returns.
  enum dit_status (*new_tensor)(struct dit_call *call, int ndim, const int64_t *sizes, const int64_t *strides,
                                int dtype, struct dit_tensor_view *out);
  /// Resize an `out=` tensor (contiguous; warns as PyTorch does when it was not empty) and refresh the view.
  enum dit_status (*resize)(struct dit_call *call, struct dit_tensor_view *io, int ndim, const int64_t *sizes);
  /// Reserve `count` 32-bit random numbers of the generator (NULL: the device's default one): gives philox seed and
  /// offset, advances it.
  enum dit_status (*random_reserve)(struct dit_call *call, void *generator, uint64_t count, uint64_t *seed,
                                    uint64_t *offset);
  /// First byte and size of the storage behind a tensor of the call.
  void (*get_storage)(const struct dit_tensor_view *view, void **base, size_t *size);
};

/// Sees every operator that a call runs in the vendor's library.
struct dit_call_observer {
  void (*before)(struct dit_call *call, int function);           ///< number of the DIOPI function
  void (*after)(struct dit_call *call, int function, int code);  ///< diopiError_t
};

struct dit_call {
  const struct dit_op *op;
  int nargs, nrets;
  struct dit_value *args;  ///< schema order, defaults filled in; out= arguments last
  struct dit_value
      *rets;   ///< to be filled: TENSOR (handle of an argument or of new_tensor), TENSORS, INT, DOUBLE, BOOL, or NONE
  int device;  ///< index of the device all device tensors of the call live on
  int default_dtype;  ///< torch.get_default_dtype(): integer division and Python floats promote to it
  void *stream;       ///< the vendor's raw handle of the current stream; NULL is the default stream
  const struct dit_kernel_vtable *kernels;
  const struct dit_diopi_library *diopi;     ///< the vendor's operators; NULL when it has none
  const struct dit_call_observer *observer;  ///< NULL: nobody looks
  const struct dit_call_services *services;
  void *host;             ///< the adapter's own
  struct dit_error *err;  ///< never NULL; write the user's message here (torch's wording where torch has one)
};

/// One row of the operator table.
struct dit_op {
  const char *name;      ///< "aten::add"
  const char *overload;  ///< "Tensor", "" for none
  /// DIT_ERR_UNSUPPORTED (before anything was written or resized): the door runs the CPU fallback instead.
  enum dit_status (*run)(struct dit_call *call);
  int function;  ///< number of the DIOPI function the row maps to (dit/diopi.h), for `run` to read; 0: none
  int target;    ///< where the result goes, for `run` to read (src/ops/infer.h)
};

/// The operators implemented in C, sorted as in src/ops/table.c.
DIT_API const struct dit_op *dit_op_get_table(int *count);

DIT_EXTERN_C_END

#endif
