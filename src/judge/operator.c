// The operator table: names of every spelling to rows.
//
// Words are sorted and searched by halves; a name has at most a few candidates: the word with the one before it, the
// word, the word that it stands for. Depends on libc alone.
#include "dit/operator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WORD_SIZE 128

static const char *const traits[] = {
#define DIT_OPERATOR_TRAIT(name) name,
#include "judge/operators.inc"
};

static const struct dit_operator rows[] = {
#define DIT_OPERATOR_ROW(...) {__VA_ARGS__},
#include "judge/operators.inc"
};

static const struct word {
  const char *text;
  uint16_t row;
} words[] = {
#define DIT_OPERATOR_WORD(text, row) {text, row},
#include "judge/operators.inc"
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static int word_compare(const void *key, const void *entry) {
  return strcmp(key, ((const struct word *)entry)->text);
}

static const struct dit_operator *word_find(const char *text) {
  const struct word *word = bsearch(text, words, COUNT(words), sizeof *words, word_compare);
  return word ? &rows[word->row] : NULL;
}

// The parts of a name

static bool starts(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

// Where the name of an overload may follow the word: aten::add.out, aten.add.default, torch.ops.aten.add.default.
static const char *overloaded_find(const char *name) {
  static const char prefix[] = "torch.ops.";
  const char *colon = strstr(name, "::");
  if (colon) {
    return colon + 2;
  }
  if (starts(name, prefix)) {
    const char *dot = strchr(name + sizeof prefix - 1, '.');
    return dot ? dot + 1 : NULL;
  }
  return starts(name, "aten.") ? name + 5 : NULL;
}

// The first character of the word, and its length.
static const char *part_find(const char *name, size_t *length) {
  const char *start = overloaded_find(name);
  if (start) {
    *length = strcspn(start, ".");
    return start;
  }
  const char *dot = strrchr(name, '.');
  start = dot ? dot + 1 : name;
  *length = strlen(start);
  return start;
}

const char *dit_operator_get_word(const char *name, char *buffer, size_t size) {
  size_t length;
  const char *start = part_find(name, &length);
  if (start[length] == '\0' || size == 0) {
    return start;
  }
  length = length < size ? length : size - 1;
  memcpy(buffer, start, length);
  buffer[length] = '\0';
  return buffer;
}

// What a word stands for

// The word with the one before it: "windows.exponential". NULL without one that has a row.
static const struct dit_operator *qualified_find(const char *name) {
  const char *dot = strrchr(name, '.'), *before = dot;
  while (before && before > name && before[-1] != '.') {
    before--;
  }
  return before && before < dot ? word_find(before) : NULL;
}

// Everything of torch.distributed has names that mean something else in torch: gather, reduce, scatter.
static const struct dit_operator *collective_find(const char *word) {
  char text[WORD_SIZE] = "distributed.";
  size_t length = strlen(word), at = strlen(text);
  if (length >= sizeof text - at) {
    return NULL;
  }
  memcpy(text + at, word, length + 1);
  return word_find(text);
}

// add_ -> add; __add__ -> add; __radd__, __iadd__ -> add. `text` is changed.
static const struct dit_operator *stem_find(char *text) {
  size_t length = strlen(text);
  if (length > 4 && starts(text, "__") && strcmp(text + length - 2, "__") == 0) {
    text[length - 2] = '\0';
    text += 2;
    const struct dit_operator *row = word_find(text);
    return row || (*text != 'r' && *text != 'i') ? row : word_find(text + 1);
  }
  if (length > 1 && text[length - 1] == '_') {
    text[length - 1] = '\0';
    return word_find(text);
  }
  return NULL;
}

static const struct dit_operator *derived_find(const char *word) {
  static const char prefix[] = "_foreach_";
  char text[WORD_SIZE];
  size_t length = strlen(word);
  if (length >= sizeof text) {
    return NULL;
  }
  memcpy(text, word, length + 1);
  const struct dit_operator *row = stem_find(text);
  if (row || !starts(word, prefix)) {
    return row;
  }
  word += sizeof prefix - 1;
  if ((row = word_find(word))) {
    return row;
  }
  memcpy(text, word, length + 1 - (sizeof prefix - 1));
  return stem_find(text);
}

// `own`: all of the row holds, not its numerical traits alone.
static const struct dit_operator *name_find(const char *name, bool *own) {
  char buffer[WORD_SIZE];
  const char *word = dit_operator_get_word(name, buffer, sizeof buffer);
  *own = true;
  if (starts(name, "torch.distributed.") || starts(name, "c10d::")) {
    return collective_find(word);
  }
  const struct dit_operator *row = qualified_find(name);
  if (row || (row = word_find(word))) {
    return row;
  }
  *own = false;
  return derived_find(word);
}

// Questions

const struct dit_operator *dit_operator_find(const char *name) {
  bool own;
  return name_find(name, &own);
}

uint64_t dit_operator_get_traits(const char *name) {
  bool own;
  const struct dit_operator *row = name_find(name, &own);
  return !row ? 0 : own ? row->traits : row->traits & DIT_OPERATOR_NUMERICAL;
}

bool dit_operator_has(const char *name, uint64_t wanted) {
  return (dit_operator_get_traits(name) & wanted) != 0;
}

const char *dit_operator_get_name(size_t index) {
  return index < COUNT(words) ? words[index].text : NULL;
}

const char *dit_operator_trait_get_name(int bit) {
  return bit >= 0 && (size_t)bit < COUNT(traits) ? traits[bit] : NULL;
}
