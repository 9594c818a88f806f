// What an operator does with memory, by the operator table: the question whether a value was read or only carried on
// cannot be seen in the values. Whoever the table says nothing about computes.
#include <string.h>

#include "dit/operator.h"
#include "engine/internal.h"
#include "tools/overflow/overflow.h"

static bool is_in_place(const char *word) {
  size_t length = strlen(word);
  bool is_symbol = length > 4 && strncmp(word, "__", 2) == 0;
  return is_symbol ? strcmp(word, "__setitem__") == 0 : length > 1 && word[length - 1] == '_';
}

enum overflow_effect overflow_effect_find(const struct engine_op *op) {
  char buffer[64];
  const char *word = dit_operator_get_word(op->name, buffer, sizeof buffer);
  bool in_place = is_in_place(word);
  if (op->flags & ENGINE_OP_UNINITIALISED) {
    return in_place ? OVERFLOW_RESIZES : OVERFLOW_HANDS_OUT;
  }
  if (op->flags & ENGINE_OP_COLLECTIVE || engine_op_is_fused_optimizer(op) ||
      (strncmp(op->name, "torch.", 6) && strncmp(op->name, "aten", 4))) {
    return OVERFLOW_HIDES;
  }
  const struct dit_operator *row = dit_operator_find(op->name);
  uint64_t traits = row ? row->traits : 0;  // of the word that an in-place form stands for, too
  if (in_place) {
    return traits & DIT_OPERATOR_FILLS                                                ? OVERFLOW_FILLS
           : traits & DIT_OPERATOR_CARRIES                                            ? OVERFLOW_PATCHES
           : traits & (DIT_OPERATOR_VIEW | DIT_OPERATOR_ADOPTS | DIT_OPERATOR_BEYOND) ? OVERFLOW_TURNS
                                                                                      : OVERFLOW_COMPUTES;
  }
  return traits & DIT_OPERATOR_METADATA                                                       ? OVERFLOW_TURNS
         : traits & DIT_OPERATOR_CARRIES || op->flags & (ENGINE_OP_VIEW | ENGINE_OP_TRANSFER) ? OVERFLOW_MOVES
                                                                                              : OVERFLOW_COMPUTES;
}

// A NaN or an infinity in any argument is one in the result: each element is a factor or a term of some element there.
static const char *const passes_all[] = {
    "add",        "bfloat16", "bmm",    "cat", "clone", "contiguous", "double",   "float", "half",
    "layer_norm", "linear",   "matmul", "mm",  "mul",   "neg",        "rms_norm", "stack", "sub",
};

bool overflow_op_passes_all(const struct engine_op *op) {
  const struct dit_operator *row = dit_operator_find(op->name);
  for (size_t i = 0; row && i < sizeof passes_all / sizeof *passes_all; i++) {
    if (strcmp(row->name, passes_all[i]) == 0) {
      return true;
    }
  }
  return false;
}
