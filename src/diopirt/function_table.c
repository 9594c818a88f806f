/// The functions of the standard by number and by name, and calls of them with arguments from an array.
#include <stdlib.h>
#include <string.h>

#include "dit/diopi.h"

static const struct dit_diopi_info functions[DIT_DIOPI_COUNT] = {
#define DIOPI_QUERY(name, header, family) {#name, header, family, "", ""},
#define DIOPI_FUNCTION(name, header, family, parameters, values, packed, kinds, names) \
  {#name, header, family, kinds, names},
#include "diopi/functions.inc"
};

const struct dit_diopi_info *dit_diopi_get_functions(int *count) {
  if (count) {
    *count = DIT_DIOPI_COUNT;
  }
  return functions;
}

int dit_diopi_find_function(const char *name) {
  for (int i = 0; name && i < DIT_DIOPI_COUNT; i++) {
    if (strcmp(functions[i].name, name) == 0) {
      return i;
    }
  }
  return -1;
}

/// The standard names lists in the plural; `counts` of diopiUnique is one result.
bool dit_diopi_is_list(int function, int parameter) {
  if (function < 0 || function >= DIT_DIOPI_COUNT) {
    return false;
  }
  const char *name = functions[function].names;
  for (int i = 0; i < parameter && name; i++) {
    name = strchr(name, ',');
    name = name ? name + 1 : NULL;
  }
  const size_t length = name ? strcspn(name, ",") : 0;
  return length > 0 && name[length - 1] == 's' && strncmp(name, "counts", length) != 0;
}

int dit_diopi_count_results(int function, int parameter) {
  static const struct {
    int function, parameter, count;
  } several[] = {
#define DIOPI_FUNCTION(...)
#define DIOPI_RESULTS(name, parameter, count) {DIT_DIOPI_##name, parameter, count},
#include "diopi/functions.inc"
  };
  for (size_t i = 0; i < sizeof several / sizeof several[0]; i++) {
    if (several[i].function == function && several[i].parameter == parameter) {
      return several[i].count;
    }
  }
  return 1;
}

#define DIOPI_FUNCTION(name, header, family, parameters, values, packed, kinds, names)                    \
  static diopiError_t call_##name(const struct dit_diopi_vtable *table, const union dit_diopi_value *v) { \
    return table->name ? table->name values : diopiNoImplement;                                           \
  }
#include "diopi/functions.inc"

typedef diopiError_t call_function(const struct dit_diopi_vtable *table, const union dit_diopi_value *v);

static call_function *const calls[DIT_DIOPI_COUNT] = {
#define DIOPI_FUNCTION(name, header, family, parameters, values, packed, kinds, names) [DIT_DIOPI_##name] = call_##name,
#include "diopi/functions.inc"
};

diopiError_t dit_diopi_invoke(const struct dit_diopi_vtable *table, int function, const union dit_diopi_value *values) {
  if (!table || function < 0 || function >= DIT_DIOPI_COUNT || !calls[function]) {
    return diopiNoImplement;
  }
  return calls[function](table, values);
}
