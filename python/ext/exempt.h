/// Who asks: packages whose own code sees devices and torch.cuda as they are, and the count of who asked what.
///
/// The question is put only where an answer would otherwise be changed, and only while somebody is exempt or the audit
/// counts: dit_exempt_watched is one load, and zero in a program that uses neither.
#ifndef DIT_EXT_EXEMPT_H
#define DIT_EXT_EXEMPT_H

#include <stdatomic.h>
#include <stdbool.h>

/// What an exempt package sees as it is. A vendor's own package is exempt for names only: it must recognise its device,
/// and still understand "cuda" in the arguments of a user.
enum {
  DIT_EXEMPT_NAMES = 1,  ///< device.type, str(device), Tensor.is_cuda
  DIT_EXEMPT_ALL = 3,    ///< and "cuda" as PyTorch reads it, and torch.cuda
};

extern _Atomic int dit_exempt_watched;

/// The module whose code is running is exempt from `what` (a DIT_EXEMPT value). Counts the question under `label`.
/// False in a thread without the GIL.
bool dit_exempt_ask(int what, const char *label);

static inline bool dit_exempt_is(int what, const char *label) {
  return atomic_load_explicit(&dit_exempt_watched, memory_order_relaxed) && dit_exempt_ask(what, label);
}

#endif
