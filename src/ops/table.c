/// The operator table: what the door may run in C. The rows come from the list in table.h alone.
#include "table.h"

static const struct dit_op table[] = {
#define OP_ROW(name, overload, function) {name, overload, function},
    OP_LIST(OP_ROW)
#undef OP_ROW
};

const struct dit_op *dit_op_get_table(int *count) {
  *count = (int)(sizeof(table) / sizeof(table[0]));
  return table;
}
