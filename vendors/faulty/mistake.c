/// What mistakes do to results, and the table of all of them (see mistake.h).
#include "mistake.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "dit/alloc.h"
#include "mistake_acts.h"

const struct mistake mistakes[MISTAKE_COUNT] = {
#define MISTAKE(name, alter, damage, is_kept, get_source, change) {#name, alter, damage, is_kept, get_source, change},
#include "mistakes.inc"
};

bool mistake_is_named(const struct mistake_call *call, int index, const char *words) {
  const char *name = call->names;
  for (int i = 0; i < index && name; i++) {
    name = strchr(name, ',');
    name = name ? name + 1 : NULL;
  }
  while (name && *name == ' ') {
    name++;
  }
  const size_t length = name ? strcspn(name, ",") : 0;
  for (const char *word = words; *word; word += strcspn(word, " "), word += *word == ' ') {
    if (strcspn(word, " ") == length && memcmp(word, name, length) == 0) {
      return true;
    }
  }
  return false;
}

// Numbers

static double decode_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) {
    return fraction ? NAN : sign * INFINITY;
  }
  return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static uint16_t encode_half(double value) {
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  int exponent;
  value = fabs(value);
  if (isnan(value)) {
    return 0x7E00;
  }
  if (value >= 65520) {
    return sign | 0x7C00;
  }
  if (value == 0) {
    return sign;
  }
  frexp(value, &exponent);
  exponent = exponent - 1 < -14 ? -14 : exponent - 1;
  const int scaled = (int)nearbyint(ldexp(value, 10 - exponent));
  return (uint16_t)(sign | (scaled + ((exponent + 14) << 10)));
}

bool mistake_load(int dtype, const char *memory, int64_t i, double *out) {
  uint32_t bits;
  uint16_t half;
  switch (dtype) {
    case DIT_DTYPE_F64:
      *out = ((const double *)memory)[i];
      return true;
    case DIT_DTYPE_F32:
      *out = (double)((const float *)memory)[i];
      return true;
    case DIT_DTYPE_F16:
      *out = decode_half(((const uint16_t *)memory)[i]);
      return true;
    case DIT_DTYPE_BF16:
      half = ((const uint16_t *)memory)[i];
      bits = (uint32_t)half << 16;
      float value;
      memcpy(&value, &bits, 4);
      *out = (double)value;
      return true;
    case DIT_DTYPE_I64:
      *out = (double)((const int64_t *)memory)[i];
      return true;
    case DIT_DTYPE_I32:
      *out = ((const int32_t *)memory)[i];
      return true;
    case DIT_DTYPE_I16:
      *out = ((const int16_t *)memory)[i];
      return true;
    case DIT_DTYPE_I8:
      *out = ((const int8_t *)memory)[i];
      return true;
    case DIT_DTYPE_U8:
    case DIT_DTYPE_BOOL:
      *out = ((const uint8_t *)memory)[i];
      return true;
    default:
      return false;
  }
}

void mistake_store(int dtype, char *memory, int64_t i, double value) {
  float narrow = (float)value;
  uint32_t bits;
  switch (dtype) {
    case DIT_DTYPE_F64:
      ((double *)memory)[i] = value;
      break;
    case DIT_DTYPE_F32:
      ((float *)memory)[i] = narrow;
      break;
    case DIT_DTYPE_F16:
      ((uint16_t *)memory)[i] = encode_half(value);
      break;
    case DIT_DTYPE_BF16:
      memcpy(&bits, &narrow, 4);
      bits = isnan(narrow) ? 0x7FC00000 : bits + 0x7FFF + (bits >> 16 & 1);
      ((uint16_t *)memory)[i] = (uint16_t)(bits >> 16);
      break;
    case DIT_DTYPE_I64:
      ((int64_t *)memory)[i] = (int64_t)value;
      break;
    case DIT_DTYPE_I32:
      ((int32_t *)memory)[i] = (int32_t)(int64_t)value;
      break;
    case DIT_DTYPE_I16:
      ((int16_t *)memory)[i] = (int16_t)(int64_t)value;
      break;
    default:
      ((uint8_t *)memory)[i] = (uint8_t)(int64_t)value;
      break;
  }
}

// Results

/// What a result held before the call; one that the library makes itself held zeros. Released with the others.
static char *get_saved(struct mistake_call *call, int number) {
  const struct dit_tensor_view *view = &call->tensors->outputs[number];
  char **saved = &call->state->saved[number];
  if (!*saved && call->mistake->alter == mistake_save && view->numel > 0) {
    *saved = dit_calloc((size_t)view->numel + 1, dit_dtype_get_size(view->dtype));
  }
  return *saved;
}

static char *gather(const struct dit_tensor_view *view) {
  char *memory = dit_malloc((size_t)view->numel * dit_dtype_get_size(view->dtype) + 16);
  if (memory) {
    dit_tensor_gather(view, memory);
  }
  return memory;
}

static bool put(const struct dit_tensor_view *view, const char *before, const char *after) {
  if (memcmp(before, after, (size_t)view->numel * dit_dtype_get_size(view->dtype)) == 0) {
    return false;
  }
  dit_tensor_scatter(view, after);
  return true;
}

/// Each result anew: elements that were kept, that came from elsewhere, or whose value changed.
static bool remake(struct mistake_call *call, const struct dit_tensor_view *view, const char *saved) {
  const size_t width = dit_dtype_get_size(view->dtype);
  const struct mistake *mistake = call->mistake;
  char *now = gather(view), *next = now ? gather(view) : NULL;
  for (int64_t i = 0; next && i < view->numel; i++) {
    char *at = next + (size_t)i * width;
    double value;
    if (mistake->is_kept && saved && mistake->is_kept(call, view, i)) {
      memcpy(at, saved + (size_t)i * width, width);
    }
    if (mistake->get_source) {
      const int64_t from = mistake->get_source(call, view, i);
      memcpy(at, now + (size_t)(from < view->numel ? from : i) * width, width);
    }
    if (mistake->change && mistake_load(view->dtype, now, i, &value)) {
      const double changed = mistake->change(value, view->dtype);
      if (memcmp(&changed, &value, sizeof value) != 0) {
        mistake_store(view->dtype, next, i, changed);
      }
    }
  }
  const bool acted = next && put(view, now, next);
  dit_free(now);
  dit_free(next);
  return acted;
}

bool mistake_save(struct mistake_call *call) {
  for (int i = 0; i < call->tensors->output_count; i++) {
    const struct dit_tensor_view *view = &call->tensors->outputs[i];
    if (view->numel > 0 && !call->state->saved[i]) {
      call->state->saved[i] = gather(view);
    }
  }
  return false;
}

bool damage_results(struct mistake_call *call) {
  bool acted = false;
  for (int i = 0; i < call->tensors->output_count; i++) {
    if (call->tensors->outputs[i].numel > 0) {
      acted |= remake(call, &call->tensors->outputs[i], get_saved(call, i));
    }
  }
  return acted;
}

bool damage_second(struct mistake_call *call) {
  return call->tensors->output_count > 1 && call->tensors->outputs[1].numel > 0 && get_saved(call, 1) &&
         remake(call, &call->tensors->outputs[1], call->state->saved[1]);
}

/// Elements where the input holds -inf and no NaN give 0 instead of NaN.
bool damage_empty_rows(struct mistake_call *call) {
  bool has_infinity = false;
  for (int t = 0; t < call->tensors->input_count; t++) {
    const struct dit_tensor_view *view = &call->tensors->inputs[t];
    char *memory = view->numel > 0 ? gather(view) : NULL;
    double value;
    for (int64_t i = 0; memory && i < view->numel && mistake_load(view->dtype, memory, i, &value); i++) {
      has_infinity |= isinf(value) && value < 0;
    }
    dit_free(memory);
  }
  return has_infinity && damage_results(call);
}

/// Results are added to what was there.
bool damage_accumulate(struct mistake_call *call) {
  bool acted = false;
  for (int t = 0; t < call->tensors->output_count; t++) {
    const struct dit_tensor_view *view = &call->tensors->outputs[t];
    char *now = view->numel > 0 && get_saved(call, t) ? gather(view) : NULL, *next = now ? gather(view) : NULL;
    double a, b;
    for (int64_t i = 0; next && i < view->numel && mistake_load(view->dtype, now, i, &a); i++) {
      mistake_load(view->dtype, call->state->saved[t], i, &b);
      mistake_store(view->dtype, next, i, a + b);
    }
    acted |= next && put(view, now, next);
    dit_free(now);
    dit_free(next);
  }
  return acted;
}

/// True is written as 255.
bool damage_bool(struct mistake_call *call) {
  bool acted = false;
  for (int t = 0; t < call->tensors->output_count; t++) {
    const struct dit_tensor_view *view = &call->tensors->outputs[t];
    char *now = view->dtype == DIT_DTYPE_BOOL && view->numel > 0 ? gather(view) : NULL;
    char *next = now ? gather(view) : NULL;
    for (int64_t i = 0; next && i < view->numel; i++) {
      next[i] = next[i] ? (char)255 : 0;
    }
    acted |= next && put(view, now, next);
    dit_free(now);
    dit_free(next);
  }
  return acted;
}

// Memory that calls share

/// A result through a buffer of the library; did another thread come in between? It is given a tenth of a second, so
/// that a loaded machine does not decide what is found.
static bool pass_through(const struct dit_tensor_view *view, char *buffer) {
  const size_t size = (size_t)view->numel * dit_dtype_get_size(view->dtype);
  const struct timespec pause = {0, 50000};
  char *own = gather(view);
  dit_tensor_gather(view, buffer);
  for (int i = 0; own && i < 2000 && memcmp(own, buffer, size) == 0; i++) {
    nanosleep(&pause, NULL);
  }
  dit_tensor_scatter(view, buffer);
  const bool acted = own && memcmp(own, buffer, size) != 0;
  dit_free(own);
  return acted;
}

/// Every result goes through one buffer of the library, and another thread may come in between.
bool damage_scratch(struct mistake_call *call) {
  static char *buffer;
  static int64_t capacity;
  static int lock;
  bool acted = false;
  for (int t = 0; t < call->tensors->output_count; t++) {
    const struct dit_tensor_view *view = &call->tensors->outputs[t];
    const int64_t size = view->numel * (int64_t)dit_dtype_get_size(view->dtype);
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {
    }
    if (size > capacity) {
      char *larger = dit_malloc((size_t)size + 16);  // the old one stays: another thread may be reading it
      buffer = larger ? larger : buffer;
      capacity = larger ? size : capacity;
    }
    char *mine = size <= capacity ? buffer : NULL;
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    acted |= mine && size > 0 && pass_through(view, mine);
  }
  return acted;
}

/// The same, a buffer per context, so that only threads with one context meet.
bool damage_context(struct mistake_call *call) {
  static struct {
    const void *context;
    char *memory;
    int64_t capacity;
  } slots[64];
  static int lock, next;
  const struct dit_tensor_view *view = call->tensors->output_count ? &call->tensors->outputs[0] : NULL;
  const int64_t size = view ? view->numel * (int64_t)dit_dtype_get_size(view->dtype) : 0;
  if (size == 0) {
    return false;
  }
  while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {
  }
  int slot = 0;
  while (slot < 64 && slots[slot].context != call->state->values[0].context) {
    slot++;
  }
  slot = slot < 64 ? slot : next++ % 64;
  slots[slot].context = call->state->values[0].context;
  if (slots[slot].capacity < size) {
    slots[slot].memory = dit_malloc((size_t)size + 16);
    slots[slot].capacity = slots[slot].memory ? size : 0;
  }
  char *mine = slots[slot].memory;
  __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
  return mine && pass_through(view, mine);
}

/// The first call's size is kept: what lies beyond it is not written.
bool damage_stale_size(struct mistake_call *call) {
  static int64_t first[DIT_DIOPI_COUNT];
  const struct dit_tensor_view *view = call->tensors->output_count ? &call->tensors->outputs[0] : NULL;
  if (!view || view->numel == 0 || !get_saved(call, 0)) {
    return false;
  }
  int64_t *known = &first[call->function];
  *known = *known ? *known : view->numel;
  if (view->numel <= *known) {
    return false;
  }
  const size_t width = dit_dtype_get_size(view->dtype);
  char *now = gather(view), *next = now ? gather(view) : NULL;
  if (next) {
    memcpy(next + (size_t)*known * width, call->state->saved[0] + (size_t)*known * width,
           (size_t)(view->numel - *known) * width);
  }
  const bool acted = next && put(view, now, next);
  dit_free(now);
  dit_free(next);
  return acted;
}

/// The generator stays where it was.
bool damage_generator(struct mistake_call *call) {
  bool acted = false;
  for (int i = 0; call->kinds[i]; i++) {
    if (call->kinds[i] == 'g' && call->state->values[i].generator) {
      acted |= call->state->values[i].generator->offset != call->state->offset;
      call->state->values[i].generator->offset = call->state->offset;
    }
  }
  return acted;
}
