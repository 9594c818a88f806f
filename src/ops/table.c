/// The operator table: what the door may run in C. The rows come from the lists in table.h alone.
#include "table.h"

#include "infer.h"
#include "llm.h"

static const struct dit_op table[] = {
#define OP_ROW(name, overload, function) {name, overload, function, 0, 0},
    OP_LIST(OP_ROW)
#undef OP_ROW
#define OP(name, overload, run, function, target) {name, overload, run, DIT_DIOPI_diopi##function, target},
#include "rows_index.inc"
#include "rows_network.inc"
#include "rows_pointwise.inc"
#include "rows_reduce.inc"
#undef OP
#define INFER(name, ...) {"dlinfer::" #name, "", op_llm, 0, LLM_##name},
#include "rows_llm.inc"
#undef INFER
};

const struct dit_op *dit_op_get_table(int *count) {
  *count = (int)(sizeof(table) / sizeof(table[0]));
  return table;
}
