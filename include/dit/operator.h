/// What is known about operators by their names: one table for the whole product, standard/operators.tsv.
///
/// Every spelling of a name is understood: torch.Tensor.view, torch.nn.functional.softmax, aten::view, aten::add.out,
/// aten.view.default, view. The last word counts, with the word before it where a row says so (windows.exponential,
/// functional.unfold; all of torch.distributed). A word that has no row stands for another one:
///   add_ for add, __add__, __radd__ and __iadd__ for add, _foreach_add for add
/// and then has the numerical traits alone (DIT_OPERATOR_NUMERICAL): what is drawn, viewed, cast or kept is said of the
/// word that is written in the table, because in-place forms and lists of tensors differ there.
///
/// Nothing here allocates or can fail; the table is constant, so every function may be called from any thread.
#ifndef DIT_OPERATOR_H
#define DIT_OPERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

// Traits: bits of a uint64_t. tools/gen_operators.py reads their names from here.
// What becomes of memory.
#define DIT_OPERATOR_VIEW (UINT64_C(1) << 0)           ///< may return a view of an argument, or the argument itself
#define DIT_OPERATOR_TRANSFER (UINT64_C(1) << 1)       ///< moves or converts: the place of the result is what was asked
#define DIT_OPERATOR_MOVES (UINT64_C(1) << 2)          ///< moves to a device that its name says
#define DIT_OPERATOR_UNINITIALISED (UINT64_C(1) << 3)  ///< hands out uninitialised memory
#define DIT_OPERATOR_ADOPTS (UINT64_C(1) << 4)         ///< shows memory that another tensor has
#define DIT_OPERATOR_CREATES (UINT64_C(1) << 5)        ///< makes values of numbers alone
#define DIT_OPERATOR_METADATA (UINT64_C(1) << 6)       ///< asks about the tensor, not about what is in it
#define DIT_OPERATOR_BOOKKEEPING (UINT64_C(1) << 7)    ///< acts on the tensor object: nothing to compute
#define DIT_OPERATOR_INDEXING (UINT64_C(1) << 8)       ///< a view unless the index has a tensor or a list
#define DIT_OPERATOR_LENGTHS (UINT64_C(1) << 9)        ///< its second result is on the CPU on every device
#define DIT_OPERATOR_BEYOND (UINT64_C(1) << 10)        ///< reads memory outside of the tensor that it is given
// Random numbers.
#define DIT_OPERATOR_RANDOM (UINT64_C(1) << 11)    ///< draws from a generator
#define DIT_OPERATOR_DRAWS (UINT64_C(1) << 12)     ///< and does so whatever its other arguments are
#define DIT_OPERATOR_MAY_DRAW (UINT64_C(1) << 13)  ///< draws inside when an argument (a dropout) says so
// Numbers: what the results, not the gradients, are made of.
#define DIT_OPERATOR_POINTWISE (UINT64_C(1) << 14)  ///< an element of the result depends on one of each argument
#define DIT_OPERATOR_CANCELS (UINT64_C(1) << 15)    ///< its derivative is a difference: where small, roundings are not
#define DIT_OPERATOR_EXACT (UINT64_C(1) << 16)      ///< rounds nothing when argument and result have one dtype
#define DIT_OPERATOR_MIXES (UINT64_C(1) << 17)      ///< an element of the result depends on many
#define DIT_OPERATOR_CONTRACTION (UINT64_C(1) << 18)  ///< sums of products over a dimension that its operands share
#define DIT_OPERATOR_SCAN (UINT64_C(1) << 19)         ///< running sums, which devices keep in the dtype of the result
#define DIT_OPERATOR_TIES (UINT64_C(1) << 20)         ///< indices, which may differ where values are equal
#define DIT_OPERATOR_DISTINCT (UINT64_C(1) << 21)     ///< of TIES: no index occurs twice
#define DIT_OPERATOR_LAST (UINT64_C(1) << 22)         ///< of TIES: the last dimension when `dim` is not given
#define DIT_OPERATOR_SCATTER (UINT64_C(1) << 23)      ///< not unique where an index occurs more than once
#define DIT_OPERATOR_LOOSE (UINT64_C(1) << 24)        ///< has results that are not unique
#define DIT_OPERATOR_ATOMIC (UINT64_C(1) << 25)       ///< GPUs add in any order
#define DIT_OPERATOR_PRIVATE (UINT64_C(1) << 26)      ///< has results that are not results: for its own backward
#define DIT_OPERATOR_SCRATCH (UINT64_C(1) << 27)      ///< takes or gives bytes that only its own kernels understand
// Single operators that a tool has to know.
#define DIT_OPERATOR_RUNNING (UINT64_C(1) << 28)     ///< may write running statistics, which no version counter shows
#define DIT_OPERATOR_STATISTICS (UINT64_C(1) << 29)  ///< a batch norm with running_mean and running_var
#define DIT_OPERATOR_OPTIMIZER (UINT64_C(1) << 30)   ///< the step of a whole optimizer
#define DIT_OPERATOR_SCALER (UINT64_C(1) << 31)      ///< looks for infinite gradients: meeting one is its purpose
#define DIT_OPERATOR_MASKS (UINT64_C(1) << 32)       ///< puts values, infinities among them, where it is told to
#define DIT_OPERATOR_COLLECTIVE (UINT64_C(1) << 33)  ///< of torch.distributed
// The autocast of devices where it differs from the CPU's.
#define DIT_OPERATOR_AUTOCAST_FLOAT (UINT64_C(1) << 34)   ///< runs in float32
#define DIT_OPERATOR_AUTOCAST_WIDEST (UINT64_C(1) << 35)  ///< runs in the widest dtype of its arguments
#define DIT_OPERATOR_AUTOCAST_LOWER (UINT64_C(1) << 36)   ///< runs in the narrow dtype
#define DIT_OPERATOR_AUTOCAST_PLAIN (UINT64_C(1) << 37)   ///< on the CPU's lists alone
#define DIT_OPERATOR_AUTOCAST_ALIKE (UINT64_C(1) << 38)   ///< of torch.linalg, and yet on the lists of both
// What becomes of values, and which are chosen.
#define DIT_OPERATOR_FILLS (UINT64_C(1) << 39)     ///< in place: writes all of its first argument and reads none of it
#define DIT_OPERATOR_CARRIES (UINT64_C(1) << 40)   ///< values of arguments elsewhere; in place: writes to a part alone
#define DIT_OPERATOR_FREQUENT (UINT64_C(1) << 41)  ///< of TIES: any value that is as frequent will do
#define DIT_OPERATOR_COPIES (UINT64_C(1) << 42)  ///< a view, a move or a copy, perhaps in another dtype: as it is asked
#define DIT_OPERATOR_CHAINED (UINT64_C(1) << 43)   ///< of CONTRACTION: a product of products (attention)
#define DIT_OPERATOR_RESCALES (UINT64_C(1) << 44)  ///< sets a gradient scaler's scale, its first argument

/// Traits that in-place forms, operators written as symbols and _foreach_ forms share with the word that they stand
/// for.
#define DIT_OPERATOR_NUMERICAL                                                                                    \
  (DIT_OPERATOR_POINTWISE | DIT_OPERATOR_CANCELS | DIT_OPERATOR_EXACT | DIT_OPERATOR_MIXES |                      \
   DIT_OPERATOR_CONTRACTION | DIT_OPERATOR_SCAN | DIT_OPERATOR_TIES | DIT_OPERATOR_DISTINCT | DIT_OPERATOR_LAST | \
   DIT_OPERATOR_SCATTER | DIT_OPERATOR_LOOSE | DIT_OPERATOR_ATOMIC | DIT_OPERATOR_FREQUENT)

#define DIT_OPERATOR_ALL UINT32_MAX  ///< of `loose`: every result
// Of `dim`, where no argument tells it.
#define DIT_OPERATOR_FIRST (-2)   ///< the first dimension
#define DIT_OPERATOR_PLANE (-3)   ///< the last two, whose places are counted through
#define DIT_OPERATOR_VOLUME (-4)  ///< the last three, likewise

enum dit_operator_draw {
  DIT_OPERATOR_DRAW_NONE,        ///< nothing, or in a way that is not judged
  DIT_OPERATOR_DRAW_CONTINUOUS,  ///< independent elements of a continuous distribution
  DIT_OPERATOR_DRAW_DISCRETE,    ///< of a discrete one
  DIT_OPERATOR_DRAW_DROPOUT,     ///< elements, or channels, become 0
  DIT_OPERATOR_DRAW_ALPHA,       ///< elements, or channels, become a constant
  DIT_OPERATOR_DRAW_PERMUTATION,
};

/// How many terms an element of the result sums up.
enum dit_operator_length {
  DIT_OPERATOR_LENGTH_NONE,    ///< not known by the name
  DIT_OPERATOR_LENGTH_SHARED,  ///< the extent that the operands share: [m, k] x [k, n]
  DIT_OPERATOR_LENGTH_RATIO,   ///< elements of the argument per element of the result
  DIT_OPERATOR_LENGTH_WINDOW,  ///< elements of the weight per channel of the result
};

/// One row. All of it holds for the words that are written in the table; for others ask dit_operator_get_traits.
struct dit_operator {
  const char *name;
  uint64_t traits;
  int8_t dim;                ///< place of the argument `dim`; DIT_OPERATOR_FIRST, PLANE or VOLUME; -1: not known
  int8_t index;              ///< place of the index tensor; -1: none
  int8_t places;             ///< the result that has the places of what was chosen; -1: none
  int8_t sorted;             ///< place of the argument `sorted`, without which results come in any order; -1: none
  uint32_t loose;            ///< LOOSE: bits of the results concerned
  uint32_t private_results;  ///< PRIVATE: bits of the results concerned; 0: those that are empty on one side
  uint8_t draw;              ///< enum dit_operator_draw
  uint8_t channels;          ///< 0, or channels are dropped: dimensions from which on a batch is in front of them
  double low, high;          ///< support of the numbers drawn; NaN: not known by the name
  uint8_t length;            ///< enum dit_operator_length
  int8_t writes_first;       ///< arguments that are written to although no schema and no version counter says so;
  int8_t writes_count;       ///< 0: none
  int8_t writes_if;          ///< place of the argument that tells whether they are; -1: they are
  bool writes_default;       ///< what that argument is when it is not given
  int8_t castable;           ///< leading arguments whose dtype may be changed; 0: all
  const char *unless;        ///< EXACT: not when this argument is given; NULL: always
  int8_t unless_place;       ///< where that argument stands; -1: by name alone
  const char *reason;        ///< in words; NULL: none is needed
};

/// NULL: nothing is known. The row is the table's own.
DIT_API const struct dit_operator *dit_operator_find(const char *name);
/// The traits of exactly this name; 0: nothing is known.
DIT_API uint64_t dit_operator_get_traits(const char *name);
/// Has it any of them?
DIT_API bool dit_operator_has(const char *name, uint64_t traits);
/// The word of a name: "view" of torch.Tensor.view, aten::view.Dimname and aten.view.default. A pointer into `name`, or
/// `buffer` when something follows the word; a longer word than `size` - 1 is cut.
DIT_API const char *dit_operator_get_word(const char *name, char *buffer, size_t size);

/// Word number `index` of the table, sorted; NULL behind the last one.
DIT_API const char *dit_operator_get_name(size_t index);
/// Bit `bit` as a word of the table, such as "pointwise"; NULL behind the last one.
DIT_API const char *dit_operator_trait_get_name(int bit);

DIT_EXTERN_C_END

#endif
