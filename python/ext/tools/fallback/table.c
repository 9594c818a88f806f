// What the fallback tool knows of operators by name, and its ledger: one row per operator.
//
// Most is in the engine's classes (engine/classes.c). Here: names that act on the tensor object itself, operators that
// may draw random numbers somewhere inside, and the lists of torch's autocast that differ between devices and the CPU
// (aten/src/ATen/autocast_mode.h; tests/python/test_op_fallback.py compares them with the device's own behaviour).
#include <stdlib.h>
#include <string.h>

#include "tools/fallback/fallback.h"

// Act on the object, its memory or its place, or build a tensor from Python data: nothing to compute.
static const char *const bookkeeping[] = {
    "__array__",     "__array_wrap__",  "__deepcopy__",    "__dlpack__",
    "__iter__",      "__reduce__",      "__reduce_ex__",   "__setstate__",
    "_pin_memory",   "_resize_output_", "align_as",        "align_to",
    "as_strided_",   "as_subclass",     "as_tensor",       "asarray",
    "copy_",         "frombuffer",      "is_pinned",       "new_tensor",
    "record_stream", "refine_names",    "register_hook",   "register_post_accumulate_grad_hook",
    "retain_grad",   "tensor",          "untyped_storage",
};

// Draw inside, depending on their arguments; the engine's class of random operators has the rest.
static const char *const randoms[] = {
    "_native_multi_head_attention",
    "_transform_bias_rescale_qkv",
    "gru",
    "lobpcg",
    "lstm",
    "multi_head_attention_forward",
    "rnn_relu",
    "rnn_tanh",
    "scaled_dot_product_attention",
};

static const char *const statistics[] = {
    "_batch_norm_impl_index", "_batch_norm_with_update", "_native_batch_norm_legit", "batch_norm",
    "cudnn_batch_norm",       "miopen_batch_norm",       "native_batch_norm",
};

// Draw whatever their other arguments are.
static const char *const draws[] = {
    "_standard_gamma",
    "bernoulli",
    "bernoulli_",
    "binomial",
    "cauchy_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "multinomial",
    "normal",
    "normal_",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "random_",
    "randperm",
    "rrelu",
    "rrelu_",
    "rrelu_with_noise",
    "rrelu_with_noise_",
    "uniform_",
};

// Run in float32 under the autocast of devices (AT_FORALL_FP32 and its variants), but not, or not all, under the CPU's.
static const char *const floats[] = {"__pow__",
                                     "__rdiv__",
                                     "__rpow__",
                                     "__rtruediv__",
                                     "acos",
                                     "arccos",
                                     "arcsin",
                                     "asin",
                                     "binary_cross_entropy_with_logits",
                                     "cdist",
                                     "cosh",
                                     "cosine_embedding_loss",
                                     "cosine_similarity",
                                     "cross_entropy",
                                     "cumprod",
                                     "cumsum",
                                     "dist",
                                     "erfinv",
                                     "exp",
                                     "expm1",
                                     "frobenius_norm",
                                     "group_norm",
                                     "hinge_embedding_loss",
                                     "huber_loss",
                                     "interpolate",
                                     "kl_div",
                                     "l1_loss",
                                     "layer_norm",
                                     "log",
                                     "log10",
                                     "log1p",
                                     "log2",
                                     "log_softmax",
                                     "logsumexp",
                                     "margin_ranking_loss",
                                     "matrix_norm",
                                     "mse_loss",
                                     "multi_margin_loss",
                                     "multilabel_margin_loss",
                                     "native_layer_norm",
                                     "nll_loss",
                                     "norm",
                                     "nuclear_norm",
                                     "pairwise_distance",
                                     "pdist",
                                     "poisson_nll_loss",
                                     "pow",
                                     "prod",
                                     "reciprocal",
                                     "renorm",
                                     "rms_norm",
                                     "rsqrt",
                                     "sinh",
                                     "smooth_l1_loss",
                                     "soft_margin_loss",
                                     "softmax",
                                     "softmin",
                                     "softplus",
                                     "sum",
                                     "tan",
                                     "triplet_margin_loss",
                                     "upsample",
                                     "upsample_bilinear",
                                     "upsample_nearest",
                                     "vector_norm"};

// AT_FORALL_PROMOTE.
static const char *const widest[] = {"addcdiv",     "addcmul",      "atan2",     "bilinear",    "cross",     "dot",
                                     "grid_sample", "grid_sampler", "index_put", "scatter_add", "tensordot", "vdot"};

// Of AT_FORALL_LOWER_PRECISION_FP, those that the CPU's list lacks.
static const char *const lower[] = {"addmv",     "addr",      "chain_matmul", "conv_tbc",      "gru_cell",
                                    "lstm_cell", "multi_dot", "mv",           "rnn_relu_cell", "rnn_tanh_cell"};

// On the CPU's lists alone; torch.linalg and torch.fft too.
static const char *const plain[] = {"adaptive_avg_pool3d",
                                    "avg_pool3d",
                                    "cat",
                                    "cholesky",
                                    "cholesky_inverse",
                                    "cholesky_solve",
                                    "column_stack",
                                    "concat",
                                    "concatenate",
                                    "dstack",
                                    "geqrf",
                                    "hstack",
                                    "index_copy",
                                    "inverse",
                                    "istft",
                                    "logdet",
                                    "lu",
                                    "lu_solve",
                                    "max_pool3d",
                                    "max_unpool2d",
                                    "max_unpool3d",
                                    "nanquantile",
                                    "orgqr",
                                    "ormqr",
                                    "pad",
                                    "pinverse",
                                    "polar",
                                    "qr",
                                    "quantile",
                                    "row_stack",
                                    "slogdet",
                                    "stack",
                                    "stft",
                                    "svd",
                                    "trace",
                                    "triangular_solve",
                                    "vstack"};

static int text_compare(const void *key, const void *entry) {
  return strcmp(key, *(const char *const *)entry);
}

#define HAS(list, word) (bsearch(word, list, sizeof list / sizeof *list, sizeof *list, text_compare) != NULL)

static enum fallback_reason reason_find(const struct engine_op *op, const char *last) {
  if (op->flags & ENGINE_OP_COLLECTIVE) {
    return FALLBACK_COLLECTIVE;
  }
  if (op->flags & ENGINE_OP_TRANSFER) {
    return FALLBACK_TRANSFER;
  }
  if (op->flags & ENGINE_OP_VIEW) {
    return FALLBACK_VIEW;
  }
  if (op->flags & ENGINE_OP_UNINITIALISED) {
    return FALLBACK_UNINITIALISED;
  }
  return HAS(bookkeeping, last) ? FALLBACK_BOOKKEEPING : FALLBACK_APPLIES;
}

static unsigned autocast_find(const char *name, const char *last) {
  if (HAS(floats, last)) {
    return FALLBACK_FLOAT;
  }
  if (HAS(widest, last)) {
    return FALLBACK_WIDEST;
  }
  if (HAS(lower, last)) {
    return FALLBACK_LOWER;
  }
  bool library = strncmp(name, "torch.linalg.", 13) == 0 || strncmp(name, "torch.fft.", 10) == 0;
  bool product = strcmp(last, "vecdot") == 0;  // the CPU's autocast has it
  return (library && !product) || HAS(plain, last) ? FALLBACK_PLAIN : 0;
}

static unsigned traits_find(const struct engine_op *op, const char *last) {
  unsigned traits = op->flags & ENGINE_OP_RANDOM || HAS(randoms, last) ? FALLBACK_RANDOM : 0;
  traits |= strcmp(last, "__getitem__") == 0 ? FALLBACK_INDEXING : 0;
  traits |= HAS(draws, last) ? FALLBACK_DRAWS : 0;
  traits |= HAS(statistics, last) ? FALLBACK_STATISTICS : 0;
  traits |=
      strcmp(last, "_pack_padded_sequence") == 0 || strcmp(last, "_pad_packed_sequence") == 0 ? FALLBACK_LENGTHS : 0;
  return traits | autocast_find(op->name, last);
}

// ---- rows

static size_t slot_find(struct fallback_row *const *rows, size_t capacity, const struct engine_op *op) {
  size_t at = (((uintptr_t)op >> 4) * 0x9E3779B97F4A7C15u) >> 20 & (capacity - 1);
  while (rows[at] && rows[at]->op != op) {
    at = (at + 1) & (capacity - 1);
  }
  return at;
}

static int rows_grow(struct fallback_state *state) {
  size_t capacity = state->capacity ? state->capacity * 2 : 256;
  struct fallback_row **rows = PyMem_Calloc(capacity, sizeof *rows);
  if (!rows) {
    PyErr_NoMemory();
    return -1;
  }
  for (size_t i = 0; i < state->capacity; i++) {
    if (state->rows[i]) {
      rows[slot_find(rows, capacity, state->rows[i]->op)] = state->rows[i];
    }
  }
  PyMem_Free(state->rows);
  state->rows = rows;
  state->capacity = capacity;
  return 0;
}

struct fallback_row *fallback_row_find(struct fallback_state *state, struct engine_op *op) {
  size_t at = state->capacity ? slot_find(state->rows, state->capacity, op) : 0;
  if (state->capacity && state->rows[at]) {
    return state->rows[at];
  }
  if (state->count * 2 >= state->capacity) {
    if (rows_grow(state) < 0) {
      return NULL;
    }
    at = slot_find(state->rows, state->capacity, op);
  }
  struct fallback_row *row = PyMem_Calloc(1, sizeof *row);
  if (!row) {
    PyErr_NoMemory();
    return NULL;
  }
  const char *last = engine_name_get_last(op->name);
  row->op = op;
  row->reason = reason_find(op, last);
  row->traits = traits_find(op, last);
  state->rows[at] = row;
  state->count++;
  return row;
}

void fallback_rows_reset(struct fallback_state *state) {
  for (size_t i = 0; i < state->capacity; i++) {
    if (state->rows[i]) {
      Py_XDECREF(state->rows[i]->py_writes);
      PyMem_Free(state->rows[i]);
    }
  }
  PyMem_Free(state->rows);
  *state = (struct fallback_state){0};
}

// ---- for Python

static PyObject *exempt_describe(const struct fallback_row *row) {
  static const char *const texts[] = {"",
#define FALLBACK_REASON_TEXT(suffix, text) text,
                                      FALLBACK_REASON_LIST(FALLBACK_REASON_TEXT)
#undef FALLBACK_REASON_TEXT
  };
  PyObject *py_exempt = PyDict_New();
  for (int i = 1; py_exempt && i < FALLBACK_REASONS; i++) {
    if (row->exempt[i] && py_dict_take(py_exempt, texts[i], PyLong_FromUnsignedLongLong(row->exempt[i])) < 0) {
      Py_CLEAR(py_exempt);
    }
  }
  return py_exempt;
}

static PyObject *row_describe(const struct fallback_row *row) {
  return Py_BuildValue("{s:O,s:K,s:K,s:K,s:L,s:L,s:L,s:L,s:L,s:N}", "name", row->op->py_name, "count",
                       (unsigned long long)row->count, "retries", (unsigned long long)row->retries, "failed",
                       (unsigned long long)row->failed, "down", (long long)row->down, "up", (long long)row->up,
                       "down_ns", (long long)row->down_ns, "cpu_ns", (long long)row->cpu_ns, "up_ns",
                       (long long)row->up_ns, "exempt", exempt_describe(row));
}

PyObject *fallback_describe(struct engine_tool *tool) {
  const struct fallback_state *state = tool->state;
  PyObject *py_rows = PyList_New(0);
  for (size_t i = 0; py_rows && i < state->capacity; i++) {
    if (state->rows[i]) {
      PyObject *py_row = row_describe(state->rows[i]);
      if (!py_row || PyList_Append(py_rows, py_row) < 0) {
        Py_CLEAR(py_rows);
      }
      Py_XDECREF(py_row);
    }
  }
  return py_rows ? Py_BuildValue("{s:N}", "rows", py_rows) : NULL;
}
