/// The ledger: per operator how often it ran in C and on the CPU fallback, the bytes it moved and the time it took.
///
/// Counting costs one relaxed atomic add per call and is always on. Times of fallbacks are always taken; times of C
/// operators only while dit_ledger_set_timing(true).
#ifndef DIT_LEDGER_H
#define DIT_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

enum dit_ledger_kind { DIT_LEDGER_C, DIT_LEDGER_FALLBACK, DIT_LEDGER_KINDS };

struct dit_ledger_entry;  ///< one operator; lives for the process's life

struct dit_ledger_row {
  const char *name;  ///< "aten::add.Tensor"
  uint64_t calls[DIT_LEDGER_KINDS];
  uint64_t bytes[DIT_LEDGER_KINDS];  ///< of all tensor arguments and results
  uint64_t nanoseconds[DIT_LEDGER_KINDS];
};

/// The entry for an operator name (copied), made on first use; NULL only when memory is exhausted.
DIT_API struct dit_ledger_entry *dit_ledger_get(const char *name);
DIT_API void dit_ledger_add(struct dit_ledger_entry *entry, enum dit_ledger_kind kind, uint64_t bytes,
                            uint64_t nanoseconds);
DIT_API void dit_ledger_set_timing(bool on);
DIT_API bool dit_ledger_get_timing(void);
/// Copy up to `capacity` rows (those with any call), most calls first, and return how many there are in all.
DIT_API int dit_ledger_read(struct dit_ledger_row *rows, int capacity);
DIT_API void dit_ledger_reset(void);

DIT_EXTERN_C_END

#endif
