/// The last snapshots by address: a tensor that is captured again unchanged (as the result of one operator and the
/// input of the next, a weight in every step) is compared with its last snapshot, which reads memory but writes none,
/// and shares it.
///
/// Equal bytes are always established by comparing them, never by an address or a version counter. Guarded by the GIL.
#ifndef DIT_EXT_CAPTURE_REUSE_H
#define DIT_EXT_CAPTURE_REUSE_H

#include <stdint.h>

#include "tools/capture/memory.h"

#define CAPTURE_REUSE_LEAST (2u << 10)   ///< bytes from which it pays
#define CAPTURE_REUSE_MOST (16u << 20)   ///< up to which a snapshot is remembered
#define CAPTURE_REUSE_BYTES (96u << 20)  ///< of all remembered ones

/// The last snapshot of these bytes with a reference for the caller, or NULL.
struct capture_memory *capture_reuse_find(uintptr_t address, size_t size);
/// Remember `memory` (one more reference) as their last snapshot.
void capture_reuse_keep(uintptr_t address, size_t size, struct capture_memory *memory);
/// Forget everything.
void capture_reuse_clear(void);

#endif
