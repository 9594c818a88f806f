/// What the adaptor (libdiopi_adapt.so) did to tensors so that calls could run, per operator of PyTorch: the ledger's
/// other half. Nothing is counted, and a call costs one comparison more, while the active library is no adaptor.
#ifndef DIT_CONVERSION_H
#define DIT_CONVERSION_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

#define DIT_CONVERSION_PAIRS 16

/// Tensors that went from one dtype (enum dit_dtype) to another.
struct dit_conversion_pair {
  int16_t from, to;
  uint64_t tensors;
};
struct dit_conversions {
  uint64_t converted;  ///< calls of the library behind with other tensors, parts of composed calls too
  uint64_t composed;   ///< calls that were made of other calls, parts too
  uint64_t layouts;    ///< tensors that were copied for their layout alone
  uint64_t written;    ///< tensors that were written back
  int pair_count;      ///< more kinds of pairs than there is room for are counted in the last one, as -1 to -1
  struct dit_conversion_pair pairs[DIT_CONVERSION_PAIRS];
};
struct dit_conversion_row {
  const char *name;  ///< "aten::add.Tensor"; lives as long as the process
  struct dit_conversions did;
};

/// Add `tensors` to the pair's number.
DIT_API void dit_conversions_add_pair(struct dit_conversions *to, int from_dtype, int to_dtype, uint64_t tensors);
DIT_API void dit_conversions_add(struct dit_conversions *to, const struct dit_conversions *from);

/// For the operator of this name (copied). Without memory nothing is counted.
DIT_API void dit_conversion_note(const char *name, const struct dit_conversions *did);
/// Copy up to `capacity` rows, those with any conversion, and return how many there are in all.
DIT_API int dit_conversion_read(struct dit_conversion_row *rows, int capacity);
/// dit_ledger_reset does this too.
DIT_API void dit_conversion_reset(void);

DIT_EXTERN_C_END

#endif
