/// The operators of LLM inference (dit/infer.h), between the door and a library's table.
#ifndef DIT_OPS_LLM_H
#define DIT_OPS_LLM_H

#include "dit/infer.h"
#include "dit/op.h"

#define LLM_RESULTS 3

/// Shape and dtype of a result that is to be made, row-major.
struct llm_result {
  int ndim, dtype;
  int64_t sizes[DIT_MAX_DIMS];
};

/// Check the arguments of one operator and tell its results. DIT_ERR_INVALID names the argument; DIT_ERR_UNSUPPORTED:
/// right, but nothing that a library would take (float64).
#define INFER(name, ...)                                                                            \
  enum dit_status llm_check_##name(const struct dit_infer_##name *call, struct llm_result *results, \
                                   struct dit_error *err);
#include "rows_llm.inc"
#undef INFER

/// The rows by number.
enum {
#define INFER(name, ...) LLM_##name,
#include "rows_llm.inc"
#undef INFER
};

/// All rows `dlinfer::*` of the table; call->op->target is the number.
enum dit_status op_llm(struct dit_call *call);

#endif
