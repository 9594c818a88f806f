/// The commands run and list, and what all commands open.
#include "commands.h"

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
  if (machine_init(&session->machine, options->vendor, &err) != DIT_OK) {
    return complain(&err);
  }
  if (options->library && dit_diopi_library_open(options->library, &session->library, &err) != DIT_OK) {
    return complain(&err);
  }
  if (options->against && dit_diopi_library_open(options->against, &session->against, &err) != DIT_OK) {
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
    const struct run_options run = {options->repeat ? (int)options->repeat : 2, options->side_stream,
                                    options->tolerance * factor};
    if (skipped) {
      outcome.verdict = VERDICT_SKIPPED;
    } else {
      if (options->announce) {
        report_start(session->out, number, item.id, item.name);
        fflush(session->out);
      }
      // a call that must fail says so itself, also on a device that reports wrong values late
      status = dit_option_set("launch_blocking", item.expect_error ? "1" : "0", &err);
      status = status != DIT_OK ? status : run_case(&session->machine, session->library, &item, &run, &outcome, &err);
    }
    if (status != DIT_OK) {
      outcome_fail(&outcome, "device", "%s", err.message);
    }
    report_outcome(session->out, number, item.id, item.name, &outcome);
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
