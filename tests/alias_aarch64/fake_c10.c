/// libc10.so of the alias's tests: devices as PyTorch names them. Macros make it wrong on purpose.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_torch.h"

static const struct {
  int type;
  const char *lower, *upper;
} names[] = {
    {0, "cpu", "CPU"},
    {1, "cuda", "CUDA"},
    {14, "meta", "META"},
    {20, "privateuseone", "PRIVATEUSEONE"},
};

static const char *find_name(int type, bool lower) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (names[i].type == type) {
      return lower ? names[i].lower : names[i].upper;
    }
  }
  abort();  // PyTorch throws here: the tests never ask
}

/// A std::string built in place: a short text points into the string itself, a long one comes from operator new.
static void build(struct string *result, const char *text) {
  result->length = strlen(text);
  char *where = result->length < sizeof result->local ? result->local : malloc(result->length + 1);
  memcpy(where, text, result->length + 1);
  result->text = where;
}

EXPORT void operator_delete(void *memory) NAMED("_ZdlPv");
void operator_delete(void *memory) {
  free(memory);
}

static void parse(struct device *self, const struct string *text) {
  char *colon = NULL, copy[32];
  if (text->length >= sizeof copy) {
    abort();
  }
  memcpy(copy, text->text, text->length);
  copy[text->length] = '\0';
  self->index = -1;
  if ((colon = strchr(copy, ':'))) {
    self->index = (int8_t)atoi(colon + 1);
    *colon = '\0';
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i].lower, copy) == 0) {
      self->type = (int8_t)names[i].type;
#ifdef FAKE_OTHER_NUMBERS
      self->type = (int8_t)(self->type == 1 ? 2 : self->type);
#endif
      return;
    }
  }
  abort();
}

void device_parse(struct device *self, const struct string *text) {
  parse(self, text);
}
#ifndef FAKE_NO_BASE
void device_parse_base(struct device *self, const struct string *text) {
  parse(self, text);
}
#endif

struct stream *print_type(struct stream *stream, int8_t type) {
  snprintf(stream->text, sizeof stream->text, "%s", find_name(type, true));
  return stream;
}

struct stream *print_device(struct stream *stream, const struct device *device) {
  snprintf(stream->text, sizeof stream->text, "%s:%d", find_name(device->type, true), device->index);
  return stream;
}

static void build_type_name(struct string *result, int8_t type, bool lower) {
#ifdef FAKE_OTHER_NAMES
  build(result, type == 0 ? "processor" : find_name(type, lower));
#else
  build(result, find_name(type, lower));
#endif
}

static void build_text(struct string *result, const struct device *self) {
  char text[32];
  snprintf(text, sizeof text, self->index < 0 ? "%s" : "%s:%d", find_name(self->type, true), self->index);
  build(result, text);
}

#if defined(__aarch64__)
__attribute__((used)) static void type_name_into(int8_t type, bool lower, struct string *result) {
  build_type_name(result, type, lower);
}
__attribute__((used)) static void text_into(const struct device *self, struct string *result) {
  build_text(result, self);
}
#define SHIM(name, move, target)                                                                          \
  __asm__(".text\n.p2align 2\n.globl " name "\n.type " name ", %function\n" name ":\n  hint #34\n  " move \
          "\n  b " target "\n.size " name ", .-" name "\n")
SHIM(NAME_TYPE_NAME, "mov x2, x8", "type_name_into");
#ifndef FAKE_NO_TEXT
SHIM(NAME_TEXT, "mov x1, x8", "text_into");
#endif
#else
EXPORT struct string *type_name(struct string *result, int8_t type, bool lower) NAMED(NAME_TYPE_NAME);
struct string *type_name(struct string *result, int8_t type, bool lower) {
  build_type_name(result, type, lower);
  return result;
}
#ifndef FAKE_NO_TEXT
EXPORT struct string *device_text(struct string *result, const struct device *self) NAMED(NAME_TEXT);
struct string *device_text(struct string *result, const struct device *self) {
  build_text(result, self);
  return result;
}
#else
void fake_keep(struct string *result, const struct device *self);
void fake_keep(struct string *result, const struct device *self) {
  build_text(result, self);
}
#endif
#endif
