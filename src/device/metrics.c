/// dit/metrics.h: the series of the allocators and their text.
///
/// Invariant: everything counted is a relaxed atomic of its own, so a text taken while other threads work shows each
/// number right at some moment of the writing; a histogram's count is the sum of its buckets, so they agree. Space is
/// fixed. Depends on allocator.c and host_memory.c for the gauges.
#include "dit/metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "device/memory_watch.h"
#include "device/metrics_internal.h"
#include "dit/alloc.h"

#define PLACES (DIT_MAX_DEVICES + 1)  ///< the devices; the last is pinned host memory
#define FIRST_POWER 4                 ///< smallest bucket: 16 bytes
#define BUCKETS 37                    ///< largest: 1 TiB

enum method { METHOD_ALLOCATE, METHOD_DEALLOCATE, METHODS };
enum event { EVENT_FAILED, EVENT_NULL, EVENT_UNEXPECTED, EVENTS };
static const char *const kind_names[] = {"device", "host", "caching"};
static const char *const method_names[] = {"allocate", "deallocate"};
static const char *const event_names[] = {"failed", "nullptr", "unexpected"};

struct series {
  atomic_ullong counts[BUCKETS + 1], sum;
};
static struct series sizes[DIT_METRIC_KINDS][PLACES][METHODS];
static atomic_ullong events[DIT_METRIC_KINDS][PLACES][EVENTS];

void dit_metrics_enable(bool enable) {
  dit_watch_set(DIT_WATCH_METRICS, enable);
}

bool dit_metrics_is_enabled(void) {
  return dit_watch_get() & DIT_WATCH_METRICS;
}

void dit_metrics_reset(void) {
  atomic_ullong *words[] = {&sizes[0][0][0].counts[0], &events[0][0][0]};
  size_t lengths[] = {sizeof(sizes) / sizeof(atomic_ullong), sizeof(events) / sizeof(atomic_ullong)};
  for (int i = 0; i < 2; i++) {
    for (size_t j = 0; j < lengths[i]; j++) {
      atomic_store_explicit(&words[i][j], 0, memory_order_relaxed);
    }
  }
}

const char *dit_metric_type_get_name(enum dit_metric_type type) {
  static const char *const names[] = {"counter", "gauge", "histogram"};
  return names[type];
}

// Counting

static int get_place(int device) {
  return device >= 0 && device < DIT_MAX_DEVICES ? device : DIT_MAX_DEVICES;
}

static int get_bucket(uint64_t size) {
  int power = size <= 1 ? 0 : 64 - __builtin_clzll(size - 1);  // the smallest power of two that is not below the size
  power = power < FIRST_POWER ? 0 : power - FIRST_POWER;
  return power < BUCKETS ? power : BUCKETS;
}

static void add(struct series *series, uint64_t size) {
  atomic_fetch_add_explicit(&series->counts[get_bucket(size)], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&series->sum, size, memory_order_relaxed);
}

static void add_event(enum dit_metric_kind kind, int device, enum event event) {
  atomic_fetch_add_explicit(&events[kind][get_place(device)][event], 1, memory_order_relaxed);
}

void dit_metrics_note_alloc(enum dit_metric_kind kind, int device, size_t size, bool done) {
  if (done) {
    add(&sizes[kind][get_place(device)][METHOD_ALLOCATE], size);
  } else {
    add_event(kind, device, EVENT_FAILED);
  }
}

void dit_metrics_note_free(enum dit_metric_kind kind, int device, size_t size, enum dit_metric_free result) {
  if (result == DIT_FREE_DONE) {
    add(&sizes[kind][get_place(device)][METHOD_DEALLOCATE], size);
  } else {
    add_event(kind, device, result == DIT_FREE_NULL ? EVENT_NULL : EVENT_UNEXPECTED);
  }
}

// Reading

/// The labels type and device, into `metric`; `number` is storage for the device.
static void set_place(struct dit_metric *metric, enum dit_metric_kind kind, int place, char number[16]) {
  snprintf(number, 16, "%d", place);
  metric->labels[0] = (struct dit_metric_label){"type", kind_names[kind]};
  metric->labels[1] = (struct dit_metric_label){"device", place == DIT_MAX_DEVICES ? "host" : number};
  metric->label_count = 2;
}

static void add_label(struct dit_metric *metric, const char *name, const char *value) {
  metric->labels[metric->label_count++] = (struct dit_metric_label){name, value};
}

/// Who reads the series.
struct reader {
  bool (*visit)(void *context, const struct dit_metric *metric);
  void *context;
};

static bool visit_events(const struct reader *reader) {
  for (int kind = 0; kind < DIT_METRIC_KINDS; kind++) {
    for (int place = 0; place < PLACES; place++) {
      for (int event = 0; event < EVENTS; event++) {
        char number[16];
        struct dit_metric metric = {.name = "allocator_event_count",
                                    .info = "Allocations and frees that were not done, by what happened",
                                    .type = DIT_METRIC_COUNTER,
                                    .value = atomic_load(&events[kind][place][event])};
        set_place(&metric, (enum dit_metric_kind)kind, place, number);
        add_label(&metric, "method", method_names[event == EVENT_FAILED ? METHOD_ALLOCATE : METHOD_DEALLOCATE]);
        add_label(&metric, "event", event_names[event]);
        if (metric.value > 0 && !reader->visit(reader->context, &metric)) {
          return false;
        }
      }
    }
  }
  return true;
}

static bool visit_series(const struct reader *reader, int kind, int place, int method) {
  char number[16];
  uint64_t thresholds[BUCKETS], counts[BUCKETS + 1], total = 0;
  struct series *series = &sizes[kind][place][method];
  for (int i = 0; i <= BUCKETS; i++) {
    counts[i] = atomic_load_explicit(&series->counts[i], memory_order_relaxed);
    total += counts[i];
  }
  if (total == 0) {
    return true;
  }
  for (int i = 0; i < BUCKETS; i++) {
    thresholds[i] = (uint64_t)1 << (FIRST_POWER + i);
  }
  struct dit_metric metric = {.name = "allocator_size",
                              .info = "Bytes of allocations and frees",
                              .type = DIT_METRIC_HISTOGRAM,
                              .value = total,
                              .thresholds = thresholds,
                              .counts = counts,
                              .bucket_count = BUCKETS,
                              .sum = atomic_load(&series->sum)};
  set_place(&metric, (enum dit_metric_kind)kind, place, number);
  add_label(&metric, "method", method_names[method]);
  return reader->visit(reader->context, &metric);
}

static bool visit_sizes(const struct reader *reader) {
  for (int kind = 0; kind < DIT_METRIC_KINDS; kind++) {
    for (int place = 0; place < PLACES; place++) {
      for (int method = 0; method < METHODS; method++) {
        if (!visit_series(reader, kind, place, method)) {
          return false;
        }
      }
    }
  }
  return true;
}

static bool visit_gauge(const struct reader *reader, int place, const char *state, uint64_t value) {
  char number[16];
  struct dit_metric metric = {.name = "allocator_bytes",
                              .info = "Bytes held from the vendor (reserved) and handed out (allocated)",
                              .type = DIT_METRIC_GAUGE,
                              .value = value};
  set_place(&metric, DIT_METRIC_CACHING, place, number);
  add_label(&metric, "state", state);
  return reader->visit(reader->context, &metric);
}

static bool visit_gauges(const struct reader *reader) {
  for (int device = 0; device < dit_device_get_count(); device++) {
    struct dit_memory_stats stats;
    if (!dit_memory_is_used(device) || dit_memory_get_stats(device, &stats, NULL) != DIT_OK) {
      continue;
    }
    if (!visit_gauge(reader, device, "allocated", (uint64_t)stats.allocated_bytes[DIT_POOL_ALL].current) ||
        !visit_gauge(reader, device, "reserved", (uint64_t)stats.reserved_bytes[DIT_POOL_ALL].current)) {
      return false;
    }
  }
  struct dit_host_stats host;
  dit_host_get_stats(&host);
  return host.vendor_allocations == 0 || (visit_gauge(reader, DIT_MAX_DEVICES, "allocated", host.allocated_current) &&
                                          visit_gauge(reader, DIT_MAX_DEVICES, "reserved", host.reserved_current));
}

void dit_metrics_visit(bool (*visit)(void *context, const struct dit_metric *metric), void *context) {
  const struct reader reader = {visit, context};
  if (visit_events(&reader) && visit_sizes(&reader)) {
    (void)visit_gauges(&reader);
  }
}

// Text

struct text {
  char *data;
  size_t length, capacity;
  bool failed;
  const char *group;  ///< the name whose head was written last
};

static void append(struct text *text, const char *format, ...) DIT_PRINTF(2, 3);
static void append(struct text *text, const char *format, ...) {
  va_list args;
  for (int attempt = 0; !text->failed && attempt < 2; attempt++) {
    va_start(args, format);
    size_t room = text->capacity - text->length;
    int length = vsnprintf(text->data ? text->data + text->length : NULL, room, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length < room) {
      text->length += (size_t)length;
      return;
    }
    size_t capacity = 2 * (text->capacity + (length > 0 ? (size_t)length : 0) + 1024);
    char *grown = dit_realloc(text->data, capacity);
    text->failed = !grown;
    if (grown) {
      text->data = grown;
      text->capacity = capacity;
    }
  }
}

static void append_labels(struct text *text, const struct dit_metric *metric, const char *le) {
  append(text, "{");
  for (int i = 0; i < metric->label_count; i++) {
    append(text, "%s%s=\"%s\"", i ? "," : "", metric->labels[i].name, metric->labels[i].value);
  }
  if (le) {
    append(text, ",le=\"%s\"", le);
  }
  append(text, "}");
}

static void append_histogram(struct text *text, const struct dit_metric *metric) {
  uint64_t below = 0;
  for (int i = 0; i <= metric->bucket_count; i++) {
    char le[32] = "+Inf";
    below += metric->counts[i];
    if (i < metric->bucket_count) {
      snprintf(le, sizeof(le), "%" PRIu64, metric->thresholds[i]);
    }
    append(text, "%s_bucket", metric->name);
    append_labels(text, metric, le);
    append(text, " %" PRIu64 "\n", below);
  }
  append(text, "%s_sum", metric->name);
  append_labels(text, metric, NULL);
  append(text, " %" PRIu64 "\n%s_count", metric->sum, metric->name);
  append_labels(text, metric, NULL);
  append(text, " %" PRIu64 "\n", below);
}

static bool append_metric(void *context, const struct dit_metric *metric) {
  struct text *text = context;
  if (!text->group || strcmp(text->group, metric->name) != 0) {
    append(text, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->info, metric->name,
           dit_metric_type_get_name(metric->type));
    text->group = metric->name;
  }
  if (metric->type == DIT_METRIC_HISTOGRAM) {
    append_histogram(text, metric);
  } else {
    append(text, "%s", metric->name);
    append_labels(text, metric, NULL);
    append(text, " %" PRIu64 "\n", metric->value);
  }
  return !text->failed;
}

enum dit_status dit_metrics_get_text(char **out, struct dit_error *err) {
  struct text text = {0};
  append(&text, "%s", "");
  dit_metrics_visit(append_metric, &text);
  if (text.failed) {
    dit_free(text.data);
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while writing the metrics");
  }
  *out = text.data;
  return DIT_OK;
}
