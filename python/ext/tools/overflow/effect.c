// What an operator does with memory, by the last part of its name: the question whether a value was read or only
// carried on cannot be seen in the values.
//
// Lists are sorted (strcmp) and searched by halves. Whoever is on none of them computes.
#include <stdlib.h>
#include <string.h>

#include "dit/operator.h"
#include "engine/internal.h"
#include "tools/overflow/overflow.h"

// Write all of their first argument and read nothing of it.
static const char *const fills[] = {
    "_foreach_copy_", "_foreach_zero_",  "bernoulli_",       "cauchy_",     "constant_",
    "copy_",          "dirac_",          "exponential_",     "eye_",        "fill_",
    "geometric_",     "kaiming_normal_", "kaiming_uniform_", "log_normal_", "normal_",
    "ones_",          "orthogonal_",     "random_",          "sparse_",     "trunc_normal_",
    "uniform_",       "xavier_normal_",  "xavier_uniform_",  "zero_",       "zeros_",
};

// Write a part of their first argument, the rest stays as it is.
static const char *const patches[] = {
    "__setitem__", "_index_put_impl_", "fill_diagonal_",  "index_copy_", "index_fill_",
    "index_put_",  "masked_fill_",     "masked_scatter_", "put_",        "scatter_",
};

// Return values of their arguments, somewhere else, in another order or of another type.
static const char *const moves[] = {
    "__deepcopy__",
    "__getitem__",
    "_to_copy",
    "as_strided_scatter",
    "bfloat16",
    "block_diag",
    "cat",
    "clone",
    "column_stack",
    "concat",
    "concatenate",
    "constant_pad_nd",
    "contiguous",
    "diagonal_scatter",
    "double",
    "dstack",
    "flip",
    "fliplr",
    "flipud",
    "float",
    "gather",
    "half",
    "hstack",
    "index",
    "index_copy",
    "index_fill",
    "index_put",
    "index_select",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "pad",
    "put",
    "repeat",
    "repeat_interleave",
    "roll",
    "rot90",
    "row_stack",
    "scatter",
    "select_scatter",
    "slice_scatter",
    "stack",
    "take",
    "take_along_dim",
    "tile",
    "tril",
    "triu",
    "vstack",
    "where",
};

// Change where a tensor looks, write nothing.
static const char *const turns[] = {
    "as_strided_", "detach_",   "record_stream", "rename_", "requires_grad_", "set_",
    "squeeze_",    "swapaxes_", "swapdims_",     "t_",      "transpose_",     "unsqueeze_",
};

static int text_compare(const void *key, const void *entry) {
  return strcmp(key, *(const char *const *)entry);
}

#define HAS(list, word) (bsearch(word, list, sizeof list / sizeof *list, sizeof *list, text_compare) != NULL)

enum overflow_effect overflow_effect_find(const struct engine_op *op) {
  char buffer[64];
  const char *word = dit_operator_get_word(op->name, buffer, sizeof buffer);
  if (op->flags & ENGINE_OP_UNINITIALISED) {
    return word[strlen(word) - 1] == '_' ? OVERFLOW_RESIZES : OVERFLOW_HANDS_OUT;
  }
  if (op->flags & ENGINE_OP_COLLECTIVE || engine_op_is_fused_optimizer(op) ||
      (strncmp(op->name, "torch.", 6) && strncmp(op->name, "aten", 4))) {
    return OVERFLOW_HIDES;
  }
  return HAS(fills, word)                                                        ? OVERFLOW_FILLS
         : HAS(patches, word)                                                    ? OVERFLOW_PATCHES
         : HAS(turns, word)                                                      ? OVERFLOW_TURNS
         : HAS(moves, word) || op->flags & (ENGINE_OP_VIEW | ENGINE_OP_TRANSFER) ? OVERFLOW_MOVES
                                                                                 : OVERFLOW_COMPUTES;
}
