/// Typed options: the values, where they came from, and how a new set of them is put in place.
///
/// Invariant: values change all together or not at all: a load builds a complete new set aside and swaps it in under
/// the mutex. Precedence: argument, environment, file, default. The environment is read, never written. Depends on
/// toml, option_parse, log and thread_pool.
#include "dit/options.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/edit_distance.h"
#include "core/option_list.h"
#include "core/option_parse.h"
#include "core/toml.h"
#include "dit/alloc.h"
#include "dit/log.h"
#include "dit/parallel.h"

enum option_index {
#define OPTION_INDEX(name, ...) OPTION_##name,
  DIT_OPTION_LIST(OPTION_INDEX)
#undef OPTION_INDEX
      OPTION_COUNT
};

static const struct dit_option_info schema[OPTION_COUNT] = {
#define OPTION_ROW(name, environment, type, text, choices, min, max, help) \
  {#name, environment, DIT_OPTION_##type, text, choices, min, max, help},
    DIT_OPTION_LIST(OPTION_ROW)
#undef OPTION_ROW
};

static const struct dit_option_alias aliases[] = {
#define OPTION_ALIAS(variable, name, unit) {variable, #name, unit},
    DIT_OPTION_ALIAS_LIST(OPTION_ALIAS)
#undef OPTION_ALIAS
};

/// `text` NULL: the default.
struct option_value {
  char *text;
  int64_t number;
  enum dit_option_source source;
  const char *variable;  ///< ENVIRONMENT: the one that was read, our own or an alias
};

struct option_set {
  struct option_value values[OPTION_COUNT];
};

static pthread_mutex_t options_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct option_set current;                      ///< guarded by options_mutex
static _Atomic int64_t current_numbers[OPTION_COUNT];  ///< the same values, for readers without the mutex
static int64_t default_numbers[OPTION_COUNT];
static pthread_once_t defaults_once = PTHREAD_ONCE_INIT;

extern char **environ;

/// The default of a schema entry as a number. The schema is our own text: it always parses (tested).
static int64_t parse_default(const struct dit_option_info *info) {
  if (info->type == DIT_OPTION_CHOICE) {
    int64_t index = 0;
    size_t length = strlen(info->default_text);
    for (const char *p = info->choices; strncmp(p, info->default_text, length) != 0; p++) {
      index += *p == '|';
    }
    return index;
  }
  if (info->type == DIT_OPTION_SIZE) {
    int64_t bytes = 0;
    (void)!dit_size_parse(info->default_text, &bytes, NULL);
    return bytes;
  }
  return info->type >= DIT_OPTION_STRING ? 0 : strtoll(info->default_text, NULL, 10);
}

static void lock_options(void) {
  pthread_mutex_lock(&options_mutex);
}

static void unlock_options(void) {
  pthread_mutex_unlock(&options_mutex);
}

/// Runs once, before the mutex is first taken. A fork waits for a change in progress, so that the child finds a whole
/// set.
static void prepare_defaults(void) {
  (void)pthread_atfork(lock_options, unlock_options, unlock_options);
  for (int i = 0; i < OPTION_COUNT; i++) {
    default_numbers[i] = parse_default(&schema[i]);
    atomic_store_explicit(&current_numbers[i], default_numbers[i], memory_order_relaxed);
  }
}

int dit_option_get_count(void) {
  return OPTION_COUNT;
}

const struct dit_option_info *dit_option_get_info(int index) {
  return index >= 0 && index < OPTION_COUNT ? &schema[index] : NULL;
}

const struct dit_option_alias *dit_option_get_alias(int index) {
  return index >= 0 && (size_t)index < sizeof(aliases) / sizeof(aliases[0]) ? &aliases[index] : NULL;
}

int dit_option_find(const char *name) {
  for (int i = 0; name && i < OPTION_COUNT; i++) {
    if (strcmp(name, schema[i].name) == 0 || strcmp(name, schema[i].environment) == 0) {
      return i;
    }
  }
  return -1;
}

/// The index whose name (or environment name) is nearest to `text`.
static int find_nearest(const char *text, bool environment) {
  int best = 0, best_distance = DIT_EDIT_LENGTH + 1;
  for (int i = 0; i < OPTION_COUNT; i++) {
    int distance = dit_edit_distance_get(text, environment ? schema[i].environment : schema[i].name);
    if (distance < best_distance) {
      best = i;
      best_distance = distance;
    }
  }
  return best;
}

/// "alias, alloc_conf, ..." for error messages.
static void list_names(char *buffer, size_t size) {
  size_t used = 0;
  buffer[0] = '\0';
  for (int i = 0; i < OPTION_COUNT && used < size; i++) {
    int n = snprintf(buffer + used, size - used, "%s%s", i ? ", " : "", schema[i].name);
    used += n > 0 ? (size_t)n : 0;
  }
}

static enum dit_status refuse_name(const char *origin, const char *name, struct dit_error *err) {
  char names[1024];
  list_names(names, sizeof(names));
  return dit_error_set(err, DIT_ERR_INVALID, "%s'%.100s' is not an option; did you mean '%s'? The options are %s",
                       origin, name, schema[find_nearest(name, false)].name, names);
}

static void reset_set(struct option_set *set) {
  for (int i = 0; i < OPTION_COUNT; i++) {
    dit_free(set->values[i].text);
    set->values[i] = (struct option_value){0};
  }
}

/// Parse and store one value in a set; a value already there is replaced.
static enum dit_status assign(struct option_set *set, int index, const char *origin, const char *text,
                              enum dit_option_source source, struct dit_error *err) {
  struct option_value value = {.source = source};
  DIT_RETURN_IF_NOT_OK(dit_option_parse(&schema[index], origin, text, &value.number, &value.text, err));
  dit_free(set->values[index].text);
  set->values[index] = value;
  return DIT_OK;
}

/// An empty variable counts as unset; a foreign variable (CUDA_VISIBLE_DEVICES) keeps its own meaning of empty, which
/// its reader recognises by the source.
static bool is_set(const struct dit_option_info *info, const char *text) {
  if (!text) {
    return false;
  }
  bool foreign = strncmp(info->environment, "DITORCH_", 8) != 0;
  return *text != '\0' || (foreign && info->type == DIT_OPTION_STRING);
}

/// Refuse DITORCH_* variables that nobody reads: a misspelt option must not be ignored.
static enum dit_status check_environment_names(struct dit_error *err) {
  for (char **entry = environ; entry && *entry; entry++) {
    const char *equals = strchr(*entry, '=');
    if (strncmp(*entry, "DITORCH_", 8) != 0 || !equals || equals[1] == '\0') {
      continue;
    }
    char name[128];
    snprintf(name, sizeof(name), "%.*s", (int)(equals - *entry), *entry);
    if (dit_option_find(name) < 0) {
      return dit_error_set(err, DIT_ERR_INVALID,
                           "environment variable %s is not an option of ditorch; did you mean %s? Correct or unset it",
                           name, schema[find_nearest(name, true)].environment);
    }
  }
  return DIT_OK;
}

/// Variables under another name; those of ditorch's own, read later, replace their values.
static enum dit_status load_aliases(struct option_set *set, struct dit_error *err) {
  for (int i = 0; dit_option_get_alias(i); i++) {
    const char *text = getenv(aliases[i].variable);
    if (!text || !*text) {
      continue;
    }
    char origin[128], *value = dit_malloc(strlen(text) + sizeof("MiB"));
    if (!value) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the value of %s", aliases[i].variable);
    }
    sprintf(value, "%s%s", text, aliases[i].unit);
    snprintf(origin, sizeof(origin), "environment variable %s", aliases[i].variable);
    int index = dit_option_find(aliases[i].option);
    enum dit_status status = assign(set, index, origin, value, DIT_SOURCE_ENVIRONMENT, err);
    dit_free(value);
    DIT_RETURN_IF_NOT_OK(status);
    set->values[index].variable = aliases[i].variable;
  }
  return DIT_OK;
}

static enum dit_status load_environment(struct option_set *set, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(check_environment_names(err));
  DIT_RETURN_IF_NOT_OK(load_aliases(set, err));
  for (int i = 0; i < OPTION_COUNT; i++) {
    const char *text = getenv(schema[i].environment);
    if (is_set(&schema[i], text)) {
      char origin[128];
      snprintf(origin, sizeof(origin), "environment variable %s", schema[i].environment);
      DIT_RETURN_IF_NOT_OK(assign(set, i, origin, text, DIT_SOURCE_ENVIRONMENT, err));
      set->values[i].variable = schema[i].environment;
    }
  }
  return DIT_OK;
}

/// The option name of a path inside [ditorch]; NULL for entries that are not ours.
static const char *get_entry_name(const struct dit_toml_entry *entry) {
  return strncmp(entry->path, "ditorch.", 8) == 0 ? entry->path + 8 : NULL;
}

static enum dit_status load_entry(struct option_set *set, const char *path, const struct dit_toml_entry *entry,
                                  struct dit_error *err) {
  char place[256];
  snprintf(place, sizeof(place), "%.200s:%d:%d: ", path, entry->line, entry->column);
  const char *name = get_entry_name(entry);
  if (!name) {
    if (dit_option_find(entry->path) >= 0) {
      return dit_error_set(err, DIT_ERR_INVALID, "%soption '%s' stands outside of the table [ditorch]; move it there",
                           place, entry->path);
    }
    return strcmp(entry->path, "ditorch") != 0
               ? DIT_OK
               : dit_error_set(err, DIT_ERR_INVALID, "%s'ditorch' must be a table: write [ditorch]", place);
  }
  int index = dit_option_find(name);
  if (index < 0 || strcmp(name, schema[index].name) != 0) {
    return refuse_name(place, name, err);
  }
  if (index == OPTION_config) {
    return dit_error_set(err, DIT_ERR_INVALID, "%s'config' names this file and cannot be set in it; remove it", place);
  }
  char origin[512], *text = NULL;
  snprintf(origin, sizeof(origin), "%soption '%s'", place, name);
  DIT_RETURN_IF_NOT_OK(dit_option_read_toml(schema[index].type, origin, &entry->value, &text, err));
  enum dit_status status = assign(set, index, origin, text, DIT_SOURCE_FILE, err);
  dit_free(text);
  return status;
}

static enum dit_status load_file(struct option_set *set, const char *path, struct dit_error *err) {
  struct dit_toml_document document = {0};
  DIT_RETURN_IF_NOT_OK(dit_toml_read(path, &document, err));
  enum dit_status status = DIT_OK;
  for (size_t i = 0; status == DIT_OK && i < document.count; i++) {
    status = load_entry(set, path, &document.entries[i], err);
  }
  dit_toml_reset(&document);
  return status;
}

/// Move every value that `over` has onto `set`.
static void overlay(struct option_set *set, struct option_set *over) {
  for (int i = 0; i < OPTION_COUNT; i++) {
    if (over->values[i].text) {
      dit_free(set->values[i].text);
      set->values[i] = over->values[i];
      over->values[i] = (struct option_value){0};
    }
  }
}

/// Tell the parts of core that keep a copy of their option.
static void apply_change(int index, int64_t number) {
  if (index == OPTION_log_level) {
    dit_log_set_level((enum dit_log_level)number);
  } else if (index == OPTION_num_threads) {
    dit_parallel_set_threads((int)number);
  }
}

/// Make `fresh` the current set; takes its values. The mutex is held.
static void publish(struct option_set *fresh) {
  struct option_set old = current;
  current = *fresh;
  *fresh = (struct option_set){0};
  for (int i = 0; i < OPTION_COUNT; i++) {
    int64_t number = current.values[i].text ? current.values[i].number : default_numbers[i];
    if (atomic_exchange_explicit(&current_numbers[i], number, memory_order_relaxed) != number) {
      apply_change(i, number);
    }
  }
  reset_set(&old);
}

/// Copies of the arguments of the current set: they outlive a load. The mutex is held.
static enum dit_status copy_arguments(struct option_set *set, struct dit_error *err) {
  for (int i = 0; i < OPTION_COUNT; i++) {
    const struct option_value *value = &current.values[i];
    if (value->text && value->source == DIT_SOURCE_ARGUMENT) {
      char *copy = dit_strdup(value->text);
      if (!copy) {
        return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the value of option '%s'", schema[i].name);
      }
      set->values[i] = (struct option_value){copy, value->number, DIT_SOURCE_ARGUMENT, NULL};
    }
  }
  return DIT_OK;
}

/// The path of the configuration file: the argument, else what option `config` says; NULL for none.
static const char *choose_path(const char *toml_path, const struct option_set *arguments,
                               const struct option_set *environment) {
  const char *path = toml_path;
  if (!path) {
    path = arguments->values[OPTION_config].text;
  }
  if (!path) {
    path = environment->values[OPTION_config].text;
  }
  return path && *path ? path : NULL;
}

enum dit_status dit_options_load(const char *toml_path, struct dit_error *err) {
  pthread_once(&defaults_once, prepare_defaults);
  struct option_set arguments = {0}, environment = {0}, file = {0};
  pthread_mutex_lock(&options_mutex);
  enum dit_status status = copy_arguments(&arguments, err);
  if (status == DIT_OK) {
    status = load_environment(&environment, err);
  }
  const char *path = choose_path(toml_path, &arguments, &environment);
  if (status == DIT_OK && path) {
    status = load_file(&file, path, err);
  }
  if (status == DIT_OK) {
    overlay(&file, &environment);
    overlay(&file, &arguments);
    publish(&file);
  }
  pthread_mutex_unlock(&options_mutex);
  reset_set(&arguments);
  reset_set(&environment);
  reset_set(&file);
  return status;
}

enum dit_status dit_option_set(const char *name, const char *text, struct dit_error *err) {
  pthread_once(&defaults_once, prepare_defaults);
  int index = dit_option_find(name);
  if (index < 0) {
    return refuse_name("", name ? name : "(null)", err);
  }
  if (!text) {
    return dit_error_set(err, DIT_ERR_INVALID, "option '%s' has no value; the default is '%s'", schema[index].name,
                         schema[index].default_text);
  }
  char origin[128];
  snprintf(origin, sizeof(origin), "option '%s'", schema[index].name);
  pthread_mutex_lock(&options_mutex);
  enum dit_status status = assign(&current, index, origin, text, DIT_SOURCE_ARGUMENT, err);
  if (status == DIT_OK) {
    atomic_store_explicit(&current_numbers[index], current.values[index].number, memory_order_relaxed);
    apply_change(index, current.values[index].number);
  }
  pthread_mutex_unlock(&options_mutex);
  return status;
}

void dit_options_reset(void) {
  pthread_once(&defaults_once, prepare_defaults);
  struct option_set empty = {0};
  pthread_mutex_lock(&options_mutex);
  publish(&empty);
  pthread_mutex_unlock(&options_mutex);
}

const char *dit_option_get_text(int index) {
  if (index < 0 || index >= OPTION_COUNT) {
    return "";
  }
  pthread_once(&defaults_once, prepare_defaults);
  pthread_mutex_lock(&options_mutex);
  const char *text = current.values[index].text;
  pthread_mutex_unlock(&options_mutex);
  return text ? text : schema[index].default_text;
}

int64_t dit_option_get_int(int index) {
  pthread_once(&defaults_once, prepare_defaults);
  return index < 0 || index >= OPTION_COUNT ? 0 : atomic_load_explicit(&current_numbers[index], memory_order_relaxed);
}

const char *dit_option_get_variable(int index) {
  if (index < 0 || index >= OPTION_COUNT) {
    return NULL;
  }
  pthread_once(&defaults_once, prepare_defaults);
  pthread_mutex_lock(&options_mutex);
  const char *variable = current.values[index].variable;
  pthread_mutex_unlock(&options_mutex);
  return variable;
}

enum dit_option_source dit_option_get_source(int index) {
  if (index < 0 || index >= OPTION_COUNT) {
    return DIT_SOURCE_DEFAULT;
  }
  pthread_once(&defaults_once, prepare_defaults);
  pthread_mutex_lock(&options_mutex);
  enum dit_option_source source = current.values[index].source;
  pthread_mutex_unlock(&options_mutex);
  return source;
}
