/// Rules of a file: what entries, dtypes and layouts mean, for every function of the standard.
///
/// The entry common_config holds for every function that says nothing else about the same key; diopiCopyInp and
/// diopiCastDtype, whose purpose conversions are, are left out of it. Entries of one function add up.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapt.h"
#include "core/edit_distance.h"
#include "dit/alloc.h"
#include "yaml.h"

void adapt_rule_init(struct adapt_rule *rule) {
  memset(rule, 0, sizeof *rule);
  memset(rule->to, -1, sizeof rule->to);
  for (int i = 0; i < ADAPT_TENSOR_RULES; i++) {
    memset(rule->tensors[i].to, -1, sizeof rule->tensors[i].to);
  }
}

struct reading {
  struct adapt_rule *rules, common;
  bool has_dtype[DIT_DIOPI_COUNT], has_layout[DIT_DIOPI_COUNT];
};

// Words

static const char *skip_blanks(const char *at) {
  return at + strspn(at, " \t,");
}

/// One word of letters and digits; NULL when there is none or it is too long.
static const char *take_word(const char *at, char *word, size_t size) {
  const size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
  if (length == 0 || length >= size) {
    return NULL;
  }
  memcpy(word, at, length);
  word[length] = 0;
  return at + length;
}

static enum dit_status find_dtype(const char *name, int *out, struct dit_error *err) {
  int best = -1, distance = 1000;
  for (int i = 0; i < ADAPT_DTYPES; i++) {
    const int own = dit_diopi_find_dtype((diopiDtype_t)i);
    const char *known = i == diopi_dtype_tfloat32 ? "tfloat32" : dit_dtype_get_name(own);
    const int far = dit_edit_distance_get(name, known);
    if (far < distance) {
      best = i;
      distance = far;
    }
  }
  if (distance == 0) {
    *out = best;
    return DIT_OK;
  }
  return dit_error_set(err, DIT_ERR_INVALID, "there is no dtype '%s'; did you mean '%s'?", name,
                       dit_dtype_get_name(dit_diopi_find_dtype((diopiDtype_t)best)));
}

/// "(int64, uint8)->int32, (float64)->float32"
static enum dit_status parse_dtypes(const char *text, int8_t *to, struct dit_error *err) {
  int8_t found[ADAPT_DTYPES];
  memset(found, -1, sizeof found);
  for (const char *at = skip_blanks(text); *at; at = skip_blanks(at)) {
    int from[ADAPT_DTYPES], count = 0, target;
    char word[64];
    if (*at != '(') {
      return dit_error_set(err, DIT_ERR_INVALID, "'%.60s' is no rule; the form is (int64, uint8)->int32, ...", at);
    }
    for (at = skip_blanks(at + 1); *at != ')'; at = skip_blanks(at)) {
      at = take_word(at, word, sizeof word);
      if (!at || count == ADAPT_DTYPES) {
        return dit_error_set(err, DIT_ERR_INVALID, "'%.60s' is no rule; the form is (int64, uint8)->int32", text);
      }
      DIT_RETURN_IF_NOT_OK(find_dtype(word, &from[count++], err));
    }
    at = skip_blanks(at + 1);
    if (strncmp(at, "->", 2) != 0 || !(at = take_word(skip_blanks(at + 2), word, sizeof word))) {
      return dit_error_set(err, DIT_ERR_INVALID, "'%.60s' has no '->dtype' behind ')'", text);
    }
    DIT_RETURN_IF_NOT_OK(find_dtype(word, &target, err));
    for (int i = 0; i < count; i++) {
      found[from[i]] = (int8_t)target;
    }
  }
  memcpy(to, found, sizeof found);
  return DIT_OK;
}

static enum dit_status find_layout(const char *name, uint8_t *out, struct dit_error *err) {
  static const struct {
    const char *name;
    uint8_t layout;
  } known[] = {{"NCHW", ADAPT_CONTIGUOUS},
               {"NCL", ADAPT_CONTIGUOUS},
               {"NCDHW", ADAPT_CONTIGUOUS},
               {"NHWC", ADAPT_CHANNELS_LAST},
               {"NLC", ADAPT_CHANNELS_LAST},
               {"NDHWC", ADAPT_CHANNELS_LAST},
               {"ND", ADAPT_ANY},
               {"contiguous", ADAPT_CONTIGUOUS},
               {"channels_last", ADAPT_CHANNELS_LAST}};
  size_t best = 0;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (strcmp(name, known[i].name) == 0) {
      *out = known[i].layout;
      return DIT_OK;
    }
    best = dit_edit_distance_get(name, known[i].name) < dit_edit_distance_get(name, known[best].name) ? i : best;
  }
  return dit_error_set(err, DIT_ERR_INVALID,
                       "there is no layout '%s'; did you mean '%s'? Valid: NCHW, NCL, NCDHW, "
                       "NHWC, NLC, NDHWC, ND",
                       name, known[best].name);
}

// Parameters

static enum dit_status find_tensor(int function, const char *name, int *out, struct dit_error *err) {
  const struct dit_diopi_info *info = &dit_diopi_get_functions(NULL)[function];
  char names[512], best[64] = "";
  int number = 0, distance = 1000;
  snprintf(names, sizeof names, "%s", info->names);
  for (char *rest = names, *word; (word = strtok_r(rest, ",", &rest)); number++) {
    if (!strchr("otOT", info->kinds[number])) {
      continue;
    }
    const int far = dit_edit_distance_get(name, word);
    if (far < distance) {
      distance = far;
      *out = number;
      snprintf(best, sizeof best, "%s", word);
    }
  }
  return distance == 0
             ? DIT_OK
             : dit_error_set(err, DIT_ERR_INVALID, "%s has no tensor '%s'; did you mean '%s'?", info->name, name, best);
}

static enum dit_status get_tensor_rule(struct adapt_rule *rule, int parameter, struct adapt_tensor_rule **out,
                                       struct dit_error *err) {
  for (int i = 0; i < rule->tensor_count; i++) {
    if (rule->tensors[i].parameter == parameter) {
      *out = &rule->tensors[i];
      return DIT_OK;
    }
  }
  if (rule->tensor_count == ADAPT_TENSOR_RULES) {
    return dit_error_set(err, DIT_ERR_INVALID, "more than %d tensors of a function have rules", ADAPT_TENSOR_RULES);
  }
  *out = &rule->tensors[rule->tensor_count++];
  (*out)->parameter = (int8_t)parameter;
  return DIT_OK;
}

/// "NCHW, NHWC", and "NHWC(input, weight)" for some tensors alone.
static enum dit_status parse_layouts(const char *text, int function, struct adapt_rule *rule, struct dit_error *err) {
  uint8_t all = 0;
  const char *at = text + strspn(text, " [");
  for (at = skip_blanks(at); *at && *at != ']'; at = skip_blanks(at)) {
    char word[64];
    uint8_t layout = 0;
    at = take_word(at, word, sizeof word);
    if (!at) {
      return dit_error_set(err, DIT_ERR_INVALID, "'%.60s' is no list of layouts; the form is NCHW, NHWC(input)", text);
    }
    DIT_RETURN_IF_NOT_OK(find_layout(word, &layout, err));
    if (*at != '(') {
      all |= layout;
      continue;
    }
    for (at = skip_blanks(at + 1); *at != ')'; at = skip_blanks(at)) {
      struct adapt_tensor_rule *own = NULL;
      int parameter = -1;
      at = take_word(at, word, sizeof word);
      if (!at || function < 0) {
        return dit_error_set(err, DIT_ERR_INVALID, "'%.60s': tensors in parentheses belong to a function", text);
      }
      DIT_RETURN_IF_NOT_OK(find_tensor(function, word, &parameter, err));
      DIT_RETURN_IF_NOT_OK(get_tensor_rule(rule, parameter, &own, err));
      own->layouts |= layout;
    }
    at++;
  }
  rule->layouts = all;
  return DIT_OK;
}

// Entries

static enum dit_status find_function(const char *name, int *out, struct dit_error *err) {
  int count, best = 0, distance = 1000;
  const struct dit_diopi_info *infos = dit_diopi_get_functions(&count);
  for (int i = 0; i < count; i++) {
    const int far = infos[i].kinds[0] ? dit_edit_distance_get(name, infos[i].name) : 1000;
    if (far < distance) {
      distance = far;
      best = i;
    }
  }
  if (strcmp(infos[best].name, name) != 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "the standard has no function '%s'; did you mean '%s'?", name,
                         infos[best].name);
  }
  *out = best;
  return DIT_OK;
}

static enum dit_status parse_flag(const char *text, bool *out, struct dit_error *err) {
  const bool yes = strcmp(text, "true") == 0 || strcmp(text, "True") == 0;
  if (!yes && strcmp(text, "false") != 0 && strcmp(text, "False") != 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "'%.60s' is neither true nor false", text);
  }
  *out = yes;
  return DIT_OK;
}

static enum dit_status set_tensor_dtype(struct reading *reading, int function, const char *tensor, const char *value,
                                        struct dit_error *err) {
  struct adapt_tensor_rule *own = NULL;
  int parameter = -1;
  if (function < 0 || !tensor[0]) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "tensor_dtype has a line for each tensor of a function, such as "
                         "'index: (int64)->int32'");
  }
  DIT_RETURN_IF_NOT_OK(find_tensor(function, tensor, &parameter, err));
  DIT_RETURN_IF_NOT_OK(get_tensor_rule(&reading->rules[function], parameter, &own, err));
  own->has_dtypes = true;
  return parse_dtypes(value, own->to, err);
}

static enum dit_status visit(void *context, const char *entry, const char *key, const char *inner, const char *value,
                             struct dit_error *err) {
  static const char *const keys[] = {"dtype", "tensor_dtype", "layout", "supportComposite", "contiguous"};
  struct reading *reading = context;
  int function = -1;
  if (strcmp(entry, "common_config") != 0) {
    DIT_RETURN_IF_NOT_OK(find_function(entry, &function, err));
  }
  struct adapt_rule *rule = function < 0 ? &reading->common : &reading->rules[function];
  if (!key[0]) {
    return value[0] ? dit_error_set(err, DIT_ERR_INVALID, "'%.60s' belongs to a key below '%s'", value, entry) : DIT_OK;
  }
  if (strcmp(key, "tensor_dtype") == 0) {
    return set_tensor_dtype(reading, function, inner, value, err);
  }
  if (inner[0]) {
    return dit_error_set(err, DIT_ERR_INVALID, "'%s' has no keys below it", key);
  }
  if (strcmp(key, "dtype") == 0) {
    if (function >= 0) {
      reading->has_dtype[function] = true;
    }
    return parse_dtypes(value, rule->to, err);
  }
  if (strcmp(key, "layout") == 0) {
    if (function >= 0) {
      reading->has_layout[function] = true;
    }
    return parse_layouts(value, function, rule, err);
  }
  if (strcmp(key, "supportComposite") == 0) {
    bool allowed = true;
    DIT_RETURN_IF_NOT_OK(parse_flag(value, &allowed, err));
    rule->alone = !allowed;
    return DIT_OK;
  }
  if (strcmp(key, "contiguous") == 0) {
    bool wanted = false;
    DIT_RETURN_IF_NOT_OK(parse_flag(value, &wanted, err));
    rule->layouts |= wanted ? ADAPT_CONTIGUOUS : 0;
    return DIT_OK;
  }
  size_t best = 0;
  for (size_t i = 1; i < sizeof keys / sizeof keys[0]; i++) {
    best = dit_edit_distance_get(key, keys[i]) < dit_edit_distance_get(key, keys[best]) ? i : best;
  }
  return dit_error_set(err, DIT_ERR_INVALID,
                       "there is no key '%s'; did you mean '%s'? Valid: dtype, tensor_dtype, "
                       "layout, supportComposite, contiguous",
                       key, keys[best]);
}

enum dit_status adapt_rules_read(const char *text, size_t size, struct adapt_rule *rules, struct dit_error *err) {
  struct reading *reading = dit_calloc(1, sizeof *reading);
  if (!reading) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for rules");
  }
  reading->rules = rules;
  adapt_rule_init(&reading->common);
  enum dit_status status = yaml_read(text, size, visit, reading, err);
  for (int i = 0; status == DIT_OK && i < DIT_DIOPI_COUNT; i++) {
    if (i == DIT_DIOPI_diopiCopyInp || i == DIT_DIOPI_diopiCastDtype) {
      continue;
    }
    if (!reading->has_dtype[i]) {
      memcpy(rules[i].to, reading->common.to, sizeof rules[i].to);
    }
    if (!reading->has_layout[i]) {
      rules[i].layouts |= reading->common.layouts;
    }
    rules[i].alone = rules[i].alone || reading->common.alone;
  }
  dit_free(reading);
  return status;
}
