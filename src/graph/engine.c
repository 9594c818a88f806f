/// Does an engine run an operation, whatever its sizes? The same question in the two forms that an engine may be asked:
/// as a region of one operation, and as a graph of one node.
#include <string.h>

#include "graph_internal.h"

enum { MAX_ARGS = 3 };

/// Numbers have dtype -1, and stand for one of the dtype of the tensors beside them.
static int get_dtype(const int *dtypes, int op, int arity, int k) {
  if (dtypes[k] >= 0) {
    return dtypes[k];
  }
  if (op == DIT_REGION_WHERE && k == 0) {
    return DIT_DTYPE_BOOL;
  }
  for (int i = op == DIT_REGION_WHERE; i < arity; i++) {
    if (dtypes[i] >= 0) {
      return dtypes[i];
    }
  }
  return dtypes[arity];
}

static void set_operand(struct dit_region_operand *operand, int dtype, int stored, int ndim, int folded) {
  *operand = (struct dit_region_operand){.dtype = (int16_t)dtype, .stored = (int16_t)stored};
  int64_t stride = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    const bool is_folded = stored >= 0 && (folded > 0 ? d == ndim - 1 : folded < 0 && d < ndim - 1);
    operand->strides[d] = is_folded ? 0 : stride;
    stride *= is_folded ? 1 : 2;
  }
}

static bool ask_region(const struct dit_graph_engine *engine, int op, int folded, int ndim, const int *dtypes) {
  const int arity = dit_region_op_get_arity(op);
  struct dit_region_op ops[MAX_ARGS + 1];
  struct dit_region_operand operands[MAX_ARGS + 1];
  struct dit_region region = {.ops = ops, .operands = operands};
  memset(ops, 0, sizeof ops);
  region.kind = folded > 0 ? DIT_REGION_ROWS : folded < 0 ? DIT_REGION_COLUMNS : DIT_REGION_POINTWISE;
  region.ndim = folded > 0 ? ndim - folded + 1 : folded < 0 ? ndim + folded + 1 : ndim ? ndim : 1;
  region.ndim = folded && region.ndim < 2 ? 2 : region.ndim;
  for (int d = 0; d < region.ndim; d++) {
    region.sizes[d] = 2;
  }
  for (int k = 0; k < arity; k++) {
    const int dtype = get_dtype(dtypes, op, arity, k);
    ops[k].op = DIT_REGION_NUMBER;
    ops[k].dtype = (int16_t)dtype;
    if (dtypes[k] >= 0) {
      ops[k].op = DIT_REGION_LOAD;
      ops[k].operand = (int16_t)region.noperands;
      set_operand(&operands[region.noperands++], dtype, -1, region.ndim, 0);
    }
    ops[arity].args[k] = (int16_t)k;
  }
  ops[arity].op = (uint8_t)op;
  ops[arity].dtype = (int16_t)dtypes[arity];
  ops[arity].level = folded ? DIT_LEVEL_ROW : DIT_LEVEL_ELEMENT;
  set_operand(&operands[region.noperands++], dtypes[arity], arity, region.ndim, folded);
  region.nops = arity + 1;
  return engine->supports(&region);
}

static bool ask_graph(const struct dit_graph_engine *engine, int device, int op, int folded, int ndim,
                      const int *dtypes) {
  const int arity = dit_region_op_get_arity(op), kept = folded > 0 ? ndim - folded : 0;
  struct dit_graph_dim sizes[DIT_GRAPH_MAX_DIMS], fewer[DIT_GRAPH_MAX_DIMS];
  for (int d = 0; d < DIT_GRAPH_MAX_DIMS; d++) {
    const bool is_folded = folded > 0 ? d >= kept : d < -folded;
    sizes[d] = (struct dit_graph_dim){DIT_DIM_SYMBOL, d};
    fewer[d] = is_folded ? (struct dit_graph_dim){DIT_DIM_CONST, 1} : sizes[d];
  }
  struct dit_graph_tensor tensors[MAX_ARGS + 1];
  struct dit_graph_arg args[MAX_ARGS];
  const int32_t out = arity;
  for (int k = 0; k <= arity; k++) {
    const struct dit_graph_dim *own = k == arity ? fewer : sizes;
    tensors[k] =
        (struct dit_graph_tensor){(int16_t)get_dtype(dtypes, op, arity, k), (int16_t)ndim, k, 0, {0}, own, own};
  }
  for (int k = 0; k < arity; k++) {
    args[k] = (struct dit_graph_arg){.tag = dtypes[k] >= 0 ? DIT_ARG_TENSOR : DIT_ARG_DOUBLE, .dim.value = k};
  }
  const struct dit_graph_node node = {.kind = folded ? DIT_NODE_REDUCE : DIT_NODE_POINT,
                                      .op = op,
                                      .folded = folded,
                                      .name = "",
                                      .overload = "",
                                      .reason = "",
                                      .nargs = arity,
                                      .nouts = 1,
                                      .outs = &out};
  const struct dit_graph_symbol symbols[DIT_GRAPH_MAX_DIMS] = {{0, 0}, {0, 1}, {0, 2}, {0, 3},
                                                               {0, 4}, {0, 5}, {0, 6}, {0, 7}};
  const struct dit_graph graph = {.nsymbols = DIT_GRAPH_MAX_DIMS,
                                  .ntensors = arity + 1,
                                  .nstorages = arity + 1,
                                  .nnodes = 1,
                                  .nargs = arity,
                                  .symbols = symbols,
                                  .tensors = tensors,
                                  .nodes = &node,
                                  .args = args};
  return engine->supports_node(&graph, 0, device);
}

bool dit_graph_engine_supports(const struct dit_graph_engine *engine, int device, int op, int folded, int ndim,
                               const int *dtypes) {
  const int arity = dit_region_op_get_arity(op);
  if (!engine || arity < 1 || graph_is_fold(op) != (folded != 0) || ndim < 0 || ndim > DIT_GRAPH_MAX_DIMS ||
      folded > ndim || -folded > ndim) {
    return false;
  }
  for (int k = 0; k <= arity; k++) {
    if (dtypes[k] >= DIT_DTYPE_COUNT || (k == arity && dtypes[k] < 0)) {
      return false;
    }
  }
  return (engine->compile && (!engine->supports || ask_region(engine, op, folded, ndim, dtypes))) ||
         (engine->compile_graph && ask_graph(engine, device, op, folded, ndim, dtypes));
}
