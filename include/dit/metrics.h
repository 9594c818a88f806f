/// Metrics of the allocators: counters, gauges and histograms with labels, as Prometheus knows them.
///
/// allocator_event_count{type,device,method,event} counts what is not an ordinary allocation or free;
/// allocator_size{type,device,method} are the sizes, in buckets that are powers of two;
/// allocator_bytes{type,device,state} is what is held now. `type` is device or host (memory taken from the vendor) or
/// caching (blocks handed out by the allocators). A free is booked to the device that owns the memory. Off by default.
#ifndef DIT_METRICS_H
#define DIT_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

DIT_EXTERN_C_BEGIN

DIT_API void dit_metrics_enable(bool enable);
DIT_API bool dit_metrics_is_enabled(void);
DIT_API void dit_metrics_reset(void);  ///< counters and histograms back to 0

enum dit_metric_type { DIT_METRIC_COUNTER, DIT_METRIC_GAUGE, DIT_METRIC_HISTOGRAM };

#define DIT_METRIC_LABELS 4
struct dit_metric_label {
  const char *name, *value;
};

/// One series. Borrowed during the visit. Series of one group (the same `name`) follow each other.
struct dit_metric {
  const char *name, *info;
  enum dit_metric_type type;
  struct dit_metric_label labels[DIT_METRIC_LABELS];
  int label_count;
  uint64_t value;  ///< COUNTER, GAUGE; HISTOGRAM: number of values
  // HISTOGRAM: counts[i] values are at most thresholds[i] and above thresholds[i - 1]; counts[bucket_count] are above
  // all of them
  const uint64_t *thresholds, *counts;
  int bucket_count;
  uint64_t sum;
};

DIT_API const char *dit_metric_type_get_name(enum dit_metric_type type);  ///< "counter", "gauge", "histogram"
/// Every series that has counted something. Ends when `visit` returns false.
DIT_API void dit_metrics_visit(bool (*visit)(void *context, const struct dit_metric *metric), void *context);
/// The text format of Prometheus (version 0.0.4). The caller gives it back with dit_free.
DIT_API DIT_NODISCARD enum dit_status dit_metrics_get_text(char **text, struct dit_error *err);

DIT_EXTERN_C_END

#endif
