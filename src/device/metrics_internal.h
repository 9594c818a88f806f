/// What the observers of memory tell the metrics (metrics.c). Device -1 is pinned host memory.
#ifndef DIT_DEVICE_METRICS_INTERNAL_H
#define DIT_DEVICE_METRICS_INTERNAL_H

#include "dit/metrics.h"

/// The label `type`: memory of the vendor's device, pinned memory of the vendor, blocks of the allocators.
enum dit_metric_kind { DIT_METRIC_DEVICE, DIT_METRIC_HOST, DIT_METRIC_CACHING, DIT_METRIC_KINDS };
enum dit_metric_free { DIT_FREE_DONE, DIT_FREE_NULL, DIT_FREE_UNEXPECTED };

void dit_metrics_note_alloc(enum dit_metric_kind kind, int device, size_t size, bool done);
void dit_metrics_note_free(enum dit_metric_kind kind, int device, size_t size, enum dit_metric_free result);

#endif
