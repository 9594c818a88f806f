/// Indices, ties and repeated places: where more than one answer is right.
#ifndef DIT_JUDGE_PLACES_H
#define DIT_JUDGE_PLACES_H

#include "dit/verdict.h"

/// Do the device's indices point at values that equal those at the CPU's indices? `arguments->inputs[0]` is what they
/// point into. Sorts: no index twice. *alike is false where the shapes do not fit.
DIT_NODISCARD enum dit_status places_compare(const struct dit_verdict_case *c,
                                             const struct dit_verdict_arguments *arguments,
                                             const struct dit_tensor_view *device, const struct dit_tensor_view *cpu,
                                             bool *alike, struct dit_error *err);
/// torch.mode: is what the device chose (values, index 0, or their places, index 1) as frequent in its row as what the
/// CPU chose?
DIT_NODISCARD enum dit_status places_are_as_frequent(const struct dit_verdict_case *c,
                                                     const struct dit_verdict_arguments *arguments,
                                                     const struct dit_tensor_view *device,
                                                     const struct dit_tensor_view *cpu, bool *alike,
                                                     struct dit_error *err);
/// topk(sorted=False): are the device's values (or the values at its places, index 1) the CPU's in another order?
DIT_NODISCARD enum dit_status places_are_permuted(const struct dit_verdict_case *c,
                                                  const struct dit_verdict_arguments *arguments,
                                                  const struct dit_tensor_view *device,
                                                  const struct dit_tensor_view *cpu, bool *alike,
                                                  struct dit_error *err);
/// Are some values of the first argument equal that the operator chooses among?
DIT_NODISCARD enum dit_status places_have_ties(const struct dit_verdict_case *c,
                                               const struct dit_verdict_arguments *arguments, bool *ties,
                                               struct dit_error *err);
/// Does the index of a scatter name one place more than once? True when it is not known.
DIT_NODISCARD enum dit_status places_have_repeats(const struct dit_verdict_case *c,
                                                  const struct dit_verdict_arguments *arguments, bool *repeats,
                                                  struct dit_error *err);

#endif
