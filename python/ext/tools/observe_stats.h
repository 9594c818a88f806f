/// OpObserve with stats=1: what one call wrote, in a few numbers and a hash, for comparing runs (docs/compare.md).
#ifndef DIT_EXT_TOOLS_OBSERVE_STATS_H
#define DIT_EXT_TOOLS_OBSERVE_STATS_H

#include "engine/log.h"

/// All tensors of one record as one: counts and extrema of all elements, norm and mean over the finite ones.
struct observe_stats {
  int64_t numel, nan, inf, finite;
  double squares, sum, min, max;
  uint64_t hash;
  int16_t dtype;  ///< of the first tensor
  int tensors;
  bool unhashed;  ///< a device whose memory only torch reads: no hash
};

/// `py_torch` (nullable) reads tensors that C cannot: function(tensor) -> dict of numbers.
void observe_stats_add(struct observe_stats *stats, const struct engine_tensor *tensor, PyObject *py_torch);
/// Results and what was changed in place. Uninitialised memory and failed calls have none.
void observe_stats_of_call(struct observe_stats *stats, const struct engine_call *call, PyObject *py_torch);
void observe_stats_of_backward(struct observe_stats *stats, const struct engine_backward *backward, PyObject *py_torch);
/// The fields "stats.hash" ...; nothing when no tensor was read.
void observe_stats_write(const struct observe_stats *stats, struct dit_record_builder *builder);

#endif
