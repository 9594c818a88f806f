/// Many threads at once: memory that a library shares between calls shows here.
///
/// Even threads make the call of the case and judge it; odd ones disturb them with the same call on other values, whose
/// results nobody looks at: the elements of its floating inputs in reverse order, and, since a sum or a maximum does
/// not tell these apart, every second time a few of them over and over, negated. All start each round together.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "dit/alloc.h"

#define THREADS 4
#define ROUNDS 8

/// What all threads have in common.
struct crowd {
  const struct dit_diopi_library *library;
  const struct pack_case *item;
  const struct run_options *options;
  struct diopiContext *context;  ///< NULL: each its own
  pthread_barrier_t barrier;
};

struct worker {
  struct crowd *crowd;
  struct machine machine;
  struct outcome outcome;
  enum dit_status status;
  struct dit_error err;
  pthread_t thread;
  bool disturbs, repeats;
};

static void reverse(unsigned char *rows, int64_t count, size_t width) {
  for (int64_t low = 0, high = count - 1; low < high; low++, high--) {
    unsigned char kept[16];
    memcpy(kept, rows + (size_t)low * width, width);
    memcpy(rows + (size_t)low * width, rows + (size_t)high * width, width);
    memcpy(rows + (size_t)high * width, kept, width);
  }
}

/// The first sixteenth over and over, each with another sign.
static void repeat_few(unsigned char *rows, int64_t count, int dtype) {
  const bool has_sign =
      dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16 || dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_F64;
  const size_t width = dit_dtype_get_size(dtype), few = (size_t)((count + 15) / 16) * width;
  for (size_t at = has_sign ? width - 1 : few; has_sign && at < few; at += width) {
    rows[at] ^= 0x80;
  }
  for (size_t at = few; at < (size_t)count * width; at++) {
    rows[at] = rows[at - few];
  }
}

/// Other elements in the inputs of the case's own dtype.
static void disturb_inputs(const struct call *call, struct machine *machine, unsigned char *rows, bool repeats) {
  const char *dtype = pack_get_tag(call->item, "dtype");
  for (int i = 0; i < call->item->tensor_count; i++) {
    const struct pack_tensor *tensor = &call->item->tensors[i];
    if (tensor->storage == PACK_NONE || tensor->role == PACK_OUT || !dtype ||
        strcmp(dit_dtype_get_name(tensor->dtype), dtype) != 0) {
      continue;
    }
    unsigned char *base = machine->before + call->places[tensor->storage];
    const size_t width = dit_dtype_get_size(tensor->dtype);
    call_gather(tensor, base, rows);
    reverse(rows, tensor->numel, width);
    if (repeats) {
      repeat_few(rows, tensor->numel, tensor->dtype);
    }
    call_scatter(tensor, rows, base);
  }
}

static enum dit_status run_round(struct worker *worker, struct call *call, struct results *results, int round) {
  const struct crowd *crowd = worker->crowd;
  struct machine *machine = &worker->machine;
  struct diopiContext own, *context = crowd->context ? crowd->context : &own;
  struct scratch scratch;
  struct outcome outcome = {.kind = ""};
  const unsigned char pattern = run_patterns[crowd->context ? 0 : round % 2];
  enum dit_status status = worker->status;
  if (!crowd->context) {
    dit_diopi_context_init(&own, 0, NULL);
    scratch_attach(&scratch, machine, &own, pattern);
  }
  if (status == DIT_OK) {
    status = call_fill(call, machine, pattern, &worker->err);
  }
  if (status == DIT_OK && worker->disturbs) {
    unsigned char *rows = dit_malloc(call->size);
    if (rows) {
      disturb_inputs(call, machine, rows, worker->repeats);
    }
    dit_free(rows);
    status = machine_copy_in(machine, call->size, &worker->err);
  }
  if (status == DIT_OK) {
    call_make_values(call, context, pattern);
  }
  pthread_barrier_wait(&worker->crowd->barrier);
  if (status == DIT_OK) {
    status =
        run_prepared(call, machine, crowd->library, crowd->options, context, false, results, &outcome, &worker->err);
  }
  if (!worker->disturbs && worker->outcome.verdict == VERDICT_PASS) {
    const double least = worker->outcome.seconds;
    worker->outcome = outcome;
    worker->outcome.seconds = round && least < outcome.seconds ? least : outcome.seconds;
  }
  if (!crowd->context) {
    dit_diopi_context_reset(&own);
    scratch_reset(&scratch);
  }
  return status;
}

static void *work(void *argument) {
  struct worker *worker = argument;
  struct call call = {0};
  struct results results = {0};
  worker->status = call_init(&call, worker->crowd->item, &worker->machine, &worker->err);
  if (worker->status == DIT_OK && !results_init(&results, worker->crowd->item)) {
    worker->status = DIT_ERR_NOMEM;
  }
  for (int round = 0; round < ROUNDS; round++) {
    const enum dit_status status = run_round(worker, &call, &results, round);
    worker->status = worker->status != DIT_OK ? worker->status : status;
  }
  results_reset(&results);
  call_reset(&call);
  return NULL;
}

/// The outcome of the first thread that found something.
static enum dit_status collect(struct worker *workers, struct outcome *outcome, struct dit_error *err) {
  *outcome = workers[0].outcome;
  for (int i = 0; i < THREADS; i++) {
    if (workers[i].status != DIT_OK && !workers[i].disturbs) {
      return dit_error_set(err, workers[i].status, "%s", workers[i].err.message);
    }
    if (!workers[i].disturbs && workers[i].outcome.verdict != VERDICT_PASS && outcome->verdict != VERDICT_FAIL) {
      *outcome = workers[i].outcome;
    }
  }
  if (outcome->verdict == VERDICT_FAIL) {
    char where[64];
    snprintf(where, sizeof where, "with %d threads at once: ", THREADS);
    outcome_prefix(outcome, where);
  }
  return DIT_OK;
}

enum dit_status run_threads(struct machine *machine, const struct dit_diopi_library *library,
                            const struct pack_case *item, const struct run_options *options, struct outcome *outcome,
                            struct dit_error *err) {
  struct crowd crowd = {.library = library, .item = item, .options = options};
  struct diopiContext context;
  struct scratch scratch;
  struct worker workers[THREADS] = {0};
  const bool shared = strcmp(pack_get_tag(item, "threads"), "shared") == 0;
  if (pthread_barrier_init(&crowd.barrier, NULL, THREADS) != 0) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no barrier for %d threads", THREADS);
  }
  if (shared) {
    dit_diopi_context_init(&context, 0, NULL);
    scratch_attach(&scratch, machine, &context, run_patterns[0]);
    crowd.context = &context;
  }
  enum dit_status status = DIT_OK;
  for (int i = 0; i < THREADS; i++) {
    workers[i].crowd = &crowd;
    workers[i].disturbs = i % 2 == 1;
    workers[i].repeats = i % 4 == 3;
    machine_fork(machine, &workers[i].machine);
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
      fprintf(stderr, "dit_conform: a thread cannot be started\n");  // the others wait for it
      _Exit(2);
    }
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(workers[i].thread, NULL);
  }
  status = collect(workers, outcome, err);
  if (shared) {
    char reason[128];
    if (status == DIT_OK && !scratch_is_intact(&scratch, reason, sizeof reason)) {
      outcome_fail(outcome, "guard", "%s", reason);
    }
    dit_diopi_context_reset(&context);
    scratch_reset(&scratch);
  }
  for (int i = 0; i < THREADS; i++) {
    machine_release(&workers[i].machine);
  }
  pthread_barrier_destroy(&crowd.barrier);
  return status;
}
