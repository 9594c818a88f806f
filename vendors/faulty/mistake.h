/// Mistakes as vendors make them: a right library, used or finished a little wrongly.
///
/// A mistake acts before the call on its arguments, after it on its results, or both (mistakes.inc lists them all).
/// Each works for every function that has what it acts on, and says whether it changed anything. Memory must be
/// readable by the host; nothing outside the tensors' own elements is read or written.
#ifndef DIT_VENDORS_MISTAKE_H
#define DIT_VENDORS_MISTAKE_H

#include "faulty.h"

/// One call that goes wrong.
struct mistake_call {
  const struct mistake *mistake;
  int function;
  const char *name, *kinds, *names;  ///< of the function and its parameters
  const struct faulty_tensors *tensors;
  struct faulty_state *state;
};

typedef bool mistake_act(struct mistake_call *call);

struct mistake {
  const char *name;
  mistake_act *alter, *damage;  ///< before the call and after it; NULL: nothing there
  bool (*is_kept)(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
  int64_t (*get_source)(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
  double (*change)(double value, int dtype);
};

enum {
#define MISTAKE(name, alter, damage, is_kept, get_source, change) MISTAKE_##name,
#include "mistakes.inc"
  MISTAKE_COUNT
};
extern const struct mistake mistakes[MISTAKE_COUNT];

/// The name of parameter `index` is one of these words, separated by spaces.
bool mistake_is_named(const struct mistake_call *call, int index, const char *words);
/// Outputs as they were before the call, into the state.
bool mistake_save(struct mistake_call *call);

// Elements of packed memory as numbers; integers beyond 2^53 are rounded. False for dtypes without numbers.
bool mistake_load(int dtype, const char *memory, int64_t i, double *out);
void mistake_store(int dtype, char *memory, int64_t i, double value);

#endif
