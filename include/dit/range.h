/// Named ranges of operator libraries (diopiRecordStart and diopiRecordEnd) for whoever records them: the framework.
///
///   static const struct dit_range_recorder recorder = {begin, end};
///   dit_range_set_recorder(&recorder);
///
/// Without a recorder a range costs one load; with one, what its `begin` costs.
#ifndef DIT_RANGE_H
#define DIT_RANGE_H

#include "dit/error.h"

DIT_EXTERN_C_BEGIN

/// Called on any thread. Ranges may nest, overlap, end on another thread, or never.
struct dit_range_recorder {
  /// A range begins; `name` is copied where it is needed later. What it returns comes back in `end`; NULL: the range is
  /// not recorded, and `end` is not called.
  void *(*begin)(const char *name);
  void (*end)(void *range);
};
/// Who records from now on; the table must live as long as the process. A recorder that was set cannot be replaced:
/// its ranges may be open. DIT_ERR_INVALID says so.
DIT_API DIT_NODISCARD enum dit_status dit_range_set_recorder(const struct dit_range_recorder *recorder,
                                                             struct dit_error *err);

DIT_EXTERN_C_END

#endif
