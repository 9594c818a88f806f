/// What the opaque device lacks, as DITORCH_OPAQUE_MISSING says: words separated by commas.
///
///   diopiAdd, diopi*Backward   functions of the standard, by name or with * for any letters
///   kernel:copy, kernel:*      kernels of dit/kernel.h
///   dtype:bfloat16             no function or kernel takes tensors of this dtype
///   layout:strided             nor tensors of this layout: strided, channels_last
///
/// A word that names nothing is an error, with the nearest name. Depends on libdit's options, dtypes and the list of
/// the standard.
#include <fnmatch.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/edit_distance.h"
#include "dit/diopi.h"
#include "dit/options.h"
#include "opaque.h"

#define MAX_WORD 96

static const char *const kernel_names[] = {
    "copy", "lstm_cell", "lstm_cell_backward", "gru_cell", "gru_cell_backward", "histogram", "fold", "bitwise_xor"};
enum { KERNEL_COUNT = sizeof kernel_names / sizeof kernel_names[0] };
static const struct {
  const char *name;
  uint32_t bit;
} layouts[] = {{"strided", diopiExtStrided}, {"channels_last", diopiExtChannelsLast}};

static struct {
  bool functions[DIT_DIOPI_COUNT], kernels[KERNEL_COUNT];
  uint64_t dtypes;
  uint32_t layouts;
} missing;

/// Nearest of several names so far.
struct nearest {
  const char *name;
  int distance;
};

static void consider(struct nearest *nearest, const char *wanted, const char *name) {
  const int distance = dit_edit_distance_get(wanted, name);
  if (distance < nearest->distance) {
    *nearest = (struct nearest){name, distance};
  }
}

static bool take_functions(const char *word, struct nearest *nearest) {
  int count;
  bool found = false;
  const struct dit_diopi_info *infos = dit_diopi_get_functions(&count);
  for (int i = 0; i < count; i++) {
    if (infos[i].kinds[0] && fnmatch(word, infos[i].name, 0) == 0) {
      missing.functions[i] = found = true;
    } else {
      consider(nearest, word, infos[i].name);
    }
  }
  return found;
}

static bool take_kernels(const char *word, struct nearest *nearest) {
  bool found = false;
  for (int i = 0; i < KERNEL_COUNT; i++) {
    if (fnmatch(word, kernel_names[i], 0) == 0) {
      missing.kernels[i] = found = true;
    } else {
      consider(nearest, word, kernel_names[i]);
    }
  }
  return found;
}

static bool take_dtype(const char *word, struct nearest *nearest) {
  for (int dtype = 0; dtype < DIT_DTYPE_COUNT; dtype++) {
    const char *name = dit_dtype_is_valid(dtype) ? dit_dtype_get_name(dtype) : NULL;
    if (name && strcmp(word, name) == 0) {
      missing.dtypes |= UINT64_C(1) << dtype;
      return true;
    }
    if (name) {
      consider(nearest, word, name);
    }
  }
  return false;
}

static bool take_layout(const char *word, struct nearest *nearest) {
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
    if (strcmp(word, layouts[i].name) == 0) {
      missing.layouts |= layouts[i].bit;
      return true;
    }
    consider(nearest, word, layouts[i].name);
  }
  return false;
}

static enum dit_status take_word(const char *text, size_t length, struct dit_error *err) {
  static const struct {
    const char *prefix;
    bool (*take)(const char *word, struct nearest *nearest);
  } kinds[] = {{"kernel:", take_kernels}, {"dtype:", take_dtype}, {"layout:", take_layout}, {"", take_functions}};
  char word[MAX_WORD];
  snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), text);
  struct nearest nearest = {"", INT_MAX};
  size_t kind = 0;
  while (strncmp(word, kinds[kind].prefix, strlen(kinds[kind].prefix)) != 0) {
    kind++;
  }
  const size_t skip = strlen(kinds[kind].prefix);
  if (length < sizeof word && kinds[kind].take(word + skip, &nearest)) {
    return DIT_OK;
  }
  return dit_error_set(err, DIT_ERR_INVALID,
                       "DITORCH_OPAQUE_MISSING has '%s', which names nothing; did you mean '%s%s'? Valid: functions "
                       "of the standard (diopiAdd, diopi*Backward), kernel:NAME, dtype:NAME, layout:NAME",
                       word, kinds[kind].prefix, nearest.name);
}

enum dit_status opaque_missing_init(struct dit_error *err) {
  const int index = dit_option_find("opaque_missing");
  const char *text = index >= 0 ? dit_option_get_text(index) : "";
  memset(&missing, 0, sizeof missing);
  while (*text) {
    const size_t length = strcspn(text, ",");
    DIT_RETURN_IF_NOT_OK(take_word(text, length, err));
    text += length + (text[length] == ',');
  }
  return DIT_OK;
}

bool dit_opaque_is_missing(int function) {
  return missing.functions[function];
}

void dit_opaque_get_missing(uint64_t *dtypes, uint32_t *bits) {
  *dtypes = missing.dtypes;
  *bits = missing.layouts;
}

bool opaque_is_kernel_missing(const char *name) {
  for (int i = 0; i < KERNEL_COUNT; i++) {
    if (strcmp(name, kernel_names[i]) == 0) {
      return missing.kernels[i];
    }
  }
  return false;
}

bool dit_opaque_lacks(const struct dit_tensor_view *view, bool *dtype) {
  *dtype = view->dtype >= 0 && view->dtype < 64 && (missing.dtypes >> view->dtype & 1) != 0;
  if (*dtype || missing.layouts == 0 || dit_shape_is_contiguous(view->ndim, view->sizes, view->strides)) {
    return *dtype;
  }
  const bool dense = dit_shape_is_dense(view->ndim, view->sizes, view->strides);
  return (missing.layouts & (dense ? diopiExtChannelsLast : diopiExtStrided)) != 0;
}
