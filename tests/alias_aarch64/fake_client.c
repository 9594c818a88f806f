/// libtorch_cpu.so (FAKE_CPU) and libtorch_python.so of the alias's tests: they import c10's functions as PyTorch's own
/// libraries do, and offer each call under a plain name. libtorch_cpu also has autocast's state.
#include "fake_torch.h"

#ifdef FAKE_CPU
#define PROBE(name) cpu_##name
static bool enabled[32];
static int8_t dtypes[32];
bool autocast_is_enabled(int8_t type) {
  return enabled[type];
}
void autocast_set_enabled(int8_t type, bool value) {
  enabled[type] = value;
}
int8_t autocast_get_dtype(int8_t type) {
  return dtypes[type];
}
void autocast_set_dtype(int8_t type, int8_t dtype) {
  dtypes[type] = dtype;
}
#else
#define PROBE(name) python_##name
#endif

#define DECLARED(result, name, ...)       \
  EXPORT result PROBE(name)(__VA_ARGS__); \
  result PROBE(name)(__VA_ARGS__)

DECLARED(void, parse, struct device *self, const struct string *text) {
  device_parse(self, text);
}
DECLARED(void, parse_base, struct device *self, const struct string *text) {
#ifdef FAKE_NO_BASE
  device_parse(self, text);
#else
  device_parse_base(self, text);
#endif
}

// As a constant table of functions holds it: a word in the data section, relocated by the loader.
EXPORT struct stream *(*volatile PROBE(table)[])(struct stream *, int8_t) = {print_type};

DECLARED(struct stream *, print_type, struct stream *stream, int8_t type) {
  return print_type(stream, type);
}
DECLARED(struct stream *, print_table, struct stream *stream, int8_t type) {
  return PROBE(table)[0](stream, type);
}
#ifdef FAKE_HIDDEN_PRINT  // the library has its own copy and imports nothing
static struct stream *own_print_device(struct stream *stream, const struct device *device) {
  stream->text[0] = (char)device->type;
  return stream;
}
#else
#define own_print_device print_device
#endif
DECLARED(struct stream *, print_device, struct stream *stream, const struct device *device) {
  return own_print_device(stream, device);
}
#ifndef FAKE_CPU
DECLARED(bool, is_enabled, int8_t type) {
  return autocast_is_enabled(type);
}
DECLARED(void, set_enabled, int8_t type, bool value) {
  autocast_set_enabled(type, value);
}
DECLARED(int8_t, get_dtype, int8_t type) {
  return autocast_get_dtype(type);
}
DECLARED(void, set_dtype, int8_t type, int8_t dtype) {
  autocast_set_dtype(type, dtype);
}
#else
DECLARED(bool, is_enabled, int8_t type) {
  return autocast_is_enabled(type);
}
#endif

// Texts: result, then the arguments. `type` may have anything in the bits that its type does not use.
#if defined(__aarch64__)
#ifdef FAKE_CPU
#define PREFIX "cpu_"
#else
#define PREFIX "python_"
#endif
#ifdef FAKE_NOPLT  // through the address in the GOT: R_AARCH64_GLOB_DAT
#define JUMP(symbol) "  adrp x16, :got:" symbol "\n  ldr x16, [x16, :got_lo12:" symbol "]\n  br x16\n"
#else  // through the PLT: R_AARCH64_JUMP_SLOT
#define JUMP(symbol) "  b " symbol "\n"
#endif
#define SHIM(name, moves, symbol)                                                                     \
  __asm__(".text\n.p2align 2\n.globl " PREFIX name "\n.type " PREFIX name ", %function\n" PREFIX name \
          ":\n" moves JUMP(symbol) ".size " PREFIX name ", .-" PREFIX name "\n")
SHIM("type_name", "  mov x8, x0\n  mov x0, x1\n  mov x1, x2\n", NAME_TYPE_NAME);
SHIM("text", "  mov x8, x0\n  mov x0, x1\n", NAME_TEXT);
#else
struct string *type_name(struct string *result, int8_t type, bool lower) NAMED(NAME_TYPE_NAME);
struct string *device_text(struct string *result, const struct device *self) NAMED(NAME_TEXT);
DECLARED(void, type_name, struct string *result, long type, bool lower) {
  type_name(result, (int8_t)type, lower);
}
DECLARED(void, text, struct string *result, const struct device *self) {
  device_text(result, self);
}
#endif
