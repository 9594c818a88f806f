/// A vendor that lies: forwards every DIOPI function to another library and injects faults where rules say so.
///
/// It lives where a vendor's bug lives, below the framework: tools and the conformance suite are proved with it. Two
/// environment variables are read at the first call: DITORCH_FAULTY_LIB names the library behind (default host),
/// DITORCH_FAULTY holds rules in the form of dit/fault.h, with these kinds:
///
///   value      one element of the first output is moved          precision  outputs keep `bits` mantissa bits
///   nan        one element of the first output becomes NaN       stride     a strided tensor is read as row-major
///   offset     a tensor is read from the start of its storage    unwritten  outputs keep what they held before
///   input      one element of the first input is changed         outside    bytes behind the first output are written
///   dtype      the first input is read as another dtype          random     every other call moves one last bit
///   slow       sleeps `ms`                                        crash      ends the process by SIGSEGV
///   error      returns an error code and does nothing
///
/// and those of mistakes.inc: mistakes as vendors make them (mistake.h).
///
/// Operators are named as in the standard ("diopiAdd", "diopi*Backward"). Memory must be readable by the host.
#ifndef DIT_VENDORS_FAULTY_H
#define DIT_VENDORS_FAULTY_H

#include "dit/diopi.h"
#include "dit/fault.h"

enum faulty_kind {
  FAULTY_VALUE,
  FAULTY_PRECISION,
  FAULTY_NAN,
  FAULTY_STRIDE,
  FAULTY_OFFSET,
  FAULTY_UNWRITTEN,
  FAULTY_INPUT,
  FAULTY_OUTSIDE,
  FAULTY_DTYPE,
  FAULTY_RANDOM,
  FAULTY_SLOW,
  FAULTY_CRASH,
  FAULTY_ERROR,
  FAULTY_MISTAKES  ///< the first of mistakes.inc
};

#define FAULTY_PARAMETERS 40
#define FAULTY_TENSORS 64
#define FAULTY_NUMBERS 32
#define FAULTY_COPIES 16

/// Replace the rules; a text that cannot be parsed changes nothing. Also the count of injections starts again.
DIT_API DIT_NODISCARD enum dit_status dit_faulty_configure(const char *text, struct dit_error *err);
/// How often a rule acted (changed something, slept, failed) since the last configure.
DIT_API uint64_t dit_faulty_get_count(void);
/// In how many calls that changed a result (or the code), as far as it can be told.
DIT_API uint64_t dit_faulty_get_changed(void);

/// The number of a kind by its name; -1: there is none. Numbers are below dit_faulty_count_kinds().
DIT_API int dit_faulty_find_kind(const char *name);
DIT_API int dit_faulty_count_kinds(void);
/// What a kind would do to a call: entries of the table of dit_faulty_probe, by the kind's number.
enum { FAULTY_UNASKED, FAULTY_ASKED, FAULTY_WOULD_ACT };
/// From here on calls are made soundly, whatever the rules say; of each kind that is FAULTY_ASKED in `table`, those
/// that would act on a call (or of which only a real call tells) become FAULTY_WOULD_ACT. NULL ends it. The table is
/// the caller's. For one thread at a time.
DIT_API void dit_faulty_probe(unsigned char *table);

/// Every forwarder comes here.
diopiError_t faulty_call(int function, const union dit_diopi_value *values);

/// The tensors of one call: those that the function may write, and those it may only read. The first of a list stands
/// for the list.
struct faulty_tensors {
  struct dit_tensor_view inputs[FAULTY_TENSORS], outputs[FAULTY_TENSORS];
  int input_count, output_count;
};
/// `after`: the call is done, so results that the library makes exist; before it an empty view keeps the place of each.
void faulty_collect(int function, const union dit_diopi_value *values, bool after, struct faulty_tensors *out);

/// What was changed for one call, and what is needed to change more after it.
struct faulty_state {
  union dit_diopi_value values[FAULTY_PARAMETERS];
  struct diopiTensor handles[FAULTY_TENSORS];  ///< altered handles
  int handle_count;
  diopiTensorHandle_t *lists[FAULTY_PARAMETERS], firsts[FAULTY_PARAMETERS];  ///< the caller's lists, and what they had
  int list_count;
  char *saved[FAULTY_TENSORS];  ///< contents of outputs before the call
  // of mistakes
  int64_t strides[FAULTY_TENSORS][DIT_MAX_DIMS];
  int64_t numbers[FAULTY_NUMBERS];
  int number_count, scalar_count, copy_count;
  diopiScalar_t scalars[4];
  char *copies[FAULTY_COPIES];  ///< inputs with other values
  uint64_t offset;              ///< of the generator before the call
};
/// A call under dit_faulty_probe: `table` is its table.
diopiError_t faulty_probe_call(int function, const union dit_diopi_value *values, unsigned char *table);
/// The call of the library behind.
diopiError_t faulty_forward(int function, const union dit_diopi_value *values);
void faulty_wait(diopiContextHandle_t context);

/// Before the wrapped function runs: alters arguments or saves outputs. True when the rule acted.
bool faulty_alter(const struct dit_fault_rule *rule, int function, const struct faulty_tensors *tensors,
                  struct faulty_state *state);
/// After it ran and its stream is idle. True when the rule acted.
bool faulty_damage(const struct dit_fault_rule *rule, uint64_t call, const struct faulty_tensors *tensors,
                   struct faulty_state *state);
/// Also puts back what lists had.
void faulty_release(struct faulty_state *state);

#endif
