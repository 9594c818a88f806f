/// The adaptor: wraps any DIOPI library and gives it what it lacks.
///
/// A call goes the first of these ways that the library behind takes:
///   1. as it is (counted as `direct`; nothing is looked at but dtypes and strides);
///   2. with tensors in another layout or dtype, results written back (`converted`);
///   3. composed of other functions (`composed`): Inp by the out-of-place function and a copy, Scalar by Tensor, and
///   the
///      recipes of recipes.inc. Data movement (cat, slice, permute ...) is copies of the adaptor's own.
/// What a function needs is told by a rules file (rules.h), by the library (diopiExtGetSupport), or learned: a library
/// that answers diopiDtypeNotSupported or diopiForceFallbackToCPU has written nothing, so the next way is tried and
/// remembered. A conversion that the adaptor chooses itself loses nothing: dtypes are widened, integers narrowed only
/// where every value fits. A rule may narrow; a value that does not fit is an error then. Results in a wider dtype than
/// the caller's are rounded, or wrap if they are integers, as the standard says of the function itself.
///
/// Environment, read at the first call: DITORCH_ADAPT_LIB names the library behind (default host),
/// DITORCH_ADAPT_RULES a rules file. Exports the functions of dit/adapt.h
/// beside the standard.
#ifndef DIT_VENDORS_ADAPT_H
#define DIT_VENDORS_ADAPT_H

#include "dit/adapt.h"
#include "dit/diopi.h"

enum { ADAPT_PARAMETERS = 40, ADAPT_DTYPES = 17, ADAPT_HINTS = 64, ADAPT_REFUSED = 254, ADAPT_HOPELESS = 255 };

// Rules of a function

enum adapt_layout { ADAPT_CONTIGUOUS = 1, ADAPT_CHANNELS_LAST = 2, ADAPT_ANY = 4 };

struct adapt_tensor_rule {
  int8_t parameter;
  uint8_t layouts;  ///< 0: those of the function
  bool has_dtypes;  ///< else those of the function
  int8_t to[ADAPT_DTYPES];
};
enum { ADAPT_TENSOR_RULES = 12 };

/// diopiDtype_t to diopiDtype_t, -1: as it is.
struct adapt_rule {
  int8_t to[ADAPT_DTYPES];
  uint8_t layouts;  ///< enum adapt_layout; 0: nothing is said
  bool alone;       ///< supportComposite: false, never composed
  uint8_t tensor_count;
  struct adapt_tensor_rule tensors[ADAPT_TENSOR_RULES];
};

void adapt_rule_init(struct adapt_rule *rule);
/// Read a rules text (the original's convert_config.yaml) into `rules`, one per function of the standard, each
/// adapt_rule_init'ed before. DIT_ERR_INVALID names the line and, for an unknown name, the nearest one.
enum dit_status adapt_rules_read(const char *text, size_t size, struct adapt_rule *rules, struct dit_error *err);

// Elements (convert.c)

/// WRAP: rounds, integers wrap, as a cast does. CHECK: a value that does not fit is an error. PROXY: what is beyond the
/// range or lost by rounding keeps its sign, and only zero becomes zero. LOWEST: as WRAP, but the lowest finite
/// number, which a function wrote as such, is the lowest of the narrower dtype too.
enum adapt_mode { ADAPT_WRAP, ADAPT_CHECK, ADAPT_PROXY, ADAPT_LOWEST };

/// out[i] = in[i]; shapes are equal, memory is the host's. False when a value does not fit, with its text.
bool adapt_elements_copy(const struct dit_tensor_view *out, const struct dit_tensor_view *in, enum adapt_mode mode,
                         char *problem, size_t size);
/// out[i] = in[i] where proxy_out[i] and proxy_in[i] are the same number; all contiguous.
void adapt_elements_restore(const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                            const struct dit_tensor_view *proxy_out, const struct dit_tensor_view *proxy_in);

// Tensors on the device (memory.c)

/// A copy with conversion in the order of the context's stream, any strides and dtypes. `out` may be larger: `in` is
/// broadcast.
diopiError_t adapt_copy(diopiContextHandle_t ctx, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                        enum adapt_mode mode);
/// A contiguous tensor in scratch memory of the context; NULL (with the text set) without memory.
diopiTensorHandle_t adapt_create(diopiContextHandle_t ctx, int ndim, const int64_t *sizes, int dtype);
/// Strides with the channels (dimension 1) innermost; ndim 3 to 5.
void adapt_set_channels_last(int ndim, const int64_t *sizes, int64_t *strides);
/// Host copy of a small tensor's elements as int64 (integers and bool only). The caller frees it.
diopiError_t adapt_read_ints(diopiContextHandle_t ctx, const struct dit_tensor_view *view, int64_t **out);
/// Write one number, or `count` numbers into a contiguous tensor.
diopiError_t adapt_write(diopiContextHandle_t ctx, const struct dit_tensor_view *out, const void *values, int dtype,
                         int64_t count);
/// A context for scratch memory of one call; ends by dit_diopi_context_reset.
void adapt_child_init(struct diopiContext *child, const struct diopiContext *parent);
/// Before host code looks at memory.
void adapt_wait(diopiContextHandle_t ctx);

// Calls

/// The texts of this thread's last failure. Return the code.
diopiError_t adapt_fail(diopiError_t code, diopiExtFailure_t failure, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/// Put the function's name before the last text, unless it is there.
void adapt_name_failure(int function);
#define ADAPT_TRY(call)          \
  do {                           \
    diopiError_t code_ = (call); \
    if (code_ != diopiSuccess) { \
      return code_;              \
    }                            \
  } while (0)
#define ADAPT_CHECK_ARGUMENT(condition, ...)                                       \
  do {                                                                             \
    if (!(condition)) {                                                            \
      return adapt_fail(diopiErrorOccurred, diopiExtFailureArgument, __VA_ARGS__); \
    }                                                                              \
  } while (0)

struct adapt_function {
  struct adapt_rule rule;
  bool behind;    ///< the library has it
  bool composed;  ///< it can be composed
  bool plain;     ///< no rule at all
  /// Learned, by a hash of the call's dtypes and layouts: the hash's upper bits and, in the lowest byte, 1 + the first
  /// step of the ladder (call.c) that the library took, or when it took none ADAPT_HOPELESS (for its
  /// dtypes) or ADAPT_REFUSED. 0: nothing.
  _Atomic uint32_t hints[ADAPT_HINTS];
};
struct adapt_state {
  struct dit_diopi_library *library;
  struct adapt_function functions[DIT_DIOPI_COUNT];
};
/// The open library, or NULL with the text set.
struct adapt_state *adapt_get_state(void);

/// Every forwarder comes here, and composites call it again for their parts.
diopiError_t adapt_call(int function, const union dit_diopi_value *values);
/// From outside.
diopiError_t adapt_enter(int function, const union dit_diopi_value *values);
/// With other tensors, by the rules or what was learned (call.c).
diopiError_t adapt_call_converted(struct adapt_state *state, int function, const union dit_diopi_value *values);
/// Is any rule or lesson about these tensors?
bool adapt_needs_conversion(const struct adapt_state *state, int function, const union dit_diopi_value *values);
diopiError_t adapt_call_behind(struct adapt_state *state, int function, const union dit_diopi_value *values);
/// Context, device and overlap of all tensors, numbers that must fit: what a function that gets copies cannot see any
/// more.
diopiError_t adapt_check_tensors(int function, const union dit_diopi_value *values);
/// Number of tensors in the list at a parameter.
int64_t adapt_get_length(int function, const union dit_diopi_value *values, int parameter);
/// Is the parameter written without being read?
bool adapt_is_output(int function, int parameter);
/// Is it named as a result? Then it may hold anything before the call, also where adapt_is_output does not know.
bool adapt_may_be_garbage(int function, int parameter);
/// The name of a parameter, `length` characters that something else follows.
const char *adapt_get_name(int function, int parameter, int *length);
/// Number of the parameter with this name; -1 when there is none.
int adapt_find_parameter(int function, const char *name);
/// Pointwise functions: arguments broadcast to the output.
bool adapt_is_pointwise(int function);

enum adapt_count {
  COUNT_CALLS,
  COUNT_DIRECT,
  COUNT_CONVERTED,
  COUNT_COMPOSED,
  COUNT_REFUSED,
  COUNT_DTYPES,
  COUNT_LAYOUTS,
  COUNT_WRITTEN,
  COUNT_KINDS
};
void adapt_count(enum adapt_count what, uint64_t number);
/// A tensor was copied into another dtype or, where they are the same, layout. Dtypes are those of dit/dtype.h.
void adapt_count_copy(int from_dtype, int to_dtype);

// Composites

/// Find out which functions can be composed of what the library has.
void adapt_compose_init(struct adapt_state *state);
diopiError_t adapt_compose(struct adapt_state *state, int function, const union dit_diopi_value *values);
/// By copies alone (movement.c). diopiNoImplement: not one of them.
diopiError_t adapt_move(diopiContextHandle_t ctx, int function, const union dit_diopi_value *v);
bool adapt_is_movement(int function);
/// By a recipe (recipe.c, evaluate.c).
bool adapt_recipe_is_possible(const struct adapt_state *state, int function);
diopiError_t adapt_recipe_run(struct diopiContext *ctx, int function, const union dit_diopi_value *values);

#endif
