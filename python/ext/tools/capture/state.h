/// What an OpCapture tool holds: its options, its store, what it counted; and how calls are named on disk.
#ifndef DIT_EXT_CAPTURE_STATE_H
#define DIT_EXT_CAPTURE_STATE_H

#include <time.h>

#include "engine/engine.h"
#include "tools/capture/store.h"

#define CAPTURE_PATH_BYTES 1024
#define CAPTURE_KEY_BYTES 96

struct capture_state {
  char *root;   ///< absolute, with rank<R> where there are several ranks
  char *shown;  ///< the same as the user wrote it, for the console
  struct dit_store_options store_options;
  int64_t cap_bytes, cap_calls;  ///< 0: none
  bool write_ahead, outputs, gradients, plain;
  struct capture_store *store;
  struct dit_store_counts before;  ///< of the store, when this tool came to it
  pid_t pid;
  int64_t step;
  bool said_calls, said_bytes, said_failure, said_loss;
  uint64_t calls, items, bytes, failed, capped, refused, errors;
};

/// Reads the options that Python passed; NULL with an exception (ValueError names the option and its valid values).
struct capture_state *capture_state_create(PyObject *options);
/// Closes the store; accepts NULL.
void capture_state_destroy(struct capture_state *state);

/// "<id>/<local time>", with "/<what>" when `what` is not NULL; its length.
size_t capture_key_print(char to[CAPTURE_KEY_BYTES], uint64_t id, time_t second, const char *what);
/// "op_capture_results/<operator>/<pid>/<identifier>.pth", relative to the store's root.
void capture_path_print(const struct capture_state *state, const struct engine_op *op, const char *identifier,
                        size_t size, char path[CAPTURE_PATH_BYTES]);

#endif
