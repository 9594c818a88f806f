/// A piece of work for oneDNN that is made once and run often: a primitive, and the reorders between the caller's
/// layouts and those the primitive wants. Plans are kept by key, a bounded number of them.
#ifndef DIT_HOST_ENGINE_ONEDNN_PLAN_H
#define DIT_HOST_ENGINE_ONEDNN_PLAN_H

#include "onednn_library.h"

enum { ONEDNN_KEY = 48, ONEDNN_OPERANDS = 4 };

/// Everything that the primitive depends on; unused values are 0.
struct onednn_key {
  int64_t values[ONEDNN_KEY];
};

struct onednn_operand {
  int argument;   ///< ONEDNN_ARG_*
  void *desc;     ///< the caller's layout; owned
  void *inner;    ///< the primitive's layout, where it is another one; borrowed from the primitive's descriptor
  void *reorder;  ///< primitive between the two; NULL where none is needed
  size_t size;    ///< bytes of the inner layout
  bool result;
};

struct onednn_runner;

struct onednn_plan {
  struct onednn_key key;
  struct onednn_operand operands[ONEDNN_OPERANDS];
  int count;
  void *desc, *primitive;
  const void *scratch_desc;
  size_t scratch, room;                   ///< bytes of the library's scratch; of all that a run needs
  bool refused;                           ///< oneDNN has no good code for it
  _Atomic(struct onednn_runner *) spare;  ///< for the next run
  int references;
  uint64_t used;
};

/// Fill a plan that has its key alone: operands with argument, desc and result, then onednn_plan_finish.
typedef bool onednn_build(const struct onednn_library *library, struct onednn_plan *plan);

/// The plan for a key, made where there is none; NULL where oneDNN does not take it or memory is missing. Give it back.
struct onednn_plan *onednn_plan_get(const struct onednn_key *key, onednn_build *build);
void onednn_plan_put(struct onednn_plan *plan);

/// Primitive and reorders from plan->desc. `queries` names the layout of each operand. False where the library's code
/// is one of its references, or generic (`refuse_gemm`).
bool onednn_plan_finish(const struct onednn_library *library, struct onednn_plan *plan, const int *queries,
                        bool refuse_gemm);
/// Run on the operands' data, in the calling thread. False on any failure, with results partly written.
bool onednn_plan_run(struct onednn_plan *plan, void *const *data);

/// DIT_DTYPE_* as the library's number; 0 for other types.
int onednn_get_dtype(int dtype);
void onednn_count(bool run);

#endif
