/// Is this result right? The verdict on one value of one operator call (docs/verdict.md derives the rule).
///
/// The caller has a result of the device and a first result of the CPU. Most pairs are decided by these two. For the
/// others the judge asks for further runs of the operator on the CPU through a callback: in float64, in the program's
/// dtypes, at inputs a few roundings away. "Wrong" is only ever said after them. Plain C, no framework: whoever can run
/// an operator on the CPU can judge (OpAutoCompare, replay, test-device, the operator controls).
#ifndef DIT_VERDICT_H
#define DIT_VERDICT_H

#include "dit/judge.h"
#include "dit/operator.h"

DIT_EXTERN_C_BEGIN

/// The numbers of the rule. A repro that is sent to a chip's maker carries them in its own copy of the rule.
#define DIT_VERDICT_FACTOR 4.0       ///< times the CPU's own error
#define DIT_VERDICT_SEEN_FACTOR 2.0  ///< the same where the error of an earlier call is used
#define DIT_VERDICT_THIN 64          ///< elements below which the CPU's error says little
#define DIT_VERDICT_ROUNDS 8         ///< runs at inputs nearby, at most
#define DIT_VERDICT_JITTER 4.0       ///< how far those inputs are moved, in unit roundoffs
#define DIT_VERDICT_ODD 16           ///< full significands that prove that nothing was rounded

enum dit_verdict {
  DIT_VERDICT_RIGHT,
  DIT_VERDICT_WRONG,
  DIT_VERDICT_UNKNOWN,  ///< cannot be decided; the reason says why
};

/// What the value is to the call. The numbers are those of enum compare_what in python/ext.
enum dit_verdict_what { DIT_VERDICT_INPUT, DIT_VERDICT_OUTPUT, DIT_VERDICT_GRAD };

enum dit_verdict_run {
  DIT_RUN_WIDE,         ///< float64 and complex128: the reference
  DIT_RUN_NATIVE,       ///< the dtypes of the program: the CPU's own error
  DIT_RUN_SHAKEN,       ///< wide, every floating input off by a random relative error of at most `size`
  DIT_RUN_JITTER,       ///< as native, every floating input moved by at most `size` unit roundoffs and rounded again
  DIT_RUN_JITTER_WIDE,  ///< wide, with the very inputs of DIT_RUN_JITTER
  DIT_RUN_OTHER,        ///< as native, another way that the CPU has: its own autocast instead of the device's
};

/// One further run.
struct dit_verdict_request {
  enum dit_verdict_run kind;
  double size;    ///< SHAKEN: 0 means the unit roundoff of each input's own dtype
  bool narrow;    ///< JITTER, JITTER_WIDE: float32 in the place of every floating dtype
  uint64_t seed;  ///< of the moves
};

/// The arguments of the call, for the few operators whose verdict depends on them. Views are borrowed from the caller
/// and readable by the CPU.
struct dit_verdict_arguments {
  const struct dit_tensor_view *inputs;  ///< the tensors among the arguments, in order, as before the call
  int input_count;
  bool has_dim;
  int64_t dim;       ///< the argument `dim`, where it is a number
  int index;         ///< which of `inputs` is the argument `index` of a scatter; -1: not known
  bool is_unsorted;  ///< topk(sorted=False): its values come in any order
  bool is_inexact;   ///< the argument is given with which an exact operator rounds (`unless` of its row)
  /// To which the device rounds float32 inputs of contractions on purpose (TF32); 0: it does not.
  double input_roundoff;
};

/// What the judge asks the caller for.
struct dit_verdict_source {
  void *context;
  /// Value number `index` of a run. The view stays valid until the end of the judgement (WIDE, NATIVE) or until the
  /// next run of the same kind. DIT_ERR_UNSUPPORTED: there is no such run or no such tensor, `err` says why; any other
  /// error ends the judgement with that status.
  enum dit_status (*run)(void *context, const struct dit_verdict_request *request, int index,
                         struct dit_tensor_view *value, struct dit_error *err);
  /// Asked at most once per judgement, and only when something is suspicious. `arguments` is all zero, index -1.
  enum dit_status (*arguments)(void *context, struct dit_verdict_arguments *arguments, struct dit_error *err);
};

/// Yardsticks that earlier judgements left behind, by the caller's keys. Fixed size, safe in threads.
struct dit_verdict_memory;
DIT_API DIT_NODISCARD enum dit_status dit_verdict_memory_create(struct dit_verdict_memory **memory,
                                                                struct dit_error *err);
DIT_API void dit_verdict_memory_destroy(struct dit_verdict_memory *memory);
/// Errors of at most `relative` of the reference plus `residual` of the largest number are right without further runs.
/// False when nothing is known.
DIT_API bool dit_verdict_memory_get(struct dit_verdict_memory *memory, uint64_t key, double *relative,
                                    double *residual);
/// Leave a yardstick: half of what was allowed when the result was found right.
DIT_API void dit_verdict_memory_put(struct dit_verdict_memory *memory, uint64_t key, double relative, double residual);
/// Every yardstick is forgotten: the next judgements make their runs, as the first ones did.
DIT_API void dit_verdict_memory_clear(struct dit_verdict_memory *memory);

/// One value to be judged.
struct dit_verdict_case {
  const struct dit_operator *op;  ///< its row (dit_operator_find); NULL: nothing is known of it
  uint64_t traits;                ///< of exactly its name (dit_operator_get_traits)
  enum dit_verdict_what what;
  int index;        ///< of the value among those of its run
  bool is_careful;  ///< the device takes its inputs as they are and sums in float32 at least: the embedded one does
  double between;   ///< roundoff of the dtype that autocast may use on the way to the result; 0: no autocast
  uint64_t seed;    ///< of the moves of this call
  struct dit_verdict_memory *memory;  ///< NULL: none
  uint64_t key;                       ///< of the operator, its signature, this value and its shape; 0: none
};

struct dit_verdict_result {
  enum dit_verdict verdict;
  double error;      ///< largest |device - reference| where it is judged worst
  double allowed;    ///< what the rule allows there
  double cpu_error;  ///< largest error of the CPU in the program's dtype; NaN when it was not needed
  int64_t wrong;     ///< elements beyond what is allowed
  int64_t numel;
  int64_t index;            ///< row-major, of the worst element; -1 for none
  double value, reference;  ///< there
  bool has_wide;            ///< the float64 reference was asked for, and decided
  char reason[160];         ///< in words: why wrong or undecided
};

/// Judge one tensor. `device`: the device's result; `first`: what the CPU has at hand (any precision). Shapes may
/// differ, which is wrong. DIT_ERR_UNSUPPORTED for dtypes that have no values to compare; else the status of the
/// source.
DIT_API DIT_NODISCARD enum dit_status dit_verdict_judge(const struct dit_verdict_case *c,
                                                        const struct dit_verdict_source *source,
                                                        const struct dit_tensor_view *device,
                                                        const struct dit_tensor_view *first,
                                                        struct dit_verdict_result *result, struct dit_error *err);

/// The inputs of the runs, so that every caller moves them alike. `data`: packed float64, `count` numbers (complex:
/// both parts), which are moved in place by a random relative error of at most `size`; `place` is the number of the
/// tensor among the arguments. Small integers are left alone: they are labels, flags and exact constants.
DIT_API void dit_verdict_move(double *data, int64_t count, double size, uint64_t seed, int place);
/// One number among the arguments, moved likewise. `state` starts as dit_verdict_move_begin(seed).
DIT_API double dit_verdict_move_number(double number, double size, uint64_t *state);
DIT_API uint64_t dit_verdict_move_begin(uint64_t seed);

DIT_EXTERN_C_END

#endif
