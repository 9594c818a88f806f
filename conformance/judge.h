/// Judging results: the elements of a tensor against what the case expects.
#ifndef DIT_CONFORM_JUDGE_H
#define DIT_CONFORM_JUDGE_H

#include "pack.h"

enum verdict { VERDICT_PASS, VERDICT_FAIL, VERDICT_MISSING, VERDICT_UNSUPPORTED, VERDICT_SKIPPED, VERDICT_COUNT };

/// Whether the library was asked about the results before the call, and told them.
enum inference { INFERENCE_ABSENT, INFERENCE_UNTOLD, INFERENCE_JUDGED };

/// What became of a case.
struct outcome {
  enum verdict verdict;
  const char *kind;  ///< one word for what failed: "value", "guard", ...; "" when nothing did
  char reason[768];
  int code;
  char text[512];  ///< of the library, for a code that is not success
  double seconds, against;
  enum inference inference;
  const char *way;  ///< through the adaptor (dit/adapt.h): "direct", "converted", "composed"; NULL without it
};

/// Make it a failure, unless it is one already; false.
bool outcome_fail(struct outcome *outcome, const char *kind, const char *format, ...) DIT_PRINTF(3, 4);
/// Words before the reason of a failure.
void outcome_prefix(struct outcome *outcome, const char *words);

/// Is a result right? `got` are its elements in row-major order, `label` its name in messages. A selection also needs
/// the tensor it points into, kept elements their mask, and that one's elements. `scale` multiplies the tolerance.
bool judge_tensor(const struct pack_tensor *tensor, const void *got, const char *label,
                  const struct pack_tensor *source, const void *source_data, double scale, struct outcome *outcome);
/// The same for one number behind a pointer (kind I, B or D).
bool judge_value(char kind, uint64_t got, uint64_t expected, double tolerance, const char *label,
                 struct outcome *outcome);

#endif
