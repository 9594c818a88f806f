/// The schema of the operator tools' options and their names in the environment.
///
/// Invariant: dit_tool_option_get_variable is the only place that spells a variable; everything else (reading,
/// checking, documentation) asks it. Depends on option_list.
#include "core/tool_variables.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/edit_distance.h"
#include "core/option_list.h"

/// Sets of tools, for the column `tools` of the list.
enum {
#define TOOL_BIT(constant, name) TOOLS_##constant = 1 << DIT_TOOL_##constant,
  DIT_TOOL_LIST(TOOL_BIT)
#undef TOOL_BIT
      TOOLS_HOOKS = ((1 << DIT_TOOL_COUNT) - 1) & ~TOOLS_PROCESS_MONITOR,
  TOOLS_SAVERS = TOOLS_CAPTURE | TOOLS_OVERFLOW_CHECK | TOOLS_AUTOCOMPARE,
  TOOLS_KEEPERS = TOOLS_CAPTURE | TOOLS_AUTOCOMPARE,
  TOOLS_FINDERS = TOOLS_OVERFLOW_CHECK | TOOLS_AUTOCOMPARE,
  TOOLS_CASTERS = TOOLS_DTYPE_CAST | TOOLS_AUTOCOMPARE,
  TOOLS_BACKWARD = TOOLS_HOOKS & ~(TOOLS_OBSERVE | TOOLS_FALLBACK | TOOLS_DTYPE_CAST),
};

static const struct dit_tool_option_info schema[] = {
#define TOOL_ROW(name, tools, scope, environment, type, text, choices, min, max, help) \
  {{#name, environment, DIT_OPTION_##type, text, choices, min, max, help}, TOOLS_##tools, DIT_SCOPE_##scope},
    DIT_TOOL_OPTION_LIST(TOOL_ROW)
#undef TOOL_ROW
};
enum { OPTION_COUNT = sizeof(schema) / sizeof(schema[0]) };

static const char *const tool_names[DIT_TOOL_COUNT] = {
#define TOOL_NAME(constant, name) [DIT_TOOL_##constant] = name,
    DIT_TOOL_LIST(TOOL_NAME)
#undef TOOL_NAME
};

static const struct {
  const char *variable;
  enum dit_tool tool;
  const char *option;
} aliases[] = {
#define TOOL_ALIAS(variable, tool, option) {variable, DIT_TOOL_##tool, option},
    DIT_TOOL_ALIAS_LIST(TOOL_ALIAS)
#undef TOOL_ALIAS
};

static const char *const retired[] = {
#define TOOL_RETIRED(variable) variable,
    DIT_TOOL_RETIRED_LIST(TOOL_RETIRED)
#undef TOOL_RETIRED
};

const char *dit_tool_get_name(int tool) {
  return tool >= 0 && tool < DIT_TOOL_COUNT ? tool_names[tool] : NULL;
}

int dit_tool_find(const char *name) {
  for (int i = 0; name && i < DIT_TOOL_COUNT; i++) {
    if (strcmp(tool_names[i], name) == 0) {
      return i;
    }
  }
  return -1;
}

int dit_tool_option_get_count(void) {
  return OPTION_COUNT;
}

const struct dit_tool_option_info *dit_tool_option_get_info(int index) {
  return index >= 0 && index < OPTION_COUNT ? &schema[index] : NULL;
}

/// ASCII upper case in place.
static void raise_case(char *text) {
  for (; *text; text++) {
    *text = *text >= 'a' && *text <= 'z' ? (char)(*text - 32) : *text;
  }
}

static const char *find_alias(int index, int tool) {
  for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
    if ((int)aliases[i].tool == tool && strcmp(aliases[i].option, schema[index].option.name) == 0) {
      return aliases[i].variable;
    }
  }
  return NULL;
}

bool dit_tool_option_get_variable(int index, int tool, int position, char *buffer, size_t size) {
  const struct dit_tool_option_info *info = dit_tool_option_get_info(index);
  if (!info || !dit_tool_get_name(tool) || !(info->tools & 1u << tool)) {
    return false;
  }
  if (info->scope == DIT_SCOPE_NAMED || info->scope == DIT_SCOPE_PATTERN) {
    snprintf(buffer, size, "%s%s", info->scope == DIT_SCOPE_PATTERN ? "<OP>" : "", info->option.environment);
    return position == 0;
  }
  const char *alias = find_alias(index, tool);
  if (position == 0) {
    snprintf(buffer, size, "OP_%s_%s", tool_names[tool], info->option.name);
    raise_case(buffer);
    return true;
  }
  if (alias && position == 1) {
    snprintf(buffer, size, "%s", alias);
    return true;
  }
  snprintf(buffer, size, "OP_TOOLS_%s", info->option.name);
  raise_case(buffer);
  return info->scope == DIT_SCOPE_SHARED && position == (alias ? 2 : 1);
}

bool dit_tool_variable_read(const char *entry, char name[DIT_TOOL_VARIABLE_SIZE]) {
  size_t length = strcspn(entry, "=");
  if (entry[length] != '=' || length == 0 || length >= DIT_TOOL_VARIABLE_SIZE) {
    return false;
  }
  memcpy(name, entry, length);
  name[length] = '\0';
  return true;
}

bool dit_tool_variable_match(int index, const char *name, char key[DIT_TOOL_VARIABLE_SIZE]) {
  const struct dit_tool_option_info *info = dit_tool_option_get_info(index);
  if (!info || info->scope != DIT_SCOPE_PATTERN) {
    return false;
  }
  size_t length = strlen(name), suffix = strlen(info->option.environment);
  if (length <= suffix || length >= DIT_TOOL_VARIABLE_SIZE ||
      strcasecmp(name + length - suffix, info->option.environment) != 0) {
    return false;
  }
  memcpy(key, name, length - suffix);
  key[length - suffix] = '\0';
  raise_case(key);
  return strcmp(key, "OP") != 0;  // OP_AUTOCOMPARE_...: a slip for the variable of all operators
}

/// Where the part of a tolerance's variable begins that all operators share: AUTOCOMPARE_ERROR_... with or without the
/// name of an operator before it. NULL: the variable is no tolerance, however it is spelt.
static const char *find_tolerance(const char *name) {
  static const char word[] = "AUTOCOMPARE_ERR";
  const char *found = strstr(name, word);
  return found && (found == name || found[-1] == '_') ? found : NULL;
}

static bool has_prefix(const char *name) {
  if (strncmp(name, "OP_", 3) != 0) {
    return find_tolerance(name) != NULL;
  }
  const char *rest = name + 3;
  if (strncmp(rest, "TOOLS_", 6) == 0 || strncmp(rest, "DISPATCH_WATCH_", 15) == 0) {
    return true;
  }
  for (int i = 0; i < DIT_TOOL_COUNT; i++) {
    char prefix[64];
    int length = snprintf(prefix, sizeof(prefix), "%s_", tool_names[i]);
    raise_case(prefix);
    if (strncmp(rest, prefix, (size_t)length) == 0) {
      return true;
    }
  }
  return false;
}

/// Calls `visit` with every variable that has a fixed name until it returns true.
static bool visit_variables(bool (*visit)(const char *name, void *context), void *context) {
  char name[DIT_TOOL_VARIABLE_SIZE];
  for (int i = 0; i < OPTION_COUNT; i++) {
    for (int tool = 0; schema[i].scope != DIT_SCOPE_PATTERN && tool < DIT_TOOL_COUNT; tool++) {
      for (int position = 0; dit_tool_option_get_variable(i, tool, position, name, sizeof(name)); position++) {
        if (visit(name, context)) {
          return true;
        }
      }
    }
  }
  return false;
}

static bool is_same(const char *name, void *context) {
  return strcmp(name, context) == 0;
}

static bool is_pattern(const char *name) {
  char key[DIT_TOOL_VARIABLE_SIZE];
  for (int i = 0; i < OPTION_COUNT; i++) {
    size_t length = strlen(name), suffix = schema[i].option.environment ? strlen(schema[i].option.environment) : 0;
    if (dit_tool_variable_match(i, name, key) && strcmp(name + length - suffix, schema[i].option.environment) == 0) {
      return true;
    }
  }
  return false;
}

static bool is_known(char *name) {
  for (size_t i = 0; i < sizeof(retired) / sizeof(retired[0]); i++) {
    if (strcmp(retired[i], name) == 0) {
      return true;
    }
  }
  return visit_variables(is_same, name) || is_pattern(name);
}

bool dit_tool_variable_is_ours(const char *name) {
  if (has_prefix(name) || is_pattern(name)) {
    return true;
  }
  for (int i = 0; i < OPTION_COUNT; i++) {
    if (schema[i].scope == DIT_SCOPE_NAMED && strcmp(schema[i].option.environment, name) == 0) {
      return true;
    }
  }
  return false;
}

struct nearest {
  const char *wanted;
  int distance;
  char name[DIT_TOOL_VARIABLE_SIZE];
};

static bool compare_distance(const char *name, void *context) {
  struct nearest *nearest = context;
  int distance = dit_edit_distance_get(nearest->wanted, name);
  if (distance < nearest->distance) {
    nearest->distance = distance;
    snprintf(nearest->name, sizeof(nearest->name), "%s", name);
  }
  return false;
}

enum dit_status dit_tool_variables_check(struct dit_error *err) {
  for (char **entry = environ; entry && *entry; entry++) {
    char name[DIT_TOOL_VARIABLE_SIZE];
    if (!dit_tool_variable_read(*entry, name) || !has_prefix(name) || (*entry)[strlen(name) + 1] == '\0' ||
        is_known(name)) {
      continue;
    }
    const char *tolerance = find_tolerance(name);
    int key = tolerance && strncmp(name, "OP_", 3) != 0 ? (int)(tolerance - name) : 0;  // LINEAR_AUTOCOMPARE_...
    struct nearest nearest = {.wanted = name + key, .distance = DIT_EDIT_LENGTH + 1};
    (void)visit_variables(compare_distance, &nearest);
    return dit_error_set(err, DIT_ERR_INVALID,
                         "environment variable %s is not an option of the operator tools; did you mean %.*s%s? Correct "
                         "or unset it (docs/options.md lists all)",
                         name, key, name, nearest.name);
  }
  return DIT_OK;
}
