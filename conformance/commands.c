/// The commands run and list, and what all commands open.
#include "commands.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "dit/options.h"

static bool complain(const struct dit_error *err) {
  fprintf(stderr, "dit_conform: %s\n", err->message);
  return false;
}

bool session_open(struct session *session, const struct command_options *options) {
  struct dit_error err = {.message = ""};
  memset(session, 0, sizeof *session);
  session->pack.file = -1;
  session->out = stdout;
  if (options->pack && pack_open(&session->pack, options->pack, &err) != DIT_OK) {
    return complain(&err);
  }
  if (options->side_stream && !options->vendor) {
    fputs("dit_conform: --side-stream needs --vendor: without device functions there are no streams\n", stderr);
    return false;
  }
  if (machine_init(&session->machine, options->vendor, &err) != DIT_OK) {
    return complain(&err);
  }
  if (options->library && (dit_diopi_library_open(options->library, &session->library, &err) != DIT_OK ||
                           dit_diopi_library_check_memory(session->library, &err) != DIT_OK)) {
    return complain(&err);
  }
  if (session->library) {
    void *symbol = dlsym(session->library->handle, "dit_adapt_get_counts");
    memcpy(&session->get_adapt_counts, &symbol, sizeof symbol);
  }
  if (options->against && (dit_diopi_library_open(options->against, &session->against, &err) != DIT_OK ||
                           dit_diopi_library_check_memory(session->against, &err) != DIT_OK)) {
    return complain(&err);
  }
  if (options->out) {
    session->out = fopen(options->out, "w");
  }
  if (!session->out) {
    fprintf(stderr, "dit_conform: cannot write '%s': %s\n", options->out, strerror(errno));
    return false;
  }
  return true;
}

void session_close(struct session *session) {
  if (session->out && session->out != stdout) {
    fclose(session->out);
  }
  pack_case_reset(&session->kept);
  pack_close(&session->pack);
  machine_reset(&session->machine);
  dit_diopi_library_close(session->against);
  dit_diopi_library_close(session->library);
}

bool session_read(struct session *session, const struct command_options *options, int64_t number,
                  struct pack_case *item) {
  struct dit_error err = {.message = ""};
  if (pack_read(&session->pack, number, item, &err) != DIT_OK) {
    fprintf(stderr, "dit_conform: '%s': %s\n", options->pack, err.message);
    return false;
  }
  return true;
}

int64_t session_get_end(const struct session *session, const struct command_options *options) {
  return options->to >= 0 && options->to < session->pack.count ? options->to : session->pack.count;
}

/// How the adaptor brought the calls since `before` about, if it did; NULL when the library is another.
static const char *get_way(const struct session *session, const struct dit_adapt_counts *before) {
  struct dit_adapt_counts now = {0};
  if (!session->get_adapt_counts) {
    return NULL;
  }
  session->get_adapt_counts(&now);
  return now.composed > before->composed     ? "composed"
         : now.converted > before->converted ? "converted"
         : now.direct > before->direct       ? "direct"
                                             : NULL;
}

/// Does the call before this one still give the right result? A library that keeps something of a call (a plan by
/// shape, a buffer) fails here.
static enum dit_status revisit(struct session *session, const struct run_options *options, const struct pack_case *item,
                               struct outcome *outcome, struct dit_error *err) {
  const struct run_options once = {.repeat = 1, .tolerance = options->tolerance};
  struct outcome again;
  if (outcome->verdict != VERDICT_PASS || pack_get_tag(item, "threads") || !session->kept.id ||
      session->kept.function != item->function) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(run_case(&session->machine, session->library, &session->kept, &once, &again, err));
  if (again.verdict == VERDICT_FAIL) {
    outcome_fail(outcome, "state", "after this call %s, which passed before, fails: %.500s", session->kept.id,
                 again.reason);
  }
  return DIT_OK;
}

enum dit_status session_try(struct session *session, const struct run_options *options, const struct pack_case *item,
                            struct outcome *outcome, struct dit_error *err) {
  struct dit_adapt_counts before = {0};
  if (session->get_adapt_counts) {
    session->get_adapt_counts(&before);
  }
  // a call that must fail says so itself, also on a device that reports wrong values late
  DIT_RETURN_IF_NOT_OK(dit_option_set("launch_blocking", item->expect_error ? "1" : "0", err));
  DIT_RETURN_IF_NOT_OK(run_case(&session->machine, session->library, item, options, outcome, err));
  outcome->way = get_way(session, &before);
  DIT_RETURN_IF_NOT_OK(dit_option_set("launch_blocking", "0", err));
  if (options->get_acted && options->get_acted() == 0) {
    return DIT_OK;
  }
  return revisit(session, options, item, outcome, err);
}

void session_keep(struct session *session, struct pack_case *item, const struct outcome *outcome) {
  const bool passed =
      outcome->verdict == VERDICT_PASS ||
      (outcome->verdict == VERDICT_FAIL && strcmp(outcome->kind, "state") == 0);  // the one before failed
  if (passed && !item->expect_error && !pack_get_tag(item, "threads")) {
    pack_case_reset(&session->kept);
    session->kept = *item;
    memset(item, 0, sizeof *item);
  }
}

/// One case: EXIT_PASS, EXIT_FAIL, or EXIT_USAGE when nothing more can be run.
static int run_number(struct session *session, const struct command_options *options, int64_t number) {
  struct pack_case item;
  struct outcome outcome = {.kind = ""};
  struct dit_error err = {.message = ""};
  bool skipped;
  double factor;
  if (!session_read(session, options, number, &item)) {
    return EXIT_USAGE;
  }
  enum dit_status status = DIT_OK;
  if (rules_select(&options->rules, &item, &skipped, &factor)) {
    const struct run_options run = {.repeat = options->repeat ? (int)options->repeat : 2,
                                    .side_stream = options->side_stream,
                                    .tolerance = options->tolerance * factor};
    const struct pack_case named = item;  // its texts stay where they are
    if (skipped) {
      outcome.verdict = VERDICT_SKIPPED;
    } else {
      if (options->announce) {
        report_start(session->out, number, item.id, item.name);
        fflush(session->out);
      }
      status = session_try(session, &run, &item, &outcome, &err);
    }
    if (status != DIT_OK) {
      outcome_fail(&outcome, "device", "%s", err.message);
    }
    session_keep(session, &item, &outcome);
    report_outcome(session->out, number, named.id, named.name, &outcome);
  }
  pack_case_reset(&item);
  return status != DIT_OK || outcome.verdict == VERDICT_FAIL ? EXIT_FAIL : EXIT_PASS;
}

int command_run(const struct command_options *options) {
  struct session session;
  int status = session_open(&session, options) ? EXIT_PASS : EXIT_USAGE;
  for (int64_t number = options->from; status != EXIT_USAGE && number < session_get_end(&session, options); number++) {
    const int one = run_number(&session, options, number);
    status = one > status ? one : status;
    if (one == EXIT_FAIL && options->until_fail) {
      break;
    }
  }
  if (status != EXIT_USAGE && (fflush(session.out) != 0 || ferror(session.out))) {
    fprintf(stderr, "dit_conform: writing the results failed: %s\n", strerror(errno));
    status = EXIT_USAGE;
  }
  session_close(&session);
  return status;
}

static void print_case(FILE *out, int64_t number, const struct pack_case *item) {
  fprintf(out, "{\"case\": %lld, \"id\": ", (long long)number);
  report_string(out, item->id);
  fputs(", \"function\": ", out);
  report_string(out, item->name);
  fprintf(out, ", \"expect\": \"%s\", \"tags\": {", item->expect_error ? "error" : "success");
  for (int i = 0; i < item->tag_count; i++) {
    fputs(i ? ", " : "", out);
    report_string(out, item->tags[i].key);
    fputs(": ", out);
    report_string(out, item->tags[i].value);
  }
  fputs("}}\n", out);
}

int command_list(const struct command_options *options) {
  struct session session;
  int status = session_open(&session, options) ? EXIT_PASS : EXIT_USAGE;
  for (int64_t number = options->from; status == EXIT_PASS && number < session_get_end(&session, options); number++) {
    struct pack_case item;
    bool skipped;
    double factor;
    if (!session_read(&session, options, number, &item)) {
      status = EXIT_USAGE;
      break;
    }
    if (rules_select(&options->rules, &item, &skipped, &factor) && !skipped) {
      print_case(session.out, number, &item);
    }
    pack_case_reset(&item);
  }
  session_close(&session);
  return status;
}
