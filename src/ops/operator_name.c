// Names of operators as people write them (dit/operator_name.h). Depends on the operator table and libc.
#include "dit/operator_name.h"

#include <fnmatch.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/edit_distance.h"
#include "dit/operator.h"

#define NAME_SIZE 128
#define NEAREST 3
#define PARTS 8

static _Atomic(dit_operator_lister) registry;

void dit_operator_lister_set(dit_operator_lister lister) {
  atomic_store(&registry, lister);
}

// What functions of torch consist of, where the names do not tell it.
static const struct function {
  const char *name;
  const char *parts[PARTS];
} functions[] = {
    {"__getitem__", {"index", "slice", "select"}},
    {"__setitem__", {"index_put_", "copy_", "fill_"}},
    {"bfloat16", {"_to_copy", "copy_"}},
    {"contiguous", {"clone", "copy_"}},
    {"conv1d", {"convolution"}},
    {"conv2d", {"convolution"}},
    {"conv3d", {"convolution"}},
    {"conv_transpose1d", {"convolution"}},
    {"conv_transpose2d", {"convolution"}},
    {"conv_transpose3d", {"convolution"}},
    {"cross_entropy", {"_log_softmax", "nll_loss_forward", "nll_loss2d_forward"}},
    {"cross_entropy_loss", {"_log_softmax", "nll_loss_forward", "nll_loss2d_forward"}},
    {"double", {"_to_copy", "copy_"}},
    {"einsum", {"bmm"}},
    {"float", {"_to_copy", "copy_"}},
    {"half", {"_to_copy", "copy_"}},
    {"instance_norm", {"native_batch_norm"}},
    {"item", {"_local_scalar_dense"}},
    {"l1_loss", {"sub", "abs", "mean"}},
    {"linear", {"mm", "addmm", "bmm", "mv", "addmv"}},
    {"matmul", {"mm", "bmm", "mv", "dot"}},
    {"__matmul__", {"mm", "bmm", "mv", "dot"}},
    {"nll_loss", {"nll_loss_forward", "nll_loss2d_forward"}},
    {"norm", {"linalg_vector_norm"}},
    {"reshape", {"clone", "copy_"}},
    {"square", {"pow"}},
    {"to", {"_to_copy", "copy_"}},
    {"type", {"_to_copy", "copy_"}},
    {"type_as", {"_to_copy", "copy_"}},
};

// How an operator is called that does the work of a function: softmax is done by _softmax.
static const char *const affixes[][2] = {
    {"_", ""},        {"native_", ""},       {"_native_", ""},       {"_fused_", ""},
    {"", "_forward"}, {"", "_with_indices"}, {"_native_", "_legit"}, {"_native_", "_legit_no_training"},
    {"linalg_", ""},  {"_linalg_", ""},      {"special_", ""},       {"_", "_forward"}};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static bool starts(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool dit_operator_name_is_plain(const char *text) {
  return *text && text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:")] == '\0';
}

void dit_operator_name_simplify(const char *name, char *buffer, size_t size) {
  static const char *const libraries[] = {"torch.ops.aten.", "aten."};
  static const char *const spaces[] = {"torch.", "F.", "Tensor.", "nn.", "functional."};
  bool plain = false;
  for (size_t i = 0; i < COUNT(libraries); i++) {
    if (starts(name, libraries[i])) {
      name += strlen(libraries[i]);
      plain = true;
    }
  }
  for (size_t i = 0; i < COUNT(spaces) && !plain; i++) {
    if (starts(name, spaces[i]) && !starts(name, "torch.ops.")) {
      name = strrchr(name, '.') + 1;
      plain = true;
    }
  }
  if (size == 0) {
    return;
  }
  (void)snprintf(buffer, size, "%s", name);
  static const char overload[] = ".default";
  size_t length = strlen(buffer), tail = sizeof overload - 1;
  if (length > tail && strcmp(buffer + length - tail, overload) == 0) {
    buffer[length - tail] = '\0';
  }
}

// Parts

// The word alone: "add" of aten::add.out.
static void word_copy(const char *name, char *buffer, size_t size) {
  name = starts(name, "aten::") ? name + 6 : name;
  (void)snprintf(buffer, size, "%.*s", (int)strcspn(name, "."), name);
}

static const struct function *function_find(const char *word) {
  for (size_t i = 0; i < COUNT(functions); i++) {
    if (strcmp(functions[i].name, word) == 0) {
      return &functions[i];
    }
  }
  return NULL;
}

const char *dit_operator_name_get_part(const char *name, size_t index, char *buffer, size_t size) {
  char word[NAME_SIZE];
  word_copy(name, word, sizeof word);
  const struct function *function = function_find(word);
  size_t known = 0;
  while (function && known < PARTS && function->parts[known]) {
    if (known++ == index) {
      return function->parts[index];
    }
  }
  index -= known;
  if (index < COUNT(affixes)) {
    (void)snprintf(buffer, size, "%s%s%s", affixes[index][0], word, affixes[index][1]);
    return buffer;
  }
  const struct dit_operator *row = index == COUNT(affixes) ? dit_operator_find(word) : NULL;
  return row ? row->name : NULL;  // __add__ is add
}

// Patterns

// One pattern of `length` bytes.
static bool pattern_matches(const char *pattern, size_t length, const char *name) {
  char text[NAME_SIZE], base[NAME_SIZE];
  if (length >= sizeof text || strlen(name) >= sizeof base) {
    return false;
  }
  memcpy(text, pattern, length);
  text[length] = '\0';
  const char *plain = strstr(name, "::");
  plain = plain ? plain + 2 : name;
  if (fnmatch(text, name, 0) == 0 || fnmatch(text, plain, 0) == 0) {
    return true;
  }
  (void)snprintf(base, sizeof base, "%s", name);
  char *dot = strrchr(base, '.');
  if (!dot) {
    return false;
  }
  *dot = '\0';
  return fnmatch(text, base, 0) == 0 || (base + (plain - name) < dot && fnmatch(text, base + (plain - name), 0) == 0);
}

bool dit_operator_name_matches(const char *pattern, const char *name) {
  for (;;) {
    size_t length = strcspn(pattern, "|");
    if (pattern_matches(pattern, length, name)) {
      return true;
    }
    if (pattern[length] == '\0') {
      return false;
    }
    pattern += length + 1;
  }
}

// What exists

struct search {
  const char *pattern;
  bool seen, other;
  bool foreign;  // of another library than aten, which counts where aten has none: quantized::softmax is not softmax
};

static void search_visit(void *context, const char *name, bool seen) {
  struct search *search = context;
  bool *found = !starts(name, "aten::") && !strstr(search->pattern, "::") ? &search->foreign
                : seen                                                    ? &search->seen
                                                                          : &search->other;
  *found = *found || dit_operator_name_matches(search->pattern, name);
}

static enum dit_operator_meaning pattern_find(const char *pattern) {
  struct search search = {.pattern = pattern};
  atomic_load (&registry)(search_visit, &search);
  return search.seen      ? DIT_OPERATOR_MEANS_SEEN
         : search.other   ? DIT_OPERATOR_MEANS_OTHERS
         : search.foreign ? DIT_OPERATOR_MEANS_SEEN
                          : DIT_OPERATOR_MEANS_NOTHING;
}

static bool text_add(char *buffer, size_t size, const char *part) {
  size_t used = strlen(buffer);
  if (used + strlen(part) + 2 > size) {
    return false;
  }
  (void)snprintf(buffer + used, size - used, "%s%s", used ? "|" : "", part);
  return true;
}

// The parts of a function that the device sees; false: none.
static bool parts_find(const char *name, const char *ending, char *buffer, size_t size) {
  char part_buffer[NAME_SIZE], whole[NAME_SIZE];
  const char *part;
  buffer[0] = '\0';
  for (size_t i = 0; (part = dit_operator_name_get_part(name, i, part_buffer, sizeof part_buffer)); i++) {
    (void)snprintf(whole, sizeof whole, "%s%s", part, ending);
    if (pattern_find(whole) == DIT_OPERATOR_MEANS_SEEN) {
      (void)text_add(buffer, size, whole);
    }
  }
  return buffer[0] != '\0';
}

enum dit_operator_meaning dit_operator_name_resolve(const char *text, char *buffer, size_t size) {
  char simple[NAME_SIZE];
  bool plain = dit_operator_name_is_plain(text);
  if (plain) {
    dit_operator_name_simplify(text, simple, sizeof simple);
  }
  (void)snprintf(buffer, size, "%s", plain ? simple : text);
  if (!atomic_load(&registry)) {
    return DIT_OPERATOR_MEANS_SEEN;
  }
  enum dit_operator_meaning meaning = pattern_find(buffer);
  if (meaning == DIT_OPERATOR_MEANS_SEEN || !plain) {
    return meaning;
  }
  if (parts_find(simple, "", buffer, size)) {
    return DIT_OPERATOR_MEANS_SEEN;
  }
  size_t length = strlen(simple);
  if (length > 1 && simple[length - 1] == '_' && simple[length - 2] != '_') {  // square_ is done by pow_
    simple[length - 1] = '\0';
    if (parts_find(simple, "_", buffer, size)) {
      return DIT_OPERATOR_MEANS_SEEN;
    }
    simple[length - 1] = '_';
  }
  (void)snprintf(buffer, size, "%s", simple);
  return meaning;
}

// The nearest

struct near {
  const char *wanted;
  bool overload;
  int count;
  int distance[NEAREST];
  char name[NEAREST][NAME_SIZE];
};

static void near_visit(void *context, const char *name, bool seen) {
  struct near *near = context;
  (void)seen;
  if (!starts(name, "aten::")) {
    return;
  }
  char text[NAME_SIZE];
  (void)snprintf(text, sizeof text, "%.*s", near->overload ? NAME_SIZE : (int)strcspn(name + 6, "."), name + 6);
  int distance = dit_edit_distance_get(near->wanted, text), at = near->count;
  for (int i = 0; i < near->count; i++) {
    if (strcmp(near->name[i], text) == 0) {
      return;
    }
  }
  while (at > 0 && (distance < near->distance[at - 1] ||
                    (distance == near->distance[at - 1] && strcmp(text, near->name[at - 1]) < 0))) {
    at--;
  }
  if (at == NEAREST) {
    return;
  }
  near->count += near->count < NEAREST;
  for (int i = near->count - 1; i > at; i--) {
    near->distance[i] = near->distance[i - 1];
    memcpy(near->name[i], near->name[i - 1], NAME_SIZE);
  }
  near->distance[at] = distance;
  memcpy(near->name[at], text, NAME_SIZE);
}

void dit_operator_name_list_nearest(const char *wanted, char *buffer, size_t size) {
  char simple[NAME_SIZE];
  dit_operator_name_simplify(wanted, simple, sizeof simple);
  const char *start = starts(simple, "aten::") ? simple + 6 : simple;
  struct near near = {.wanted = start, .overload = strchr(start, '.') != NULL};
  if (atomic_load(&registry)) {
    atomic_load (&registry)(near_visit, &near);
  }
  if (size > 0) {
    buffer[0] = '\0';
  }
  for (int i = 0; i < near.count; i++) {
    size_t used = strlen(buffer);
    (void)snprintf(buffer + used, size - used, "%s%s", i ? ", " : "", near.name[i]);
  }
}
