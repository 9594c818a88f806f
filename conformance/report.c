/// Lines of JSON, and rules that say which cases run.
#include "report.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "dit/alloc.h"

const char *verdict_get_name(enum verdict verdict) {
  static const char *const names[VERDICT_COUNT] = {"pass", "fail", "missing", "unsupported", "skipped"};
  return names[verdict];
}

void report_string(FILE *out, const char *text) {
  const size_t size = strlen(text);
  putc('"', out);
  for (size_t i = 0; i < size;) {
    const unsigned char c = (unsigned char)text[i];
    const int length = dit_utf8_get_length(text + i, size - i);
    if (length == 0) {
      fputs("\\ufffd", out);
    } else if (c == '"' || c == '\\') {
      fprintf(out, "\\%c", c);
    } else if (c < 0x20 || c == 0x7F) {
      fprintf(out, "\\u%04x", c);
    } else {
      fwrite(text + i, 1, (size_t)length, out);
    }
    i += length ? (size_t)length : 1;
  }
  putc('"', out);
}

static void print_head(FILE *out, int64_t number, const char *id, const char *function) {
  fprintf(out, "{\"case\": %lld, \"id\": ", (long long)number);
  report_string(out, id);
  fputs(", \"function\": ", out);
  report_string(out, function);
}

void report_start(FILE *out, int64_t number, const char *id, const char *function) {
  print_head(out, number, id, function);
  fputs(", \"start\": true}\n", out);
}

void report_outcome(FILE *out, int64_t number, const char *id, const char *function, const struct outcome *outcome) {
  print_head(out, number, id, function);
  fprintf(out, ", \"verdict\": \"%s\", \"kind\": \"%s\", \"reason\": ", verdict_get_name(outcome->verdict),
          outcome->kind);
  report_string(out, outcome->reason);
  fprintf(out, ", \"code\": %d, \"text\": ", outcome->code);
  report_string(out, outcome->text);
  fprintf(out, ", \"seconds\": %.4g", outcome->seconds);
  if (outcome->against > 0) {
    fprintf(out, ", \"against\": %.4g", outcome->against);
  }
  if (outcome->inference != INFERENCE_ABSENT) {
    fprintf(out, ", \"inference\": \"%s\"", outcome->inference == INFERENCE_JUDGED ? "judged" : "untold");
  }
  if (outcome->way) {
    fprintf(out, ", \"adapt\": \"%s\"", outcome->way);
  }
  fputs("}\n", out);
}

// Rules

enum dit_status rules_add(struct rules *rules, enum rule_action action, const char *pattern, double factor,
                          struct dit_error *err) {
  if (!rules->rows) {
    rules->rows = dit_calloc(RULE_LIMIT, sizeof *rules->rows);
  }
  if (!rules->rows || rules->count == RULE_LIMIT) {
    return dit_error_set(err, DIT_ERR_INVALID, "there are more than %d patterns", RULE_LIMIT);
  }
  rules->rows[rules->count++] = (struct rule){action, pattern, factor};
  return DIT_OK;
}

static enum dit_status add_line(struct rules *rules, char *line, int number, struct dit_error *err) {
  char *rest = line, *words[4] = {0}, *end;
  int count = 0;
  for (char *word; count < 4 && (word = strtok_r(rest, " \t\r", &rest)); count++) {
    words[count] = word;
  }
  if (count == 0 || words[0][0] == '#') {
    return DIT_OK;
  }
  if (count == 2 && strcmp(words[0], "skip") == 0) {
    return rules_add(rules, RULE_SKIP, words[1], 1, err);
  }
  if (count == 3 && strcmp(words[0], "tolerance") == 0) {
    const double factor = strtod(words[2], &end);
    if (*end == 0 && factor > 0 && isfinite(factor)) {
      return rules_add(rules, RULE_TOLERANCE, words[1], factor, err);
    }
  }
  return dit_error_set(
      err, DIT_ERR_INVALID,
      "line %d begins with '%s'; valid: 'skip PATTERN', 'tolerance PATTERN FACTOR' with a factor above "
      "0, '# comment'",
      number, words[0]);
}

static enum dit_status read_text(const char *path, char **out, struct dit_error *err) {
  enum { LIMIT = 1 << 22 };
  FILE *file = fopen(path, "r");
  char *text = dit_malloc(LIMIT + 1);
  if (!file || !text) {
    dit_error_set(err, DIT_ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    dit_free(text);
    if (file) {
      fclose(file);
    }
    return DIT_ERR_IO;
  }
  const size_t size = fread(text, 1, LIMIT, file);
  const bool fits = feof(file) && !ferror(file) && !memchr(text, 0, size);
  text[size] = 0;
  fclose(file);
  if (!fits) {
    dit_free(text);
    return dit_error_set(err, DIT_ERR_INVALID, "'%s' is no text of at most %d bytes", path, LIMIT);
  }
  *out = text;
  return DIT_OK;
}

enum dit_status rules_read(struct rules *rules, const char *path, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(read_text(path, &rules->text, err));
  int number = 1;
  for (char *line = rules->text, *next; line; line = next, number++) {
    next = strchr(line, '\n');
    if (next) {
      *next++ = 0;
    }
    enum dit_status status = add_line(rules, line, number, err);
    if (status != DIT_OK) {
      dit_error_prefix(err, "'%s'", path);
      return status;
    }
  }
  return DIT_OK;
}

void rules_reset(struct rules *rules) {
  dit_free(rules->rows);
  dit_free(rules->text);
  memset(rules, 0, sizeof *rules);
}

/// Bytes of the tag's name in "tag=pattern"; 0 when the pattern is for ids.
static size_t get_key_length(const char *pattern) {
  const size_t length = strcspn(pattern, "=/*?[");
  return pattern[length] == '=' ? length : 0;
}

static bool is_match(const struct rule *rule, const struct pack_case *item) {
  const size_t key = get_key_length(rule->pattern);
  if (key == 0) {
    return fnmatch(rule->pattern, item->id, 0) == 0 || fnmatch(rule->pattern, item->name, 0) == 0;
  }
  for (int i = 0; i < item->tag_count; i++) {
    if (strlen(item->tags[i].key) == key && memcmp(item->tags[i].key, rule->pattern, key) == 0) {
      return fnmatch(rule->pattern + key + 1, item->tags[i].value, 0) == 0;
    }
  }
  return false;
}

/// Of the patterns for the same thing (ids, or one tag) one must match.
static bool is_wanted(const struct rules *rules, const struct pack_case *item) {
  for (int i = 0; i < rules->count; i++) {
    const struct rule *rule = &rules->rows[i];
    const size_t key = get_key_length(rule->pattern);
    bool found = rule->action != RULE_ONLY;
    for (int k = 0; k < rules->count && !found; k++) {
      const struct rule *other = &rules->rows[k];
      found = other->action == RULE_ONLY && get_key_length(other->pattern) == key &&
              memcmp(other->pattern, rule->pattern, key) == 0 && is_match(other, item);
    }
    if (!found) {
      return false;
    }
  }
  return true;
}

bool rules_select(const struct rules *rules, const struct pack_case *item, bool *skipped, double *factor) {
  *skipped = false;
  *factor = 1;
  for (int i = 0; i < rules->count; i++) {
    const struct rule *rule = &rules->rows[i];
    if (rule->action != RULE_ONLY && is_match(rule, item)) {
      *skipped = *skipped || rule->action == RULE_SKIP;
      *factor *= rule->action == RULE_TOLERANCE ? rule->factor : 1;
    }
  }
  return is_wanted(rules, item);
}
