/// A region as the host runs it: what region.c makes, and region_run.c, region_long.c and region_code.c read.
#ifndef DIT_HOST_ENGINE_REGION_INTERNAL_H
#define DIT_HOST_ENGINE_REGION_INTERNAL_H

#include "region.h"
#include "region_table.h"

#define REGION_BLOCK 1024
#define REGION_GRAIN (1 << 15)  // elements that are worth a thread
#define REGION_SPARE 3          // slots for numbers that are spread over a block

static inline bool is_fold(int op) {
  return op == DIT_REGION_SUM || op == DIT_REGION_MAX || op == DIT_REGION_MIN;
}

enum value_place { PLACE_SLOT, PLACE_NUMBER, PLACE_SINGLE, PLACE_HOISTED, PLACE_COLUMN };

struct value {
  uint8_t op, klass, level, place, arity, round_class;
  int16_t dtype, operand, slot, direct;  // direct: an operand that the result may be written to at once; -1
  int16_t args[3];
  region_loop *loop, *rounding;
  union {
    float f;
    double d;
    int64_t i;
    int32_t b;
  } number;
};

/// What a piece of a long row folds to.
union partial {
  double real;
  int64_t integer;
};

struct operand {
  struct dit_region_operand layout;
  int width;
  bool is_dense;   // element (r, c) lies at r * size of a row + c
  bool is_native;  // memory looks like its register
  region_move *move;
};

struct region_program {
  enum dit_region_kind kind;
  int ndim, nvalues, noperands, nslots;
  int64_t sizes[DIT_GRAPH_MAX_DIMS];
  int64_t outer, length;  // rows, elements of a row
  int64_t rows, cols;     // of a block
  bool is_long;           // rows that are folded piece by piece
  int nfolds;
  struct value *values;
  struct operand *operands;
  // for generated code
  struct region_code *code;  // NULL: the block machine alone
  int nscratch, nphases;
  bool has_trig;
  int64_t *strides;        // [operand][DIT_GRAPH_MAX_DIMS]
  union partial *numbers;  // per value
};

struct work {
  const struct region_program *program;
  void *const *data;
  union partial *partials;  // of long rows: [row][chunk][fold]
  bool direct;              // results may be written while operands are still read
  int failed;
};

struct block {
  const struct region_program *program;
  void *const *data;
  char *slots;
  size_t slot_bytes;
  union partial *partials;  // of the chunk that is being folded
  bool direct;
  int64_t row, col, rows, cols;
  const void *at[DIT_REGION_MAX_OPS];
};

// region_run.c
bool region_begin_thread(struct work *work, struct block *block);
void region_run_block(struct block *block);
void *region_get_place(const struct block *block, int operand, int64_t row, int64_t col);

// region_long.c
void region_join_partial(const struct value *value, union partial *partial, const void *reg);
bool region_run_long(struct work *work);
/// The chunks of all rows into the results.
void region_store_rows(struct work *work);

#endif
