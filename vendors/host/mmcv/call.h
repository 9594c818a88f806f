/// One call of an mmcv operator: its tensors by short descriptions, checked, read row-major, written back.
///
/// A description is a type and sizes, such as "f:nchw". Types:
///   f  floating; all f and d tensors of a call have one dtype; worked on in float (half types too) or double
///   d  the same dtype, worked on in double whatever it is
///   s  floating of any dtype (statistics beside half inputs), worked on in double
///   i  int32 or int64, worked on as int64
///   m  bool or an integer, worked on as int64
/// A size is a digit, which the tensor must have there, or a letter: what it stands for is set by call_set or by the
/// first tensor that has it, and the others must agree. '?' is any size. "f:*" is any shape.
///
///   struct call call;
///   CALL_BEGIN(&call, ctx);
///   FRAME_TRY(call_set(&call, "c", c, 'c', 1));
///   CALL_IN(&call, points, "f:bcn");      // tensor 0
///   CALL_OUT(&call, out, "f:bcp");        // tensor 1
///   return call_run(&call, run_thing);    // everything is checked now; run_thing gets the row-major elements
///
/// Outputs are written whole; only CALL_INOUT keeps what they held. A tensor that was described as optional may be NULL
/// or have no elements: its data is NULL then.
#ifndef DIT_HOST_MMCV_CALL_H
#define DIT_HOST_MMCV_CALL_H

#include "dit/parallel.h"
#include "ops/dense.h"
#include "ops/fail.h"
#include "ops/frame.h"

#define CALL_TENSORS 16

enum call_role { CALL_ROLE_IN, CALL_ROLE_OUT, CALL_ROLE_INOUT };

struct call_tensor {
  const char *name;
  struct dit_tensor_view view;
  struct dense dense;
  enum call_role role;
  char type;
  bool limited;  ///< its values are checked before anything is written
  int64_t low, high;
};

struct call;
typedef diopiError_t call_work(struct call *call);

struct call {
  struct frame frame;
  struct call_tensor tensors[CALL_TENSORS];
  int count;
  int dtype;          ///< of the f and d tensors; -1: none yet
  int work;           ///< DIT_DTYPE_F32 or DIT_DTYPE_F64
  int64_t sizes[128]; /**< by letter; -1: not known yet */
  call_work *run;
  const void *task;  ///< parameters of the operator, for its loops
};

diopiError_t call_begin(struct call *call, const char *function, diopiContextHandle_t context);
/// The parameter `name` is the size that `letter` stands for; at least `least`.
diopiError_t call_set(struct call *call, const char *name, int64_t size, char letter, int64_t least);
/// Take the next tensor; `optional` as above.
diopiError_t call_take(struct call *call, const char *name, diopiConstTensorHandle_t handle, const char *description,
                       enum call_role role, bool optional);
/// Make a tensor of these sizes and take it as an output; `made` gets the handle, which the caller passes on when the
/// call went well.
diopiError_t call_make(struct call *call, const char *name, diopiTensorHandle_t *made, int dtype, int ndim,
                       const int64_t *sizes, char type);
/// Values of tensor `number` (type i) must lie in low .. high.
void call_limit(struct call *call, int number, int64_t low, int64_t high);
/// Check that no output overlaps anything, open the tensors, run, write back.
diopiError_t call_run(struct call *call, call_work *run);
/// A result made inside of the work, contiguous: its elements. NULL and an error text without memory.
void *call_make_result(struct call *call, diopiTensorHandle_t *made, int dtype, int ndim, const int64_t *sizes);

#define CALL_BEGIN(call, ctx) FRAME_TRY(call_begin(call, __func__, ctx))
#define CALL_IN(call, handle, text) FRAME_TRY(call_take(call, #handle, handle, text, CALL_ROLE_IN, false))
#define CALL_OPTIONAL(call, handle, text) FRAME_TRY(call_take(call, #handle, handle, text, CALL_ROLE_IN, true))
#define CALL_OUT(call, handle, text) FRAME_TRY(call_take(call, #handle, handle, text, CALL_ROLE_OUT, false))
#define CALL_INOUT(call, handle, text) FRAME_TRY(call_take(call, #handle, handle, text, CALL_ROLE_INOUT, false))
#define CALL_OUT_OPTIONAL(call, handle, text) FRAME_TRY(call_take(call, #handle, handle, text, CALL_ROLE_OUT, true))
#define CALL_INOUT_OPTIONAL(call, handle, text) FRAME_TRY(call_take(call, #handle, handle, text, CALL_ROLE_INOUT, true))
#define CALL_SET(call, parameter, letter) FRAME_TRY(call_set(call, #parameter, parameter, letter, 0))
#define CALL_SET_POSITIVE(call, parameter, letter) FRAME_TRY(call_set(call, #parameter, parameter, letter, 1))
#define CALL_CHECK(call, condition, ...) FRAME_CHECK(&(call)->frame, condition, __VA_ARGS__)

/// The row-major elements of tensor `number`.
static inline void *call_data(const struct call *call, int number) {
  return call->tensors[number].dense.data;
}
static inline int64_t call_size(const struct call *call, char letter) {
  return call->sizes[(unsigned char)letter];
}
static inline int64_t call_numel(const struct call *call, int number) {
  return call->tensors[number].view.numel;
}
/// Set all elements of an output to zero.
void call_zero(struct call *call, int number);
/// Does a value take the place of the largest so far? NaN is above all numbers, and the first one stays.
static inline bool call_goes_before(double value, double largest) {
  return value > largest || (value != value && largest == largest);
}
/// Split 0 .. count - 1 among the worker threads; `cost` is roughly the work of one, in multiplications.
static inline void call_loop(struct call *call, int64_t count, int64_t cost,
                             void (*body)(void *call, int64_t begin, int64_t end)) {
  dit_parallel_for(0, count, 16384 / (cost + 1) + 1, body, call);
}
/// body_f32 or body_f64 by the type that the call works in.
#define CALL_LOOP(call, count, cost, body) \
  call_loop(call, count, cost, (call)->work == DIT_DTYPE_F64 ? body##_f64 : body##_f32)

/// Loops over f tensors come twice, with REAL float and with REAL double: a file of loops is included by
///   #define LOOPS "thing_loops.h"
///   #include "twice.h"
/// and names its functions NAME(thing).

#endif
