// What kind of operator a name stands for: views, transfers, random numbers, uninitialised memory.
//
// Known from the operator table (dit/operator.h); tests/python/test_engine_classes.py compares it with PyTorch's own
// schemas. Depends on nothing of the engine but its flags.
#include <string.h>

#include "dit/operator.h"
#include "engine/internal.h"

unsigned engine_class_find(const char *name) {
  uint64_t traits = dit_operator_get_traits(name);
  unsigned flags = traits & DIT_OPERATOR_VIEW ? ENGINE_OP_VIEW : 0;
  flags |= traits & DIT_OPERATOR_TRANSFER ? ENGINE_OP_TRANSFER : 0;
  flags |= traits & DIT_OPERATOR_UNINITIALISED ? ENGINE_OP_UNINITIALISED : 0;
  flags |= traits & DIT_OPERATOR_RANDOM ? ENGINE_OP_RANDOM : 0;
  flags |= traits & DIT_OPERATOR_BEYOND ? ENGINE_OP_BEYOND : 0;
  flags |= traits & DIT_OPERATOR_OPTIMIZER ? ENGINE_OP_OPTIMIZER : 0;
  flags |= strncmp(name, "torch.distributed.", 18) == 0 || strncmp(name, "c10d::", 6) == 0 ? ENGINE_OP_COLLECTIVE : 0;
  return flags;
}

bool engine_op_is_fused_optimizer(const struct engine_op *op) {
  return (op->flags & ENGINE_OP_INPLACE) && (op->flags & ENGINE_OP_OPTIMIZER);
}

bool engine_call_has_sparse_gradient(const struct engine_call *call) {
  static const struct {
    const char *name;
    Py_ssize_t place;  // of the argument `sparse`
  } makers[] = {{"torch.nn.functional.embedding", 6}, {"torch.nn.functional.embedding_bag", 7}};
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
    if (strcmp(call->op->name, makers[i].name) == 0) {
      PyObject *value = call->kwargs ? PyDict_GetItemString(call->kwargs, "sparse") : NULL;
      Py_ssize_t given = PyTuple_GET_SIZE(call->args);
      return (value                     ? value
              : given > makers[i].place ? PyTuple_GET_ITEM(call->args, makers[i].place)
                                        : NULL) == Py_True;
    }
  }
  return false;
}
