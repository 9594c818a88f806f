/// One case on one library: arguments made from the case, the call, and its judgement.
#ifndef DIT_CONFORM_CALL_H
#define DIT_CONFORM_CALL_H

#include "judge.h"
#include "machine.h"

/// The arguments of a call, made from a case.
struct call {
  const struct pack_case *item;
  size_t *places;                 ///< per storage: where it begins in the machine's piece
  size_t size;                    ///< bytes of the piece that the case uses
  struct diopiTensor *handles;    ///< per tensor
  union dit_diopi_value *values;  ///< the context, then one per argument
  unsigned char *memory;          ///< what values point to
  size_t memory_size;
  struct far_tensor *far;  ///< per tensor, of a case with the tag "far"; else NULL
};

DIT_NODISCARD enum dit_status call_init(struct call *call, const struct pack_case *item, struct machine *machine,
                                        struct dit_error *err);
void call_reset(struct call *call);
/// What the library is told about a storage.
void call_set_storage(struct call *call, uint32_t number, void *base, size_t size);
/// Put the inputs into the machine's memory, everything else filled with `pattern`.
DIT_NODISCARD enum dit_status call_fill(struct call *call, struct machine *machine, unsigned char pattern,
                                        struct dit_error *err);
/// Make the values anew (results empty, generators at their start).
void call_make_values(struct call *call, struct diopiContext *context, unsigned char pattern);
/// Elements of a tensor in row-major order, from memory that begins at `base`, and back into it.
void call_gather(const struct pack_tensor *tensor, const unsigned char *base, unsigned char *out);
void call_scatter(const struct pack_tensor *tensor, const unsigned char *in, unsigned char *base);

/// What the library says about the results before the call, against the case's. Makes the values anew.
DIT_NODISCARD enum dit_status judge_inference(struct call *call, const struct dit_diopi_library *library,
                                              struct outcome *outcome, struct dit_error *err);

struct run_options {
  int repeat;        ///< runs of each case
  bool side_stream;  ///< one more, on another stream than the default
  double tolerance;  ///< factor
  bool one_thread;   ///< also cases for several
  /// After the first run, whether there is anything to see: 0 ends the case. NULL: always.
  uint64_t (*get_acted)(void);
};

/// Results of a run, in row-major order, one after the other; `at` has where each tensor's begin.
struct results {
  unsigned char *bytes[2];      ///< of this run and of the first
  unsigned char *spare;         ///< room for one of them
  unsigned char *spare_tensor;  ///< room for the largest tensor of the case
  size_t *at;
  size_t size;
};
bool results_init(struct results *results, const struct pack_case *item);
void results_reset(struct results *results);

/// What memory that the library must not read is filled with, in turn.
extern const unsigned char run_patterns[2];

/// One call whose memory is filled and whose values are made, and its judgement.
DIT_NODISCARD enum dit_status run_prepared(struct call *call, struct machine *machine,
                                           const struct dit_diopi_library *library, const struct run_options *options,
                                           struct diopiContext *context, bool side, struct results *results,
                                           struct outcome *outcome, struct dit_error *err);
/// A case with the tag "threads": several threads call at once, half of them with other values; "shared": on one
/// context.
DIT_NODISCARD enum dit_status run_threads(struct machine *machine, const struct dit_diopi_library *library,
                                          const struct pack_case *item, const struct run_options *options,
                                          struct outcome *outcome, struct dit_error *err);

/// Run a case as often as the options say and judge every run. DIT_OK when there is an outcome; an error is one of the
/// device or of memory.
DIT_NODISCARD enum dit_status run_case(struct machine *machine, const struct dit_diopi_library *library,
                                       const struct pack_case *item, const struct run_options *options,
                                       struct outcome *outcome, struct dit_error *err);

#endif
