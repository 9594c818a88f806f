/// Reading rules files line by line (see yaml.h). Every buffer has a fixed size; what does not fit is an error.
#include "yaml.h"

#include <stdbool.h>
#include <string.h>

struct reader {
  yaml_visit *visit;
  void *context;
  struct dit_error *err;
  int line, value_line;
  int entry_indent, key_indent, inner_indent;  ///< columns; -1: none yet
  char entry[YAML_NAME], key[YAML_NAME], inner[YAML_NAME], value[YAML_VALUE];
  bool has_entry, has_key, has_inner, pending;  ///< `pending`: the value is not yet handed over
};

/// One line without its indent, comment and trailing blanks.
struct line {
  const char *text;
  int length, indent;
};

static enum dit_status fail(struct reader *r, const char *what) {
  return dit_error_set(r->err, DIT_ERR_INVALID, "line %d: %s", r->line, what);
}

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

/// Where a comment begins: '#' at the start or behind a blank, outside quotes.
static int find_comment(const char *text, int length) {
  char quote = 0;
  for (int i = 0; i < length; i++) {
    if (quote) {
      quote = text[i] == quote ? 0 : quote;
    } else if ((text[i] == '"' || text[i] == '\'') && (i == 0 || is_blank(text[i - 1]))) {
      quote = text[i];
    } else if (text[i] == '#' && (i == 0 || is_blank(text[i - 1]))) {
      return i;
    }
  }
  return length;
}

static enum dit_status take_line(struct reader *r, const char *text, size_t size, struct line *out) {
  out->indent = 0;
  if (size > YAML_VALUE) {
    return fail(r, "the line is longer than 2048 bytes");
  }
  if (memchr(text, 0, size)) {
    return fail(r, "a NUL byte; rules are text");
  }
  while ((size_t)out->indent < size && text[out->indent] == ' ') {
    out->indent++;
  }
  out->text = text + out->indent;
  out->length = find_comment(out->text, (int)size - out->indent);
  while (out->length > 0 && is_blank(out->text[out->length - 1])) {
    out->length--;
  }
  if (out->length > 0 && out->text[0] == '\t') {
    return fail(r, "a tab in the indent; YAML wants spaces");
  }
  return DIT_OK;
}

/// Bytes of the key in "key: value" or "key:"; 0 when the line is none.
static int find_key(const struct line *line) {
  for (int i = 0; i < line->length; i++) {
    if (line->text[i] == ':' && (i + 1 == line->length || is_blank(line->text[i + 1]))) {
      return i;
    }
    if (line->text[i] == '(' || line->text[i] == '"' || line->text[i] == '\'') {
      return 0;
    }
  }
  return 0;
}

static enum dit_status set_name(struct reader *r, char *out, const char *text, int length) {
  if (length >= YAML_NAME) {
    return fail(r, "a name is longer than 127 bytes");
  }
  memcpy(out, text, (size_t)length);
  out[length] = 0;
  return DIT_OK;
}

/// Add to the value; parts of several lines get a blank between them.
static enum dit_status add_value(struct reader *r, const char *text, int length) {
  while (length > 0 && is_blank(*text)) {
    text++;
    length--;
  }
  if (length >= 2 && (text[0] == '"' || text[0] == '\'') && text[length - 1] == text[0]) {
    text++;
    length -= 2;
  }
  if (length > 0 && strchr("|>&*!{%@`", text[0])) {
    return fail(r, "block scalars, anchors, tags and flow maps are not understood; write the value on one line");
  }
  const size_t used = strlen(r->value);
  if (used + (size_t)length + 2 > YAML_VALUE) {
    return fail(r, "a value is longer than 2047 bytes");
  }
  if (used && length) {
    r->value[used] = ' ';
  }
  memcpy(r->value + used + (used && length), text, (size_t)length);
  r->value[used + (used && length) + (size_t)length] = 0;
  r->pending = true;
  return DIT_OK;
}

static enum dit_status hand_over(struct reader *r) {
  if (!r->pending) {
    return DIT_OK;
  }
  r->pending = false;
  enum dit_status status =
      r->visit(r->context, r->entry, r->has_key ? r->key : "", r->has_inner ? r->inner : "", r->value, r->err);
  if (status != DIT_OK) {
    dit_error_prefix(r->err, "line %d", r->value_line);
  }
  r->value[0] = 0;
  return status;
}

/// "- name:" or "- name: value".
static enum dit_status take_entry(struct reader *r, struct line line) {
  do {
    line.text++;
    line.length--;
    line.indent++;
  } while (line.length > 0 && line.text[0] == ' ');
  const int length = find_key(&line);
  if (length == 0) {
    return fail(r, "an entry has the form '- name:'");
  }
  if (r->has_entry && line.indent != r->entry_indent) {
    return fail(r, "an entry is indented unlike the first one");
  }
  DIT_RETURN_IF_NOT_OK(set_name(r, r->entry, line.text, length));
  r->entry_indent = line.indent;
  r->has_entry = true;
  r->has_key = r->has_inner = false;
  r->key_indent = r->inner_indent = -1;
  r->value_line = r->line;
  return add_value(r, line.text + length + 1, line.length - length - 1);
}

/// A key of the entry or of the map below it, or more of the value.
static enum dit_status take_deeper(struct reader *r, struct line line) {
  const int length = find_key(&line);
  if (length == 0) {
    if (!r->has_key || line.indent <= r->key_indent) {
      return fail(r, "neither '- name:' nor 'key: value'");
    }
    r->pending = true;
    return add_value(r, line.text, line.length);
  }
  const bool inner = r->has_key && r->key_indent >= 0 && line.indent > r->key_indent;
  if (inner && !r->has_inner && r->value[0]) {
    return fail(r, "a key below a value");
  }
  if (inner && !r->has_inner) {
    r->pending = false;  // the map's own empty value
  }
  DIT_RETURN_IF_NOT_OK(hand_over(r));
  r->value[0] = 0;
  r->value_line = r->line;
  int *indent = inner ? &r->inner_indent : &r->key_indent;
  if (*indent >= 0 && *indent != line.indent) {
    return fail(r, "keys of one map have different indents");
  }
  *indent = line.indent;
  r->has_inner = inner;
  if (!inner) {
    r->inner_indent = -1;
  }
  r->has_key = true;
  DIT_RETURN_IF_NOT_OK(set_name(r, inner ? r->inner : r->key, line.text, length));
  return add_value(r, line.text + length + 1, line.length - length - 1);
}

static enum dit_status take(struct reader *r, const struct line *line) {
  if (line->length == 0 || (line->indent == 0 && line->length == 3 && memcmp(line->text, "---", 3) == 0)) {
    return DIT_OK;
  }
  if (line->length == 2 && memcmp(line->text, "[]", 2) == 0 && !r->has_entry) {
    return DIT_OK;
  }
  if (line->text[0] == '-' && (line->length == 1 || line->text[1] == ' ')) {
    DIT_RETURN_IF_NOT_OK(hand_over(r));
    return take_entry(r, *line);
  }
  if (!r->has_entry || line->indent <= r->entry_indent - 2) {
    return fail(r, "rules are a list: each entry begins with '- name:'");
  }
  return take_deeper(r, *line);
}

enum dit_status yaml_read(const char *text, size_t size, yaml_visit *visit, void *context, struct dit_error *err) {
  struct reader r = {.visit = visit, .context = context, .err = err, .key_indent = -1, .inner_indent = -1};
  const char *end = text + size;
  while (text < end) {
    const char *stop = memchr(text, '\n', (size_t)(end - text));
    struct line line = {text, 0, 0};
    r.line++;
    stop = stop ? stop : end;
    DIT_RETURN_IF_NOT_OK(take_line(&r, text, (size_t)(stop - text), &line));
    DIT_RETURN_IF_NOT_OK(take(&r, &line));
    text = stop + 1;
  }
  return hand_over(&r);
}
