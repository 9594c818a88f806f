/// Calls as lines of text (see observe.h).
#include "observe.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dit/dtype.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;

const char *diopiGetVendorName(void) {
  return "observe";
}

const char *diopiGetImplVersion(void) {
  return DIT_VERSION_TEXT;
}

const char *diopiGetLastErrorString(void) {
  return "this library only looks: it makes no results";
}

static void put_numbers(const int64_t *numbers, int64_t count, const char *marks) {
  putc(marks[0], file);
  for (int64_t i = 0; i < count; i++) {
    fprintf(file, "%s%" PRId64, i ? "," : "", numbers[i]);
  }
  putc(marks[1], file);
}

static bool is_row_major(const struct dit_tensor_view *view) {
  int64_t step = 1;
  for (int i = view->ndim - 1; i >= 0; i--) {
    if (view->sizes[i] != 1 && view->strides[i] != step) {
      return false;
    }
    step *= view->sizes[i];
  }
  return true;
}

static void put_tensor(diopiConstTensorHandle_t tensor) {
  if (!tensor) {
    putc('-', file);
    return;
  }
  const struct dit_tensor_view *view = dit_diopi_tensor_get_view(tensor);
  fputs(dit_dtype_get_name(view->dtype), file);
  put_numbers(view->sizes, view->ndim, "[]");
  if (view->numel && !is_row_major(view)) {
    put_numbers(view->strides, view->ndim, "{}");
  }
}

static bool is_same(diopiConstTensorHandle_t a, diopiConstTensorHandle_t b) {
  const struct dit_tensor_view *x = dit_diopi_tensor_get_view(a), *y = dit_diopi_tensor_get_view(b);
  const size_t bytes = sizeof(int64_t) * (size_t)x->ndim;
  return x->data == y->data && x->numel && x->dtype == y->dtype && x->ndim == y->ndim &&
         memcmp(x->sizes, y->sizes, bytes) == 0 && memcmp(x->strides, y->strides, bytes) == 0;
}

/// Which other argument is this very tensor?
static void put_alias(const char *kinds, const union dit_diopi_value *values, int parameter) {
  for (int i = 1; values[parameter].tensor && i < parameter; i++) {
    if ((kinds[i] == 't' || kinds[i] == 'o') && values[i].tensor &&
        is_same(values[parameter].tensor, values[i].tensor)) {
      fprintf(file, "@%d", i - 1);
      return;
    }
  }
}

/// The first integer behind a list is its length.
static int64_t get_length(const char *kinds, const union dit_diopi_value *values, int parameter) {
  for (int i = parameter + 1; kinds[i]; i++) {
    if (kinds[i] == 'i') {
      return values[i].i;
    }
  }
  return 0;
}

static void put_list(diopiTensorHandle_t *tensors, int64_t count) {
  putc('(', file);
  for (int64_t i = 0; tensors && i < count; i++) {
    if (i) {
      putc(';', file);
    }
    put_tensor(tensors[i]);
  }
  putc(')', file);
}

static void put_scalar(const diopiScalar_t *scalar) {
  if (!scalar) {
    putc('-', file);
    return;
  }
  const int dtype = dit_diopi_find_dtype(scalar->stype);
  const char *name = dtype < 0 ? "?" : dit_dtype_get_name(dtype);
  const bool is_floating = scalar->stype == diopi_dtype_float16 || scalar->stype == diopi_dtype_float32 ||
                           scalar->stype == diopi_dtype_float64 || scalar->stype == diopi_dtype_bfloat16;
  if (is_floating) {
    fprintf(file, "%s:%.17g", name, scalar->fval);
  } else {
    fprintf(file, "%s:%" PRId64, name, scalar->ival);
  }
}

static void put_value(int function, const char *kinds, const union dit_diopi_value *values, int i) {
  switch (kinds[i]) {
    case 't':
    case 'o':
      put_tensor(values[i].tensor);
      put_alias(kinds, values, i);
      break;
    case 'T':
      put_list(values[i].tensors, get_length(kinds, values, i));
      break;
    case 'O':
      if (dit_diopi_is_list(function, i)) {
        put_list(values[i].tensors, get_length(kinds, values, i));
      } else {
        putc(values[i].tensors ? '?' : '-', file);
      }
      break;
    case 'f':
    case 'd':
      fprintf(file, "%.17g", values[i].d);
      break;
    case 'z':
      put_numbers(values[i].size.data, values[i].size.len, "<>");
      break;
    case 'Z':
      if (values[i].sizes) {
        put_numbers(values[i].sizes->data, values[i].sizes->len, "<>");
      } else {
        putc('-', file);
      }
      break;
    case 's':
      put_scalar(values[i].scalar);
      break;
    case 'C':
      fprintf(file, "\"%s\"", values[i].string ? values[i].string : "");
      break;
    case 'I':
      fprintf(file, values[i].ints ? "*%" PRId64 : "-", values[i].ints ? *values[i].ints : 0);
      break;
    case 'g':
      putc(values[i].generator ? 'g' : '-', file);
      break;
    case 'B':
    case 'D':
    case 'G':
    case 'p':
      putc(values[i].pointer ? '?' : '-', file);
      break;
    default:
      fprintf(file, "%" PRId64, values[i].i);
      break;
  }
}

diopiError_t observe_call(int function, const union dit_diopi_value *values) {
  const struct dit_diopi_info *info = &dit_diopi_get_functions(NULL)[function];
  bool makes_result = false;
  pthread_mutex_lock(&mutex);
  if (!file) {
    const char *path = getenv("DIT_OBSERVE_FILE");
    file = fopen(path && path[0] ? path : "/dev/null", "a");
  }
  if (file) {
    fputs(info->name, file);
  }
  for (int i = 1; info->kinds[i]; i++) {
    if (file) {
      putc(' ', file);
      put_value(function, info->kinds, values, i);
    }
    makes_result |= info->kinds[i] == 'O' && !dit_diopi_is_list(function, i);
  }
  if (file) {
    putc('\n', file);
    fflush(file);
  }
  pthread_mutex_unlock(&mutex);
  return makes_result ? diopiErrorOccurred : diopiSuccess;
}
