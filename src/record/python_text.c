/// Values as Python prints them.
///
/// A record has its arguments flat ("args.1.0"); here they become nested again. What the flat form does not say is
/// chosen: containers of arguments are lists, lists of int and all containers of results are tuples, a missing position
/// is an empty list (an argument) or None (a result or a gradient).
///
/// Invariant: brackets and quotes are balanced, whatever the keys are. Depends on text, tool_record and core's dtype,
/// utf8.
#include "record/python_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "dit/alloc.h"
#include "dit/dtype.h"
#include "record/tool_record.h"

enum { MOST_DEPTH = 32, MOST_GAPS = 256 };

void dit_python_append_repr(struct dit_text *text, const char *data, size_t size) {
  bool has_single = size > 0 && memchr(data, '\'', size), has_double = size > 0 && memchr(data, '"', size);
  char quote = has_single && !has_double ? '"' : '\'';
  dit_text_append(text, &quote, 1);
  for (size_t at = 0; at < size;) {
    unsigned char c = (unsigned char)data[at];
    int length = dit_utf8_get_length(data + at, size - at);
    bool control = length == 2 && c == 0xC2 && ((unsigned char)data[at + 1] <= 0xA0 || data[at + 1] == '\xAD');
    if (c == '\\' || c == (unsigned char)quote) {
      dit_text_append_format(text, "\\%c", c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      dit_text_append_literal(text, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (c < 0x20 || c == 0x7F || control) {
      dit_text_append_format(text, "\\x%02x", control ? (unsigned char)data[at + 1] : c);
    } else {
      dit_text_append(text, length ? data + at : "\xEF\xBF\xBD", length ? (size_t)length : 3);
    }
    at += length ? (size_t)length : 1;
  }
  dit_text_append(text, &quote, 1);
}

/// The fewest significant digits that read back the same, without sign and point; the decimal exponent of the first.
static int find_digits(double value, char *digits, int *exponent) {
  char buffer[40];
  for (int precision = 0; precision < 17; precision++) {
    snprintf(buffer, sizeof(buffer), "%.*e", precision, value);
    if (strtod(buffer, NULL) == value) {
      break;
    }
  }
  int count = 0;
  const char *p = buffer;
  for (; *p && *p != 'e'; p++) {
    if (*p >= '0' && *p <= '9') {  // the decimal sign is the locale's
      digits[count++] = *p;
    }
  }
  *exponent = *p == 'e' ? atoi(p + 1) : 0;
  return count;
}

void dit_python_append_float(struct dit_text *text, double value) {
  if (isnan(value) || isinf(value)) {
    dit_text_append_literal(text, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    return;
  }
  char digits[40];
  int exponent = 0, count = find_digits(value, digits, &exponent);
  dit_text_append_literal(text, signbit(value) ? "-" : "");
  if (exponent < -4 || exponent >= 16) {
    dit_text_append(text, digits, 1);
    dit_text_append_literal(text, count > 1 ? "." : "");
    dit_text_append(text, digits + 1, (size_t)count - 1);
    dit_text_append_format(text, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    return;
  }
  if (exponent < 0) {
    dit_text_append_literal(text, "0.");
    dit_text_append(text, "0000", (size_t)(-exponent - 1));
    dit_text_append(text, digits, (size_t)count);
    return;
  }
  for (int i = 0; i < count || i <= exponent + 1; i++) {
    dit_text_append_literal(text, i == exponent + 1 ? "." : "");
    dit_text_append(text, i < count ? digits + i : "0", 1);
  }
}

/// "(2, 3)", "(2,)", "()"; with quotes around each number on request.
static void append_tuple(struct dit_text *text, const int64_t *values, size_t count, bool quoted) {
  dit_text_append_literal(text, "(");
  for (size_t i = 0; i < count; i++) {
    dit_text_append(text, ", ", i > 0 ? 2 : 0);
    dit_text_append(text, "'", quoted);
    dit_text_append_signed(text, values[i]);
    dit_text_append(text, "'", quoted);
  }
  dit_text_append_literal(text, count == 1 ? ",)" : ")");
}

static void append_tensor(struct dit_text *text, const struct dit_record_field *field) {
  const struct dit_record_tensor *tensor = &field->v.tensor;
  size_t ndim = (size_t)tensor->ndim;
  uint64_t numel = 1;  // unsigned: a file may hold any sizes
  for (size_t i = 0; i < ndim; i++) {
    numel *= (uint64_t)tensor->sizes[i];
  }
  char name[160];
  size_t size = field->device_name.size < 128 ? field->device_name.size : 128;
  if (size > 0) {
    memcpy(name, field->device_name.data, size);
  }
  if (tensor->device_index >= 0) {
    size += (size_t)snprintf(name + size, sizeof(name) - size, ":%d", (int)tensor->device_index);
  }
  dit_text_append_literal(text, "{'device': ");
  dit_python_append_repr(text, name, size);
  dit_text_append_literal(text, ", 'dtype': '");
  dit_text_append_literal(text, dit_dtype_is_valid(tensor->dtype) ? dit_dtype_get_name(tensor->dtype) : "-");
  dit_text_append_literal(text, "', 'numel': ");
  dit_text_append_signed(text, (int64_t)numel);
  dit_text_append_literal(text, ", 'shape': '");
  append_tuple(text, tensor->sizes, ndim, false);
  dit_text_append_literal(text, "', 'stride': ");
  if (tensor->strides) {
    append_tuple(text, tensor->strides, ndim, false);
  } else {
    dit_text_append_literal(text, "'-'");
  }
  dit_text_append_literal(text, tensor->requires_grad ? ", 'requires_grad': True" : ", 'requires_grad': False");
  dit_text_append_literal(text, tensor->strides ? ", 'layout': 'torch.strided'" : ", 'layout': '-'");
  dit_text_append_literal(text, ", 'data_ptr': ");
  dit_text_append_unsigned(text, tensor->storage_id);
  dit_text_append_literal(text, "}");
}

/// Everything but tensors and lists of int is a text, as the original has it.
static void append_leaf(struct dit_text *text, const struct dit_record_field *field) {
  switch (field->type) {
    case DIT_RECORD_I64:
      dit_text_append_format(text, "'%lld'", (long long)field->v.i64);
      break;
    case DIT_RECORD_U64:
      dit_text_append_format(text, "'%llu'", (unsigned long long)field->v.u64);
      break;
    case DIT_RECORD_F64:
      dit_text_append_literal(text, "'");
      dit_python_append_float(text, field->v.f64);
      dit_text_append_literal(text, "'");
      break;
    case DIT_RECORD_BOOL:
      dit_text_append_literal(text, field->v.boolean ? "'True'" : "'False'");
      break;
    case DIT_RECORD_I64S:
      append_tuple(text, field->v.i64s.data, field->v.i64s.count, true);
      break;
    case DIT_RECORD_TENSOR:
      append_tensor(text, field);
      break;
    default:
      dit_python_append_repr(text, field->v.text.data, field->v.text.size);
  }
}

/// How a level of containers is written.
struct style {
  const char *prefix;  ///< of the leaves
  bool tuples;         ///< for every level below the first
  const char *gap;
};

/// The part of the path at `offset`, up to the next point.
static struct dit_record_text get_part(const struct dit_record_text *path, size_t offset) {
  if (offset >= path->size) {
    return (struct dit_record_text){"", 0};
  }
  const char *begin = path->data + offset;
  const char *end = memchr(begin, '.', path->size - offset);
  return (struct dit_record_text){begin, end ? (size_t)(end - begin) : path->size - offset};
}

/// The number a part is; false for other texts.
static bool get_index(const struct dit_record_text *part, uint64_t *index) {
  *index = 0;
  for (size_t i = 0; i < part->size; i++) {
    if (part->data[i] < '0' || part->data[i] > '9' || i >= 9) {
      return false;
    }
    *index = *index * 10 + (uint64_t)(part->data[i] - '0');
  }
  return part->size > 0;
}

/// The leaves of one prefix: fields in the order of the record.
struct leaves {
  const struct dit_record *record;
  const struct style *style;
  struct dit_text *text;
};

/// The next leaf at `from` or behind it, before `to`; `to` when there is none.
static size_t next_leaf(const struct leaves *leaves, size_t from, size_t to, struct dit_record_text *path) {
  while (from < to && !dit_tool_record_is_leaf(&leaves->record->fields[from], leaves->style->prefix, path)) {
    from++;
  }
  return from;
}

/// First field behind `at` that does not share the first `size` bytes of the path.
static size_t find_group_end(const struct leaves *leaves, size_t at, size_t to, struct dit_record_text path,
                             size_t size) {
  for (size_t i = at + 1; i < to; i++) {
    struct dit_record_text other;
    i = next_leaf(leaves, i, to, &other);
    if (i < to && (other.size < size || memcmp(other.data, path.data, size) != 0 ||
                   (other.size > size && other.data[size] != '.'))) {
      return i;
    }
  }
  return to;
}

/// The leaves in [from, to), which share the first `offset` bytes of their path, as one container.
static void append_container(const struct leaves *leaves, size_t from, size_t to, size_t offset, int depth) {
  struct dit_text *text = leaves->text;
  struct dit_record_text path = {"", 0};
  size_t count = 0;
  uint64_t index = 0, expected = 0;
  from = next_leaf(leaves, from, to, &path);
  struct dit_record_text part = from < to ? get_part(&path, offset) : (struct dit_record_text){"0", 1};
  bool sequence = get_index(&part, &index), tuple = depth == 0 || leaves->style->tuples;
  dit_text_append_literal(text, sequence ? (tuple ? "(" : "[") : "{");
  while (from < to) {
    part = get_part(&path, offset);
    bool numbered = get_index(&part, &index);
    for (; sequence && numbered && expected < index && index - expected <= MOST_GAPS; expected++, count++) {
      dit_text_append_format(text, "%s%s", count ? ", " : "", leaves->style->gap);
    }
    expected = index + 1;
    dit_text_append_literal(text, count++ ? ", " : "");
    if (!sequence) {
      dit_python_append_repr(text, part.data, part.size);
      dit_text_append_literal(text, ": ");
    }
    size_t size = offset + part.size, end = from + 1;
    if (path.size > size && depth < MOST_DEPTH) {
      end = find_group_end(leaves, from, to, path, size);
      append_container(leaves, from, end, size + 1, depth + 1);
    } else {
      append_leaf(text, &leaves->record->fields[from]);
    }
    from = next_leaf(leaves, end, to, &path);
  }
  dit_text_append_literal(text, sequence ? (tuple ? (count == 1 ? ",)" : ")") : "]") : "}");
}

static bool has_leaf(const struct dit_record *record, const char *prefix) {
  for (size_t i = 0; i < record->field_count; i++) {
    if (dit_tool_record_is_leaf(&record->fields[i], prefix, NULL)) {
      return true;
    }
  }
  return false;
}

void dit_python_append_input(struct dit_text *text, const struct dit_record *record) {
  static const struct style args = {"args", false, "[]"}, kwargs = {"kwargs", false, "[]"};
  bool named = has_leaf(record, "kwargs");
  if (!named && !has_leaf(record, "args") && !has_leaf(record, "out")) {
    dit_text_append_literal(text, "-");
    return;
  }
  dit_text_append_literal(text, "{'args': ");
  append_container(&(struct leaves){record, &args, text}, 0, record->field_count, 0, 0);
  if (named) {
    dit_text_append_literal(text, ", 'kwargs': ");
    append_container(&(struct leaves){record, &kwargs, text}, 0, record->field_count, 0, 0);
  }
  dit_text_append_literal(text, "}");
}

void dit_python_append_output(struct dit_text *text, const struct dit_record *record, const char *prefix) {
  const struct style style = {prefix, true, "'None'"};
  const struct dit_record_field *whole = dit_tool_record_find(record, prefix);
  if (!whole && !has_leaf(record, prefix)) {
    dit_text_append_literal(text, "-");
    return;
  }
  dit_text_append_literal(text, "{'args': (");
  if (whole) {
    append_leaf(text, whole);
  } else {
    append_container(&(struct leaves){record, &style, text}, 0, record->field_count, 0, 0);
  }
  dit_text_append_literal(text, ",)}");
}
