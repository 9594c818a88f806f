/// Names of operators as people write them, and the operators of a device that they mean.
///
/// People write torch.softmax, F.softmax, Tensor.add_, torch.ops.aten.add.Tensor, aten::add.out, add, or a pattern. A
/// device sees aten::_softmax, aten::add_.Tensor and aten::add.out. Everything that takes names of the device's
/// operators (faults, force_fallback, autocompare, dumps) resolves them here, so a name means the same everywhere.
///
/// Which operators exist is known by whoever is above: the adapter, from PyTorch's dispatcher. Functions may be called
/// from any thread.
#ifndef DIT_OPERATOR_NAME_H
#define DIT_OPERATOR_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

/// Called with every operator, "aten::add.out"; `seen`: it comes to the device itself and is not made of others.
typedef void (*dit_operator_visitor)(void *context, const char *name, bool seen);
typedef void (*dit_operator_lister)(dit_operator_visitor visit, void *context);
/// Who knows the operators; NULL: nobody (then names are taken as they are). The function must stay valid.
DIT_API void dit_operator_lister_set(dit_operator_lister lister);

/// A name, not a pattern: letters, digits, '_', '.' and ':'.
DIT_API bool dit_operator_name_is_plain(const char *text);
/// torch.ops.aten.add.Tensor -> add.Tensor, torch.nn.functional.softmax -> softmax, aten::add.default -> aten::add.
/// Written to `buffer`, cut when it is too small.
DIT_API void dit_operator_name_simplify(const char *name, char *buffer, size_t size);
/// Word number `index` of those that may do the work of a function that never reaches the device itself: softmax is
/// done by _softmax, conv2d by convolution. In `buffer`, or constant; NULL behind the last one. Not all of them exist.
DIT_API const char *dit_operator_name_get_part(const char *name, size_t index, char *buffer, size_t size);
/// Does a shell pattern (or several, separated by '|') match an operator: as it is, without "aten::", without the
/// overload, or without both?
DIT_API bool dit_operator_name_matches(const char *pattern, const char *name);
/// The nearest existing names, "softmax, softmin, relu", for a message. Empty when nobody knows any.
DIT_API void dit_operator_name_list_nearest(const char *wanted, char *buffer, size_t size);

enum dit_operator_meaning {
  DIT_OPERATOR_MEANS_NOTHING,  ///< no operator has such a name
  DIT_OPERATOR_MEANS_OTHERS,   ///< an operator has it that never comes to the device, and nobody knows its parts
  DIT_OPERATOR_MEANS_SEEN,     ///< there is something that the device sees
};
/// What a name or shell pattern means on the device: a pattern for dit_operator_name_matches in `buffer`.
DIT_API enum dit_operator_meaning dit_operator_name_resolve(const char *text, char *buffer, size_t size);

DIT_EXTERN_C_END

#endif
