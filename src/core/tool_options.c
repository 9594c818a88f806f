/// Options of the operator tools: the schema, and how the values of one tool come about.
///
/// Invariant: a set is complete (every option of the tool has a value) and immutable; it is built by laying the sources
/// over each other, weakest first: defaults, the file's [op_tools], its [op_tools.<tool>], shared variables, old names,
/// the tool's own variables, arguments. The environment is read, never written. Depends on option_parse, tool_variables
/// and toml.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/edit_distance.h"
#include "core/option_parse.h"
#include "core/tool_variables.h"
#include "dit/alloc.h"

struct tool_entry {
  struct dit_tool_value value;
  char *key, *text, *origin;
};

struct dit_tool_options {
  enum dit_tool tool;
  struct tool_entry *entries;
  size_t count, capacity;
};

static void reset_entry(struct tool_entry *entry) {
  dit_free(entry->key);
  dit_free(entry->text);
  dit_free(entry->origin);
  *entry = (struct tool_entry){0};
}

void dit_tool_options_destroy(struct dit_tool_options *options) {
  for (size_t i = 0; options && i < options->count; i++) {
    reset_entry(&options->entries[i]);
  }
  if (options) {
    dit_free(options->entries);
  }
  dit_free(options);
}

const struct dit_tool_value *dit_tool_options_get(const struct dit_tool_options *options, size_t index) {
  return index < options->count ? &options->entries[index].value : NULL;
}

/// The entry of an option (and key); a new one, in the order of the schema, when there is none yet. NULL: no memory.
static struct tool_entry *place_entry(struct dit_tool_options *options, int option, const char *key) {
  size_t at = 0;
  for (; at < options->count && options->entries[at].value.option <= option; at++) {
    const struct tool_entry *entry = &options->entries[at];
    if (entry->value.option == option && (!key || strcmp(entry->key, key) == 0)) {
      return &options->entries[at];
    }
  }
  if (options->count == options->capacity) {
    size_t capacity = options->capacity ? 2 * options->capacity : 48;
    struct tool_entry *grown = dit_realloc(options->entries, capacity * sizeof(*grown));
    if (!grown) {
      return NULL;
    }
    options->entries = grown;
    options->capacity = capacity;
  }
  memmove(&options->entries[at + 1], &options->entries[at], (options->count - at) * sizeof(*options->entries));
  options->entries[at] = (struct tool_entry){0};
  options->entries[at].value.option = option;
  options->count++;
  return &options->entries[at];
}

/// Parse one value and put it in the set. Nothing changes on failure.
static enum dit_status assign(struct dit_tool_options *options, int option, const char *key, const char *origin,
                              const char *text, enum dit_option_source source, struct dit_error *err) {
  const struct dit_tool_option_info *info = dit_tool_option_get_info(option);
  struct tool_entry fresh = {.value = {.option = option, .source = source}};
  DIT_RETURN_IF_NOT_OK(dit_option_parse(&info->option, origin, text, &fresh.value.number, &fresh.text, err));
  fresh.key = key ? dit_strdup(key) : NULL;
  fresh.origin = dit_strdup(origin);
  struct tool_entry *entry = fresh.origin && (fresh.key || !key) ? place_entry(options, option, key) : NULL;
  if (!entry) {
    reset_entry(&fresh);
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the value of option '%s'", info->option.name);
  }
  reset_entry(entry);
  *entry = fresh;
  entry->value.key = entry->key;
  entry->value.text = entry->text;
  entry->value.origin = entry->origin;
  return DIT_OK;
}

// Defaults

/// "LINEAR|NORM=text": one value per key.
static enum dit_status load_pattern_default(struct dit_tool_options *options, int option, const char *text,
                                            struct dit_error *err) {
  const char *equals = strchr(text, '=');
  for (const char *p = text; equals && p < equals;) {
    size_t length = strcspn(p, "|=");
    char key[64];
    snprintf(key, sizeof(key), "%.*s", (int)length, p);
    DIT_RETURN_IF_NOT_OK(assign(options, option, key, "default", equals + 1, DIT_SOURCE_DEFAULT, err));
    p += length + 1;
  }
  return DIT_OK;
}

static enum dit_status load_defaults(struct dit_tool_options *options, struct dit_error *err) {
  for (int i = 0; i < dit_tool_option_get_count(); i++) {
    const struct dit_tool_option_info *info = dit_tool_option_get_info(i);
    if (!(info->tools & 1u << options->tool)) {
      continue;
    }
    const char *text = info->option.default_text;
    DIT_RETURN_IF_NOT_OK(info->scope == DIT_SCOPE_PATTERN
                             ? load_pattern_default(options, i, text, err)
                             : assign(options, i, NULL, "default", text, DIT_SOURCE_DEFAULT, err));
  }
  return DIT_OK;
}

// Environment

static enum dit_status load_variable(struct dit_tool_options *options, int option, const char *key, const char *name,
                                     const char *text, struct dit_error *err) {
  enum dit_option_type type = dit_tool_option_get_info(option)->option.type;
  bool may_be_empty = type == DIT_OPTION_NAMES || type == DIT_OPTION_CASTS;  // no operator; no cast
  if (!text || (*text == '\0' && !may_be_empty)) {
    return DIT_OK;
  }
  char origin[160];
  snprintf(origin, sizeof(origin), "environment variable %.120s", name);
  return assign(options, option, key, origin, text, DIT_SOURCE_ENVIRONMENT, err);
}

/// Every variable with the suffix of a pattern.
static enum dit_status load_pattern(struct dit_tool_options *options, int option, struct dit_error *err) {
  for (char **entry = environ; entry && *entry; entry++) {
    char name[DIT_TOOL_VARIABLE_SIZE], key[DIT_TOOL_VARIABLE_SIZE];
    if (dit_tool_variable_read(*entry, name) && dit_tool_variable_match(option, name, key)) {
      DIT_RETURN_IF_NOT_OK(load_variable(options, option, key, name, *entry + strlen(name) + 1, err));
    }
  }
  return DIT_OK;
}

static enum dit_status load_environment(struct dit_tool_options *options, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_tool_variables_check(err));
  for (int i = 0; i < dit_tool_option_get_count(); i++) {
    const struct dit_tool_option_info *info = dit_tool_option_get_info(i);
    if (!(info->tools & 1u << options->tool)) {
      continue;
    }
    if (info->scope == DIT_SCOPE_PATTERN) {
      DIT_RETURN_IF_NOT_OK(load_pattern(options, i, err));
      continue;
    }
    char name[DIT_TOOL_VARIABLE_SIZE];
    for (int position = 2; position >= 0; position--) {
      if (dit_tool_option_get_variable(i, (int)options->tool, position, name, sizeof(name))) {
        DIT_RETURN_IF_NOT_OK(load_variable(options, i, NULL, name, getenv(name), err));
      }
    }
  }
  return DIT_OK;
}

// Names of arguments and TOML keys

/// The option of `tool` (-1: of any, as [op_tools] may have it) that is called `name`; a PATTERN by its key in front,
/// as in its variable, in any case. -1 when there is none.
static int find_option(int tool, const char *name, char key[DIT_TOOL_VARIABLE_SIZE]) {
  for (int i = 0; i < dit_tool_option_get_count(); i++) {
    const struct dit_tool_option_info *info = dit_tool_option_get_info(i);
    bool fits = tool < 0 ? info->scope != DIT_SCOPE_OWN : (info->tools & 1u << tool) != 0;
    if (fits && info->scope != DIT_SCOPE_PATTERN && strcmp(info->option.name, name) == 0) {
      key[0] = '\0';
      return i;
    }
    if (fits && info->scope == DIT_SCOPE_PATTERN && dit_tool_variable_match(i, name, key)) {
      return i;
    }
  }
  return -1;
}

/// True for an option that error messages offer: of the tool, or (-1) of [op_tools]; each name once.
static bool is_offered(int tool, int option) {
  const struct dit_tool_option_info *info = dit_tool_option_get_info(option);
  bool fits = tool < 0 ? info->scope == DIT_SCOPE_SHARED : (info->tools & 1u << tool) != 0;
  for (int i = 0; fits && i < option; i++) {
    fits = tool >= 0 || strcmp(dit_tool_option_get_info(i)->option.name, info->option.name) != 0;
  }
  return fits && info->scope != DIT_SCOPE_PATTERN;
}

/// The names of the options by commas; returns the one nearest to `name`.
static const char *list_options(int tool, const char *name, char *buffer, size_t size) {
  const char *nearest = "";
  int best = DIT_EDIT_LENGTH + 1;
  size_t used = 0;
  buffer[0] = '\0';
  for (int i = 0; i < dit_tool_option_get_count(); i++) {
    if (!is_offered(tool, i)) {
      continue;
    }
    const char *offered = dit_tool_option_get_info(i)->option.name;
    int n = used < size ? snprintf(buffer + used, size - used, "%s%s", used ? ", " : "", offered) : 0;
    used += n > 0 ? (size_t)n : 0;
    int distance = dit_edit_distance_get(name, offered);
    if (distance < best) {
      best = distance;
      nearest = offered;
    }
  }
  return nearest;
}

static enum dit_status refuse_name(int tool, const char *place, const char *name, struct dit_error *err) {
  char names[640], key[DIT_TOOL_VARIABLE_SIZE];
  const char *nearest = list_options(tool, name, names, sizeof(names));
  for (int other = 0; other < DIT_TOOL_COUNT; other++) {
    if (find_option(other, name, key) >= 0) {
      return dit_error_set(err, DIT_ERR_INVALID, "%s'%.80s' is an option of %s%s%s; the options here are %s", place,
                           name, dit_tool_get_name(other), tool < 0 ? " alone" : ", not of ",
                           tool < 0 ? "" : dit_tool_get_name(tool), names);
    }
  }
  return dit_error_set(err, DIT_ERR_INVALID, "%s'%.80s' is not an option of %s; did you mean '%s'? The options are %s",
                       place, name, tool < 0 ? "the operator tools" : dit_tool_get_name(tool), nearest, names);
}

// File

/// Splits "op_tools.capture.layout" into the tool (-1: none) and the name; false for entries that are not ours. The
/// process monitor is a program of its own that reads variables alone: it has no table.
static bool split_path(const char *path, int *tool, const char **name) {
  if (strncmp(path, "op_tools.", 9) != 0) {
    return false;
  }
  *tool = -1;
  *name = path + 9;
  for (int i = 0; i < DIT_TOOL_COUNT; i++) {
    size_t length = strlen(dit_tool_get_name(i));
    if (i != DIT_TOOL_PROCESS_MONITOR && strncmp(*name, dit_tool_get_name(i), length) == 0 && (*name)[length] == '.') {
      *tool = i;
      *name += length + 1;
      break;
    }
  }
  return true;
}

static enum dit_status load_entry(struct dit_tool_options *options, const char *path, bool own,
                                  const struct dit_toml_entry *entry, struct dit_error *err) {
  int tool = -1;
  const char *name = NULL;
  char place[256], key[DIT_TOOL_VARIABLE_SIZE];
  snprintf(place, sizeof(place), "%.200s:%d:%d: ", path, entry->line, entry->column);
  if (!split_path(entry->path, &tool, &name)) {
    return strcmp(entry->path, "op_tools") != 0
               ? DIT_OK
               : dit_error_set(err, DIT_ERR_INVALID, "%s'op_tools' must be a table: write [op_tools]", place);
  }
  if (find_option(tool, name, key) < 0) {
    return refuse_name(tool, place, name, err);
  }
  int option = find_option((int)options->tool, name, key);
  if ((tool >= 0) != own || (own && tool != (int)options->tool) || option < 0) {
    return DIT_OK;
  }
  char origin[400], *text = NULL;
  snprintf(origin, sizeof(origin), "%soption '%.80s'", place, name);
  const struct dit_tool_option_info *info = dit_tool_option_get_info(option);
  DIT_RETURN_IF_NOT_OK(dit_option_read_toml(info->option.type, origin, &entry->value, &text, err));
  enum dit_status status = assign(options, option, *key ? key : NULL, origin, text, DIT_SOURCE_FILE, err);
  dit_free(text);
  return status;
}

static enum dit_status load_file(struct dit_tool_options *options, const char *path, struct dit_error *err) {
  struct dit_toml_document document = {0};
  DIT_RETURN_IF_NOT_OK(dit_toml_read(path, &document, err));
  enum dit_status status = DIT_OK;
  for (int own = 0; own < 2; own++) {
    for (size_t i = 0; status == DIT_OK && i < document.count; i++) {
      status = load_entry(options, path, own != 0, &document.entries[i], err);
    }
  }
  dit_toml_reset(&document);
  return status;
}

// Arguments

static enum dit_status load_argument(struct dit_tool_options *options, const struct dit_tool_argument *argument,
                                     struct dit_error *err) {
  char key[DIT_TOOL_VARIABLE_SIZE], origin[128];
  int option = argument->name ? find_option((int)options->tool, argument->name, key) : -1;
  if (option < 0) {
    return refuse_name((int)options->tool, "", argument->name ? argument->name : "(null)", err);
  }
  snprintf(origin, sizeof(origin), "option '%.80s'", argument->name);
  if (!argument->text) {
    return dit_error_set(err, DIT_ERR_INVALID, "%s has no value", origin);
  }
  return assign(options, option, *key ? key : NULL, origin, argument->text, DIT_SOURCE_ARGUMENT, err);
}

enum dit_status dit_tool_options_create(enum dit_tool tool, const char *toml_path,
                                        const struct dit_tool_argument *arguments, size_t count,
                                        struct dit_tool_options **options, struct dit_error *err) {
  if ((int)tool < 0 || tool >= DIT_TOOL_COUNT) {
    return dit_error_set(err, DIT_ERR_INVALID, "tool %d does not exist; the tools are 0 to %d", (int)tool,
                         DIT_TOOL_COUNT - 1);
  }
  struct dit_tool_options *fresh = dit_calloc(1, sizeof(*fresh));
  if (!fresh) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the options of %s", dit_tool_get_name((int)tool));
  }
  fresh->tool = tool;
  enum dit_status status = load_defaults(fresh, err);
  if (status == DIT_OK && toml_path && *toml_path) {
    status = load_file(fresh, toml_path, err);
  }
  if (status == DIT_OK) {
    status = load_environment(fresh, err);
  }
  for (size_t i = 0; status == DIT_OK && i < count; i++) {
    status = load_argument(fresh, &arguments[i], err);
  }
  if (status != DIT_OK) {
    dit_tool_options_destroy(fresh);
    return status;
  }
  *options = fresh;
  return DIT_OK;
}
