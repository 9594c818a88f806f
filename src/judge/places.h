/// Indices, ties and repeated places: where more than one answer is right.
#ifndef DIT_JUDGE_PLACES_H
#define DIT_JUDGE_PLACES_H

#include "dit/verdict.h"

/// Is what the device chose from `arguments->inputs[0]` as good as what the CPU chose? Values and places (the result
/// that the table calls so) alike: places must point at equal values, those of sorts must be distinct; any of the most
/// frequent values will do (torch.mode); topk(sorted=False) comes in any order. *alike is false where shapes do not
/// fit, and for values that are no matter of choice.
DIT_NODISCARD enum dit_status places_compare(const struct dit_verdict_case *c,
                                             const struct dit_verdict_arguments *arguments,
                                             const struct dit_tensor_view *device, const struct dit_tensor_view *cpu,
                                             bool *alike, struct dit_error *err);
/// A gradient of the first argument beside its reference.
enum places_exchange {
  PLACES_UNIQUE,     ///< no values are equal
  PLACES_TIED,       ///< some are, and that does not explain it
  PLACES_EXCHANGED,  ///< right by the rule, once equal values (sorted=False: all of a row) exchange their gradients
};
DIT_NODISCARD enum dit_status places_exchange(const struct dit_verdict_case *c,
                                              const struct dit_verdict_arguments *arguments,
                                              const struct dit_tensor_view *device, const struct dit_tensor_view *cpu,
                                              const struct dit_judge_rule *rule, enum places_exchange *found,
                                              struct dit_error *err);
/// Does the index of a scatter name one place more than once? True when it is not known.
DIT_NODISCARD enum dit_status places_have_repeats(const struct dit_verdict_case *c,
                                                  const struct dit_verdict_arguments *arguments, bool *repeats,
                                                  struct dit_error *err);

#endif
