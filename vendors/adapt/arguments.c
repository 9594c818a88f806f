/// What the table of the standard says about arguments, and checks that copies would hide from the library.
#include <string.h>

#include "adapt.h"

const char *adapt_get_name(int function, int parameter, int *length) {
  const char *name = dit_diopi_get_functions(NULL)[function].names;
  for (int i = 0; i < parameter && name; i++) {
    name = strchr(name, ',');
    name = name ? name + 1 : NULL;
  }
  *length = name ? (int)strcspn(name, ",") : 0;
  return name ? name : "";
}

int adapt_find_parameter(int function, const char *name) {
  const size_t wanted = strlen(name);
  const size_t count = strlen(dit_diopi_get_functions(NULL)[function].kinds);
  for (int i = 0; i < (int)count; i++) {
    int length;
    const char *own = adapt_get_name(function, i, &length);
    if ((size_t)length == wanted && memcmp(own, name, wanted) == 0) {
      return i;
    }
  }
  return -1;
}

/// The first integer behind a list is its length.
int64_t adapt_get_length(int function, const union dit_diopi_value *values, int parameter) {
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  for (int i = parameter + 1; kinds[i]; i++) {
    if (kinds[i] == 'i') {
      return values[i].i;
    }
  }
  return 0;
}

/// Names that the standard gives to results which are never read. Functions beyond functions.h may write parts of
/// their outputs and leave the rest (diopiDestIndexCopyKV), so nothing is known of them.
bool adapt_is_output(int function, int parameter) {
  static const char *const names[] = {"grad_input",  "grad_weight", "grad_bias",   "grad_other",  "grad_q",
                                      "grad_k",      "grad_v",      "max",         "max_indices", "min",
                                      "min_indices", "values",      "indices",     "save_mean",   "save_invstd",
                                      "invstd",      "inv_rms",     "totalWeight", "softmax_lse", "neg_log_likelihood",
                                      "log_alpha",   "null_out"};
  const struct dit_diopi_info *info = &dit_diopi_get_functions(NULL)[function];
  int length;
  const char *name = adapt_get_name(function, parameter, &length);
  if (strcmp(info->header, "functions.h") != 0) {
    return false;
  }
  if (strncmp(name, "out", 3) == 0) {
    return true;
  }
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if ((size_t)length == strlen(names[i]) && memcmp(names[i], name, (size_t)length) == 0) {
      return true;
    }
  }
  return false;
}

bool adapt_may_be_garbage(int function, int parameter) {
  int length;
  const char *name = adapt_get_name(function, parameter, &length);
  return strstr(name, "out") && strstr(name, "out") < name + length && strncmp(name, "inout", 5) != 0;
}

bool adapt_is_pointwise(int function) {
  static const char *const families[] = {"pointwise_unary",   "activation", "pointwise_binary",
                                         "pointwise_ternary", "comparison", "logical_bitwise"};
  const char *family = dit_diopi_get_functions(NULL)[function].family;
  for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
    if (strcmp(family, families[i]) == 0) {
      return true;
    }
  }
  return strncmp(dit_diopi_get_functions(NULL)[function].name, "diopiMaskedFill", 15) == 0;
}

static bool same_elements(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  if (a->data != b->data || a->ndim != b->ndim || a->dtype != b->dtype) {
    return false;
  }
  for (int d = 0; d < a->ndim; d++) {
    if (a->sizes[d] != b->sizes[d] || (a->sizes[d] > 1 && a->strides[d] != b->strides[d])) {
      return false;
    }
  }
  return true;
}

static diopiError_t check_pair(int function, int written, const struct dit_tensor_view *out,
                               const struct dit_tensor_view *other) {
  int length;
  const char *name = adapt_get_name(function, written, &length);
  if (out->numel == 0 || other->numel == 0 || same_elements(out, other)) {
    return diopiSuccess;
  }
  ADAPT_CHECK_ARGUMENT(dit_tensor_get_shared(out, other) != DIT_OVERLAP_YES,
                       "%s: '%.*s' overlaps another tensor of the call", dit_diopi_get_functions(NULL)[function].name,
                       length, name);
  return diopiSuccess;
}

static struct dit_scalar read_scalar(char kind, const union dit_diopi_value *value) {
  struct dit_scalar out = {DIT_SCALAR_DOUBLE, {0}};
  if (kind == 'D') {
    out.v.d = *(const double *)value->pointer;
    return out;
  }
  const diopiScalar_t *scalar = value->scalar;
  const enum dit_dtype_class klass = dit_dtype_get_class(dit_diopi_find_dtype(scalar->stype));
  if (klass == DIT_DTYPE_CLASS_FLOAT || scalar->stype == diopi_dtype_tfloat32) {
    out.v.d = scalar->fval;
  } else {
    out.kind = DIT_SCALAR_INT;
    out.v.i = scalar->ival;
  }
  return out;
}

/// Functions that write a number into a tensor refuse one that its dtype cannot hold; a wider copy would take it.
static diopiError_t check_number(int function, const union dit_diopi_value *values, int written) {
  static const char *const writers[] = {"diopiMaskedFill", "diopiIndexFill", "diopiScatter", "diopiPad"};
  const struct dit_diopi_info *info = &dit_diopi_get_functions(NULL)[function];
  const int at = adapt_find_parameter(function, "value");
  bool writes = false;
  for (size_t i = 0; i < sizeof writers / sizeof writers[0]; i++) {
    writes |= strncmp(info->name, writers[i], strlen(writers[i])) == 0;
  }
  const char kind = writes && at >= 0 ? info->kinds[at] : 0;
  if ((kind != 's' && kind != 'D') || !values[at].pointer || !values[written].tensor) {
    return diopiSuccess;
  }
  const int dtype = values[written].tensor->view.dtype;
  ADAPT_CHECK_ARGUMENT(dit_scalar_fits(read_scalar(kind, &values[at]), dtype),
                       "%s: 'value' is a number that %s cannot hold", info->name, dit_dtype_get_name(dtype));
  return diopiSuccess;
}

diopiError_t adapt_check_tensors(int function, const union dit_diopi_value *values) {
  const struct dit_diopi_info *info = &dit_diopi_get_functions(NULL)[function];
  ADAPT_CHECK_ARGUMENT(values[0].context, "%s: the context is NULL", info->name);
  for (int i = 1; info->kinds[i]; i++) {
    if (info->kinds[i] != 'o' || !values[i].tensor) {
      continue;
    }
    ADAPT_TRY(check_number(function, values, i));
    const struct dit_tensor_view *out = &values[i].tensor->view;
    int length;
    const char *name = adapt_get_name(function, i, &length);
    ADAPT_CHECK_ARGUMENT(out->numel == 0 || dit_tensor_get_repeated(out) != DIT_OVERLAP_YES,
                         "%s: elements of '%.*s' overlap each other", info->name, length, name);
    for (int k = 1; info->kinds[k]; k++) {
      if (k != i && (info->kinds[k] == 't' || info->kinds[k] == 'o') && values[k].tensor) {
        ADAPT_TRY(check_pair(function, i, out, &values[k].tensor->view));
      }
    }
  }
  return diopiSuccess;
}
