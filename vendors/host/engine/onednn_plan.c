/// Plans of oneDNN (see onednn_plan.h).
///
/// The cache has sets of a few ways, chosen by a hash of the key; the plan of a set that was used longest ago goes. A
/// refusal is kept as well, so that it costs once. Plans are counted references: one that is thrown out lives until its
/// last run ends. Making one happens outside of the lock, twice if two threads need it at the same time. After a fork
/// while another thread was inside the library, the child does without it: the library's own locks may be taken.
#include "onednn_plan.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/dtype.h"
#include "engine/scratch.h"
#include "onednn.h"

enum { SETS = 64, WAYS = 4, ALIGNMENT = 64 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct onednn_plan *table[SETS][WAYS];
static uint64_t clock_ticks;
static atomic_int inside;  ///< threads that make a plan
static atomic_bool off;    ///< switched off, or a fork came in between
static atomic_uint_least64_t runs, refusals;

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void after_fork(void) {
  pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void) {
  if (atomic_load(&inside) > 0) {
    atomic_store(&off, true);
  }
  pthread_mutex_unlock(&lock);
}

static void init_once(void) {
  (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

bool onednn_is_available(void) {
  return onednn_library_get() && !atomic_load_explicit(&off, memory_order_relaxed);
}

void onednn_set_enabled(bool enabled) {
  atomic_store(&off, !enabled);
}

void onednn_count(bool run) {
  atomic_fetch_add_explicit(run ? &runs : &refusals, 1, memory_order_relaxed);
}

void onednn_get_counts(uint64_t *run, uint64_t *refused) {
  *run = atomic_load(&runs);
  *refused = atomic_load(&refusals);
}

int onednn_get_dtype(int dtype) {
  return dtype == DIT_DTYPE_F32    ? ONEDNN_F32
         : dtype == DIT_DTYPE_BF16 ? ONEDNN_BF16
         : dtype == DIT_DTYPE_F16  ? ONEDNN_F16
                                   : 0;
}

// Making

static size_t round_up(size_t size) {
  return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/// The library's reference code is slower than ours by far, its generic convolution by some.
static bool is_good(const struct onednn_library *library, const void *desc, bool refuse_gemm) {
  const char *name = NULL;
  if (library->primitive_desc_query(desc, ONEDNN_QUERY_NAME, 0, &name) != ONEDNN_SUCCESS || !name) {
    return false;
  }
  return !strstr(name, "ref") && !strstr(name, "simple") && !(refuse_gemm && strstr(name, "gemm:"));
}

static bool make_reorder(const struct onednn_library *library, struct onednn_operand *operand, const void *inner) {
  void *desc = NULL;
  const void *from = operand->result ? inner : operand->desc, *to = operand->result ? operand->desc : inner;
  operand->inner = (void *)inner;
  operand->size = library->memory_desc_get_size(inner);
  if (library->reorder_primitive_desc_create(&desc, from, library->engine, to, library->engine, NULL) !=
      ONEDNN_SUCCESS) {
    return false;
  }
  const bool done =
      is_good(library, desc, false) && library->primitive_create(&operand->reorder, desc) == ONEDNN_SUCCESS;
  library->primitive_desc_destroy(desc);
  return done;
}

bool onednn_plan_finish(const struct onednn_library *library, struct onednn_plan *plan, const int *queries,
                        bool refuse_gemm) {
  if (!is_good(library, plan->desc, refuse_gemm)) {
    return false;
  }
  for (int i = 0; i < plan->count; i++) {
    struct onednn_operand *operand = &plan->operands[i];
    const void *inner = library->primitive_desc_query_md(plan->desc, queries[i], operand->argument == ONEDNN_ARG_BIAS);
    if (!inner) {
      return false;
    }
    if (!library->memory_desc_equal(inner, operand->desc)) {
      if (!make_reorder(library, operand, inner)) {
        return false;
      }
      plan->room += round_up(operand->size);
    }
  }
  plan->scratch_desc = library->primitive_desc_query_md(plan->desc, ONEDNN_QUERY_SCRATCH, 0);
  plan->scratch = plan->scratch_desc ? library->memory_desc_get_size(plan->scratch_desc) : 0;
  plan->room += round_up(plan->scratch);
  return library->primitive_create(&plan->primitive, plan->desc) == ONEDNN_SUCCESS;
}

static void destroy_runner(const struct onednn_library *library, struct onednn_runner *runner);

/// Everything but the key.
static void clear_plan(const struct onednn_library *library, struct onednn_plan *plan) {
  destroy_runner(library, atomic_exchange(&plan->spare, NULL));
  for (int i = 0; i < plan->count; i++) {
    if (plan->operands[i].reorder) {
      library->primitive_destroy(plan->operands[i].reorder);
    }
    if (plan->operands[i].desc) {
      library->memory_desc_destroy(plan->operands[i].desc);
    }
  }
  if (plan->primitive) {
    library->primitive_destroy(plan->primitive);
  }
  if (plan->desc) {
    library->primitive_desc_destroy(plan->desc);
  }
  plan->count = 0;
  plan->primitive = plan->desc = NULL;
}

static struct onednn_plan *make_plan(const struct onednn_library *library, const struct onednn_key *key,
                                     onednn_build *build) {
  struct onednn_plan *plan = dit_calloc(1, sizeof(*plan));
  if (!plan) {
    return NULL;
  }
  plan->key = *key;
  plan->references = 1;
  atomic_fetch_add(&inside, 1);
  const int before = onednn_threads_hold();
  plan->refused = !build(library, plan);
  if (plan->refused) {
    clear_plan(library, plan);
  }
  onednn_threads_release(before);
  atomic_fetch_sub(&inside, 1);
  return plan;
}

// Keeping

static uint64_t hash_key(const struct onednn_key *key) {
  uint64_t hash = UINT64_C(1469598103934665603);
  for (int i = 0; i < ONEDNN_KEY; i++) {
    hash = (hash ^ (uint64_t)key->values[i]) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 29;
  }
  return hash;
}

/// With the lock held.
static struct onednn_plan *find_plan(struct onednn_plan **set, const struct onednn_key *key) {
  for (int i = 0; i < WAYS; i++) {
    if (set[i] && memcmp(&set[i]->key, key, sizeof(*key)) == 0) {
      set[i]->used = ++clock_ticks;
      set[i]->references++;
      return set[i];
    }
  }
  return NULL;
}

/// With the lock held: the plan that had to go, without its place's reference.
static struct onednn_plan *keep_plan(struct onednn_plan **set, struct onednn_plan *plan) {
  int way = 0;
  for (int i = 1; i < WAYS; i++) {
    if (!set[way]) {
      break;
    }
    if (!set[i] || set[i]->used < set[way]->used) {
      way = i;
    }
  }
  struct onednn_plan *old = set[way];
  plan->used = ++clock_ticks;
  plan->references++;
  set[way] = plan;
  return old;
}

void onednn_plan_put(struct onednn_plan *plan) {
  if (!plan) {
    return;
  }
  pthread_mutex_lock(&lock);
  const bool last = --plan->references == 0;
  pthread_mutex_unlock(&lock);
  if (last) {
    clear_plan(onednn_library_get(), plan);
    dit_free(plan);
  }
}

struct onednn_plan *onednn_plan_get(const struct onednn_key *key, onednn_build *build) {
  const struct onednn_library *library = onednn_library_get();
  if (!library || atomic_load_explicit(&off, memory_order_relaxed)) {
    return NULL;
  }
  pthread_once(&once, init_once);
  struct onednn_plan **set = table[hash_key(key) % SETS], *old = NULL;
  pthread_mutex_lock(&lock);
  struct onednn_plan *plan = find_plan(set, key);
  pthread_mutex_unlock(&lock);
  if (!plan) {
    plan = make_plan(library, key, build);
    if (!plan) {
      return NULL;
    }
    pthread_mutex_lock(&lock);
    struct onednn_plan *other = find_plan(set, key);
    if (other) {  // another thread was quicker
      old = plan;
      plan = other;
    } else {
      old = keep_plan(set, plan);
    }
    pthread_mutex_unlock(&lock);
    onednn_plan_put(old);
  }
  if (plan->refused) {
    onednn_plan_put(plan);
    return NULL;
  }
  return plan;
}

// Running

/// What a run needs of the library beside the plan: its stream and memory objects, made once for each thread that runs
/// the plan at the same time, at most.
struct onednn_runner {
  void *stream;
  void *outer[ONEDNN_OPERANDS], *inner[ONEDNN_OPERANDS], *scratch;
};

static void destroy_runner(const struct onednn_library *library, struct onednn_runner *runner) {
  if (!runner) {
    return;
  }
  for (int i = 0; i < ONEDNN_OPERANDS; i++) {
    if (runner->outer[i]) {
      library->memory_destroy(runner->outer[i]);
    }
    if (runner->inner[i]) {
      library->memory_destroy(runner->inner[i]);
    }
  }
  if (runner->scratch) {
    library->memory_destroy(runner->scratch);
  }
  if (runner->stream) {
    library->stream_destroy(runner->stream);
  }
  dit_free(runner);
}

static bool wrap(const struct onednn_library *library, void **memory, const void *desc) {
  return library->memory_create(memory, desc, library->engine, NULL) == ONEDNN_SUCCESS;
}

static struct onednn_runner *make_runner(const struct onednn_library *library, const struct onednn_plan *plan) {
  struct onednn_runner *runner = dit_calloc(1, sizeof(*runner));
  bool done = runner && library->stream_create(&runner->stream, library->engine, ONEDNN_IN_ORDER) == ONEDNN_SUCCESS;
  for (int i = 0; done && i < plan->count; i++) {
    const struct onednn_operand *operand = &plan->operands[i];
    done = wrap(library, &runner->outer[i], operand->desc) &&
           (!operand->reorder || wrap(library, &runner->inner[i], operand->inner));
  }
  done = done && (!plan->scratch || wrap(library, &runner->scratch, plan->scratch_desc));
  if (!done) {
    destroy_runner(library, runner);
    return NULL;
  }
  return runner;
}

static bool reorder(const struct onednn_library *library, const struct onednn_runner *runner,
                    const struct onednn_operand *operand, int i) {
  const struct onednn_argument arguments[] = {{ONEDNN_ARG_SRC, operand->result ? runner->inner[i] : runner->outer[i]},
                                              {ONEDNN_ARG_DST, operand->result ? runner->outer[i] : runner->inner[i]}};
  return library->primitive_execute(operand->reorder, runner->stream, 2, arguments) == ONEDNN_SUCCESS;
}

static bool run_all(const struct onednn_library *library, const struct onednn_runner *runner,
                    const struct onednn_plan *plan, void *const *data, char *room) {
  struct onednn_argument arguments[ONEDNN_OPERANDS + 1];
  int count = 0;
  for (int i = 0; i < plan->count; i++) {
    const struct onednn_operand *operand = &plan->operands[i];
    if (library->memory_set_data_handle(runner->outer[i], data[i]) != ONEDNN_SUCCESS) {
      return false;
    }
    if (operand->reorder && (library->memory_set_data_handle(runner->inner[i], room) != ONEDNN_SUCCESS ||
                             (!operand->result && !reorder(library, runner, operand, i)))) {
      return false;
    }
    room += operand->reorder ? round_up(operand->size) : 0;
    arguments[count++] =
        (struct onednn_argument){operand->argument, operand->reorder ? runner->inner[i] : runner->outer[i]};
  }
  if (plan->scratch) {
    if (library->memory_set_data_handle(runner->scratch, room) != ONEDNN_SUCCESS) {
      return false;
    }
    arguments[count++] = (struct onednn_argument){ONEDNN_ARG_SCRATCH, runner->scratch};
  }
  bool done = library->primitive_execute(plan->primitive, runner->stream, count, arguments) == ONEDNN_SUCCESS;
  for (int i = 0; done && i < plan->count; i++) {
    const struct onednn_operand *operand = &plan->operands[i];
    done = !operand->reorder || !operand->result || reorder(library, runner, operand, i);
  }
  return done && library->stream_wait(runner->stream) == ONEDNN_SUCCESS;
}

bool onednn_plan_run(struct onednn_plan *plan, void *const *data) {
  const struct onednn_library *library = onednn_library_get();
  char *room = plan->room ? scratch_take(plan->room + ALIGNMENT) : NULL;
  if (plan->room && !room) {
    return false;
  }
  char *aligned = room ? room + (ALIGNMENT - (uintptr_t)room % ALIGNMENT) % ALIGNMENT : NULL;
  const int before = onednn_threads_hold();
  struct onednn_runner *runner = atomic_exchange(&plan->spare, NULL);
  runner = runner ? runner : make_runner(library, plan);
  const bool done = runner && run_all(library, runner, plan, data, aligned);
  destroy_runner(library, atomic_exchange(&plan->spare, runner));  // another thread's, where two ran
  onednn_threads_release(before);
  scratch_give(room);
  return done;
}
