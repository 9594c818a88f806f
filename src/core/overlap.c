/// Overlap of strided tensors by search (see dit/tensor.h). Depends on shape.c.
#include <stdlib.h>

#include "dit/tensor.h"

#define MAX_TERMS 130
#define MAX_STEPS 20000

/// Is there a solution of: sum of factor * x = target, 0 <= x <= limit for each term? Factors are positive.
struct equation {
  struct term {
    int64_t factor, limit;
  } terms[MAX_TERMS];
  int64_t rest[MAX_TERMS + 1];  ///< the most that the terms from here on can give
  int64_t target;
  int count, steps;
};

static bool add_term(struct equation *equation, int64_t factor, int64_t limit) {
  if (limit <= 0 || factor == 0) {
    return true;
  }
  for (int i = 0; i < equation->count; i++) {
    if (equation->terms[i].factor == factor) {
      equation->terms[i].limit += limit;
      return true;
    }
  }
  if (equation->count == MAX_TERMS) {
    return false;
  }
  equation->terms[equation->count++] = (struct term){factor, limit};
  return true;
}

static int compare_terms(const void *a, const void *b) {
  const int64_t left = ((const struct term *)a)->factor, right = ((const struct term *)b)->factor;
  return (left < right) - (left > right);
}

static enum dit_overlap search(struct equation *equation, int at, int64_t target) {
  if (target < 0 || target > equation->rest[at]) {
    return DIT_OVERLAP_NO;
  }
  if (target == 0) {
    return DIT_OVERLAP_YES;
  }
  const struct term *term = &equation->terms[at];
  const int64_t most = target / term->factor < term->limit ? target / term->factor : term->limit;
  for (int64_t x = most; x >= 0 && target - x * term->factor <= equation->rest[at + 1]; x--) {
    if (++equation->steps > MAX_STEPS) {
      return DIT_OVERLAP_UNKNOWN;
    }
    const enum dit_overlap found = search(equation, at + 1, target - x * term->factor);
    if (found != DIT_OVERLAP_NO) {
      return found;
    }
  }
  return DIT_OVERLAP_NO;
}

static enum dit_overlap solve(struct equation *equation) {
  qsort(equation->terms, (size_t)equation->count, sizeof equation->terms[0], compare_terms);
  equation->rest[equation->count] = 0;
  for (int i = equation->count - 1; i >= 0; i--) {
    equation->rest[i] = equation->rest[i + 1] + equation->terms[i].factor * equation->terms[i].limit;
  }
  equation->steps = 0;
  return search(equation, 0, equation->target);
}

/// Address of a tensor's first byte, and its dimensions as terms. Subtracted ones count from their end, so that all
/// factors are positive.
static bool add_tensor(struct equation *equation, const struct dit_tensor_view *view, bool subtract) {
  const int64_t width = (int64_t)dit_dtype_get_size(view->dtype);
  for (int i = 0; i < view->ndim; i++) {
    const int64_t step = view->strides[i] * width, limit = view->sizes[i] - 1;
    equation->target += subtract ? (step > 0 ? step * limit : 0) : (step < 0 ? -step * limit : 0);
    if (!add_term(equation, step < 0 ? -step : step, limit)) {
      return false;
    }
  }
  return true;
}

enum dit_overlap dit_tensor_get_shared(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  struct equation equation = {.count = 0};
  if (a->numel == 0 || b->numel == 0) {
    return DIT_OVERLAP_NO;
  }
  const int64_t widths[2] = {(int64_t)dit_dtype_get_size(a->dtype), (int64_t)dit_dtype_get_size(b->dtype)};
  // address of a + byte in its element = address of b + byte in its element
  equation.target = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data) + widths[1] - 1;
  if (!add_tensor(&equation, a, false) || !add_tensor(&equation, b, true) ||
      !add_term(&equation, 1, widths[0] + widths[1] - 2)) {
    return DIT_OVERLAP_UNKNOWN;
  }
  return solve(&equation);
}

enum dit_overlap dit_tensor_get_repeated(const struct dit_tensor_view *view) {
  struct term dims[MAX_TERMS];
  int count = 0;
  if (view->numel < 2) {
    return DIT_OVERLAP_NO;
  }
  for (int i = 0; i < view->ndim; i++) {
    if (view->sizes[i] > 1 && view->strides[i] == 0) {
      return DIT_OVERLAP_YES;
    }
    if (view->sizes[i] > 1 && count == MAX_TERMS) {
      return DIT_OVERLAP_UNKNOWN;
    }
    if (view->sizes[i] > 1) {
      dims[count++] = (struct term){view->strides[i] < 0 ? -view->strides[i] : view->strides[i], view->sizes[i] - 1};
    }
  }
  qsort(dims, (size_t)count, sizeof dims[0], compare_terms);
  // Two indices that differ first in dimension k, by at least 1; the later ones differ by anything.
  for (int k = 0; k < count; k++) {
    struct equation equation = {.target = -dims[k].factor};
    bool fits = add_term(&equation, dims[k].factor, dims[k].limit - 1);
    for (int i = k + 1; i < count; i++) {
      equation.target += dims[i].factor * dims[i].limit;
      fits = fits && add_term(&equation, dims[i].factor, 2 * dims[i].limit);
    }
    const enum dit_overlap found = fits ? solve(&equation) : DIT_OVERLAP_UNKNOWN;
    if (found != DIT_OVERLAP_NO) {
      return found;
    }
  }
  return DIT_OVERLAP_NO;
}
