/// A program of the opaque device's graph engine: one block of bytes, the same in memory and on disk.
///
///   head         mark, sizes, and a sum over all that follows it
///   buffers      bytes of each: inputs, outputs, then places of the workspace
///   instructions run in order, each over an index space of up to nine dimensions whose last ones may be folded
///
/// Invariant: a program that graph_program_check has passed reads and writes inside of its buffers, whatever else its
/// bytes are. Files: graph_engine.c (the contract, queues), graph_compile.c (words to programs), graph_run.c (the check
/// and the instructions). Depends on dit/graph.h.
#ifndef DIT_VENDORS_OPAQUE_GRAPH_PROGRAM_H
#define DIT_VENDORS_OPAQUE_GRAPH_PROGRAM_H

#include "dit/graph.h"

#define PROGRAM_MARK "BOXPROG1"
#define PROGRAM_DIMS 9
#define PROGRAM_MAX_GIVEN 512  ///< inputs and outputs
#define PROGRAM_MAX_INSTRUCTIONS 65536
#define PROGRAM_DOT \
  DIT_REGION_OP_COUNT  ///< beta * c + alpha * sum of a * b; other operations are enum dit_region_opcode

struct program_head {
  char mark[8];
  uint64_t size, sum;
  int64_t workspace;
  int32_t ngiven, nbuffers, ninstructions, reserved;
};

struct program_buffer {
  int64_t bytes;
  int64_t at;  ///< in the workspace; of those that are given: 0
};

struct program_operand {
  int32_t buffer;  ///< -1: a number
  int32_t dtype;
  int64_t offset, strides[PROGRAM_DIMS];  ///< in elements
  double number;
  int64_t integer;
};

struct program_instruction {
  int32_t op, ndim, nfolded, nargs;
  int64_t sizes[PROGRAM_DIMS];
  struct program_operand out, args[3];
  double alpha, beta;
};

struct program_parts {
  const struct program_head *head;
  const struct program_buffer *buffers;
  const struct program_instruction *instructions;
};

// graph_compile.c

/// Can the device run the node, whatever its sizes? What DITORCH_OPAQUE_GRAPH refuses is not asked here.
bool graph_program_supports(const struct dit_graph *graph, int32_t node);
/// `bytes` are the caller's, for dit_free. DIT_ERR_UNSUPPORTED, DIT_ERR_NOMEM.
enum dit_status graph_program_compile(const struct dit_graph *graph, void **bytes, size_t *size, struct dit_error *err);

// graph_run.c

/// Set the sum of a program that is complete.
void graph_program_seal(void *bytes);
/// DIT_ERR_CORRUPT with what is wrong.
enum dit_status graph_program_check(const void *bytes, size_t size, struct dit_error *err);
struct program_parts graph_program_get_parts(const void *bytes);
/// Does the device have this operation on elements of this dtype?
bool graph_program_has(int op, int dtype);
bool graph_program_has_dtype(int dtype);
/// `buffers` has the open address of every buffer.
void graph_program_run(const void *bytes, void *const *buffers);

#endif
