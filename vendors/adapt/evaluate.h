/// One run of a recipe.
#ifndef DIT_ADAPT_EVALUATE_H
#define DIT_ADAPT_EVALUATE_H

#include "recipe.h"

/// A tensor, or a number where `tensor` is NULL.
struct value {
  diopiTensorHandle_t tensor;
  double real;
  int64_t integer;
  bool is_integer;
};

struct run {
  const struct recipe *recipe;
  const union dit_diopi_value *values;
  const char *kinds;
  diopiContextHandle_t ctx;
  int work;         ///< dtype
  uint32_t folded;  ///< dimensions that a fold took
  int folded_ndim;
  struct value statements[RECIPE_STATEMENTS];
};

bool run_is_integer(const struct run *run);
/// The value as a contiguous tensor of the dtype, with the shape where one is given.
diopiError_t run_load(struct run *run, const struct value *value, int ndim, const int64_t *sizes, int dtype,
                      diopiTensorHandle_t *out);
diopiError_t run_call(struct run *run, int function, int64_t mode, const struct value *arguments, int count,
                      struct value *out);
/// WORD_SUM to WORD_SHARE and WORD_NUMEL (folds.c).
diopiError_t run_fold(struct run *run, int word, const struct value *value, struct value *out);

/// Matrix products (product.c).
diopiError_t run_product(struct run *run, const struct value *a, const struct value *b, bool transposed,
                         struct value *out);

#endif
