/// One operator call of the host library: arguments as views, checks, error text, the way onto the stream.
///
/// Every operator follows one pattern: begin, take the tensors, check everything, then work. Until the work starts
/// nothing is written, so an argument error leaves the outputs as they were.
///
///   diopiError_t diopiThing(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
///     struct frame frame;
///     struct dit_tensor_view o, x;
///     FRAME_BEGIN(&frame, ctx);
///     FRAME_TAKE(&frame, out, &o);
///     FRAME_TAKE(&frame, input, &x);
///     FRAME_CHECK(&frame, frame_is_same_shape(&o, &x), "out has another shape than input");
///     struct thing_task task = {...};
///     return frame_run(&frame, run_thing, &task);
///   }
///
/// Handles are looked at by functions of diopi/diopirt.h, so the library works with any DIOPI runtime; those that
/// libdit made are read at once.
#ifndef DIT_HOST_OPS_FRAME_H
#define DIT_HOST_OPS_FRAME_H

#include "dit/alloc.h"
#include "dit/diopi.h"
#include "dit/tensor.h"
#include "host.h"

struct frame {
  const char *function;  ///< "diopiAdd"
  diopiContextHandle_t context;
  void *stream;
};

/// Start a call; a NULL context is an argument error.
diopiError_t frame_begin(struct frame *frame, const char *function, diopiContextHandle_t context);
/// Fill a view from a handle. An argument error for NULL, a negative size or stride, more than DIT_MAX_DIMS dimensions,
/// a host tensor, and diopiDtypeNotSupported for a dtype that libdit does not know. The view borrows from the handle.
diopiError_t frame_take(struct frame *frame, const char *name, diopiConstTensorHandle_t handle,
                        struct dit_tensor_view *view);
/// The same for element `number` of the list `list`, which errors call "list[number]".
diopiError_t frame_take_element(struct frame *frame, const char *list, int64_t number, diopiConstTensorHandle_t handle,
                                struct dit_tensor_view *view);
/// The same for an argument that may be absent: view->handle is NULL then.
diopiError_t frame_take_optional(struct frame *frame, const char *name, diopiConstTensorHandle_t handle,
                                 struct dit_tensor_view *view);
/// Set the text of this thread's last error ("diopiAdd: ...") and return the code.
diopiError_t frame_fail(struct frame *frame, diopiError_t code, const char *format, ...) DIT_PRINTF(3, 4);
/// The text for a dtype that the operator does not have: "diopiAdd: input is float16; ...".
diopiError_t frame_fail_dtype(struct frame *frame, const char *name, int dtype);
/// A status of the engine as a code, with its text.
diopiError_t frame_get_code(struct frame *frame, enum dit_status status, const struct dit_error *err);

#define FRAME_TRY(expression)                \
  do {                                       \
    diopiError_t frame_code_ = (expression); \
    if (frame_code_ != diopiSuccess) {       \
      return frame_code_;                    \
    }                                        \
  } while (0)
/// Name of the DIOPI function that is being defined.
#define FRAME_BEGIN(frame, ctx) FRAME_TRY(frame_begin(frame, __func__, ctx))
/// The parameter's own name is used in messages.
#define FRAME_TAKE(frame, handle, view) FRAME_TRY(frame_take(frame, #handle, handle, view))
#define FRAME_TAKE_OPTIONAL(frame, handle, view) FRAME_TRY(frame_take_optional(frame, #handle, handle, view))
#define FRAME_CHECK(frame, condition, ...)                       \
  do {                                                           \
    if (!(condition)) {                                          \
      return frame_fail(frame, diopiErrorOccurred, __VA_ARGS__); \
    }                                                            \
  } while (0)

/// A dimension from -ndim to ndim - 1 (a 0-d tensor counts as 1-d) made non-negative; an argument error otherwise.
diopiError_t frame_wrap_dim(struct frame *frame, const char *name, int64_t dim, int ndim, int *out);
/// Bits of a list of dimensions; absent or empty: `all` decides between all of them and none. Repeated ones are an
/// error.
diopiError_t frame_get_mask(struct frame *frame, const char *name, diopiSize_t dims, int ndim, bool all,
                            uint32_t *mask);
bool frame_is_same_shape(const struct dit_tensor_view *a, const struct dit_tensor_view *b);
/// `view` broadcast to `ndim` sizes; `strides` has room for DIT_MAX_DIMS. False when it does not broadcast.
bool frame_expand(const struct dit_tensor_view *view, int ndim, const int64_t *sizes, int64_t *strides,
                  struct dit_tensor_view *out);
/// An output must not reach an element twice nor overlap an input, except that with `in_place` it may be exactly one of
/// them (same elements in the same order). `inputs` may hold NULL.
diopiError_t frame_check_output(struct frame *frame, const char *name, const struct dit_tensor_view *out,
                                const struct dit_tensor_view *const *inputs, int count, bool in_place);
/// A scalar argument: `fval` for floating stypes, `ival` for integers and bool. NULL and complex are argument errors.
diopiError_t frame_get_scalar(struct frame *frame, const char *name, const diopiScalar_t *scalar,
                              struct dit_scalar *out);
double frame_scalar_to_double(struct dit_scalar scalar);

/// Do the work now: waits for what the stream holds, opens device memory, runs, closes it.
typedef diopiError_t frame_work(void *task);
diopiError_t frame_run(struct frame *frame, frame_work *work, void *task);
/// For work inside of frame_run that calls functions which queue: the frame whose stream they take, because frame_run
/// has waited for the call's own one where work is done by the host.
struct frame frame_get_inner(const struct frame *frame);
/// The same, queued on a side stream: `task` (`size` bytes) is copied together with sizes and strides of its `views`
/// (they lie in it; absent ones are right), and `own`, where the task keeps a pointer to its frame, leads to a copy of
/// that. Other pointers must be static or set by the work itself. A failure is the stream's: its next wait reports it.
#define FRAME_QUEUE_VIEWS 16
diopiError_t frame_queue(struct frame *frame, frame_work *work, void *task, size_t size, struct frame **own,
                         struct dit_tensor_view *const *views, int count);
/// With the views one by one.
#define FRAME_QUEUE(frame, work, task, own, ...)                                                      \
  frame_queue(frame, work, task, sizeof *(task), own, (struct dit_tensor_view *const[]){__VA_ARGS__}, \
              (int)(sizeof((struct dit_tensor_view *const[]){__VA_ARGS__}) / sizeof(struct dit_tensor_view *)))
/// Queue the work on the stream (the default stream runs it at once): `task` is copied, so it may point to nothing but
/// device memory.
diopiError_t frame_launch(struct frame *frame, void (*run)(void *task), const void *task, size_t size);

/// Shorthand for sets of dtypes: 1 << enum dit_dtype.
#define DTYPE_BIT(name) (UINT64_C(1) << DIT_DTYPE_##name)
#define DTYPES_HALF (DTYPE_BIT(F16) | DTYPE_BIT(BF16))
#define DTYPES_FLOAT (DTYPES_HALF | DTYPE_BIT(F32) | DTYPE_BIT(F64))
#define DTYPES_INT (DTYPE_BIT(U8) | DTYPE_BIT(I8) | DTYPE_BIT(I16) | DTYPE_BIT(I32) | DTYPE_BIT(I64))
#define DTYPES_UINT (DTYPE_BIT(U16) | DTYPE_BIT(U32) | DTYPE_BIT(U64))
#define DTYPES_COMPLEX (DTYPE_BIT(C64) | DTYPE_BIT(C128))
#define DTYPES_REAL (DTYPES_FLOAT | DTYPES_INT)
#define DTYPES_PLAIN (DTYPES_REAL | DTYPE_BIT(BOOL))
/// Types that only move: every dtype of the standard.
#define DTYPES_ANY (DTYPES_PLAIN | DTYPES_UINT | DTYPES_COMPLEX | DTYPE_BIT(C32))
static inline bool frame_has_dtype(uint64_t set, int dtype) {
  return set >> dtype & 1;
}

#endif
