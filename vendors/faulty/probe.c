/// Which kinds of fault would act on a call? One sound call answers for all that are asked for.
///
/// What a mistake does before the call is tried on a state of its own and forgotten; what it does after the call is
/// tried on the sound results, which are put back. Kinds that remember calls, that meet in threads, that write into
/// inputs or that are no mistakes are not tried: they count as acting, and a real call tells.
#include <stdlib.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/memory.h"
#include "mistake.h"
#include "mistake_acts.h"

/// What stays the same for all kinds of one call.
struct probe {
  int function;
  struct faulty_tensors before, after;
  struct faulty_state start;            ///< the arguments, and outputs as they were
  char *sound[FAULTY_TENSORS];          ///< results
  char *others[FAULTY_TENSORS];         ///< for outputs as they were: bytes that differ from the results
  uint64_t offsets[FAULTY_PARAMETERS];  ///< of generators after the call
};

static bool is_tried(int kind) {
  mistake_act *alter, *damage;
  if (kind < FAULTY_MISTAKES || kind >= FAULTY_MISTAKES + MISTAKE_error_swallowed) {
    return false;
  }
  alter = mistakes[kind - FAULTY_MISTAKES].alter;
  damage = mistakes[kind - FAULTY_MISTAKES].damage;
  return alter != alter_clear && alter != alter_stale && damage != damage_stale_size && damage != damage_scratch &&
         damage != damage_context;
}

static struct mistake_call make_call(const struct probe *probe, int kind, const struct faulty_tensors *tensors,
                                     struct faulty_state *state) {
  const struct dit_diopi_info *info = &dit_diopi_get_functions(NULL)[probe->function];
  return (struct mistake_call){
      &mistakes[kind - FAULTY_MISTAKES], probe->function, info->name, info->kinds, info->names, tensors, state};
}

static char *gather(const struct dit_tensor_view *view) {
  char *memory = view->numel > 0 ? dit_malloc((size_t)view->numel * dit_dtype_get_size(view->dtype) + 16) : NULL;
  if (memory) {
    dit_tensor_gather(view, memory);
  }
  return memory;
}

static void note_start(struct probe *probe, const union dit_diopi_value *values) {
  const char *kinds = dit_diopi_get_functions(NULL)[probe->function].kinds;
  memcpy(probe->start.values, values, sizeof(values[0]) * strlen(kinds));
  for (int i = 0; i < probe->before.output_count; i++) {
    probe->start.saved[i] = gather(&probe->before.outputs[i]);
  }
  for (int i = 0; kinds[i]; i++) {
    if (kinds[i] == 'g' && values[i].generator) {
      probe->start.offset = values[i].generator->offset;
    }
  }
}

static void note_results(struct probe *probe, const union dit_diopi_value *values) {
  const char *kinds = dit_diopi_get_functions(NULL)[probe->function].kinds;
  for (int i = 0; i < probe->after.output_count; i++) {
    probe->sound[i] = gather(&probe->after.outputs[i]);
  }
  for (int i = 0; i < probe->before.output_count; i++) {
    const struct dit_tensor_view *view = &probe->before.outputs[i];
    probe->others[i] = gather(view);
    for (size_t k = 0; probe->others[i] && k < (size_t)view->numel * dit_dtype_get_size(view->dtype); k++) {
      probe->others[i][k] = (char)~probe->others[i][k];
    }
  }
  for (int i = 0; kinds[i]; i++) {
    probe->offsets[i] = kinds[i] == 'g' && values[i].generator ? values[i].generator->offset : 0;
  }
}

static void restore(const struct probe *probe, const union dit_diopi_value *values) {
  const char *kinds = dit_diopi_get_functions(NULL)[probe->function].kinds;
  for (int i = 0; i < probe->after.output_count; i++) {
    if (probe->sound[i]) {
      dit_tensor_scatter(&probe->after.outputs[i], probe->sound[i]);
    }
  }
  for (int i = 0; kinds[i]; i++) {
    if (kinds[i] == 'g' && values[i].generator) {
      values[i].generator->offset = probe->offsets[i];
    }
  }
}

/// Would the kind change the arguments? The state is thrown away, and with it what was changed.
static bool alters(const struct probe *probe, int kind, struct faulty_state *state) {
  mistake_act *alter = mistakes[kind - FAULTY_MISTAKES].alter;
  if (!alter || alter == mistake_save) {
    return false;
  }
  *state = probe->start;
  struct mistake_call call = make_call(probe, kind, &probe->before, state);
  const bool acted = alter(&call);
  memset(state->saved, 0, sizeof state->saved);  // they belong to the start
  faulty_release(state);
  return acted;
}

static bool damages(const struct probe *probe, int kind, struct faulty_state *state,
                    const union dit_diopi_value *values) {
  const struct mistake *mistake = &mistakes[kind - FAULTY_MISTAKES];
  bool acted = false;
  // outputs may have held what the results are, which a second call finds out by filling them otherwise
  for (int pass = 0; mistake->damage && !acted && pass < (mistake->alter == mistake_save ? 2 : 1); pass++) {
    *state = probe->start;
    if (pass) {
      memcpy(state->saved, probe->others, sizeof state->saved);
    }
    struct mistake_call call = make_call(probe, kind, &probe->after, state);
    acted = mistake->damage(&call);
    for (int i = 0; i < FAULTY_TENSORS; i++) {  // what is not of the probe was made on the way
      dit_free(state->saved[i] == (pass ? probe->others : probe->start.saved)[i] ? NULL : state->saved[i]);
    }
  }
  if (acted) {
    restore(probe, values);
  }
  return acted;
}

static void release(struct probe *probe) {
  for (int i = 0; i < FAULTY_TENSORS; i++) {
    dit_free(probe->start.saved[i]);
    dit_free(probe->sound[i]);
    dit_free(probe->others[i]);
  }
}

diopiError_t faulty_probe_call(int function, const union dit_diopi_value *values, unsigned char *table) {
  struct probe *probe = dit_calloc(1, sizeof *probe);
  struct faulty_state *state = dit_calloc(1, sizeof *state);
  const int count = probe && state ? dit_faulty_count_kinds() : 0;
  diopiError_t code = diopiErrorOccurred;
  if (count) {
    probe->function = function;
    faulty_collect(function, values, false, &probe->before);
    faulty_wait(values[0].context);
    dit_memory_access_begin();
    note_start(probe, values);
    for (int kind = 0; kind < count; kind++) {
      if (table[kind] == FAULTY_ASKED && (!is_tried(kind) || alters(probe, kind, state))) {
        table[kind] = FAULTY_WOULD_ACT;
      }
    }
    dit_memory_access_end();
    code = faulty_forward(function, values);
  }
  if (code == diopiSuccess) {
    faulty_wait(values[0].context);
    faulty_collect(function, values, true, &probe->after);
    dit_memory_access_begin();
    note_results(probe, values);
    for (int kind = 0; kind < count; kind++) {
      if (table[kind] == FAULTY_ASKED && damages(probe, kind, state, values)) {
        table[kind] = FAULTY_WOULD_ACT;
      }
    }
    dit_memory_access_end();
  }
  if (probe) {
    release(probe);
  }
  dit_free(probe);
  dit_free(state);
  return code;
}
