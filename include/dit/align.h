/// Two runs side by side: the calls of their record logs, which call of one is which of the other, and how far apart
/// what they wrote is.
///
/// A run is loaded from a record reader into flat arrays (about 150 bytes per call, bounded by a limit); the texts of
/// both runs share one table. Alignment is by step, then by module path, operator and occurrence: calls whose key is
/// equally frequent on both sides are anchors, what lies between two anchors is a small longest-common-subsequence
/// problem, and calls that only changed their place are paired last. No clock, address or line number takes part.
#ifndef DIT_ALIGN_H
#define DIT_ALIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"
#include "dit/record.h"

DIT_EXTERN_C_BEGIN

/// Texts by number; 0 is the empty text. One table serves both runs.
struct dit_align_names;
DIT_API DIT_NODISCARD enum dit_status dit_align_names_create(struct dit_align_names **names, struct dit_error *err);
DIT_API void dit_align_names_destroy(struct dit_align_names *names);  ///< accepts NULL
/// The number of these bytes, given out from 1 in order of appearance. DIT_ERR_NOMEM, also beyond 1 GiB of texts.
DIT_API DIT_NODISCARD enum dit_status dit_align_names_take(struct dit_align_names *names, const void *text, size_t size,
                                                           uint32_t *number, struct dit_error *err);
/// Borrowed until the next take; empty for a number that was never given out.
DIT_API struct dit_record_text dit_align_names_get(const struct dit_align_names *names, uint32_t number);
DIT_API size_t dit_align_names_get_count(const struct dit_align_names *names);

/// What one call wrote, as "stats.*" of its record says.
struct dit_align_stats {
  uint64_t hash;
  double norm, mean, min, max;
  int64_t numel, nan, inf;
  uint32_t dtype;  ///< a name's number
  bool hashed;
};

enum dit_align_flag {
  DIT_ALIGN_BACKWARD = 1 << 0,
  DIT_ALIGN_RECOMPUTE = 1 << 1,
  DIT_ALIGN_FAILED = 1 << 2,   ///< the operator raised
  DIT_ALIGN_FINDING = 1 << 3,  ///< the log has a finding about it that no rule allows
  DIT_ALIGN_JUDGED = 1 << 4,   ///< OpAutoCompare compared it with the CPU
  DIT_ALIGN_WRONG = 1 << 5,    ///< and found it wrong
};

/// One call, or one backward of a call. Texts are numbers of dit_align_names.
struct dit_align_call {
  int64_t time_ns, step;
  uint64_t id;
  int64_t host_ns, device_ns;  ///< -1: unknown
  uint64_t process;
  uint32_t name, module, location, shape;
  uint32_t plain_module;  ///< without the wrappers of DDP, FSDP, torch.compile and checkpointing
  uint32_t stats;         ///< index + 1 into dit_align_run.stats; 0: none
  uint16_t flags, round;
  uint32_t pid;
};

struct dit_align_run {
  struct dit_align_call *calls;  ///< by step, then process, then time
  struct dit_align_stats *stats;
  size_t count, capacity, stats_count, stats_capacity;
  uint64_t records;  ///< read
};

/// Read every record of the tools into `run` (zero-initialise), calls in order. At most `limit` bytes of arrays:
/// DIT_ERR_NOMEM says so. `go_on` (nullable) is asked now and then; false ends with DIT_ERR_INTERNAL "interrupted".
DIT_API DIT_NODISCARD enum dit_status dit_align_run_load(struct dit_record_reader *reader,
                                                         struct dit_align_names *names, size_t limit,
                                                         bool (*go_on)(void *context), void *context,
                                                         struct dit_align_run *run, struct dit_error *err);
DIT_API void dit_align_run_reset(struct dit_align_run *run);

/// One line of the comparison: a pair (both at least 0), or a call of one run alone (the other is -1).
struct dit_align_pair {
  int32_t a, b;
  bool moved;  ///< a pair that is not in order
};

/// Align two sequences of keys: match[i] becomes the index in b of a[i], or -1; matches never cross. Keys are below
/// `keys`. Time O(n log n) plus at most 4 million cells per gap; memory O(n + keys).
DIT_API DIT_NODISCARD enum dit_status dit_align_sequences(const uint32_t *a, size_t a_count, const uint32_t *b,
                                                          size_t b_count, size_t keys, int32_t *match,
                                                          struct dit_error *err);

/// Align two runs. *pairs (dit_free) holds every call of both exactly once, in the order of the runs.
DIT_API DIT_NODISCARD enum dit_status dit_align_runs(const struct dit_align_run *a, const struct dit_align_run *b,
                                                     struct dit_align_names *names, struct dit_align_pair **pairs,
                                                     size_t *count, struct dit_error *err);

enum dit_align_verdict {
  DIT_ALIGN_UNKNOWN,  ///< one of them has no statistics
  DIT_ALIGN_SHAPES,   ///< the numbers of elements differ: not comparable
  DIT_ALIGN_EQUAL,    ///< the same bits
  DIT_ALIGN_CLOSE,    ///< `error` tells how far apart
};

/// The error of results whose numbers agree and whose hashes do not: something differs, its size is not known.
#define DIT_ALIGN_BITS 1e-300

/// How far apart what two calls wrote is: the largest of the relative differences of norm, mean (in units of the root
/// mean square), minimum and maximum; infinite when the numbers of NaN or infinities differ. A lower bound of the real
/// difference, by nature.
DIT_API enum dit_align_verdict dit_align_judge(const struct dit_align_stats *a, const struct dit_align_stats *b,
                                               double *error);

DIT_EXTERN_C_END

#endif
