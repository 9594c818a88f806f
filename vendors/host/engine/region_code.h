/// Code for regions: C that is written for one region, compiled by the system's compiler in the background, kept in a
/// private directory, and used in place of the block machine as soon as it is there.
#ifndef DIT_HOST_ENGINE_REGION_CODE_H
#define DIT_HOST_ENGINE_REGION_CODE_H

#include <stdatomic.h>

#include "region_internal.h"

/// A long row's chunk, and the columns that are folded side by side.
#define REGION_CHUNK (64 * REGION_BLOCK)
#define REGION_PIECE 4096
#define REGION_TILE 256

struct region_text {
  char *data;
  size_t size, capacity;
  bool failed;
};

/// Writes the region's function into `out`; false: it has something that no code is written for. Sets
/// what `program` knows about it: scratch rows (8 bytes per element), loops, trigonometry.
bool region_write_source(struct region_program *program, struct region_text *out);

/// Runs the region by its code. False: the block machine has to (there is none yet, or it does not suit this call).
bool region_code_run(struct work *work);

/// What generated code is called with; region_frame.h has the same struct.
struct region_call {
  void *const *data;
  const int64_t *sizes;
  const int64_t *strides;  // [operand][DIT_GRAPH_MAX_DIMS]
  const union partial *numbers;
  char *scratch;
  uint64_t zero;
};
typedef void region_function(const struct region_call *call, int64_t begin, int64_t end);

/// All that a region's source is made of, as bytes: what differs in sizes, strides and numbers alone has one key.
struct region_key {
  uint64_t hash;
  size_t size;
  uint8_t bytes[16 + 16 * DIT_REGION_MAX_OPS + (4 + DIT_GRAPH_MAX_DIMS) * DIT_REGION_MAX_OPERANDS];
};
/// No code will come: there is to be no compiler.
bool region_code_is_off(void);
void region_key_make(struct region_key *key, const struct region_program *program);

/// The code of an earlier region with this key, and what `program` knows about it, without writing the source again.
/// False: there was none.
bool region_code_recall(const struct region_key *key, struct region_program *program);
void region_code_remember(const struct region_key *key, const struct region_program *program);

/// One piece of code, shared by all regions that have the same source; it is never freed.
struct region_code;
/// NULL: no code will come (no memory, or too much code). Takes the text.
struct region_code *region_code_get(struct region_text *source);
/// NULL: not there yet. The second call asks for it in the background.
region_function *region_code_find(struct region_code *code);
/// 0: waiting, 1: there, 2: it could not be made.
int region_code_get_state(const struct region_code *code);
/// The text, without what stands in front of it.
const char *region_code_get_source(const struct region_code *code);

#endif
