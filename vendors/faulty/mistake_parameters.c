/// What mistakes do to the parameters of a call: dims, scalars, flags, sizes.
#include <math.h>
#include <string.h>

#include "mistake_acts.h"

static diopiConstTensorHandle_t get_first_input(const struct mistake_call *call) {
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; call->kinds[i]; i++) {
      const union dit_diopi_value *value = &call->state->values[i];
      if (call->kinds[i] == (pass ? 'o' : 't') && value->tensor) {
        return value->tensor;
      }
      if (!pass && call->kinds[i] == 'T' && value->tensors && value->tensors[0]) {
        return value->tensors[0];
      }
    }
  }
  return NULL;
}

#define DIM_NAMES "dim axis dim0 dim1 dim2 dims begin_norm_axis"

/// Every dim that is a plain number: *value = change(*value, number of dimensions).
static bool change_dims(struct mistake_call *call, int64_t (*change)(int64_t dim, int64_t rank)) {
  const diopiConstTensorHandle_t input = get_first_input(call);
  const int64_t rank = input ? input->view.ndim : 0;
  bool acted = false;
  for (int i = 0; rank > 1 && call->kinds[i]; i++) {
    union dit_diopi_value *value = &call->state->values[i];
    if (!mistake_is_named(call, i, DIM_NAMES)) {
      continue;
    }
    if (call->kinds[i] == 'i') {
      const int64_t next = change(value->i, rank);
      acted |= next != value->i;
      value->i = next;
    } else if (call->kinds[i] == 'I' && value->ints) {
      call->state->numbers[0] = change(*value->ints, rank);
      acted |= call->state->numbers[0] != *value->ints;
      value->ints = &call->state->numbers[0];
    } else if (call->kinds[i] == 'z' && value->size.len > 0 && value->size.len <= FAULTY_NUMBERS) {
      for (int64_t k = 0; k < value->size.len; k++) {
        call->state->numbers[k] = change(value->size.data[k], rank);
        acted |= call->state->numbers[k] != value->size.data[k];
      }
      value->size.data = call->state->numbers;
    }
  }
  return acted;
}

static int64_t take_last(int64_t dim, int64_t rank) {
  (void)rank;
  return dim < -1 ? -1 : dim;
}

static int64_t take_first(int64_t dim, int64_t rank) {
  (void)rank;
  return dim < 0 ? 0 : dim;
}

static int64_t wrap_short(int64_t dim, int64_t rank) {
  return dim < 0 && dim + rank - 1 >= 0 ? dim + rank - 1 : dim;
}

static int64_t wrap_four(int64_t dim, int64_t rank) {
  return dim < 0 && rank != 4 && dim + 4 < rank && dim + 4 >= 0 ? dim + 4 : dim;
}

static int64_t swap_ends(int64_t dim, int64_t rank) {
  const int64_t own = dim < 0 ? dim + rank : dim;
  return rank > 4 && own > 0 && own < rank - 1 ? rank - 1 : dim;
}

bool alter_dim_last(struct mistake_call *call) {
  return change_dims(call, take_last);
}

bool alter_dim_first(struct mistake_call *call) {
  return change_dims(call, take_first);
}

bool alter_dim_short(struct mistake_call *call) {
  return change_dims(call, wrap_short);
}

bool alter_dim_four(struct mistake_call *call) {
  return change_dims(call, wrap_four);
}

bool alter_dim_inner(struct mistake_call *call) {
  return change_dims(call, swap_ends);
}

/// Only the first of a list of numbers, or the first in every place.
static bool shorten(struct mistake_call *call, bool spread, const char *words) {
  bool acted = false;
  for (int i = 0; call->kinds[i]; i++) {
    union dit_diopi_value *value = &call->state->values[i];
    if (call->kinds[i] != 'z' || value->size.len < 2 || value->size.len > FAULTY_NUMBERS ||
        (words && !mistake_is_named(call, i, words))) {
      continue;
    }
    if (!spread) {
      value->size.len = 1;
      return true;
    }
    int64_t *numbers = call->state->numbers + (call->state->number_count % 2) * (FAULTY_NUMBERS / 2);
    if (value->size.len <= FAULTY_NUMBERS / 2) {
      call->state->number_count++;
      for (int64_t k = 0; k < value->size.len; k++) {
        acted |= value->size.data[k] != value->size.data[0];
        numbers[k] = value->size.data[0];
      }
      value->size.data = numbers;
    }
  }
  return acted;
}

bool alter_dims_one(struct mistake_call *call) {
  return shorten(call, false, DIM_NAMES);
}

bool alter_sizes_square(struct mistake_call *call) {
  return shorten(call, true, "kernel_size stride padding dilation ksize");
}

/// Parameters that are numbers or lists of them get one value.
static bool set_numbers(struct mistake_call *call, const char *words, int64_t number) {
  bool acted = false;
  for (int i = 0; call->kinds[i]; i++) {
    union dit_diopi_value *value = &call->state->values[i];
    if (!mistake_is_named(call, i, words)) {
      continue;
    }
    if (call->kinds[i] == 'i') {
      acted |= value->i != number;
      value->i = number;
    } else if (call->kinds[i] == 'z' && value->size.len <= FAULTY_NUMBERS) {
      for (int64_t k = 0; k < value->size.len; k++) {
        acted |= value->size.data[k] != number;
        call->state->numbers[k] = number;
      }
      value->size.data = call->state->numbers;
    }
  }
  return acted;
}

bool alter_padding(struct mistake_call *call) {
  return set_numbers(call, "padding pad", 0);
}

bool alter_window(struct mistake_call *call) {
  return set_numbers(call, "dilation", 1);
}

bool alter_groups(struct mistake_call *call) {
  return set_numbers(call, "groups num_groups", 1);
}

bool alter_index_attribute(struct mistake_call *call) {
  return set_numbers(call, "ignore_index padding_idx diagonal index k", 0);
}

static bool is_integer(int dtype) {
  const enum dit_dtype_class kind = dit_dtype_get_class(dtype);
  return kind == DIT_DTYPE_CLASS_INT || kind == DIT_DTYPE_CLASS_UINT;
}

static bool change_scalars(struct mistake_call *call, bool integers_only, double (*change)(double value)) {
  const diopiConstTensorHandle_t input = get_first_input(call);
  bool acted = false;
  if (integers_only && (!input || !is_integer(input->view.dtype))) {
    return false;
  }
  for (int i = 0; call->kinds[i]; i++) {
    diopiScalar_t *scalar = call->kinds[i] == 's' ? call->state->values[i].scalar : NULL;
    if (!scalar || call->state->scalar_count == 4) {
      continue;
    }
    diopiScalar_t *own = &call->state->scalars[call->state->scalar_count++];
    *own = *scalar;
    const bool is_float = scalar->stype == diopi_dtype_float64 || scalar->stype == diopi_dtype_float32;
    const double before = is_float ? scalar->fval : (double)scalar->ival, after = change(before);
    acted |= after != before;
    if (is_float) {
      own->fval = after;
    } else {
      own->ival = (int64_t)after;
    }
    call->state->values[i].scalar = own;
  }
  return acted;
}

static double be_one(double value) {
  (void)value;
  return 1;
}

static double be_whole(double value) {
  return isfinite(value) ? trunc(value) : value;
}

static double be_narrow(double value) {
  return (double)(float)value;
}

bool alter_alpha(struct mistake_call *call) {
  return change_scalars(call, false, be_one);
}

bool alter_alpha_integer(struct mistake_call *call) {
  return change_scalars(call, true, be_one);
}

bool alter_scalar_whole(struct mistake_call *call) {
  return change_scalars(call, false, be_whole);
}

bool alter_scalar_narrow(struct mistake_call *call) {
  return change_scalars(call, false, be_narrow);
}

static bool set_flags(struct mistake_call *call, bool flag) {
  bool acted = false;
  for (int i = 0; call->kinds[i]; i++) {
    if (call->kinds[i] == 'b' && (call->state->values[i].i != 0) != flag) {
      call->state->values[i].i = flag;
      acted = true;
    }
  }
  return acted;
}

bool alter_flags_false(struct mistake_call *call) {
  return set_flags(call, false);
}

bool alter_flags_true(struct mistake_call *call) {
  return set_flags(call, true);
}

static bool set_reals(struct mistake_call *call, double number) {
  bool acted = false;
  for (int i = 0; call->kinds[i]; i++) {
    if ((call->kinds[i] == 'd' || call->kinds[i] == 'f') && call->state->values[i].d != number) {
      call->state->values[i].d = number;
      acted = true;
    }
  }
  return acted;
}

bool alter_reals_zero(struct mistake_call *call) {
  return set_reals(call, 0);
}

bool alter_reals_one(struct mistake_call *call) {
  return set_reals(call, 1);
}

/// Reductions and rounding modes: another one.
bool alter_mode(struct mistake_call *call) {
  for (int i = 0; call->kinds[i]; i++) {
    if (call->kinds[i] == 'r' || call->kinds[i] == 'm') {
      call->state->values[i].i = call->state->values[i].i == 1 ? 2 : 1;
      return true;
    }
  }
  return false;
}

/// Numbers of the first call are used for ever.
bool alter_stale(struct mistake_call *call) {
  static union dit_diopi_value known[DIT_DIOPI_COUNT][FAULTY_PARAMETERS];
  static bool has[DIT_DIOPI_COUNT];
  bool acted = false;
  for (int i = 0; call->kinds[i]; i++) {
    union dit_diopi_value *value = &call->state->values[i], *first = &known[call->function][i];
    if (!strchr("ibfd", call->kinds[i]) || mistake_is_named(call, i, "num_inputs num_outs nums")) {
      continue;
    }
    if (has[call->function]) {
      acted |= memcmp(value, first, sizeof value->i) != 0;
      *value = *first;
    } else {
      *first = *value;
    }
  }
  has[call->function] = true;
  return acted;
}

bool alter_note_generator(struct mistake_call *call) {
  for (int i = 0; call->kinds[i]; i++) {
    if (call->kinds[i] == 'g' && call->state->values[i].generator) {
      call->state->offset = call->state->values[i].generator->offset;
    }
  }
  return false;
}
