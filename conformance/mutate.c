/// The command mutate: one fault after the other in a library that can be told to break itself (vendors/faulty), and
/// the first case that notices each.
///
/// One process tries many faults, so each costs little more than the cases up to the one that fails. A line per fault:
/// its name, the case that caught it (verdict fail) or none (pass), how often it acted, how often a result changed.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"

/// What the library offers besides operators.
struct faulty_controls {
  enum dit_status (*configure)(const char *text, struct dit_error *err);
  uint64_t (*get_count)(void), (*get_changed)(void);
};

static bool find_controls(const struct dit_diopi_library *library, struct faulty_controls *out) {
  *(void **)&out->configure = dlsym(library->handle, "dit_faulty_configure");
  *(void **)&out->get_count = dlsym(library->handle, "dit_faulty_get_count");
  *(void **)&out->get_changed = dlsym(library->handle, "dit_faulty_get_changed");
  if (out->configure && out->get_count && out->get_changed) {
    return true;
  }
  fprintf(stderr, "dit_conform: '%s' cannot be told to break itself; mutate needs the library `faulty`\n",
          library->path);
  return false;
}

/// Cases that must fail are there for mistakes with errors, the others for the rest.
static bool concerns(const char *kind, const struct pack_case *item) {
  return item->expect_error == (strncmp(kind, "error_", 6) == 0);
}

/// Run cases until one fails: its outcome, and its id in `id`.
static int try_cases(struct session *session, const struct command_options *options, const char *kind,
                     struct outcome *outcome, char *id, size_t size) {
  const struct run_options run = {options->repeat ? (int)options->repeat : 2, false, options->tolerance};
  for (int64_t number = 0; number < session->pack.count; number++) {
    struct pack_case item;
    struct dit_error err = {.message = ""};
    bool skipped;
    double factor;
    if (!session_read(session, options, number, &item)) {
      return EXIT_USAGE;
    }
    if (concerns(kind, &item) && rules_select(&options->rules, &item, &skipped, &factor) && !skipped) {
      snprintf(id, size, "%s", item.id);
      if (session_run(session, &run, &item, outcome, &err) != DIT_OK) {
        outcome_fail(outcome, "device", "%s", err.message);
      }
    }
    pack_case_reset(&item);
    if (outcome->verdict == VERDICT_FAIL) {
      return EXIT_FAIL;
    }
    outcome->verdict = VERDICT_PASS;
  }
  return EXIT_PASS;
}

static int try_kind(struct session *session, const struct command_options *options,
                    const struct faulty_controls *controls, int64_t number, const char *kind, const char *function) {
  struct outcome outcome = {.kind = ""};
  struct dit_error err = {.message = ""};
  char text[512], id[256] = "";
  snprintf(text, sizeof text, "%s:%s", kind, function);
  if (options->announce) {
    report_start(session->out, number, kind, function);
    fflush(session->out);
  }
  pack_case_reset(&session->kept);
  if (controls->configure(text, &err) != DIT_OK) {
    fprintf(stderr, "dit_conform: %s\n", err.message);
    return EXIT_USAGE;
  }
  const int status = try_cases(session, options, kind, &outcome, id, sizeof id);
  fprintf(session->out,
          "{\"case\": %lld, \"id\": \"%s\", \"function\": \"%s\", \"verdict\": \"%s\", \"by\": ", (long long)number,
          kind, function, status == EXIT_FAIL ? "fail" : "pass");
  report_string(session->out, status == EXIT_FAIL ? id : "");
  fputs(", \"reason\": ", session->out);
  report_string(session->out, outcome.reason);
  fprintf(session->out, ", \"acted\": %llu, \"changed\": %llu}\n", (unsigned long long)controls->get_count(),
          (unsigned long long)controls->get_changed());
  fflush(session->out);
  return status;
}

/// Word `number` of a list with commas; false behind the last.
static bool get_word(const char *list, int64_t number, char *word, size_t size) {
  while (list && number-- > 0) {
    list = strchr(list, ',');
    list = list ? list + 1 : NULL;
  }
  if (list) {
    snprintf(word, size, "%.*s", (int)strcspn(list, ","), list);
  }
  return list && word[0];
}

int command_mutate(const struct command_options *options) {
  struct session session;
  struct faulty_controls controls;
  struct pack_case first;
  char kind[64], function[128] = "";
  int status = session_open(&session, options) && find_controls(session.library, &controls) ? EXIT_PASS : EXIT_USAGE;
  if (status == EXIT_PASS && session.pack.count > 0 && session_read(&session, options, 0, &first)) {
    snprintf(function, sizeof function, "%s", first.name);
    pack_case_reset(&first);
  }
  for (int64_t number = options->from; status != EXIT_USAGE && (options->to < 0 || number < options->to) &&
                                       get_word(options->kinds, number, kind, sizeof kind);
       number++) {
    const int one = try_kind(&session, options, &controls, number, kind, function);
    status = one > status ? one : status;
  }
  session_close(&session);
  return status;
}
