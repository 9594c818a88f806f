/// Sequences of keys against each other, range by range. Internal to align.
#ifndef DIT_ALIGN_SOLVE_H
#define DIT_ALIGN_SOLVE_H

#include "dit/align.h"

struct dit_align_range {
  size_t a_begin, a_end, b_begin, b_end;
};

/// Memory for sequences of at most `a_count` and `b_count` keys below `keys`. Zero-initialise.
struct dit_align_solver {
  const uint32_t *a, *b;      ///< set by the caller
  int32_t *match;             ///< of a, set by the caller
  uint32_t *in_a, *in_b;      ///< how often a key occurs in the range at hand; zero between calls
  int32_t *head;              ///< its first occurrence in b not yet paired; -1 between calls
  int32_t *next;              ///< of b: the next occurrence
  int32_t *partner;           ///< of a: candidate in b
  int32_t *tails, *previous;  ///< of the longest increasing chain
  uint16_t *cells;            ///< of the small problems; made when first needed
};

DIT_NODISCARD enum dit_status dit_align_solver_init(struct dit_align_solver *solver, size_t a_count, size_t b_count,
                                                    size_t keys, struct dit_error *err);
void dit_align_solver_reset(struct dit_align_solver *solver);
/// Fill solver->match for the range; entries that stay alone are left as they are (-1).
DIT_NODISCARD enum dit_status dit_align_solver_run(struct dit_align_solver *solver, struct dit_align_range range,
                                                   struct dit_error *err);

#endif
