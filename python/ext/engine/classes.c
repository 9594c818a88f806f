// What kind of operator a name stands for: views, transfers, random numbers, memory as it is.
//
// One list per class, by the last part of the name, which is the same for torch.Tensor.view, torch.view and aten::view.
// Lists are sorted (strcmp) and searched by halves; tests/python/test_engine_classes.py checks them against PyTorch's
// own schemas. Depends on nothing of the engine but its flags.
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

// May return a view of an argument (or the argument itself) and compute nothing.
static const char *const views[] = {
    "H",
    "T",
    "_conj",
    "_indices",
    "_neg_view",
    "_reshape_alias",
    "_unsafe_view",
    "_values",
    "adjoint",
    "alias",
    "as_strided",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_tensors",
    "broadcast_to",
    "ccol_indices",
    "chunk",
    "col_indices",
    "conj",
    "crow_indices",
    "data",
    "detach",
    "detach_",
    "diagonal",
    "dsplit",
    "expand",
    "expand_as",
    "flatten",
    "hsplit",
    "imag",
    "indices",
    "lift_fresh",
    "linalg_diagonal",
    "mH",
    "mT",
    "matrix_H",
    "meshgrid",
    "moveaxis",
    "movedim",
    "narrow",
    "numpy_T",
    "permute",
    "positive",
    "ravel",
    "real",
    "rename",
    "rename_",
    "requires_grad_",
    "reshape",
    "reshape_as",
    "resolve_conj",
    "resolve_neg",
    "row_indices",
    "select",
    "slice",
    "slice_inverse",
    "split",
    "split_with_sizes",
    "squeeze",
    "squeeze_",
    "swapaxes",
    "swapaxes_",
    "swapdims",
    "swapdims_",
    "t",
    "t_",
    "tensor_split",
    "transpose",
    "transpose_",
    "unbind",
    "unflatten",
    "unfold",
    "unsafe_chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
    "unsqueeze",
    "unsqueeze_",
    "values",
    "view",
    "view_as",
    "view_as_complex",
    "view_as_real",
    "vsplit",
};

// Whose purpose is to move or convert: where the result lives is what the caller asked for.
static const char *const transfers[] = {
    "_to_copy",   "cpu",  "cuda",          "from_dlpack", "from_numpy", "ipu",    "mlu",  "npu",     "numpy",
    "pin_memory", "set_", "share_memory_", "to",          "to_dlpack",  "tolist", "type", "type_as", "xpu",
};

// Hands out memory as it is: nothing to compare.
static const char *const uninitialised[] = {
    "empty",     "empty_like",        "empty_permuted", "empty_quantized", "empty_strided",     "new",
    "new_empty", "new_empty_strided", "resize_",        "resize_as_",      "resize_as_sparse_",
};

// Draws from a generator.
static const char *const randoms[] = {
    "_cudnn_init_dropout_state",
    "_fill_mem_eff_dropout_mask_",
    "_fused_dropout",
    "_sample_dirichlet",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_standard_gamma",
    "alpha_dropout",
    "alpha_dropout_",
    "bernoulli",
    "bernoulli_",
    "binomial",
    "cauchy",
    "cauchy_",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "dropout_",
    "exponential",
    "exponential_",
    "feature_alpha_dropout",
    "feature_alpha_dropout_",
    "feature_dropout",
    "feature_dropout_",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "geometric",
    "geometric_",
    "gumbel_softmax",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "log_normal",
    "log_normal_",
    "multinomial",
    "native_dropout",
    "normal",
    "normal_",
    "normal_functional",
    "orthogonal",
    "orthogonal_",
    "pca_lowrank",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "random",
    "random_",
    "randperm",
    "rrelu",
    "rrelu_",
    "rrelu_with_noise",
    "rrelu_with_noise_",
    "rrelu_with_noise_functional",
    "sparse_",
    "svd_lowrank",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
};

static int text_compare(const void *key, const void *entry) {
  return strcmp(key, *(const char *const *)entry);
}

#define HAS(list, word) (bsearch(word, list, sizeof list / sizeof *list, sizeof *list, text_compare) != NULL)

// The word that tells: "view" of torch.Tensor.view, aten::view and aten.view.default (torch.ops.aten.view.default).
const char *engine_class_find_word(const char *name, char *buffer, size_t size) {
  if (strncmp(name, "aten.", 5) == 0) {
    size_t length = strcspn(name + 5, ".");
    if (length < size) {
      memcpy(buffer, name + 5, length);
      buffer[length] = '\0';
      return buffer;
    }
  }
  return engine_name_get_last(name);
}

unsigned engine_class_find(const char *name) {
  char buffer[64];
  const char *word = engine_class_find_word(name, buffer, sizeof buffer);
  unsigned flags = HAS(views, word) ? ENGINE_OP_VIEW : 0;
  flags |= HAS(transfers, word) ? ENGINE_OP_TRANSFER : 0;
  flags |= HAS(uninitialised, word) ? ENGINE_OP_UNINITIALISED : 0;
  flags |= HAS(randoms, word) ? ENGINE_OP_RANDOM : 0;
  flags |= strncmp(name, "torch.distributed.", 18) == 0 || strncmp(name, "c10d::", 6) == 0 ? ENGINE_OP_COLLECTIVE : 0;
  return flags;
}

bool engine_op_is_fused_optimizer(const struct engine_op *op) {
  return (op->flags & ENGINE_OP_INPLACE) && strstr(op->name, "_fused_") != NULL;
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
