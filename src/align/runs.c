/// Two runs against each other, step by step: by keys that say much first (module, operator, shapes), then in the gaps
/// that stay by keys that say less, at last what only changed its place.
///
/// The gradient of a recomputed call is that of the call itself; the recomputation is one run's own. Depends on solve.
#include <string.h>

#include "align/solve.h"
#include "dit/alloc.h"

enum { LEVELS = 3 };

struct key {
  uint32_t module, name, shape, flags;
};

struct pairing {
  const struct dit_align_run *a, *b;
  struct dit_align_names *names, *keys;
  uint32_t *a_keys, *b_keys;
  int32_t *match;    // of a
  int32_t *matched;  // of b
  bool *moved;       // of a
  struct dit_align_solver solver;
  struct dit_error *err;
};

static enum dit_status leaf_take(struct dit_align_names *names, uint32_t module, uint32_t *leaf,
                                 struct dit_error *err) {
  char text[256];
  struct dit_record_text path = dit_align_names_get(names, module);
  size_t at = path.size;
  while (at > 0 && path.data[at - 1] != '.') {
    at--;
  }
  size_t size = path.size - at < sizeof(text) ? path.size - at : sizeof(text);
  memcpy(text, path.data + at, size);  // taking a name may move the others
  return dit_align_names_take(names, text, size, leaf, err);
}

static enum dit_status keys_make(struct pairing *pairing, const struct dit_align_run *run, int level, uint32_t *keys) {
  uint32_t module = 0, leaf = 0;
  for (size_t i = 0; i < run->count; i++) {
    const struct dit_align_call *call = &run->calls[i];
    struct key key = {call->plain_module, call->name, level == 0 ? call->shape : 0, call->flags};
    key.flags &= key.flags & DIT_ALIGN_BACKWARD ? DIT_ALIGN_BACKWARD : DIT_ALIGN_RECOMPUTE;
    key.flags |= (uint32_t)call->round << 8 | (uint32_t)level << 30;
    if (level == LEVELS - 1 && key.module) {
      if (key.module != module) {
        module = key.module;
        DIT_RETURN_IF_NOT_OK(leaf_take(pairing->names, module, &leaf, pairing->err));
      }
      key.module = leaf;
    }
    DIT_RETURN_IF_NOT_OK(dit_align_names_take(pairing->keys, &key, sizeof(key), &keys[i], pairing->err));
  }
  return DIT_OK;
}

static size_t step_end(const struct dit_align_run *run, size_t begin) {
  size_t end = begin + 1;
  while (end < run->count && run->calls[end].step == run->calls[begin].step) {
    end++;
  }
  return end;
}

// Call `visit` with every step that both runs have.
static enum dit_status steps_visit(struct pairing *pairing,
                                   enum dit_status (*visit)(struct pairing *, struct dit_align_range)) {
  const struct dit_align_run *a = pairing->a, *b = pairing->b;
  for (size_t i = 0, j = 0; i < a->count && j < b->count;) {
    size_t i_end = step_end(a, i), j_end = step_end(b, j);
    int64_t left = a->calls[i].step, right = b->calls[j].step;
    if (left == right) {
      DIT_RETURN_IF_NOT_OK(visit(pairing, (struct dit_align_range){i, i_end, j, j_end}));
    }
    i = left <= right ? i_end : i;
    j = right <= left ? j_end : j;
  }
  return DIT_OK;
}

// Solve what lies between the matches that are there.
static enum dit_status gaps_solve(struct pairing *pairing, struct dit_align_range range) {
  struct dit_align_range gap = {range.a_begin, range.a_begin, range.b_begin, range.b_begin};
  for (; gap.a_end <= range.a_end; gap.a_end++) {
    bool last = gap.a_end == range.a_end;
    if (!last && pairing->match[gap.a_end] < 0) {
      continue;
    }
    gap.b_end = last ? range.b_end : (size_t)pairing->match[gap.a_end];
    DIT_RETURN_IF_NOT_OK(dit_align_solver_run(&pairing->solver, gap, pairing->err));
    gap.a_begin = gap.a_end + 1;
    gap.b_begin = gap.b_end + 1;
  }
  return DIT_OK;
}

// Calls that stayed alone although the other run has as many of the same: they stand at another place there.
static enum dit_status moved_pair(struct pairing *pairing, struct dit_align_range range) {
  struct dit_align_solver *solver = &pairing->solver;
  for (size_t i = range.a_begin; i < range.a_end; i++) {
    solver->in_a[pairing->a_keys[i]] += pairing->match[i] < 0;
  }
  for (size_t j = range.b_end; j-- > range.b_begin;) {
    uint32_t key = pairing->b_keys[j];
    if (pairing->matched[j] < 0) {
      solver->in_b[key]++;
      solver->next[j] = solver->head[key];
      solver->head[key] = (int32_t)j;
    }
  }
  for (size_t i = range.a_begin; i < range.a_end; i++) {
    uint32_t key = pairing->a_keys[i];
    if (pairing->match[i] < 0 && solver->in_a[key] == solver->in_b[key]) {
      int32_t j = solver->head[key];
      solver->head[key] = solver->next[j];
      pairing->match[i] = j;
      pairing->matched[j] = (int32_t)i;
      pairing->moved[i] = true;
    }
  }
  for (size_t i = range.a_begin; i < range.a_end; i++) {
    solver->in_a[pairing->a_keys[i]] = 0;
  }
  for (size_t j = range.b_begin; j < range.b_end; j++) {
    solver->in_b[pairing->b_keys[j]] = 0;
    solver->head[pairing->b_keys[j]] = -1;
  }
  return DIT_OK;
}

static enum dit_status level_run(struct pairing *pairing, int level,
                                 enum dit_status (*visit)(struct pairing *, struct dit_align_range)) {
  DIT_RETURN_IF_NOT_OK(keys_make(pairing, pairing->a, level, pairing->a_keys));
  DIT_RETURN_IF_NOT_OK(keys_make(pairing, pairing->b, level, pairing->b_keys));
  dit_align_solver_reset(&pairing->solver);
  DIT_RETURN_IF_NOT_OK(dit_align_solver_init(&pairing->solver, pairing->a->count, pairing->b->count,
                                             dit_align_names_get_count(pairing->keys) + 1, pairing->err));
  pairing->solver.a = pairing->a_keys;
  pairing->solver.b = pairing->b_keys;
  pairing->solver.match = pairing->match;
  return steps_visit(pairing, visit);
}

// Both runs' calls in one order: up to the next pair in order, what stands before it in a, then in b.
static size_t script_write(const struct pairing *pairing, struct dit_align_pair *pairs) {
  const struct dit_align_run *a = pairing->a, *b = pairing->b;
  size_t count = 0;
  for (size_t i = 0, j = 0; i < a->count || j < b->count;) {
    bool a_alone = i < a->count && (pairing->match[i] < 0 || pairing->moved[i]);
    bool b_alone = j < b->count && (pairing->matched[j] < 0 || pairing->moved[pairing->matched[j]]);
    bool b_before = b_alone && (i == a->count || b->calls[j].step < a->calls[i].step);
    bool a_before = a_alone && (j == b->count || a->calls[i].step <= b->calls[j].step);
    if (a_before && !b_before) {
      pairs[count++] = (struct dit_align_pair){(int32_t)i, pairing->match[i], pairing->moved[i]};
      i++;
    } else if (b_alone) {
      if (pairing->matched[j] < 0) {
        pairs[count++] = (struct dit_align_pair){-1, (int32_t)j, false};
      }
      j++;
    } else if (a_alone) {
      pairs[count++] = (struct dit_align_pair){(int32_t)i, pairing->match[i], pairing->moved[i]};
      i++;
    } else {
      pairs[count++] = (struct dit_align_pair){(int32_t)i++, (int32_t)j++, false};
    }
  }
  return count;
}

static enum dit_status pairing_run(struct pairing *pairing) {
  for (int level = 0; level < LEVELS; level++) {
    DIT_RETURN_IF_NOT_OK(level_run(pairing, level, gaps_solve));
  }
  for (size_t i = 0; i < pairing->a->count; i++) {
    if (pairing->match[i] >= 0) {
      pairing->matched[pairing->match[i]] = (int32_t)i;
    }
  }
  DIT_RETURN_IF_NOT_OK(level_run(pairing, 0, moved_pair));
  return level_run(pairing, 1, moved_pair);
}

static bool pairing_init(struct pairing *pairing) {
  size_t a = pairing->a->count + 1, b = pairing->b->count + 1;
  pairing->a_keys = dit_calloc(a, sizeof(*pairing->a_keys));
  pairing->b_keys = dit_calloc(b, sizeof(*pairing->b_keys));
  pairing->match = dit_malloc(a * sizeof(*pairing->match));
  pairing->matched = dit_malloc(b * sizeof(*pairing->matched));
  pairing->moved = dit_calloc(a, sizeof(*pairing->moved));
  if (!pairing->a_keys || !pairing->b_keys || !pairing->match || !pairing->matched || !pairing->moved) {
    return false;
  }
  memset(pairing->match, 0xFF, a * sizeof(*pairing->match));
  memset(pairing->matched, 0xFF, b * sizeof(*pairing->matched));
  return true;
}

static void pairing_reset(struct pairing *pairing) {
  dit_free(pairing->a_keys);
  dit_free(pairing->b_keys);
  dit_free(pairing->match);
  dit_free(pairing->matched);
  dit_free(pairing->moved);
  dit_align_names_destroy(pairing->keys);
  dit_align_solver_reset(&pairing->solver);
}

enum dit_status dit_align_runs(const struct dit_align_run *a, const struct dit_align_run *b,
                               struct dit_align_names *names, struct dit_align_pair **out, size_t *count,
                               struct dit_error *err) {
  struct pairing pairing = {.a = a, .b = b, .names = names, .err = err};
  struct dit_align_pair *pairs = NULL;
  enum dit_status status = dit_align_names_create(&pairing.keys, err);
  if (status == DIT_OK && !pairing_init(&pairing)) {
    status = dit_error_set(err, DIT_ERR_NOMEM, "no memory to align %zu and %zu calls", a->count, b->count);
  }
  if (status == DIT_OK) {
    status = pairing_run(&pairing);
  }
  if (status == DIT_OK && !(pairs = dit_malloc((a->count + b->count + 1) * sizeof(*pairs)))) {
    status = dit_error_set(err, DIT_ERR_NOMEM, "no memory to align %zu and %zu calls", a->count, b->count);
  }
  if (status == DIT_OK) {
    *count = script_write(&pairing, pairs);
    *out = pairs;
  }
  pairing_reset(&pairing);
  return status;
}
