/// The commands of dit_conform. Each returns the exit status: 0 all is well, 1 something failed, 2 bad use or bad file.
#ifndef DIT_CONFORM_COMMANDS_H
#define DIT_CONFORM_COMMANDS_H

#include "call.h"
#include "dit/adapt.h"
#include "report.h"

enum { EXIT_PASS = 0, EXIT_FAIL = 1, EXIT_USAGE = 2 };

struct command_options {
  const char *library, *against, *vendor, *pack, *out;
  const char *kinds;  ///< of faults, separated by commas
  struct rules rules;
  int64_t from, to;  ///< numbers of cases; to -1: to the end
  int64_t repeat;    ///< 0: the command's own number
  double tolerance;
  bool side_stream, announce, until_fail;
};

int command_run(const struct command_options *options);
int command_list(const struct command_options *options);
int command_perf(const struct command_options *options);
int command_mutate(const struct command_options *options);
int command_device(const struct command_options *options);

/// What most commands work with, opened; `library` and `against` only when options name them.
struct session {
  struct pack pack;
  struct machine machine;
  struct dit_diopi_library *library, *against;
  void (*get_adapt_counts)(struct dit_adapt_counts *out);  ///< NULL: the library is not the adaptor
  FILE *out;
  struct pack_case kept;  ///< the last case that passed, to be run again after the next one of its function
};
/// Prints what is wrong to stderr and returns false.
bool session_open(struct session *session, const struct command_options *options);
void session_close(struct session *session);
/// One past the last case that was asked for.
int64_t session_get_end(const struct session *session, const struct command_options *options);
/// Read case `number`; false, with a message, when the file is damaged.
bool session_read(struct session *session, const struct command_options *options, int64_t number,
                  struct pack_case *item);

/// Run a case, and after it the one that is kept, when it is of the same function, once more.
DIT_NODISCARD enum dit_status session_try(struct session *session, const struct run_options *options,
                                          const struct pack_case *item, struct outcome *outcome, struct dit_error *err);
/// A case that passed becomes the one that is kept, and is emptied; its names stay valid until the next call. Others
/// stay as they are, so do cases by threads and those that must fail.
void session_keep(struct session *session, struct pack_case *item, const struct outcome *outcome);

#endif
