/// DIOPI from the framework's side: handles over dit tensors, contexts, generators, and operator libraries.
///
/// The runtime functions that an operator library calls back (diopi/diopirt.h) are exported by libdit and work on the
/// structs below. They are plain structs so that a caller may put them on the stack: making a handle costs nothing.
/// dit_diopi_library_open finds a library's functions by name; dit_diopi_invoke calls one of them with arguments from
/// an array. Depends on src/core and src/device.
#ifndef DIT_DIOPI_H
#define DIT_DIOPI_H

#include "diopi/extension.h"
#include "diopi/functions.h"
#include "diopi/functions_ext.h"
#include "diopi/functions_lmdeploy.h"
#include "diopi/functions_mmcv.h"
#include "diopi/functions_sparse.h"
#include "dit/tensor.h"

DIT_EXTERN_C_BEGIN

/// A tensor as DIOPI sees it. `view` is borrowed; its sizes and strides live as long as the handle is used.
struct diopiTensor {
  struct dit_tensor_view view;
  /// The storage behind the view, asked for only by libraries that want it. NULL: the bytes the view covers.
  void (*get_storage)(const struct diopiTensor *tensor, void **base, size_t *size);
  const void *services;                                           ///< of whoever set get_storage
  const struct diopiTensor *crow_indices, *col_indices, *values;  ///< of a sparse tensor, else NULL
};

struct dit_diopi_scratch;

/// One operator call. Scratch tensors live until dit_diopi_context_reset.
struct diopiContext {
  int device;
  void *stream;  ///< the vendor's raw handle; NULL is the default stream
  /// Makes a tensor on the device (strides NULL: row-major); what it made lives until the context is reset. NULL: the
  /// device's memory (dit/memory.h) when a device is active, else host memory.
  enum dit_status (*allocate)(struct diopiContext *context, int ndim, const int64_t *sizes, const int64_t *strides,
                              int dtype, struct dit_tensor_view *out, struct dit_error *err);
  void *host;                         ///< of whoever set `allocate`
  struct dit_diopi_scratch *scratch;  ///< what diopiRequireTensor made, newest first
};

/// A counter-based generator. Libraries read and set both numbers.
struct diopiGenerator {
  uint64_t seed, offset;
};

/// diopiDtype_t of an enum dit_dtype, and back; diopi_dtype_unsupported and -1 where there is none.
DIT_API diopiDtype_t dit_diopi_get_dtype(int dtype);
DIT_API int dit_diopi_find_dtype(diopiDtype_t dtype);
/// "diopiNoImplement", and so on; "?" for an unknown number.
DIT_API const char *dit_diopi_get_error_name(diopiError_t code);

/// A handle over a view. The caller owns the struct.
static inline void dit_diopi_tensor_init(struct diopiTensor *tensor, const struct dit_tensor_view *view) {
  tensor->view = *view;
  tensor->get_storage = 0;
  tensor->services = 0;
  tensor->crow_indices = tensor->col_indices = tensor->values = 0;
}
/// The same on the heap, with copies of sizes and strides, over memory that the caller keeps alive. `device` -1: host
/// memory. NULL without memory.
DIT_API diopiTensorHandle_t dit_diopi_tensor_create(void *data, int ndim, const int64_t *sizes, const int64_t *strides,
                                                    int dtype, int device);
DIT_API void dit_diopi_tensor_destroy(diopiTensorHandle_t tensor);  ///< NULL allowed
DIT_API const struct dit_tensor_view *dit_diopi_tensor_get_view(diopiConstTensorHandle_t tensor);

static inline void dit_diopi_context_init(struct diopiContext *context, int device, void *stream) {
  context->device = device;
  context->stream = stream;
  context->allocate = 0;
  context->host = 0;
  context->scratch = 0;
}
/// Release the scratch tensors, in the order of the context's stream. The context may be used again.
DIT_API void dit_diopi_context_reset(struct diopiContext *context);
DIT_API diopiContextHandle_t dit_diopi_context_create(int device, void *stream);
DIT_API void dit_diopi_context_destroy(diopiContextHandle_t context);  ///< NULL allowed
/// Is the handle a scratch tensor of this context?
DIT_API bool dit_diopi_context_owns(const struct diopiContext *context, diopiConstTensorHandle_t tensor);

// The functions of the standard

enum dit_diopi_function {
#define DIOPI_QUERY(name, header, family) DIT_DIOPI_##name,
#define DIOPI_FUNCTION(name, header, family, parameters, values, packed, kinds, names) DIT_DIOPI_##name,
#include "diopi/functions.inc"
  DIT_DIOPI_COUNT
};

/// A library's functions; NULL where it has none.
struct dit_diopi_vtable {
#define DIOPI_QUERY(name, header, family) const char *(*name)(void);
#define DIOPI_FUNCTION(name, header, family, parameters, values, packed, kinds, names) diopiError_t(*name) parameters;
#include "diopi/functions.inc"
};

/// What the table of the standard says about a function. `kinds` has a letter per parameter: c context, o tensor that
/// may be written, t tensor, O and T lists of them, i integer, b bool, f float, d double, z sizes, Z pointer to sizes,
/// s scalar, I B D pointer to integers, bools, doubles, C string, g generator, G list of generators, r reduction,
/// m rounding mode, y memory format, p pointer.
struct dit_diopi_info {
  const char *name, *header, *family, *kinds, *names;
};
/// All of them, in the order of their numbers; `count` may be NULL (DIT_DIOPI_COUNT).
DIT_API const struct dit_diopi_info *dit_diopi_get_functions(int *count);
/// Number of the function with this name ("diopiAdd"); -1 when the standard has none.
DIT_API int dit_diopi_find_function(const char *name);
/// Of a parameter of kind O: is it a list that the caller fills with handles (outs, grads ...)? Else it is a place for
/// a result that the library makes, and holds nothing before the call.
DIT_API bool dit_diopi_is_list(int function, int parameter);
/// How many results a parameter of kind 'O' that is no such list receives.
DIT_API int dit_diopi_count_results(int function, int parameter);

/// One argument of a call by number; which member counts follows from the parameter's kind.
union dit_diopi_value {
  diopiContextHandle_t context;
  diopiTensorHandle_t tensor;
  diopiTensorHandle_t *tensors;
  int64_t i;
  double d;
  diopiSize_t size;
  diopiSize_t *sizes;
  diopiScalar_t *scalar;
  int64_t *ints;
  bool *bools;
  double *doubles;
  const char *string;
  diopiGeneratorHandle_t generator;
  diopiGeneratorHandle_t *generators;
  void *pointer;
};
/// Call a function with arguments in the order of its parameters. diopiNoImplement when the table does not have it.
DIT_API diopiError_t dit_diopi_invoke(const struct dit_diopi_vtable *table, int function,
                                      const union dit_diopi_value *values);

// Libraries

#define DIT_DIOPI_PATH 4096

struct dit_conversions;

struct dit_infer_table;

struct dit_diopi_library {
  struct dit_diopi_vtable functions;  ///< first: a library is a table too
  uint32_t (*ext_get_version)(void);  ///< NULL: no extension, or one of another major version
  diopiError_t (*ext_get_support)(const char *, diopiExtSupport_t *);
  diopiError_t (*ext_infer_outputs)(const char *, const diopiExtArgument_t *, int64_t, diopiExtOutput_t *, int64_t *);
  const char *(*ext_get_last_error)(void);
  diopiError_t (*ext_list_begin)(diopiContextHandle_t);  ///< with ext_list_end, or neither
  diopiError_t (*ext_list_end)(diopiContextHandle_t);
  int implemented;  ///< functions that are there, queries included
  void *handle;
  char path[DIT_DIOPI_PATH];
  char refused[256];                    ///< why extension functions were left out; "" when they were not
  struct dit_diopi_library *next;       ///< of those that were active once
  const struct dit_infer_table *infer;  ///< of LLM inference (dit/infer.h); NULL: none
  /// dit_adapt_take of an adaptor (dit/adapt.h); NULL: the library is none.
  bool (*take_conversions)(struct dit_conversions *out);
};

/// Open an operator library: a name ("host": libdiopi_host.so beside libdit, then on the loader's path) or a path (has
/// a '/'). The runtime functions are made visible to it first; its own symbols stay local. A library without one
/// function of the standard is DIT_ERR_INVALID. Errors name what was tried.
DIT_API DIT_NODISCARD enum dit_status dit_diopi_library_open(const char *name, struct dit_diopi_library **out,
                                                             struct dit_error *err);
DIT_API void dit_diopi_library_close(struct dit_diopi_library *library);  ///< NULL allowed
/// DIT_ERR_INVALID, with words, when calls of the library would read memory that it cannot reach: the host's operators
/// on tensors of a device whose memory the host cannot read.
DIT_API DIT_NODISCARD enum dit_status dit_diopi_library_check_memory(const struct dit_diopi_library *library,
                                                                     struct dit_error *err);
/// The function's address as a generic pointer; NULL when the library does not have it.
DIT_API void (*dit_diopi_library_get(const struct dit_diopi_library *library, int function))(void);
/// The calling thread's text for the last error: the extension's where there is one, else the library's own; never
/// NULL.
DIT_API const char *dit_diopi_library_get_error(const struct dit_diopi_library *library);
/// Does the code say that nothing was done and another way may be tried?
static inline bool dit_diopi_is_refusal(diopiError_t code) {
  return code == diopiNoImplement || code == diopiForceFallbackToCPU || code == diopiDtypeNotSupported ||
         code == diopi5DNotSupported;
}
/// A code of the library's `function` as a status: DIT_ERR_UNSUPPORTED for a refusal (without a text), DIT_ERR_RANGE or
/// DIT_ERR_INVALID where the library says so, else DIT_ERR_DEVICE with the library's text.
DIT_API DIT_NODISCARD enum dit_status dit_diopi_library_check(const struct dit_diopi_library *library,
                                                              const char *function, diopiError_t code,
                                                              struct dit_error *err);

/// The library that the process's device uses, opened by the first call that names one; NULL when none is. Opening
/// another one replaces it for later calls (the old one stays loaded).
DIT_API DIT_NODISCARD enum dit_status dit_diopi_activate(const char *name, struct dit_error *err);
DIT_API const struct dit_diopi_library *dit_diopi_get_active(void);

DIT_EXTERN_C_END

#endif
