/// Runs a row `dlinfer::*`: the call's values become the operator's argument struct, which is checked; the results are
/// made, and the library's function is called. Without one the answer is DIT_ERR_UNSUPPORTED: the door composes.
#include "llm.h"

#include <stddef.h>
#include <string.h>

#include "dit/diopi.h"

#define LLM_FIELDS 24

union llm_arguments {
#define INFER(name, ...) struct dit_infer_##name name;
#include "rows_llm.inc"
#undef INFER
};

struct llm_row {
  int results, arguments;
  const char *kinds;  ///< r result, t tensor, T optional tensor, d double, i integer, b bool
  uint16_t offsets[LLM_FIELDS];
  const char *fields;  ///< "AT(rms_norm,out), ...", for the names of arguments in messages
  size_t slot;
  enum dit_status (*check)(const union llm_arguments *call, struct llm_result *results, struct dit_error *err);
  enum dit_status (*run)(const struct dit_infer_table *table, void *stream, const union llm_arguments *call,
                         struct dit_error *err);
};

#define INFER(name, ...)                                                                           \
  static enum dit_status check_##name(const union llm_arguments *call, struct llm_result *results, \
                                      struct dit_error *err) {                                     \
    return llm_check_##name(&call->name, results, err);                                            \
  }                                                                                                \
  static enum dit_status run_##name(const struct dit_infer_table *table, void *stream,             \
                                    const union llm_arguments *call, struct dit_error *err) {      \
    return table->name(stream, &call->name, err);                                                  \
  }
#include "rows_llm.inc"
#undef INFER

static const struct llm_row rows[] = {
#define AT(name, field) offsetof(struct dit_infer_##name, field)
#define INFER(name, nresults, narguments, letters, ...)                                                    \
  {nresults,     narguments, letters, {__VA_ARGS__}, #__VA_ARGS__, offsetof(struct dit_infer_table, name), \
   check_##name, run_##name},
#include "rows_llm.inc"
#undef INFER
#undef AT
};

/// The name of field `number`, in the caller's room: what stands behind the comma of its AT(struct,field).
static const char *get_name(const struct llm_row *row, int number, char room[64]) {
  const char *at = strchr(row->fields, '(');
  for (int i = 0; i < number && at; i++) {
    at = strchr(at + 1, '(');
  }
  at = at ? strchr(at, ',') : NULL;
  size_t length = at ? strcspn(at + 1, ")") : 0;
  length = length < 63 ? length : 63;
  memcpy(room, at ? at + 1 : "", length);
  room[length] = '\0';
  return room;
}

static bool is_index(int dtype) {
  return dtype == DIT_DTYPE_I32 || dtype == DIT_DTYPE_I64;
}

static enum dit_status take_tensor(const struct llm_row *row, int field, const struct dit_value *value,
                                   struct dit_tensor_view *view, struct dit_error *err) {
  char name[64];
  if (value->tag != DIT_VALUE_TENSOR) {
    view->handle = NULL;
    return value->tag == DIT_VALUE_NONE && row->kinds[field] == 'T' ? DIT_OK : DIT_ERR_UNSUPPORTED;
  }
  *view = value->v.tensor;
  if (!(view->flags & DIT_TENSOR_ON_DEVICE) && !is_index(view->dtype)) {
    return dit_error_set(err, DIT_ERR_INVALID, "'%s' (%s) is on the CPU; valid: the device of the other tensors",
                         get_name(row, field, name), dit_dtype_get_name(view->dtype));
  }
  if (view->ndim > 0 && view->numel > 0 && view->sizes[view->ndim - 1] > 1 && view->strides[view->ndim - 1] != 1) {
    return DIT_ERR_UNSUPPORTED;
  }
  return DIT_OK;
}

static enum dit_status take_values(const struct llm_row *row, struct dit_call *call, union llm_arguments *out) {
  for (int i = 0; i < row->arguments; i++) {
    const int field = row->results + i;
    const struct dit_value *value = &call->args[i];
    char *at = (char *)out + row->offsets[field];
    switch (row->kinds[field]) {
      case 'd':
        *(double *)(void *)at = value->tag == DIT_VALUE_DOUBLE ? value->v.d : (double)value->v.i;
        break;
      case 'i':
        *(int64_t *)(void *)at = value->v.i;
        break;
      case 'b':
        *(bool *)(void *)at = value->v.i != 0;
        break;
      default:
        DIT_RETURN_IF_NOT_OK(take_tensor(row, field, value, (struct dit_tensor_view *)(void *)at, call->err));
    }
  }
  return DIT_OK;
}

static bool has_slot(const struct dit_infer_table *table, const struct llm_row *row) {
  void *address = NULL;
  if (table && table->size >= row->slot + sizeof address) {
    memcpy(&address, (const char *)table + row->slot, sizeof address);
  }
  return address != NULL;
}

const char *dit_infer_get_name(int number) {
  static const char *const names[] = {
#define INFER(name, ...) #name,
#include "rows_llm.inc"
#undef INFER
  };
  return number >= 0 && number < DIT_INFER_COUNT ? names[number] : NULL;
}

bool dit_infer_has(const struct dit_infer_table *table, int number) {
  return number >= 0 && number < DIT_INFER_COUNT && has_slot(table, &rows[number]);
}

enum dit_status op_llm(struct dit_call *call) {
  const struct llm_row *row = &rows[call->op->target];
  const struct dit_infer_table *table = call->diopi ? call->diopi->infer : NULL;
  union llm_arguments arguments = {0};
  struct llm_result results[LLM_RESULTS] = {0};
  if (!has_slot(table, row) || call->nargs != row->arguments) {
    return DIT_ERR_UNSUPPORTED;
  }
  enum dit_status status = take_values(row, call, &arguments);
  status = status == DIT_OK ? row->check(&arguments, results, call->err) : status;
  for (int i = 0; i < row->results && status == DIT_OK; i++) {
    struct dit_tensor_view *view = (struct dit_tensor_view *)(void *)((char *)&arguments + row->offsets[i]);
    status = call->services->new_tensor(call, results[i].ndim, results[i].sizes, NULL, results[i].dtype, view);
    call->rets[i].tag = DIT_VALUE_TENSOR;
    call->rets[i].v.tensor = *view;
  }
  if (status == DIT_OK) {
    status = row->run(table, call->stream, &arguments, call->err);
  }
  if (status == DIT_ERR_INVALID) {
    dit_error_prefix(call->err, "%s", call->op->name);
  }
  return status;
}
