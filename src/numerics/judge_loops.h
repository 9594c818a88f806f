/// The inner loops of judge.c: packed real numbers in double, four at a time.
///
/// Each loop looks at one chunk of pairs and keeps maxima and counts, so neither the order nor the width changes a bit.
/// `bad` says that a NaN or an infinity was met: what the loop found is then void, and the chunk is done pair by pair.
#ifndef DIT_NUMERICS_JUDGE_LOOPS_H
#define DIT_NUMERICS_JUDGE_LOOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/judge.h"

/// Chunks are padded to a multiple of this with pairs of zeros.
#define JUDGE_WIDTH 4

struct judge_found {
  int64_t wrong, unequal;
  double margin;  ///< raised
  bool bad;
};

struct judge_measured {
  int64_t unequal;
  double largest, ratio, residual, scale;  ///< raised
  bool bad;
};

struct judge_related {
  double difference, relative;  ///< raised
  bool bad;
};

void judge_loop_compare(const double *x, const double *r, int64_t count, const struct dit_judge_rule *rule,
                        struct judge_found *found);
void judge_loop_measure(const double *x, const double *r, int64_t count, double relative, double floor,
                        struct judge_measured *found);
void judge_loop_relate(const double *a, const double *b, int64_t count, double offset, struct judge_related *found);

#endif
