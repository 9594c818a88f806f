/// Recipes: functions written as expressions of other functions.
///
///   RECIPE(diopiSilu, 'f', "out = Div(input, Add(1, Exp(Neg(input))))")
///
/// Names are the function's parameters, names that an earlier statement gave, functions of the standard without their
/// prefix (tensors in, one tensor out), or words of the evaluator: enum word. The letter tells the dtype of the work:
///   f  floating: float64 where the library takes it, else float32
///   p  as the operands are: floating as above, integers and bool int64, else int32
///   d  f where the parameter rounding_mode says none, else p
#ifndef DIT_ADAPT_RECIPE_H
#define DIT_ADAPT_RECIPE_H

#include "adapt.h"

enum word {
  WORD_SUM,  ///< sum(x) over the dimensions that the parameter "dim" names, which stay with size 1
  WORD_PROD,
  WORD_MAX,
  WORD_ARGMAX,
  WORD_SORT,  ///< sort(x) along "dim" (the last one without it), the first "k" where there is such a parameter
  WORD_ARGSORT,
  WORD_SUMALL,  ///< over all dimensions
  WORD_MAXALL,
  WORD_SCAN,     ///< scan(x): running sums along "dim"
  WORD_COUNT,    ///< count(x): how many elements sum(x) adds up
  WORD_REDUCE,   ///< reduce(x): as the parameter "reduction" says
  WORD_SHARE,    ///< share(x): x divided by its number of elements where "reduction" says mean
  WORD_CHOOSE,   ///< choose(parameter, a, b, ...) by its number; texts: "none" is 0, "tanh" 1
  WORD_GIVEN,    ///< given(parameter, a, b): a where the argument is there
  WORD_INTEGER,  ///< integer(a, b): a where the work is in integers
  WORD_TRUTH,    ///< truth(parameter, a, b): a where the tensor is bool
  WORD_NORM,     ///< norm(p, zero, infinite, least, else) by the value of p: 0, inf, -inf
  WORD_FLOORDIV,
  WORD_DIVMODE,   ///< division with the function's own rounding_mode
  WORD_NUMEL,     ///< numel(x)
  WORD_ZERO,      ///< zero(x, a, b): a where the number x is 0
  WORD_PRODUCT,   ///< product(a, b): matrices, batches of them broadcast, as torch.matmul
  WORD_TPRODUCT,  ///< with the last two dimensions of b exchanged
  WORD_COUNT_OF
};

enum node_kind { NODE_NUMBER, NODE_PARAMETER, NODE_NAME, NODE_CALL, NODE_WORD };

enum { RECIPE_NODES = 96, RECIPE_STATEMENTS = 12, RECIPE_ARGUMENTS = 6 };

struct node {
  uint8_t kind;
  uint8_t count;
  int16_t number;  ///< of the parameter, the earlier statement, the function or the word
  int16_t arguments[RECIPE_ARGUMENTS];
  double value;
};

struct recipe {
  int function;
  char work;
  bool folds;  ///< results may lack dimensions of size 1
  int node_count, statement_count;
  struct node nodes[RECIPE_NODES];
  struct {
    char name[24];
    int16_t root;
    int16_t parameter;  ///< that is written, or -1
  } statements[RECIPE_STATEMENTS];
};

/// The function's recipe, or NULL. All are read at the first call; one that cannot be read ends the process, because
/// they are part of the library (a test asks for every one).
const struct recipe *recipe_get(int function);

#endif
