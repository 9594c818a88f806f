/// The alias on fake libraries: driver FOLDER works | driver FOLDER refused TEXT
///
/// "works": before, with and after the alias every function is asked, through the import slots of both client
/// libraries. "refused": installation fails with a message that contains TEXT, and no slot has changed.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alias.h"
#include "fake_torch.h"

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

enum { TARGET = 20, CLIENTS = 2 };

struct client {
  void (*parse)(struct device *, const struct string *);
  void (*parse_base)(struct device *, const struct string *);
  struct stream *(*print_type)(struct stream *, int8_t);
  struct stream *(*print_table)(struct stream *, int8_t);
  struct stream *(*print_device)(struct stream *, const struct device *);
  void (*type_name)(struct string *, long, bool);
  void (*text)(struct string *, const struct device *);
  bool (*is_enabled)(int8_t);
  void (*set_enabled)(int8_t, bool);
  int8_t (*get_dtype)(int8_t);
  void (*set_dtype)(int8_t, int8_t);
};

static struct client clients[CLIENTS];  // libtorch_python, libtorch_cpu

static void *load(const char *folder, const char *name, int mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  void *handle = dlopen(path, mode);
  if (!handle) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  return handle;
}

static void *get(void *handle, const char *prefix, const char *name, bool needed) {
  char symbol[64];
  snprintf(symbol, sizeof symbol, "%s_%s", prefix, name);
  void *address = dlsym(handle, symbol);
  CHECK(address || !needed);
  return address;
}

#define GET(client, handle, prefix, name, needed)       \
  do {                                                  \
    void *address = get(handle, prefix, #name, needed); \
    memcpy(&(client)->name, &address, sizeof address);  \
  } while (0)

static void open_client(struct client *client, void *handle, const char *prefix, bool python) {
  GET(client, handle, prefix, parse, true);
  GET(client, handle, prefix, parse_base, true);
  GET(client, handle, prefix, print_type, true);
  GET(client, handle, prefix, print_table, true);
  GET(client, handle, prefix, print_device, true);
  GET(client, handle, prefix, type_name, true);
  GET(client, handle, prefix, text, true);
  GET(client, handle, prefix, is_enabled, true);
  GET(client, handle, prefix, set_enabled, python);
  GET(client, handle, prefix, get_dtype, python);
  GET(client, handle, prefix, set_dtype, python);
}

static void check_parse(const char *text, int type, int index) {
  for (int c = 0; c < CLIENTS; c++) {
    for (int base = 0; base < 2; base++) {
      struct string string = {.length = strlen(text)};
      snprintf(string.local, sizeof string.local, "%s", text);
      string.text = string.length < sizeof string.local ? string.local : text;
      struct device devices[2] = {{77, 77}, {77, 77}};
      (base ? clients[c].parse_base : clients[c].parse)(&devices[0], &string);
      CHECK(devices[0].type == type && devices[0].index == index && devices[1].type == 77 && devices[1].index == 77);
    }
  }
}

/// The text is right and was built in the very string that the caller lent.
static void check_string(const struct string *string, const char *expected) {
  CHECK(string->length == strlen(expected) && memcmp(string->text, expected, string->length + 1) == 0);
  CHECK((string->text == string->local) == (string->length < sizeof string->local));
  if (string->text != string->local) {
    free((void *)(uintptr_t)string->text);
  }
}

static void check_names(int type, const char *lower, const char *upper) {
  static const long dirt[] = {0, 0x7fffff00, -256, (long)0xdeadbeef00000000};  // only the low byte is the type
  char expected[64];
  for (int c = 0; c < CLIENTS; c++) {
    for (size_t i = 0; i < sizeof dirt / sizeof *dirt; i++) {
      struct string string;
      memset(&string, 0x5a, sizeof string);
      clients[c].type_name(&string, dirt[i] | type, true);
      check_string(&string, lower);
      clients[c].type_name(&string, dirt[i] | type, false);
      check_string(&string, upper);
    }
    struct stream stream;
    CHECK(clients[c].print_type(&stream, (int8_t)type) == &stream && strcmp(stream.text, lower) == 0);
    CHECK(clients[c].print_table(&stream, (int8_t)type) == &stream && strcmp(stream.text, lower) == 0);
    for (int index = -128; index < 128; index++) {
      const struct device device = {(int8_t)type, (int8_t)index};
      struct string string;
      clients[c].text(&string, &device);
      snprintf(expected, sizeof expected, index < 0 ? "%s" : "%s:%d", lower, index);
      check_string(&string, expected);
      CHECK(clients[c].print_device(&stream, &device) == &stream);
      snprintf(expected, sizeof expected, "%s:%d", lower, index);
      CHECK(strcmp(stream.text, expected) == 0 && device.type == type && device.index == index);
    }
  }
}

static void check_native(void) {
  check_parse("cpu", 0, -1);
  check_parse("cuda:5", 1, 5);
  check_parse("privateuseone:2", TARGET, 2);
  check_names(0, "cpu", "CPU");
  check_names(1, "cuda", "CUDA");
  check_names(TARGET, "privateuseone", "PRIVATEUSEONE");
}

static void check_aliased(bool show) {
  check_parse("cuda", TARGET, -1);
  check_parse("cuda:5", TARGET, 5);
  check_parse("cpu", 0, -1);
  check_parse("meta:1", 14, 1);
  check_parse("privateuseone:2", TARGET, 2);
  check_names(0, "cpu", "CPU");
  check_names(1, "cuda", "CUDA");
  check_names(TARGET, show ? "cuda" : "privateuseone", show ? "CUDA" : "PRIVATEUSEONE");
}

/// Autocast: libtorch_python's questions about CUDA reach the target, libtorch_cpu's own stay what they are.
static void check_autocast(bool aliased) {
  int reached = aliased ? TARGET : 1;
  clients[0].set_enabled(1, true);
  clients[0].set_dtype(1, 15);
  CHECK(clients[0].is_enabled(1) && clients[0].get_dtype(1) == 15);
  CHECK(clients[1].is_enabled((int8_t)reached) && !clients[1].is_enabled(aliased ? 1 : TARGET));
  clients[0].set_enabled(1, false);
  CHECK(!clients[1].is_enabled((int8_t)reached) && !clients[0].is_enabled(1));
}

/// Protection of every mapping of the client libraries: it must be the same afterwards.
static void read_maps(char *out, size_t size) {
  char line[4500];
  FILE *file = fopen("/proc/self/maps", "r");
  CHECK(file);
  out[0] = '\0';
  while (fgets(line, sizeof line, file)) {
    if (strstr(line, "libtorch_")) {
      line[40] = '\0';  // addresses and flags
      CHECK(strlen(out) + strlen(line) + 2 < size);
      strcat(strcat(out, line), "\n");
    }
  }
  (void)fclose(file);
}

static void check_injected_failures(void) {
  struct dit_error err = {0};
  for (int stage = DIT_ALIAS_STAGE_SYMBOL; stage < DIT_ALIAS_STAGE_PROBE; stage++) {
    dit_alias_set_failure((enum dit_alias_stage)stage);
    CHECK(dit_alias_install(TARGET, true, NULL, 0, &err) == DIT_ERR_UNSUPPORTED && err.message[0]);
    CHECK(!dit_alias_get_status()->installed);
    check_parse("cuda:5", 1, 5);
  }
  check_native();
}

static void check_works(void) {
  static char before[1 << 14], after[1 << 14];
  struct dit_error err = {0};
  check_parse("cuda:5", 1, 5);  // these slots are bound; the others may still be lazy
  read_maps(before, sizeof before);
  if (dit_alias_install(TARGET, true, NULL, 0, &err) != DIT_OK) {
    fprintf(stderr, "%s\n", err.message);
    exit(1);
  }
  read_maps(after, sizeof after);
  CHECK(strcmp(before, after) == 0);
  const struct dit_alias_status *status = dit_alias_get_status();
  CHECK(status->installed && status->library_count == CLIENTS && status->slot_count >= 16);
  check_aliased(true);
  check_autocast(true);
  char name[64];
  CHECK(dit_alias_get_real_name(name, sizeof name, &err) == DIT_OK && strcmp(name, "privateuseone") == 0);
  CHECK(dit_alias_install(TARGET, false, NULL, 0, &err) == DIT_OK);
  check_aliased(false);
  CHECK(dit_alias_restore(&err) == DIT_OK && !dit_alias_get_status()->installed);
  check_native();
  check_autocast(false);
  check_injected_failures();
  CHECK(dit_alias_install(TARGET, true, NULL, 0, &err) == DIT_OK);
  check_aliased(true);
  CHECK(dit_alias_restore(&err) == DIT_OK);
  read_maps(after, sizeof after);
  CHECK(strcmp(before, after) == 0);
  check_native();
}

static void foreign(void) {}

/// Somebody else is in a slot already.
static void patch_one_slot(void) {
  struct dit_error err = {0};
  struct dit_elf_library library;
  struct dit_elf_slot slots[8];
  const char *names[] = {NAME_PRINT_DEVICE};
  int count = 0;
  CHECK(dit_elf_library_find("libtorch_cpu.so", &library, &err) == DIT_OK);
  CHECK(dit_elf_slots_find(&library, names, 1, slots, 8, &count, &err) == DIT_OK && count >= 1);
  CHECK(dit_elf_read_protections(slots, count, &err) == DIT_OK);
  CHECK(dit_elf_slot_set(&slots[0], (void *)(uintptr_t)foreign, &err) == DIT_OK);
}

static void check_refused(const char *text) {
  struct dit_error err = {0};
  enum dit_status status = dit_alias_install(TARGET, true, NULL, 0, &err);
  if (status != DIT_ERR_UNSUPPORTED || !strstr(err.message, text)) {
    fprintf(stderr, "expected a refusal with '%s', got %d: %s\n", text, (int)status, err.message);
    exit(1);
  }
  CHECK(!dit_alias_get_status()->installed);
  struct string string = {.length = 6, .local = "cuda:5"};
  string.text = string.local;
  struct {
    int8_t type, index, guard[6];
  } device = {0};
  clients[0].parse((struct device *)&device, &string);
  CHECK(device.type != TARGET);
}

int main(int argc, char **argv) {
  CHECK(argc >= 3);
  const char *folder = argv[1], *mode = argv[2];
  load(folder, "libc10.so", RTLD_LAZY | RTLD_GLOBAL);
  void *cpu = load(folder, "libtorch_cpu.so", RTLD_LAZY | RTLD_GLOBAL);
  void *python = load(folder, "libtorch_python.so", RTLD_LAZY | RTLD_GLOBAL);
  open_client(&clients[0], python, "python", true);
  open_client(&clients[1], cpu, "cpu", false);
  if (strcmp(mode, "works") == 0) {
    check_works();
  } else {
    CHECK(argc == 4);
    if (strcmp(mode, "patched") == 0) {
      patch_one_slot();
    }
    check_refused(argv[3]);
  }
  return 0;
}
