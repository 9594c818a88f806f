// Pairs of tensors of the device, measured there: all pairs of a call with one launch for each 16 and one wait.
//
// Where the host reads the memory, by src/numerics. Devices without `near` are compared one by one, and where there is
// no helper nothing is known. Depends on device.h.
#include <math.h>
#include <string.h>

#include "tools/compare/on_site.h"
#include "tools/device.h"

#define SLOTS 256  ///< of a device

/// Two tensors of one shape, where they are.
struct pair {
  struct engine_tensor a, b;
  struct dit_tensor_view first, second;
  struct tools_site site;
};

static void pair_close(struct pair *pair) {
  engine_tensor_reset(&pair->a);
  engine_tensor_reset(&pair->b);
}

// False (and closed): they cannot be compared there.
static bool pair_open(struct pair *pair, PyObject *a, PyObject *b) {
  engine_tensor_read(a, &pair->a);
  engine_tensor_read(b, &pair->b);
  bool fits = pair->a.ndim == pair->b.ndim && pair->a.place == pair->b.place &&
              pair->a.device_index == pair->b.device_index && engine_tensor_get_view(&pair->a, &pair->first) &&
              engine_tensor_get_view(&pair->b, &pair->second) &&
              (pair->a.ndim == 0 ||
               memcmp(pair->first.sizes, pair->second.sizes, (size_t)pair->a.ndim * sizeof *pair->first.sizes) == 0);
  if (!fits) {
    pair_close(pair);
    return false;
  }
  tools_site_find_among(&a, 1, &pair->site);
  tools_site_settle(&pair->site);
  return true;
}

static void measure_take(struct site_measure *measure, const struct dit_near_result *result) {
  measure->known = true;
  measure->largest = result->largest;
  measure->difference = result->difference;
  measure->near = result->mismatch == 0 && result->excess <= measure->absolute + measure->residual * result->largest;
}

// On the host, and on devices that compare one by one

static void *compare_slot_get(const struct dit_helper_vtable *helper, int device) {
  static void *slots[64];  // for the life of the process, under the GIL, which is kept while one is in use
  if (device < 0 || device >= 64) {
    return NULL;
  }
  if (!slots[device] &&
      helper->slots_create(device, sizeof(struct dit_compare_result), 1, &slots[device], NULL) != DIT_OK) {
    slots[device] = NULL;
  }
  return slots[device];
}

static bool pair_compare(const struct pair *pair, double rtol, double atol, struct dit_compare_result *result) {
  const struct dit_compare_options options = {.rtol = rtol, .atol = atol, .equal_nan = true};
  const struct tools_site *site = &pair->site;
  if (site->place == ENGINE_PLACE_HOST || site->place == ENGINE_PLACE_CPU) {
    enum dit_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = dit_tensor_compare(&pair->first, &pair->second, &options, result, NULL);
    Py_END_ALLOW_THREADS;
    return status == DIT_OK;
  }
  const struct dit_helper_vtable *helper = tools_site_get_helper(site);
  void *slots = helper && helper->compare ? compare_slot_get(helper, site->device) : NULL;
  return slots && helper->compare(&pair->first, &pair->second, &options, site->stream, slots, 0, NULL) == DIT_OK &&
         helper->slots_read(slots, 0, 1, site->stream, result, NULL) == DIT_OK;
}

static void measure_one(struct site_measure *measure, const struct pair *pair) {
  struct dit_compare_result result;
  if (!pair_compare(pair, measure->relative, measure->absolute, &result)) {
    return;
  }
  bool any = result.finite_pairs > 0;
  measure->known = true;
  measure->largest = any ? fmax(fabs(result.min_b), fabs(result.max_b)) : 0;
  measure->difference = any ? result.max_abs_diff : 0;
  measure->near = result.allclose;
  double atol = measure->absolute + measure->residual * measure->largest;
  if (!measure->near && result.nonfinite_mismatch == 0 && isfinite(atol) && atol > measure->absolute) {
    measure->near =
        measure->difference <= atol || (pair_compare(pair, measure->relative, atol, &result) && result.allclose);
  }
}

// On devices that measure

/// Pairs of one device that wait for their launch, and those whose results wait to be read.
struct queue {
  const struct dit_helper_vtable *helper;
  void *slots, *stream;
  int device;
  struct site_measure *asked[SLOTS];
  int launched, waiting;  // of `asked`; the waiting ones come behind the launched ones
  struct pair pairs[DIT_HELPER_BATCH];
};

static void *near_slots_get(const struct dit_helper_vtable *helper, int device) {
  static void *slots[64];
  if (device < 0 || device >= 64) {
    return NULL;
  }
  if (!slots[device] &&
      helper->slots_create(device, sizeof(struct dit_near_result), SLOTS, &slots[device], NULL) != DIT_OK) {
    slots[device] = NULL;
  }
  return slots[device];
}

static void queue_launch(struct queue *queue) {
  struct dit_near_pair tasks[DIT_HELPER_BATCH];
  for (int i = 0; i < queue->waiting; i++) {
    tasks[i] = (struct dit_near_pair){queue->pairs[i].first, queue->pairs[i].second,
                                      queue->asked[queue->launched + i]->relative};
  }
  bool done = queue->waiting > 0 && queue->helper->near(tasks, queue->waiting, queue->stream, queue->slots,
                                                        (size_t)queue->launched, NULL) == DIT_OK;
  for (int i = 0; i < queue->waiting; i++) {
    pair_close(&queue->pairs[i]);
  }
  queue->launched += done ? queue->waiting : 0;  // refused: they stay unknown
  queue->waiting = 0;
}

static void queue_read(struct queue *queue) {
  struct dit_near_result results[SLOTS];
  queue_launch(queue);
  if (queue->launched > 0 &&
      queue->helper->slots_read(queue->slots, 0, (size_t)queue->launched, queue->stream, results, NULL) == DIT_OK) {
    for (int i = 0; i < queue->launched; i++) {
      measure_take(queue->asked[i], &results[i]);
    }
  }
  queue->launched = 0;
}

// Takes the pair; false when it is not this queue's.
static bool queue_add(struct queue *queue, struct site_measure *measure, struct pair *pair) {
  const struct tools_site *site = &pair->site;
  if (!queue->slots) {
    const struct dit_helper_vtable *helper = tools_site_get_helper(site);
    bool far = site->place != ENGINE_PLACE_HOST && site->place != ENGINE_PLACE_CPU;
    queue->slots = far && helper && helper->near ? near_slots_get(helper, site->device) : NULL;
    queue->helper = helper;
    queue->stream = site->stream;
    queue->device = site->device;
  }
  if (!queue->slots || queue->device != site->device || queue->stream != site->stream) {
    return false;
  }
  if (queue->launched + queue->waiting == SLOTS) {
    queue_read(queue);
  }
  queue->pairs[queue->waiting] = *pair;
  queue->asked[queue->launched + queue->waiting++] = measure;
  if (queue->waiting == DIT_HELPER_BATCH) {
    queue_launch(queue);
  }
  return true;
}

void site_measure_all(struct site_measure *measures, int count) {
  struct queue queue;
  queue.slots = NULL;
  queue.launched = queue.waiting = 0;
  for (int i = 0; i < count; i++) {
    struct site_measure *measure = &measures[i];
    struct pair pair;
    measure->known = measure->near = false;
    measure->largest = measure->difference = 0;
    if (!pair_open(&pair, measure->a, measure->b)) {
      continue;
    }
    if (pair.a.numel == 0) {
      measure->known = measure->near = true;
    } else if (queue_add(&queue, measure, &pair)) {
      continue;
    } else {
      measure_one(measure, &pair);
    }
    pair_close(&pair);
  }
  queue_read(&queue);
}
