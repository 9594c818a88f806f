/// A case from its payload. Everything is bounds-checked: see the layout in docs/conformance-pack.md.
///
/// Arrays stay where they are: the payload begins at an aligned address and every array in it at a multiple of 8.
#include <stdio.h>
#include <string.h>

#include "dit/alloc.h"
#include "pack.h"

/// What is left to read. `error` is set by the first thing that does not fit; later reads give zero.
struct cursor {
  const unsigned char *base;
  size_t at, size;
  const char *problem;
};

static const void *take(struct cursor *cursor, uint64_t size) {
  static const uint64_t zero[4];
  if (cursor->problem || size > cursor->size - cursor->at) {
    cursor->problem = cursor->problem ? cursor->problem : "it ends too early";
    return size <= sizeof zero ? zero : NULL;
  }
  const void *found = cursor->base + cursor->at;
  cursor->at += (size_t)size;
  return found;
}

static void align(struct cursor *cursor) {
  static const unsigned char zero[8];
  const size_t rest = (8 - cursor->at % 8) % 8;
  const void *bytes = take(cursor, rest);
  if (memcmp(bytes, zero, rest) != 0) {
    cursor->problem = "bytes between its parts are not zero";
  }
}

/// An array of 8-byte words, 8-aligned; NULL on error and for none.
static const void *take_words(struct cursor *cursor, uint64_t count) {
  align(cursor);
  if (count > cursor->size / 8) {
    cursor->problem = cursor->problem ? cursor->problem : "an array is longer than the case";
    return NULL;
  }
  const void *found = take(cursor, count * 8);
  return cursor->problem || count == 0 ? NULL : found;
}

#define TAKE_NUMBER(name, type)                               \
  static type name(struct cursor *cursor) {                   \
    type value;                                               \
    memcpy(&value, take(cursor, sizeof value), sizeof value); \
    return value;                                             \
  }
TAKE_NUMBER(take_u8, uint8_t)
TAKE_NUMBER(take_u16, uint16_t)
TAKE_NUMBER(take_u32, uint32_t)
TAKE_NUMBER(take_u64, uint64_t)

/// A string: its length, its bytes, a zero byte.
static const char *take_string(struct cursor *cursor) {
  const uint64_t length = take_u16(cursor);
  const char *text = take(cursor, length + 1);
  if (cursor->problem) {
    return "";
  }
  if (text[length] != 0 || strlen(text) != length) {
    cursor->problem = "a string has no end or a zero inside";
    return "";
  }
  return text;
}

size_t pack_wide_get_size(enum pack_wide wide) {
  static const uint8_t sizes[PACK_WIDE_COUNT] = {0, 8, 8, 8, 16, 1};
  return sizes[wide];
}

int pack_kind_get_words(char kind) {
  return kind == 's' || kind == 'g' || kind == 'G' ? 2 : 1;
}

/// The type in which values of a dtype are expected.
static enum pack_wide get_wide(int dtype) {
  switch (dit_dtype_get_class(dtype)) {
    case DIT_DTYPE_CLASS_BOOL:
      return PACK_WIDE_U8;
    case DIT_DTYPE_CLASS_INT:
      return PACK_WIDE_I64;
    case DIT_DTYPE_CLASS_UINT:
      return dtype == DIT_DTYPE_U64 ? PACK_WIDE_U64 : PACK_WIDE_I64;
    case DIT_DTYPE_CLASS_FLOAT:
      return PACK_WIDE_F64;
    case DIT_DTYPE_CLASS_COMPLEX:
      return PACK_WIDE_C128;
    default:
      return PACK_WIDE_NONE;
  }
}

static bool is_inside(const struct pack_tensor *tensor, const struct pack_storage *storage) {
  const int64_t width = (int64_t)dit_dtype_get_size(tensor->dtype);
  int64_t last = tensor->offset;
  if (last < 0 || last > PACK_STORAGE_LIMIT || tensor->numel > PACK_NUMEL_LIMIT) {
    return false;
  }
  for (int d = 0; d < tensor->ndim; d++) {
    int64_t reach;
    if (tensor->strides[d] < 0 ||
        (tensor->numel > 0 && (__builtin_mul_overflow(tensor->sizes[d] - 1, tensor->strides[d], &reach) ||
                               __builtin_add_overflow(last, reach, &last) || last > PACK_STORAGE_LIMIT))) {
      return false;
    }
  }
  return tensor->numel == 0 || (uint64_t)(last + 1) * (uint64_t)width <= storage->size;
}

static const char *check_tensor(const struct pack_case *item, const struct pack_tensor *tensor) {
  if (tensor->storage == PACK_NONE) {
    return tensor->role == PACK_OUT && tensor->numel <= PACK_NUMEL_LIMIT ? NULL
                                                                         : "a result without storage is no output";
  }
  if (tensor->storage >= (uint32_t)item->storage_count) {
    return "a tensor has a storage that does not exist";
  }
  return is_inside(tensor, &item->storages[tensor->storage]) ? NULL : "a tensor reaches outside its storage";
}

static const char *check_expected(const struct pack_case *item, const struct pack_tensor *tensor, uint64_t expected,
                                  uint64_t tolerance) {
  static const uint8_t bounds[PACK_CHECK_COUNT] = {[PACK_MOMENTS] = 6, [PACK_SELECTION] = 1};
  const bool judged = tensor->role != PACK_IN && !item->expect_error && tensor->check != PACK_UNTOUCHED &&
                      tensor->check != PACK_ANYTHING;
  const bool wants_values = judged && tensor->check != PACK_MOMENTS;
  if (tensor->source < -1 || tensor->source >= item->argument_count ||
      (judged && (tensor->check == PACK_SELECTION || tensor->check == PACK_KEPT) && tensor->source < 0)) {
    return "a selection has no source, or kept elements no mask";
  }
  if (expected != (tensor->wide == PACK_WIDE_NONE ? 0 : (uint64_t)tensor->numel) ||
      (wants_values && tensor->wide == PACK_WIDE_NONE)) {
    return "a tensor has not one expected value per element";
  }
  if (tolerance > 1 && tolerance != (uint64_t)tensor->numel) {
    return "a tensor has neither one tolerance nor one per element";
  }
  if (tensor->wide != PACK_WIDE_NONE && tensor->check != PACK_SELECTION && tensor->wide != get_wide(tensor->dtype)) {
    return "expected values have another type than the tensor";
  }
  const bool enough = tensor->bound_count >= bounds[tensor->check] || tensor->check == PACK_SELECTION;
  return !judged || enough ? NULL : "moments need six bounds";
}

static void take_tensor(struct cursor *cursor, struct pack_case *item, struct pack_tensor *tensor) {
  align(cursor);
  const unsigned role = take_u8(cursor), check = take_u8(cursor), dtype = take_u8(cursor), ndim = take_u8(cursor);
  const unsigned wide = take_u8(cursor), zero = take_u8(cursor);
  tensor->bound_count = take_u16(cursor);
  tensor->storage = take_u32(cursor);
  tensor->source = (int)take_u32(cursor);
  tensor->offset = (int64_t)take_u64(cursor);
  const uint64_t expected = take_u64(cursor), tolerance = take_u64(cursor);
  tensor->argument = tensor->item = -1;
  if (role >= PACK_ROLE_COUNT || check >= PACK_CHECK_COUNT || ndim > DIT_MAX_DIMS || wide >= PACK_WIDE_COUNT || zero ||
      dit_diopi_get_dtype((int)dtype) == diopi_dtype_unsupported) {
    cursor->problem = cursor->problem ? cursor->problem : "a tensor has an unknown role, check, dtype or rank";
    return;
  }
  tensor->role = (enum pack_role)role;
  tensor->check = (enum pack_check)check;
  tensor->dtype = (int)dtype;
  tensor->ndim = (int)ndim;
  tensor->wide = (enum pack_wide)wide;
  tensor->sizes = take_words(cursor, ndim);
  tensor->strides = take_words(cursor, ndim);
  tensor->bounds = take_words(cursor, (uint64_t)tensor->bound_count);
  if (cursor->problem) {
    return;
  }
  if (dit_shape_get_numel(tensor->ndim, tensor->sizes, &tensor->numel, NULL) != DIT_OK) {
    cursor->problem = "a tensor has a negative size or too many elements";
    return;
  }
  cursor->problem = check_tensor(item, tensor);
  cursor->problem = cursor->problem ? cursor->problem : check_expected(item, tensor, expected, tolerance);
  if (cursor->problem) {
    return;
  }
  tensor->expected = take_words(cursor, (expected * pack_wide_get_size(tensor->wide) + 7) / 8);
  tensor->tolerance_count = (int64_t)tolerance;
  tensor->tolerance = take_words(cursor, tolerance);
}

/// Tensor numbers of an argument must exist; the first argument that has a tensor gives it its name in reports.
static void check_numbers(struct cursor *cursor, struct pack_case *item, int number) {
  const struct pack_argument *argument = &item->arguments[number];
  const bool is_list = argument->kind == 'O' || argument->kind == 'T';
  for (int64_t i = 0; i < argument->count && !cursor->problem; i++) {
    const uint64_t index = argument->words[i];
    if (index == PACK_NONE) {
      continue;
    }
    if (index >= (uint64_t)item->tensor_count) {
      cursor->problem = "an argument names a tensor that does not exist";
      return;
    }
    struct pack_tensor *tensor = &item->tensors[index];
    if (tensor->storage == PACK_NONE && (argument->kind != 'O' || tensor->argument >= 0)) {
      cursor->problem = "a result that the library makes is not (or twice) in a list of results";
      return;
    }
    if (tensor->argument < 0) {
      tensor->argument = number;
      tensor->item = is_list ? (int)i : -1;
    }
  }
}

static const char *check_count(const struct pack_argument *argument, const struct cursor *cursor) {
  const bool is_array = strchr("OTzZIBDGC", argument->kind) != NULL;
  if (argument->form == PACK_RESULT && !strchr("IBD", argument->kind)) {
    return "only integers, bools and doubles behind a pointer are results";
  }
  const bool is_sparse = argument->kind == 't' && argument->count == PACK_SPARSE;
  if (argument->form == PACK_ABSENT ? argument->count != 0 || strchr("ibfdrmy", argument->kind) != NULL
                                    : !is_array && !is_sparse && argument->count != 1) {
    return "an argument has a wrong number of values";
  }
  return (uint64_t)argument->count <= cursor->size ? NULL : "an argument has more values than the case has bytes";
}

static void take_argument(struct cursor *cursor, struct pack_case *item, int number) {
  struct pack_argument *argument = &item->arguments[number];
  align(cursor);
  const unsigned kind = take_u8(cursor), form = take_u8(cursor), zero = take_u16(cursor);
  argument->kind = (char)kind;
  argument->count = take_u32(cursor);
  if (cursor->problem) {
    return;
  }
  if (argument->kind != item->kinds[number] || form >= PACK_FORM_COUNT || zero) {
    cursor->problem = "an argument has another kind than its parameter";
    return;
  }
  argument->form = (enum pack_form)form;
  cursor->problem = check_count(argument, cursor);
  if (cursor->problem || argument->form == PACK_ABSENT) {
    return;
  }
  if (argument->kind == 'C') {
    argument->words = (const void *)take_string(cursor);
    return;
  }
  argument->words = take_words(cursor, (uint64_t)argument->count * (uint64_t)pack_kind_get_words(argument->kind));
  argument->tolerance = argument->form == PACK_RESULT ? take_words(cursor, (uint64_t)argument->count) : NULL;
  if (argument->kind == 'p') {
    cursor->problem = "a pointer cannot be given";
  }
  if (strchr("otOT", argument->kind)) {
    check_numbers(cursor, item, number);
  }
}

static void take_storage(struct cursor *cursor, struct pack_storage *storage, bool *has_bytes) {
  align(cursor);
  storage->size = take_u64(cursor);
  const uint32_t flags = take_u32(cursor), zero = take_u32(cursor);
  if (storage->size > PACK_STORAGE_LIMIT || flags > 3 || zero) {
    cursor->problem = cursor->problem ? cursor->problem : "a storage is too large or has unknown flags";
  }
  *has_bytes = flags & 1;
  storage->on_host = flags >> 1 & 1;
}

static void take_head(struct cursor *cursor, struct pack_case *item) {
  const uint32_t flags = take_u32(cursor);
  item->tag_count = take_u16(cursor);
  item->storage_count = take_u16(cursor);
  item->tensor_count = take_u16(cursor);
  item->argument_count = take_u16(cursor);
  item->expect_error = flags & 1;
  item->deterministic = flags >> 1 & 1;
  item->has_context = !(flags >> 2 & 1);
  item->id = take_string(cursor);
  item->name = take_string(cursor);
  item->kinds = take_string(cursor);
  if (!cursor->problem && (flags > 7 || strlen(item->kinds) != (size_t)item->argument_count)) {
    cursor->problem = "it has unknown flags, or not one kind per argument";
  }
}

/// The function must be the one that this program knows.
static void find_function(struct cursor *cursor, struct pack_case *item) {
  item->function = dit_diopi_find_function(item->name);
  if (item->function < 0) {
    cursor->problem = "the standard has no such function";
    return;
  }
  item->info = &dit_diopi_get_functions(NULL)[item->function];
  if (item->info->kinds[0] != 'c' || strcmp(item->info->kinds + 1, item->kinds) != 0) {
    cursor->problem = "its arguments are not those of the function";
  }
}

static bool make_arrays(struct pack_case *item) {
  item->tags = dit_calloc((size_t)item->tag_count + 1, sizeof *item->tags);
  item->storages = dit_calloc((size_t)item->storage_count + 1, sizeof *item->storages);
  item->tensors = dit_calloc((size_t)item->tensor_count + 1, sizeof *item->tensors);
  item->arguments = dit_calloc((size_t)item->argument_count + 1, sizeof *item->arguments);
  return item->tags && item->storages && item->tensors && item->arguments;
}

static void take_parts(struct cursor *cursor, struct pack_case *item, bool *has_bytes) {
  for (int i = 0; i < item->tag_count && !cursor->problem; i++) {
    item->tags[i].key = take_string(cursor);
    item->tags[i].value = take_string(cursor);
  }
  for (int i = 0; i < item->storage_count && !cursor->problem; i++) {
    take_storage(cursor, &item->storages[i], &has_bytes[i]);
  }
  for (int i = 0; i < item->tensor_count && !cursor->problem; i++) {
    take_tensor(cursor, item, &item->tensors[i]);
  }
  for (int i = 0; i < item->argument_count && !cursor->problem; i++) {
    take_argument(cursor, item, i);
  }
  for (int i = 0; i < item->storage_count && !cursor->problem; i++) {
    if (has_bytes[i]) {
      align(cursor);
      item->storages[i].bytes = take(cursor, item->storages[i].size);
    }
  }
  align(cursor);
  if (!cursor->problem && cursor->at != cursor->size) {
    cursor->problem = "bytes are left over at its end";
  }
}

enum dit_status pack_decode(unsigned char *payload, size_t size, struct pack_case *out, struct dit_error *err) {
  struct cursor cursor = {payload, 0, size, NULL};
  memset(out, 0, sizeof *out);
  out->payload = payload;
  take_head(&cursor, out);
  if (!cursor.problem) {
    find_function(&cursor, out);
  }
  if (!cursor.problem) {
    bool *has_bytes = dit_calloc((size_t)out->storage_count + 1, sizeof *has_bytes);
    if (!has_bytes || !make_arrays(out)) {
      dit_free(has_bytes);
      pack_case_reset(out);
      return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a case");
    }
    take_parts(&cursor, out, has_bytes);
    dit_free(has_bytes);
  }
  if (cursor.problem) {
    dit_error_set(err, DIT_ERR_CORRUPT, "%s (%s): %s (near byte %zu of %zu)", out->id ? out->id : "?",
                  out->name ? out->name : "?", cursor.problem, cursor.at, size);
    pack_case_reset(out);
    return DIT_ERR_CORRUPT;
  }
  return DIT_OK;
}

void pack_case_reset(struct pack_case *item) {
  dit_free(item->tags);
  dit_free(item->storages);
  dit_free(item->tensors);
  dit_free(item->arguments);
  dit_free(item->payload);
  memset(item, 0, sizeof *item);
}

void pack_get_parameter(const struct pack_case *item, int argument, char *name, size_t size) {
  const char *names = item->info->names;
  for (int i = 0; i <= argument && names; i++) {  // the first name is the context's
    names = strchr(names, ',');
    names = names ? names + 1 : NULL;
  }
  snprintf(name, size, "%.*s", names ? (int)strcspn(names, ",") : 1, names ? names : "?");
}

const char *pack_get_tag(const struct pack_case *item, const char *key) {
  for (int i = 0; i < item->tag_count; i++) {
    if (strcmp(item->tags[i].key, key) == 0) {
      return item->tags[i].value;
    }
  }
  return NULL;
}
