/// One line of JSON per case on a stream, and which cases were asked for.
#ifndef DIT_CONFORM_REPORT_H
#define DIT_CONFORM_REPORT_H

#include <stdio.h>

#include "judge.h"

/// Text as a JSON string, quotes included. Bytes that are no UTF-8 become U+FFFD.
void report_string(FILE *out, const char *text);
/// {"case": 3, "id": ..., "function": ..., "verdict": "pass", "kind": "", "reason": "", "code": 0, "text": "",
/// "seconds": 1e-05, "inference": "judged", "adapt": "direct"}; the last two only where the library was asked,
/// and where it is the adaptor.
void report_outcome(FILE *out, int64_t number, const char *id, const char *function, const struct outcome *outcome);
/// {"case": 3, "id": ..., "function": ..., "start": true}: written before the case runs, so that it has a name when it
/// ends the process.
void report_start(FILE *out, int64_t number, const char *id, const char *function);
const char *verdict_get_name(enum verdict verdict);

#define RULE_LIMIT 4096

enum rule_action { RULE_ONLY, RULE_SKIP, RULE_TOLERANCE };
/// A pattern of the shell for the id or the function of a case, or "tag=pattern" for one of its tags.
struct rule {
  enum rule_action action;
  const char *pattern;
  double factor;  ///< of RULE_TOLERANCE
};
struct rules {
  int count;
  struct rule *rows;
  char *text;  ///< of a file; owned
};
DIT_NODISCARD enum dit_status rules_add(struct rules *rules, enum rule_action action, const char *pattern,
                                        double factor, struct dit_error *err);
/// Lines "skip PATTERN" and "tolerance PATTERN FACTOR"; empty ones and those that begin with # count for nothing.
DIT_NODISCARD enum dit_status rules_read(struct rules *rules, const char *path, struct dit_error *err);
void rules_reset(struct rules *rules);
/// Does the case run? `*skipped`: it was asked for, but a rule says no. `*factor`: for its tolerances.
bool rules_select(const struct rules *rules, const struct pack_case *item, bool *skipped, double *factor);

#endif
