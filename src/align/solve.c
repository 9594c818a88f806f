/// Alignment of two sequences of keys: equal ends, then anchors (keys as frequent on one side as on the other, in the
/// longest chain that does not cross), then the gaps between them: small ones exactly, by their longest common
/// subsequence, large ones without anchors greedily.
///
/// Invariant: matches never cross. in_a, in_b and head are as dit_align_solver_init left them between any two ranges.
/// Depends on core's alloc.
#include "align/solve.h"

#include <string.h>

#include "dit/alloc.h"

enum { EXACT_CELLS = 4096, MOST_CELLS = 4 << 20, MOST_DEPTH = 8, WINDOW = 512 };

enum dit_status dit_align_solver_init(struct dit_align_solver *solver, size_t a_count, size_t b_count, size_t keys,
                                      struct dit_error *err) {
  solver->in_a = dit_calloc(keys + 1, sizeof(*solver->in_a));
  solver->in_b = dit_calloc(keys + 1, sizeof(*solver->in_b));
  solver->head = dit_malloc((keys + 1) * sizeof(*solver->head));
  solver->next = dit_malloc((b_count + 1) * sizeof(*solver->next));
  solver->partner = dit_malloc((a_count + 1) * sizeof(*solver->partner));
  solver->tails = dit_malloc((a_count + 1) * sizeof(*solver->tails));
  solver->previous = dit_malloc((a_count + 1) * sizeof(*solver->previous));
  if (!solver->in_a || !solver->in_b || !solver->head || !solver->next || !solver->partner || !solver->tails ||
      !solver->previous) {
    dit_align_solver_reset(solver);
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory to align %zu and %zu calls", a_count, b_count);
  }
  memset(solver->head, 0xFF, (keys + 1) * sizeof(*solver->head));
  return DIT_OK;
}

void dit_align_solver_reset(struct dit_align_solver *solver) {
  dit_free(solver->in_a);
  dit_free(solver->in_b);
  dit_free(solver->head);
  dit_free(solver->next);
  dit_free(solver->partner);
  dit_free(solver->tails);
  dit_free(solver->previous);
  dit_free(solver->cells);
  *solver = (struct dit_align_solver){0};
}

// Anchors

// partner[i] of every key that is as frequent in a as in b: the occurrence with the same number; else -1.
static size_t partners_find(struct dit_align_solver *solver, const struct dit_align_range *range) {
  size_t found = 0;
  for (size_t i = range->a_begin; i < range->a_end; i++) {
    solver->in_a[solver->a[i]]++;
  }
  for (size_t j = range->b_end; j-- > range->b_begin;) {
    uint32_t key = solver->b[j];
    solver->in_b[key]++;
    solver->next[j] = solver->head[key];
    solver->head[key] = (int32_t)j;
  }
  for (size_t i = range->a_begin; i < range->a_end; i++) {
    uint32_t key = solver->a[i];
    solver->partner[i] = -1;
    if (solver->in_a[key] == solver->in_b[key]) {
      solver->partner[i] = solver->head[key];
      solver->head[key] = solver->next[solver->head[key]];
      found++;
    }
  }
  for (size_t i = range->a_begin; i < range->a_end; i++) {
    solver->in_a[solver->a[i]] = 0;
  }
  for (size_t j = range->b_begin; j < range->b_end; j++) {
    solver->in_b[solver->b[j]] = 0;
    solver->head[solver->b[j]] = -1;
  }
  return found;
}

// The longest chain of partners that increases; partner is -1 for those outside it.
static void chain_keep(struct dit_align_solver *solver, const struct dit_align_range *range) {
  size_t length = 0;
  for (size_t i = range->a_begin; i < range->a_end; i++) {
    int32_t value = solver->partner[i];
    if (value < 0) {
      continue;
    }
    size_t low = 0, high = length;
    while (low < high) {
      size_t middle = (low + high) / 2;
      if (solver->partner[solver->tails[middle]] < value) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    solver->previous[i] = low > 0 ? solver->tails[low - 1] : -1;
    solver->tails[low] = (int32_t)i;
    length = low == length ? length + 1 : length;
  }
  int32_t kept = length > 0 ? solver->tails[length - 1] : -1;
  for (size_t i = range->a_end; i-- > range->a_begin;) {
    if ((int32_t)i == kept) {
      kept = solver->previous[i];
    } else {
      solver->partner[i] = -1;
    }
  }
}

// Gaps

static enum dit_status solve_exactly(struct dit_align_solver *solver, const struct dit_align_range *range,
                                     struct dit_error *err) {
  size_t rows = range->a_end - range->a_begin, columns = range->b_end - range->b_begin, width = columns + 1;
  if (!solver->cells) {
    solver->cells = dit_malloc(((size_t)MOST_CELLS * 2 + 2) * sizeof(*solver->cells));
    if (!solver->cells) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no memory to align %zu and %zu calls", rows, columns);
    }
  }
  const uint32_t *a = solver->a + range->a_begin, *b = solver->b + range->b_begin;
  uint16_t *cells = solver->cells;  // cells[i * width + j]: common to a[i...] and b[j...]
  memset(cells + rows * width, 0, width * sizeof(*cells));
  for (size_t i = rows; i-- > 0;) {
    uint16_t *row = cells + i * width, *below = row + width;
    row[columns] = 0;
    for (size_t j = columns; j-- > 0;) {
      uint16_t best = below[j] > row[j + 1] ? below[j] : row[j + 1];
      row[j] = a[i] == b[j] ? (uint16_t)(below[j + 1] + 1) : best;
    }
  }
  for (size_t i = 0, j = 0; i < rows && j < columns;) {
    if (a[i] == b[j]) {
      solver->match[range->a_begin + i++] = (int32_t)(range->b_begin + j++);
    } else if (cells[(i + 1) * width + j] >= cells[i * width + j + 1]) {
      i++;
    } else {
      j++;
    }
  }
  return DIT_OK;
}

static void solve_greedily(struct dit_align_solver *solver, const struct dit_align_range *range) {
  size_t j = range->b_begin;
  for (size_t i = range->a_begin; i < range->a_end && j < range->b_end; i++) {
    size_t end = range->b_end - j < WINDOW ? range->b_end : j + WINDOW;
    for (size_t k = j; k < end; k++) {
      if (solver->a[i] == solver->b[k]) {
        solver->match[i] = (int32_t)k;
        j = k + 1;
        break;
      }
    }
  }
}

static void ends_match(struct dit_align_solver *solver, struct dit_align_range *range) {
  while (range->a_begin < range->a_end && range->b_begin < range->b_end &&
         solver->a[range->a_begin] == solver->b[range->b_begin]) {
    solver->match[range->a_begin++] = (int32_t)range->b_begin++;
  }
  while (range->a_begin < range->a_end && range->b_begin < range->b_end &&
         solver->a[range->a_end - 1] == solver->b[range->b_end - 1]) {
    solver->match[--range->a_end] = (int32_t)--range->b_end;
  }
}

static enum dit_status solve(struct dit_align_solver *solver, struct dit_align_range range, int depth,
                             struct dit_error *err);

// The anchors of the range are matches; what lies between them is solved in turn.
static enum dit_status gaps_solve(struct dit_align_solver *solver, const struct dit_align_range *range, int depth,
                                  struct dit_error *err) {
  for (size_t i = range->a_begin; i < range->a_end; i++) {
    if (solver->partner[i] >= 0) {
      solver->match[i] = solver->partner[i];
    }
  }
  struct dit_align_range gap = {range->a_begin, range->a_begin, range->b_begin, range->b_begin};
  for (; gap.a_end <= range->a_end; gap.a_end++) {
    bool last = gap.a_end == range->a_end;
    if (!last && solver->match[gap.a_end] < 0) {
      continue;
    }
    gap.b_end = last ? range->b_end : (size_t)solver->match[gap.a_end];
    DIT_RETURN_IF_NOT_OK(solve(solver, gap, depth + 1, err));
    gap.a_begin = gap.a_end + 1;
    gap.b_begin = gap.b_end + 1;
  }
  return DIT_OK;
}

static enum dit_status solve(struct dit_align_solver *solver, struct dit_align_range range, int depth,
                             struct dit_error *err) {
  ends_match(solver, &range);
  size_t rows = range.a_end - range.a_begin, columns = range.b_end - range.b_begin;
  if (rows == 0 || columns == 0) {
    return DIT_OK;
  }
  if (rows <= EXACT_CELLS && columns <= EXACT_CELLS / rows) {
    return solve_exactly(solver, &range, err);
  }
  if (depth < MOST_DEPTH && partners_find(solver, &range) > 0) {
    chain_keep(solver, &range);
    return gaps_solve(solver, &range, depth, err);
  }
  if (rows <= MOST_CELLS && columns <= MOST_CELLS / rows) {
    return solve_exactly(solver, &range, err);
  }
  solve_greedily(solver, &range);
  return DIT_OK;
}

enum dit_status dit_align_solver_run(struct dit_align_solver *solver, struct dit_align_range range,
                                     struct dit_error *err) {
  return solve(solver, range, 0, err);
}

enum dit_status dit_align_sequences(const uint32_t *a, size_t a_count, const uint32_t *b, size_t b_count, size_t keys,
                                    int32_t *match, struct dit_error *err) {
  struct dit_align_solver solver = {0};
  DIT_RETURN_IF_NOT_OK(dit_align_solver_init(&solver, a_count, b_count, keys, err));
  solver.a = a;
  solver.b = b;
  solver.match = match;
  for (size_t i = 0; i < a_count; i++) {
    match[i] = -1;
  }
  enum dit_status status = dit_align_solver_run(&solver, (struct dit_align_range){0, a_count, 0, b_count}, err);
  dit_align_solver_reset(&solver);
  return status;
}
