/// The command perf: the time of each case's call, of one library or of two in turns.
///
/// A sample is the call and the wait for its stream; inputs are put back before each. Short calls of functions that
/// leave their inputs alone are repeated within a sample. What is reported is the median of the samples; with two
/// libraries the samples alternate, so that both see the same state of the machine.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "dit/alloc.h"

enum { DEFAULT_SAMPLES = 15, LONGEST_LOOP = 256 };
static const double shortest_sample = 1e-4;  // seconds

static double get_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare_doubles(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double get_median(double *samples, int64_t count) {
  qsort(samples, (size_t)count, sizeof *samples, compare_doubles);
  return count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
}

static bool may_repeat(const struct pack_case *item) {
  for (int i = 0; i < item->tensor_count; i++) {
    if (item->tensors[i].role == PACK_INOUT || item->tensors[i].storage == PACK_NONE) {
      return false;
    }
  }
  return true;
}

/// Seconds per call of a sample of `loop` calls; the code of the last one.
static enum dit_status take_sample(struct machine *machine, const struct dit_diopi_library *library, struct call *call,
                                   int loop, double *seconds, int *code, struct dit_error *err) {
  struct diopiContext context;
  DIT_RETURN_IF_NOT_OK(call_fill(call, machine, 0, err));
  dit_diopi_context_init(&context, 0, NULL);
  call_make_values(call, &context, 0);
  const double start = get_seconds();
  for (int i = 0; i < loop; i++) {
    *code = (int)dit_diopi_invoke(&library->functions, call->item->function, call->values);
  }
  enum dit_status status = machine_synchronize(machine, false, err);
  *seconds = (get_seconds() - start) / loop;
  dit_diopi_context_reset(&context);
  return status;
}

struct contest {
  const struct dit_diopi_library *libraries[2];
  int count, loop;
  double *samples[2];
};

static enum dit_status time_case(struct session *session, struct contest *contest, struct call *call, int64_t samples,
                                 struct outcome *outcome, struct dit_error *err) {
  double first = 0;
  for (int k = 0; k < contest->count; k++) {  // the first call of each is not counted
    DIT_RETURN_IF_NOT_OK(take_sample(&session->machine, contest->libraries[k], call, 1, &first, &outcome->code, err));
    if (outcome->code != diopiSuccess) {
      outcome->verdict = outcome->code == diopiNoImplement ? VERDICT_MISSING : VERDICT_UNSUPPORTED;
      snprintf(outcome->reason, sizeof outcome->reason, "%s of %s returned %s", call->item->name,
               k ? "the second library" : "the library", dit_diopi_get_error_name((diopiError_t)outcome->code));
      return DIT_OK;
    }
  }
  const double wanted = shortest_sample / (first + 1e-9);
  contest->loop = !may_repeat(call->item) || wanted < 1 ? 1 : wanted > LONGEST_LOOP ? LONGEST_LOOP : (int)wanted;
  for (int64_t i = 0; i < samples; i++) {
    for (int k = 0; k < contest->count; k++) {
      const int turn = (int)(i + k) % contest->count;
      DIT_RETURN_IF_NOT_OK(take_sample(&session->machine, contest->libraries[turn], call, contest->loop,
                                       &contest->samples[turn][i], &outcome->code, err));
    }
  }
  outcome->seconds = get_median(contest->samples[0], samples);
  outcome->against = contest->count > 1 ? get_median(contest->samples[1], samples) : 0;
  return DIT_OK;
}

/// One case; false when nothing more can be timed.
static bool time_number(struct session *session, const struct command_options *options, struct contest *contest,
                        int64_t number, int64_t samples) {
  struct pack_case item;
  struct outcome outcome = {.kind = ""};
  struct dit_error err = {.message = ""};
  struct call call;
  bool skipped;
  double factor;
  if (!session_read(session, options, number, &item)) {
    return false;
  }
  if (rules_select(&options->rules, &item, &skipped, &factor) && !skipped && !item.expect_error) {
    if (options->announce) {
      report_start(session->out, number, item.id, item.name);
      fflush(session->out);
    }
    enum dit_status status = call_init(&call, &item, &session->machine, &err);
    if (status == DIT_OK) {
      status = time_case(session, contest, &call, samples, &outcome, &err);
      call_reset(&call);
    }
    if (status != DIT_OK) {
      outcome_fail(&outcome, "device", "%s", err.message);
    }
    report_outcome(session->out, number, item.id, item.name, &outcome);
  }
  pack_case_reset(&item);
  return true;
}

int command_perf(const struct command_options *options) {
  struct session session;
  struct contest contest = {.count = options->against ? 2 : 1};
  const int64_t samples = options->repeat ? options->repeat : DEFAULT_SAMPLES;
  int status = session_open(&session, options) ? EXIT_PASS : EXIT_USAGE;
  for (int k = 0; k < 2; k++) {
    contest.libraries[k] = k ? session.against : session.library;
    contest.samples[k] = dit_calloc((size_t)samples, sizeof *contest.samples[k]);
    status = contest.samples[k] ? status : EXIT_USAGE;
  }
  const int64_t end = status == EXIT_PASS ? session_get_end(&session, options) : 0;
  for (int64_t number = options->from; status == EXIT_PASS && number < end; number++) {
    status = time_number(&session, options, &contest, number, samples) ? EXIT_PASS : EXIT_USAGE;
  }
  dit_free(contest.samples[0]);
  dit_free(contest.samples[1]);
  session_close(&session);
  return status;
}
