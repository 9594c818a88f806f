/// What libdiopi_adapt.so, the operator library that completes another one, exports beside the standard.
///
/// Nobody links it: it is opened as an operator library (dit_diopi_library_open), and these functions are looked up by
/// name in its handle.
#ifndef DIT_ADAPT_H
#define DIT_ADAPT_H

#include <stdint.h>

#include "dit/conversion.h"
#include "dit/error.h"

DIT_EXTERN_C_BEGIN

/// What the adaptor did since the start or the last reset.
struct dit_adapt_counts {
  uint64_t calls;      ///< from outside
  uint64_t direct;     ///< passed on as they were
  uint64_t converted;  ///< passed on with other tensors, parts of composed calls too
  uint64_t composed;   ///< made of other calls, parts too
  uint64_t refused;    ///< no way was found; the library's own code went back
  uint64_t dtypes;     ///< tensors that were converted to another dtype
  uint64_t layouts;    ///< tensors that were copied for their layout alone
  uint64_t written;    ///< tensors that were written back
};
DIT_API void dit_adapt_get_counts(struct dit_adapt_counts *out);
DIT_API void dit_adapt_reset_counts(void);
/// What the calls of this thread converted since it asked last (dit/conversion.h); false, and nothing written: nothing.
DIT_API bool dit_adapt_take(struct dit_conversions *out);
/// Open another library with rules in a text (NULL: none); for tests and tools: no call may be
/// under way. The old one stays on failure.
DIT_API DIT_NODISCARD enum dit_status dit_adapt_configure(const char *library, const char *rules,
                                                          struct dit_error *err);
/// Ways that the adaptor knows for a function: "direct", "composed", "none"; NULL for a name that the standard lacks.
DIT_API const char *dit_adapt_get_way(const char *function);

DIT_EXTERN_C_END

#endif
