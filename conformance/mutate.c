/// The command mutate: faults of a library that can be told to break itself (vendors/faulty), and for each a case that
/// notices it.
///
/// Case by case, small ones first, all faults that nobody has noticed yet: a case is read once, one sound call tells
/// which faults would act on it (dit_faulty_probe), and only those are run. A fault that does not act leaves the sound
/// result, which passes. A line per fault as soon as a case fails (verdict fail, `by` is the case), and at the end one
/// for each that none noticed (pass): how often it acted, how often a result changed.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "../vendors/faulty/faulty.h"
#include "commands.h"
#include "dit/alloc.h"

/// What the library offers besides operators.
struct faulty_controls {
  enum dit_status (*configure)(const char *text, struct dit_error *err);
  uint64_t (*get_count)(void), (*get_changed)(void);
  int (*find_kind)(const char *name), (*count_kinds)(void);
  void (*probe)(unsigned char *table);
};

/// One fault.
struct trial {
  char kind[64];
  int64_t place;  ///< in the list of faults
  int number;     ///< of the kind, in the library
  bool is_error;  ///< concerns cases that must fail, and no others
  bool is_caught;
  uint64_t acted, changed;
};

struct contest {
  struct session *session;
  const struct command_options *options;
  struct faulty_controls controls;
  struct trial *trials;
  int64_t count, left;
  unsigned char *table;  ///< of dit_faulty_probe
  char function[128];
};

static bool find_controls(const struct dit_diopi_library *library, struct faulty_controls *out) {
  *(void **)&out->configure = dlsym(library->handle, "dit_faulty_configure");
  *(void **)&out->get_count = dlsym(library->handle, "dit_faulty_get_count");
  *(void **)&out->get_changed = dlsym(library->handle, "dit_faulty_get_changed");
  *(void **)&out->find_kind = dlsym(library->handle, "dit_faulty_find_kind");
  *(void **)&out->count_kinds = dlsym(library->handle, "dit_faulty_count_kinds");
  *(void **)&out->probe = dlsym(library->handle, "dit_faulty_probe");
  if (out->configure && out->get_count && out->get_changed && out->find_kind && out->count_kinds && out->probe) {
    return true;
  }
  fprintf(stderr, "dit_conform: '%s' cannot be told to break itself; mutate needs the library `faulty`\n",
          library->path);
  return false;
}

static bool make_trials(struct contest *contest) {
  const char *word = contest->options->kinds ? contest->options->kinds : "";
  contest->trials = dit_calloc(strlen(word) / 2 + 1, sizeof *contest->trials);
  contest->table = dit_calloc((size_t)contest->controls.count_kinds(), 1);
  if (!contest->trials || !contest->table) {
    fprintf(stderr, "dit_conform: no memory for the faults\n");
    return false;
  }
  while (*word) {
    const size_t length = strcspn(word, ",");
    struct trial *trial = &contest->trials[contest->count];
    snprintf(trial->kind, sizeof trial->kind, "%.*s", (int)length, word);
    trial->place = contest->count++;
    trial->number = contest->controls.find_kind(trial->kind);
    trial->is_error = strncmp(trial->kind, "error_", 6) == 0;
    if (trial->number < 0) {
      fprintf(stderr, "dit_conform: the library has no fault '%s'\n", trial->kind);
      return false;
    }
    word += length + (word[length] == ',');
  }
  contest->left = contest->count;
  return true;
}

static void report(const struct contest *contest, const struct trial *trial, const char *by, const char *reason) {
  FILE *out = contest->session->out;
  fprintf(out, "{\"case\": %lld, \"id\": \"%s\", \"function\": \"%s\", \"verdict\": \"%s\", \"by\": ",
          (long long)trial->place, trial->kind, contest->function, trial->is_caught ? "fail" : "pass");
  report_string(out, by);
  fputs(", \"reason\": ", out);
  report_string(out, reason);
  fprintf(out, ", \"acted\": %llu, \"changed\": %llu}\n", (unsigned long long)trial->acted,
          (unsigned long long)trial->changed);
  fflush(out);
}

/// Does a second run tell what a first one, in which the fault did not act, cannot? `random` acts on every other call,
/// `stale_size` goes by what outputs held.
static bool needs_second(const struct trial *trial) {
  return strcmp(trial->kind, "random") == 0 || strcmp(trial->kind, "stale_size") == 0;
}

static bool is_concerned(const struct trial *trial, const struct pack_case *item) {
  const bool meets = strncmp(trial->kind, "shared_", 7) != 0 || pack_get_tag(item, "threads");  // other threads
  return !trial->is_caught && trial->is_error == item->expect_error && meets;
}

static bool try_case(struct contest *contest, struct trial *trial, const struct pack_case *item) {
  struct outcome outcome = {.kind = ""};
  struct dit_error err = {.message = ""};
  char text[256];
  const struct command_options *options = contest->options;
  const struct run_options run = {.repeat = options->repeat ? (int)options->repeat : 2,
                                  .tolerance = options->tolerance,
                                  .get_acted = needs_second(trial) ? NULL : contest->controls.get_count};
  snprintf(text, sizeof text, "%s:%s", trial->kind, contest->function);
  if (options->announce) {
    report_start(contest->session->out, trial->place, trial->kind, contest->function);
    fflush(contest->session->out);
  }
  if (contest->controls.configure(text, &err) != DIT_OK) {
    fprintf(stderr, "dit_conform: %s\n", err.message);
    return false;
  }
  if (session_try(contest->session, &run, item, &outcome, &err) != DIT_OK) {
    outcome_fail(&outcome, "device", "%s", err.message);
  }
  trial->acted += contest->controls.get_count();
  trial->changed += contest->controls.get_changed();
  if (outcome.verdict == VERDICT_FAIL) {
    trial->is_caught = true;
    contest->left--;
    report(contest, trial, item->id, outcome.reason);
  }
  return true;
}

/// Ask the library which of the faults that are left would act on a case.
static void probe(struct contest *contest, const struct pack_case *item) {
  const struct run_options once = {.repeat = 1, .tolerance = contest->options->tolerance, .one_thread = true};
  struct outcome outcome = {.kind = ""};
  struct dit_error err = {.message = ""};
  memset(contest->table, FAULTY_UNASKED, (size_t)contest->controls.count_kinds());
  for (int64_t i = 0; i < contest->count; i++) {
    if (is_concerned(&contest->trials[i], item)) {
      contest->table[contest->trials[i].number] = FAULTY_ASKED;
    }
  }
  contest->controls.probe(contest->table);
  const enum dit_status status =
      run_case(&contest->session->machine, contest->session->library, item, &once, &outcome, &err);
  contest->controls.probe(NULL);
  if (status != DIT_OK || outcome.verdict == VERDICT_FAIL) {  // it is not as sound as it was: each fault by itself
    memset(contest->table, FAULTY_WOULD_ACT, (size_t)contest->controls.count_kinds());
  }
}

struct place {
  int64_t number;
  uint64_t size;
  bool is_later;  ///< known when it was read
};

/// One case on all faults that are left; one by threads is put off unless `later`.
static bool try_number(struct contest *contest, struct place *place, bool later) {
  struct session *session = contest->session;
  const struct outcome passed = {.kind = ""};
  struct pack_case item;
  bool skipped, going = true;
  double factor;
  int64_t concerned = 0;
  if (!session_read(session, contest->options, place->number, &item)) {
    return false;
  }
  place->is_later = pack_get_tag(&item, "threads") != NULL;
  for (int64_t i = 0; place->is_later == later && i < contest->count; i++) {
    concerned += is_concerned(&contest->trials[i], &item);
  }
  if (concerned && rules_select(&contest->options->rules, &item, &skipped, &factor) && !skipped) {
    if (contest->function[0] == 0) {
      snprintf(contest->function, sizeof contest->function, "%s", item.name);
    }
    probe(contest, &item);
    for (int64_t i = 0; going && i < contest->count; i++) {
      struct trial *trial = &contest->trials[i];
      if (is_concerned(trial, &item) && contest->table[trial->number] == FAULTY_WOULD_ACT) {
        going = try_case(contest, trial, &item);
      }
    }
    session_keep(session, &item, &passed);
  }
  pack_case_reset(&item);
  return going;
}

static int compare_places(const void *left, const void *right) {
  const struct place *a = left, *b = right;
  return a->size != b->size ? (a->size < b->size ? -1 : 1) : (a->number < b->number ? -1 : a->number > b->number);
}

/// Cases by their size: most faults are caught before a large one is read. NULL: no memory.
static struct place *order_cases(const struct pack *pack) {
  struct place *places = dit_calloc((size_t)pack->count + 1, sizeof *places);
  for (int64_t number = 0; places && number < pack->count; number++) {
    places[number] = (struct place){number, pack->entries[number].size, false};
  }
  if (places) {
    qsort(places, (size_t)pack->count, sizeof *places, compare_places);
  }
  return places;
}

/// All cases for one thread, then those for several, which take long.
static bool try_places(struct contest *contest, struct place *places) {
  for (int later = 0; later < 2; later++) {
    for (int64_t i = 0; contest->left > 0 && i < contest->session->pack.count; i++) {
      if (places[i].is_later == later && !try_number(contest, &places[i], later)) {
        return false;
      }
    }
  }
  return true;
}

static int run_contest(struct contest *contest) {
  struct place *places = make_trials(contest) ? order_cases(&contest->session->pack) : NULL;
  const bool done = places && try_places(contest, places);
  for (int64_t i = 0; done && i < contest->count; i++) {
    if (!contest->trials[i].is_caught) {
      report(contest, &contest->trials[i], "", "");
    }
  }
  dit_free(places);
  return !done ? EXIT_USAGE : contest->left < contest->count ? EXIT_FAIL : EXIT_PASS;
}

int command_mutate(const struct command_options *options) {
  struct session session;
  struct contest contest = {.session = &session, .options = options};
  int status = EXIT_USAGE;
  if (session_open(&session, options) && find_controls(session.library, &contest.controls)) {
    status = run_contest(&contest);
  }
  dit_free(contest.trials);
  dit_free(contest.table);
  session_close(&session);
  return status;
}
