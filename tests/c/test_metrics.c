/// The metrics of the allocators: what is counted, to whom it is booked, and the text.
#include "device_test.h"

static struct dit_error err;

struct wanted {
  const char *name, *type, *device, *method, *event;
  uint64_t value, sum;
  int buckets[2];  ///< HISTOGRAM: the first bucket that is not empty, and its count
  int found;
};

static const char *get_label(const struct dit_metric *metric, const char *name) {
  for (int i = 0; i < metric->label_count; i++) {
    if (strcmp(metric->labels[i].name, name) == 0) {
      return metric->labels[i].value;
    }
  }
  return "";
}

static bool matches(const char *wanted, const char *value) {
  return !wanted || strcmp(wanted, value) == 0;
}

static bool look(void *context, const struct dit_metric *metric) {
  struct wanted *w = context;
  bool right = strcmp(metric->name, w->name) == 0 && matches(w->type, get_label(metric, "type")) &&
               matches(w->device, get_label(metric, "device")) && matches(w->method, get_label(metric, "method")) &&
               (matches(w->event, get_label(metric, "event")) || matches(w->event, get_label(metric, "state")));
  if (right) {
    w->found++;
    w->value = metric->value;
    w->sum = metric->sum;
    w->buckets[0] = -1;
    for (int i = 0; metric->type == DIT_METRIC_HISTOGRAM && i <= metric->bucket_count && w->buckets[0] < 0; i++) {
      if (metric->counts[i] > 0) {
        w->buckets[0] = i;
        w->buckets[1] = (int)metric->counts[i];
      }
    }
  }
  return true;
}

static struct wanted ask(const char *name, const char *type, const char *device, const char *method,
                         const char *event) {
  struct wanted wanted = {.name = name, .type = type, .device = device, .method = method, .event = event};
  dit_metrics_visit(look, &wanted);
  return wanted;
}

static char *take(int device, size_t size) {
  void *ptr = NULL;
  CHECK_OK(dit_memory_alloc(device, 0, size, &ptr, &err));
  return ptr;
}

static void start_counting(const char *algorithm) {
  start_host((const char *[]){"metrics", "1", "host_devices", "2", "host_memory", "64MiB", "allocator", algorithm,
                              "host_allocator", algorithm, NULL});
  dit_metrics_reset();
}

static void test_dipu_22_off_by_default(void) {
  start_host(NULL);
  CHECK(!dit_metrics_is_enabled());
  dit_memory_free(take(0, 100));
  CHECK(ask("allocator_size", NULL, NULL, NULL, NULL).found == 0);
  CHECK(ask("allocator_event_count", NULL, NULL, NULL, NULL).found == 0);
}

static void test_sizes(void) {
  static const char *const algorithms[] = {"torch", "bf", "bs", "raw"};
  for (int i = 0; i < 4; i++) {
    start_counting(algorithms[i]);
    char *a = take(0, 17), *b = take(0, 32), *c = take(0, 16);
    struct wanted taken = ask("allocator_size", "caching", "0", "allocate", NULL);
    CHECK(taken.found == 1 && taken.value == 3 && taken.sum == 65);
    CHECK(taken.buckets[0] == 0 && taken.buckets[1] == 1);  // 16 bytes; the others are in (16, 32]
    CHECK(ask("allocator_size", "device", "0", "allocate", NULL).value >= 1);
    dit_memory_free(a);
    dit_memory_free(b);
    CHECK(ask("allocator_bytes", NULL, "0", NULL, "allocated").value == 512);
    dit_memory_free(c);
    struct wanted freed = ask("allocator_size", "caching", "0", "deallocate", NULL);
    CHECK(freed.value == 3 && freed.sum == 65);
    CHECK_OK(dit_memory_empty_cache(0, &err));
    struct wanted from = ask("allocator_size", "device", "0", "allocate", NULL);
    struct wanted back = ask("allocator_size", "device", "0", "deallocate", NULL);
    CHECK(from.value == back.value && from.sum == back.sum && from.sum >= 512);
    void *pinned = NULL;
    CHECK_OK(dit_host_alloc(3000, &pinned, &err));
    dit_host_free(pinned);
    CHECK(ask("allocator_size", "caching", "host", "deallocate", NULL).sum == 3000);
    dit_host_empty_cache();
    from = ask("allocator_size", "host", "host", "allocate", NULL);
    CHECK(from.value == 1 && from.sum == ask("allocator_size", "host", "host", "deallocate", NULL).sum);
  }
}

static void test_dipu_22_frees_are_booked_to_the_owner(void) {
  start_counting("torch");
  char *a = take(1, 5000);
  CHECK_OK(dit_device_set_current(0, &err));
  dit_memory_free(a);
  CHECK(ask("allocator_size", "caching", "0", "deallocate", NULL).found == 0);
  struct wanted freed = ask("allocator_size", "caching", "1", "deallocate", NULL);
  CHECK(freed.value == 1 && freed.sum == 5000);
}

static void test_dipu_22_failures_are_no_allocations(void) {
  start_counting("torch");
  void *ptr = NULL;
  CHECK(dit_memory_alloc(0, 0, (size_t)1 << 30, &ptr, &err) == DIT_ERR_NOMEM);
  CHECK(ask("allocator_size", "caching", "0", "allocate", NULL).found == 0);
  CHECK(ask("allocator_event_count", "caching", "0", "allocate", "failed").value == 1);
  CHECK_OK(dit_memory_alloc(0, 0, 0, &ptr, &err));  // nothing asked for, nothing counted
  dit_memory_free(NULL);
  dit_memory_free(&ptr);
  CHECK(ask("allocator_event_count", "caching", "0", "deallocate", "nullptr").value == 1);
  CHECK(ask("allocator_event_count", "caching", "0", "deallocate", "unexpected").value == 1);
  CHECK(ask("allocator_size", "caching", NULL, NULL, NULL).found == 0);
}

static void test_text(void) {
  start_counting("torch");
  char *a = take(0, 100), *text = NULL;
  dit_memory_free(&err);
  CHECK_OK(dit_metrics_get_text(&text, &err));
  CHECK_CONTAINS(text, "# HELP allocator_event_count ");
  CHECK_CONTAINS(text, "\n# TYPE allocator_event_count counter\n");
  CHECK_CONTAINS(text,
                 "allocator_event_count{type=\"caching\",device=\"0\",method=\"deallocate\",event=\"unexpected\"} 1\n");
  CHECK_CONTAINS(text, "\n# TYPE allocator_size histogram\n");
  CHECK_CONTAINS(text, "allocator_size_bucket{type=\"caching\",device=\"0\",method=\"allocate\",le=\"64\"} 0\n");
  CHECK_CONTAINS(text, "allocator_size_bucket{type=\"caching\",device=\"0\",method=\"allocate\",le=\"128\"} 1\n");
  CHECK_CONTAINS(text, "allocator_size_bucket{type=\"caching\",device=\"0\",method=\"allocate\",le=\"+Inf\"} 1\n");
  CHECK_CONTAINS(text, "allocator_size_sum{type=\"caching\",device=\"0\",method=\"allocate\"} 100\n");
  CHECK_CONTAINS(text, "allocator_size_count{type=\"caching\",device=\"0\",method=\"allocate\"} 1\n");
  CHECK_CONTAINS(text, "\n# TYPE allocator_bytes gauge\n");
  CHECK_CONTAINS(text, "allocator_bytes{type=\"caching\",device=\"0\",state=\"allocated\"} 512\n");
  CHECK(strstr(text, "# TYPE allocator_size ") == strstr(text, "# TYPE allocator_size h"));
  dit_free(text);
  dit_metrics_reset();
  text = NULL;
  dit_alloc_set_failure(0);
  CHECK(dit_metrics_get_text(&text, &err) == DIT_ERR_NOMEM && !text);
  dit_alloc_set_failure(-1);
  dit_memory_free(a);
  dit_metrics_enable(false);
  dit_memory_free(take(0, 7));
  CHECK(ask("allocator_size", "caching", "0", "allocate", NULL).found == 0);
}

static void *allocate_often(void *argument) {
  int device = *(int *)argument;
  for (int i = 0; i < 2000; i++) {
    dit_memory_free(take(device, 1000));
  }
  return NULL;
}

static void test_dipu_23_threads_lose_no_count(void) {
  start_counting("bf");
  int devices[4] = {0, 1, 0, 1};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, allocate_often, &devices[i]) == 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
  }
  for (int i = 0; i < 2; i++) {
    const char *device = i ? "1" : "0";
    struct dit_memory_stats stats;
    CHECK(ask("allocator_size", "caching", device, "allocate", NULL).sum == 4000 * 1000);
    CHECK(ask("allocator_size", "caching", device, "deallocate", NULL).value == 4000);
    CHECK_OK(dit_memory_get_stats(i, &stats, &err));
    CHECK(stats.allocation[DIT_POOL_ALL].allocated == 4000 && stats.allocated_bytes[DIT_POOL_ALL].current == 0);
  }
}

int main(void) {
  RUN(test_dipu_22_off_by_default);
  RUN(test_sizes);
  RUN(test_dipu_22_frees_are_booked_to_the_owner);
  RUN(test_dipu_22_failures_are_no_allocations);
  RUN(test_text);
  RUN(test_dipu_23_threads_lose_no_count);
  dit_runtime_shutdown();
  return 0;
}
