/// Plans of cuDNN's graph interface (see cudnn.h): made once per product, kept, run many times.
///
/// Engines whose sums may change from run to run, and those that reduce precision (TF32 unless it is allowed, half
/// sums, FFT and Winograd), are passed over: cuDNN names the best of the others.
#include <stdlib.h>
#include <string.h>

#include "cudnn.h"
#include "kernels/conv.h"

#define MOST_ROOM ((int64_t)1 << 30)
#define SLOTS 1024  // of plans; a power of two
#define MOST_PLANS 768
#define MOST_CONFIGS 32  // that are tried
#define MOST_NOTES 16

static struct cudnn_plan *plans[SLOTS];
static int count;

/// Descriptors that are made for a plan, all destroyed together.
struct workshop {
  const struct cudnn *f;
  void *made[16 + 2 * MOST_CONFIGS];
  int count;
  bool failed;
};

static void *make(struct workshop *w, int kind) {
  void *descriptor = NULL;
  if (!w->failed && w->f->cudnnBackendCreateDescriptor(kind, &descriptor) == CUDNN_SUCCESS) {
    w->made[w->count++] = descriptor;
    return descriptor;
  }
  w->failed = true;
  return NULL;
}
static void set(struct workshop *w, void *descriptor, int name, int type, int64_t number, const void *values) {
  w->failed = w->failed || w->f->cudnnBackendSetAttribute(descriptor, name, type, number, values) != CUDNN_SUCCESS;
}
static void finish(struct workshop *w, void *descriptor) {
  w->failed = w->failed || w->f->cudnnBackendFinalize(descriptor) != CUDNN_SUCCESS;
}
static void close_shop(struct workshop *w, const void *kept) {
  for (int i = w->count - 1; i >= 0; i--) {
    if (w->made[i] != kept) {
      w->f->cudnnBackendDestroyDescriptor(w->made[i]);
    }
  }
}

static void *make_tensor(struct workshop *w, const struct cudnn_key *key, int operand) {
  const int64_t id = operand + 1, alignment = key->alignment;
  void *tensor = make(w, CUDNN_TENSOR);
  set(w, tensor, CUDNN_TENSOR_DTYPE, CUDNN_TYPE_DATA_TYPE, 1, &key->dtype);
  set(w, tensor, CUDNN_TENSOR_SIZES, CUDNN_TYPE_INT64, key->ndim, key->sizes[operand]);
  set(w, tensor, CUDNN_TENSOR_STRIDES, CUDNN_TYPE_INT64, key->ndim, key->strides[operand]);
  set(w, tensor, CUDNN_TENSOR_ID, CUDNN_TYPE_INT64, 1, &id);
  set(w, tensor, CUDNN_TENSOR_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  finish(w, tensor);
  return tensor;
}

static void *make_convolution(struct workshop *w, const struct cudnn_key *key) {
  const int64_t ndim = key->ndim - 2;
  const int mode = CUDNN_CROSS_CORRELATION, dtype = key->dtype == CUDNN_DOUBLE ? CUDNN_DOUBLE : CUDNN_FLOAT;
  void *convolution = make(w, CUDNN_CONVOLUTION);
  set(w, convolution, CUDNN_CONVOLUTION_DTYPE, CUDNN_TYPE_DATA_TYPE, 1, &dtype);
  set(w, convolution, CUDNN_CONVOLUTION_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set(w, convolution, CUDNN_CONVOLUTION_NDIM, CUDNN_TYPE_INT64, 1, &ndim);
  set(w, convolution, CUDNN_CONVOLUTION_DILATION, CUDNN_TYPE_INT64, ndim, key->dilation);
  set(w, convolution, CUDNN_CONVOLUTION_STRIDE, CUDNN_TYPE_INT64, ndim, key->stride);
  set(w, convolution, CUDNN_CONVOLUTION_PADDING_BEFORE, CUDNN_TYPE_INT64, ndim, key->padding);
  set(w, convolution, CUDNN_CONVOLUTION_PADDING_AFTER, CUDNN_TYPE_INT64, ndim, key->padding);
  finish(w, convolution);
  return convolution;
}

static void *make_graph(struct workshop *w, void *handle, const struct cudnn_key *key) {
  static const int kinds[] = {[CONV_KERNEL_FORWARD] = CUDNN_CONVOLVE_FORWARD,
                              [CONV_KERNEL_INPUT] = CUDNN_CONVOLVE_DATA,
                              [CONV_KERNEL_WEIGHT] = CUDNN_CONVOLVE_FILTER};
  static const int firsts[] = {[CONV_KERNEL_FORWARD] = CUDNN_FORWARD_ALPHA,
                               [CONV_KERNEL_INPUT] = CUDNN_DATA_ALPHA,
                               [CONV_KERNEL_WEIGHT] = CUDNN_FILTER_ALPHA};
  static const double wide[2] = {1, 0};
  static const float plain[2] = {1, 0};
  const bool is_wide = key->dtype == CUDNN_DOUBLE;
  const int first = firsts[key->mode], factor = is_wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  void *in = make_tensor(w, key, 0), *weight = make_tensor(w, key, 1), *out = make_tensor(w, key, 2);
  void *convolution = make_convolution(w, key), *operation = make(w, kinds[key->mode]);
  set(w, operation, first, factor, 1, is_wide ? (const void *)&wide[0] : &plain[0]);
  set(w, operation, first + 1, factor, 1, is_wide ? (const void *)&wide[1] : &plain[1]);
  set(w, operation, first + 2, CUDNN_TYPE_DESCRIPTOR, 1, &convolution);
  set(w, operation, first + 3, CUDNN_TYPE_DESCRIPTOR, 1, &weight);
  set(w, operation, first + 4, CUDNN_TYPE_DESCRIPTOR, 1, &in);
  set(w, operation, first + 5, CUDNN_TYPE_DESCRIPTOR, 1, &out);
  finish(w, operation);
  void *graph = make(w, CUDNN_GRAPH);
  set(w, graph, CUDNN_GRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  set(w, graph, CUDNN_GRAPH_OPERATIONS, CUDNN_TYPE_DESCRIPTOR, 1, &operation);
  finish(w, graph);
  return graph;
}

/// Does the engine keep to what is promised?
static bool is_exact(struct workshop *w, const struct cudnn_key *key, void *config) {
  int32_t notes[MOST_NOTES];
  int64_t found = 0, ignored;
  void *engine = make(w, CUDNN_ENGINE);
  if (w->failed ||
      w->f->cudnnBackendGetAttribute(config, CUDNN_CONFIG_ENGINE, CUDNN_TYPE_DESCRIPTOR, 1, &ignored, &engine) !=
          CUDNN_SUCCESS ||
      w->f->cudnnBackendGetAttribute(engine, CUDNN_ENGINE_NOTES, CUDNN_TYPE_NOTE, MOST_NOTES, &found, notes) !=
          CUDNN_SUCCESS) {
    return false;
  }
  for (int64_t i = 0; i < found && i < MOST_NOTES; i++) {
    const bool rounds = key->dtype == CUDNN_FLOAT && !key->is_rounded &&
                        (notes[i] == CUDNN_NOTE_TENSOR_CORE || notes[i] == CUDNN_NOTE_DOWN_CONVERT);
    if (rounds || notes[i] == CUDNN_NOTE_REDUCED_SUMS || notes[i] == CUDNN_NOTE_FFT ||
        notes[i] == CUDNN_NOTE_ANY_ORDER || notes[i] == CUDNN_NOTE_WINOGRAD) {
      return false;
    }
  }
  return true;
}

/// A plan by the configuration: false where the engine does not take the product after all.
static bool try_config(const struct cudnn *f, void *handle, void *config, struct cudnn_plan *out) {
  void *plan = NULL;
  int64_t ignored;
  if (f->cudnnBackendCreateDescriptor(CUDNN_PLAN, &plan) != CUDNN_SUCCESS) {
    return false;
  }
  if (f->cudnnBackendSetAttribute(plan, CUDNN_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) == CUDNN_SUCCESS &&
      f->cudnnBackendSetAttribute(plan, CUDNN_PLAN_CONFIG, CUDNN_TYPE_DESCRIPTOR, 1, &config) == CUDNN_SUCCESS &&
      f->cudnnBackendFinalize(plan) == CUDNN_SUCCESS &&
      f->cudnnBackendGetAttribute(plan, CUDNN_PLAN_ROOM, CUDNN_TYPE_INT64, 1, &ignored, &out->room) == CUDNN_SUCCESS &&
      out->room <= MOST_ROOM) {
    out->plan = plan;
    out->config = config;
    return true;
  }
  f->cudnnBackendDestroyDescriptor(plan);
  return false;
}

/// The first configuration that the heuristic names and that will do.
static void choose(const struct cudnn *f, void *handle, int mode, void *graph, struct cudnn_plan *out) {
  struct workshop w = {.f = f};
  void *configs[MOST_CONFIGS], *heuristic = make(&w, CUDNN_HEURISTIC);
  int64_t found = 0;
  set(&w, heuristic, CUDNN_HEURISTIC_GRAPH, CUDNN_TYPE_DESCRIPTOR, 1, &graph);
  set(&w, heuristic, CUDNN_HEURISTIC_MODE, CUDNN_TYPE_HEURISTIC_MODE, 1, &mode);
  finish(&w, heuristic);
  for (int i = 0; i < MOST_CONFIGS; i++) {
    configs[i] = make(&w, CUDNN_CONFIG);
  }
  if (!w.failed && f->cudnnBackendGetAttribute(heuristic, CUDNN_HEURISTIC_RESULTS, CUDNN_TYPE_DESCRIPTOR, MOST_CONFIGS,
                                               &found, configs) == CUDNN_SUCCESS) {
    for (int64_t i = 0; i < found && i < MOST_CONFIGS && !out->plan; i++) {
      if (is_exact(&w, &out->key, configs[i])) {
        (void)try_config(f, handle, configs[i], out);
      }
    }
  }
  close_shop(&w, out->config);
}

static void destroy(const struct cudnn *f, struct cudnn_plan *plan) {
  void *const descriptors[] = {plan->plan, plan->config}, *const tensors[] = {plan->bias, plan->result};
  for (int i = 0; i < 2; i++) {
    if (descriptors[i]) {
      f->cudnnBackendDestroyDescriptor(descriptors[i]);
    }
    if (tensors[i]) {
      f->cudnnDestroyTensorDescriptor(tensors[i]);
    }
  }
  free(plan);
}

static struct cudnn_plan *build(const struct cudnn *f, void *handle, const struct cudnn_key *key) {
  struct cudnn_plan *plan = calloc(1, sizeof *plan);
  struct workshop w = {.f = f};
  if (!plan) {
    return NULL;
  }
  plan->key = *key;
  void *graph = make_graph(&w, handle, key);
  if (!w.failed) {
    choose(f, handle, CUDNN_HEURISTIC_A, graph, plan);
  }
  if (!w.failed && !plan->plan) {
    choose(f, handle, CUDNN_HEURISTIC_FALLBACK, graph, plan);
  }
  close_shop(&w, NULL);
  return plan;
}

static uint64_t hash(const struct cudnn_key *key) {
  const uint8_t *bytes = (const uint8_t *)key;
  uint64_t value = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < sizeof *key; i += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, bytes + i, sizeof word);
    value = (value ^ word) * UINT64_C(1099511628211);
    value ^= value >> 29;
  }
  return value;
}

struct cudnn_plan *cudnn_plan_get(const struct cudnn *functions, void *handle, const struct cudnn_key *key) {
  _Static_assert(sizeof(struct cudnn_key) % sizeof(uint64_t) == 0, "hashed in words");
  if (count >= MOST_PLANS) {  // shapes that change all the time: begin again
    for (int i = 0; i < SLOTS; i++) {
      if (plans[i]) {
        destroy(functions, plans[i]);
        plans[i] = NULL;
      }
    }
    count = 0;
  }
  uint64_t slot = hash(key) % SLOTS;
  while (plans[slot] && memcmp(&plans[slot]->key, key, sizeof *key) != 0) {
    slot = (slot + 1) % SLOTS;
  }
  if (!plans[slot]) {
    plans[slot] = build(functions, handle, key);
    count += plans[slot] != NULL;
  }
  return plans[slot] && plans[slot]->plan ? plans[slot] : NULL;
}

bool cudnn_plan_run(const struct cudnn *functions, void *handle, const struct cudnn_plan *plan, void *const data[3],
                    void *room) {
  static const int64_t ids[3] = {1, 2, 3};
  struct workshop w = {.f = functions};
  void *pack = make(&w, CUDNN_PACK);
  set(&w, pack, CUDNN_PACK_IDS, CUDNN_TYPE_INT64, 3, ids);
  set(&w, pack, CUDNN_PACK_POINTERS, CUDNN_TYPE_POINTER, 3, data);
  set(&w, pack, CUDNN_PACK_ROOM, CUDNN_TYPE_POINTER, 1, &room);
  finish(&w, pack);
  const bool done = !w.failed && functions->cudnnBackendExecute(handle, plan->plan, pack) == CUDNN_SUCCESS;
  close_shop(&w, NULL);
  return done;
}
