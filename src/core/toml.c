/// The TOML reader: a recursive-descent parser over a bounded byte range; see toml.h for the subset.
///
/// Invariant: the cursor never passes `end`; every byte is looked at through peek(). Nothing is executed, nothing is
/// guessed: what is not in the subset is an error with its place. All names that were used are kept in `names`, so that
/// a key or table that appears twice is found. Depends on alloc, error, utf8, toml_parser.
#include "core/toml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/toml_parser.h"
#include "dit/alloc.h"

/// What a dotted path stands for, by how it came into being.
enum name_kind {
  NAME_VALUE,     ///< key = value
  NAME_TABLE,     ///< [table]
  NAME_IMPLICIT,  ///< the "a" of [a.b]: may still be opened once by [a]
  NAME_DOTTED,    ///< the "a" of a.b = 1: closed to headers
};

struct name {
  char *path;
  enum name_kind kind;
};

struct reader {
  struct dit_toml_parser parser;
  struct dit_toml_document *document;
  size_t capacity;
  struct name *names;
  size_t name_count, name_capacity;
  struct dit_toml_text table;  ///< path of the current table, "" at the top
};

static enum dit_status add_name(struct reader *reader, const char *path, enum name_kind kind) {
  struct dit_toml_parser *parser = &reader->parser;
  if (reader->name_count == DIT_TOML_MAX_KEYS) {
    return dit_toml_fail(parser, "more than %d keys and tables", DIT_TOML_MAX_KEYS);
  }
  if (reader->name_count == reader->name_capacity) {
    size_t capacity = reader->name_capacity ? reader->name_capacity * 2 : 16;
    struct name *grown = dit_realloc(reader->names, capacity * sizeof(*grown));
    if (!grown) {
      return dit_toml_fail_memory(parser);
    }
    reader->names = grown;
    reader->name_capacity = capacity;
  }
  char *copy = dit_strdup(path);
  if (!copy) {
    return dit_toml_fail_memory(parser);
  }
  reader->names[reader->name_count++] = (struct name){copy, kind};
  return DIT_OK;
}

static struct name *find_name(struct reader *reader, const char *path) {
  for (size_t i = 0; i < reader->name_count; i++) {
    if (strcmp(reader->names[i].path, path) == 0) {
      return &reader->names[i];
    }
  }
  return NULL;
}

/// Register the tables that lie on the way to `path`: those behind the first `skip` bytes. `ends` are the ends of its
/// parts.
static enum dit_status add_parents(struct reader *reader, char *path, size_t skip, const struct dit_toml_key *key,
                                   enum name_kind kind) {
  for (int i = 0; i + 1 < key->count; i++) {
    size_t end = skip + key->ends[i];
    char saved = path[end];
    path[end] = '\0';
    struct name *known = find_name(reader, path);
    enum dit_status status = DIT_OK;
    if (!known) {
      status = add_name(reader, path, kind);
    } else if (known->kind == NAME_VALUE) {
      status = dit_toml_fail(&reader->parser, "'%.100s' already has a value and cannot be a table", path);
    } else if (kind == NAME_DOTTED && known->kind == NAME_TABLE) {
      status = dit_toml_fail(&reader->parser,
                             "table [%.100s] is already defined and cannot be extended by a dotted key", path);
    }
    path[end] = saved;
    DIT_RETURN_IF_NOT_OK(status);
  }
  return DIT_OK;
}

/// "[table]": the cursor is behind "[".
static enum dit_status read_table(struct reader *reader) {
  struct dit_toml_parser *parser = &reader->parser;
  if (dit_toml_peek(parser) == '[') {
    return dit_toml_fail(parser, "arrays of tables ([[name]]) are not supported; use [name]");
  }
  struct dit_toml_key key;
  DIT_RETURN_IF_NOT_OK(dit_toml_read_key(parser, &key));
  if (dit_toml_peek(parser) != ']') {
    return dit_toml_fail(parser, "expected ']' after the name of a table");
  }
  dit_toml_advance(parser);
  dit_toml_text_clear(&reader->table);
  DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, &reader->table, parser->key.data, parser->key.length));
  DIT_RETURN_IF_NOT_OK(add_parents(reader, reader->table.data, 0, &key, NAME_IMPLICIT));
  struct name *known = find_name(reader, reader->table.data);
  if (!known) {
    return add_name(reader, reader->table.data, NAME_TABLE);
  }
  if (known->kind != NAME_IMPLICIT) {
    return dit_toml_fail_at(parser, key.line, key.column, "'%.100s' is already defined", reader->table.data);
  }
  known->kind = NAME_TABLE;
  return DIT_OK;
}

static enum dit_status add_entry(struct reader *reader, struct dit_toml_entry **entry) {
  struct dit_toml_document *document = reader->document;
  if (document->count == reader->capacity) {
    size_t capacity = reader->capacity ? reader->capacity * 2 : 16;
    struct dit_toml_entry *grown = dit_realloc(document->entries, capacity * sizeof(*grown));
    if (!grown) {
      return dit_toml_fail_memory(&reader->parser);
    }
    document->entries = grown;
    reader->capacity = capacity;
  }
  *entry = &document->entries[document->count];
  **entry = (struct dit_toml_entry){0};
  return DIT_OK;
}

/// `key = value`: registers the key, then reads the value into a new entry.
static enum dit_status read_pair(struct reader *reader) {
  struct dit_toml_parser *parser = &reader->parser;
  struct dit_toml_key key;
  DIT_RETURN_IF_NOT_OK(dit_toml_read_key(parser, &key));
  if (dit_toml_peek(parser) != '=') {
    return dit_toml_fail(parser, "expected '=' after a key");
  }
  dit_toml_advance(parser);
  dit_toml_skip_blanks(parser);
  struct dit_toml_text *path = &parser->path;
  dit_toml_text_clear(path);
  DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, path, reader->table.data, reader->table.length));
  if (path->length > 0) {
    DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, path, ".", 1));
  }
  size_t skip = path->length;
  DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, path, parser->key.data, parser->key.length));
  DIT_RETURN_IF_NOT_OK(add_parents(reader, path->data, skip, &key, NAME_DOTTED));
  if (find_name(reader, path->data)) {
    return dit_toml_fail_at(parser, key.line, key.column, "'%.100s' is already defined", path->data);
  }
  DIT_RETURN_IF_NOT_OK(add_name(reader, path->data, NAME_VALUE));
  struct dit_toml_entry *entry = NULL;
  DIT_RETURN_IF_NOT_OK(add_entry(reader, &entry));
  entry->path = dit_strdup(path->data);
  if (!entry->path) {
    return dit_toml_fail_memory(parser);
  }
  entry->line = key.line;
  entry->column = key.column;
  reader->document->count++;  // from here on dit_toml_reset frees it, value or none
  return dit_toml_read_value(parser, &entry->value);
}

static enum dit_status read_document(struct reader *reader) {
  struct dit_toml_parser *parser = &reader->parser;
  DIT_RETURN_IF_NOT_OK(dit_toml_text_append(parser, &reader->table, "", 0));
  for (;;) {
    DIT_RETURN_IF_NOT_OK(dit_toml_skip_lines(parser));
    int c = dit_toml_peek(parser);
    if (c < 0) {
      return DIT_OK;
    }
    if (c == '[') {
      dit_toml_advance(parser);
      DIT_RETURN_IF_NOT_OK(read_table(reader));
    } else {
      DIT_RETURN_IF_NOT_OK(read_pair(reader));
    }
    DIT_RETURN_IF_NOT_OK(dit_toml_read_line_end(parser));
  }
}

enum dit_status dit_toml_parse(const char *text, size_t size, const char *name, struct dit_toml_document *document,
                               struct dit_error *err) {
  *document = (struct dit_toml_document){0};
  struct reader reader = {.document = document};
  dit_toml_parser_init(&reader.parser, text, size, name, err);
  enum dit_status status = DIT_OK;
  if (size > DIT_TOML_MAX_BYTES) {
    status = dit_toml_fail(&reader.parser, "the file has %zu bytes; at most %d are read", size, DIT_TOML_MAX_BYTES);
  } else {
    status = read_document(&reader);
  }
  if (status != DIT_OK) {
    dit_toml_reset(document);
  }
  for (size_t i = 0; i < reader.name_count; i++) {
    dit_free(reader.names[i].path);
  }
  dit_free(reader.names);
  dit_free(reader.table.data);
  dit_toml_parser_reset(&reader.parser);
  return status;
}

enum dit_status dit_toml_read(const char *path, struct dit_toml_document *document, struct dit_error *err) {
  *document = (struct dit_toml_document){0};
  FILE *file = fopen(path, "re");
  if (!file) {
    return dit_error_set(err, DIT_ERR_IO, "cannot open configuration file '%.300s': %s", path, strerror(errno));
  }
  enum dit_status status = DIT_OK;
  char *text = dit_malloc(DIT_TOML_MAX_BYTES + 1);
  if (!text) {
    status = dit_error_set(err, DIT_ERR_NOMEM, "no memory to read configuration file '%.300s'", path);
  } else {
    errno = 0;
    size_t size = fread(text, 1, DIT_TOML_MAX_BYTES + 1, file);
    status = ferror(file)
                 ? dit_error_set(err, DIT_ERR_IO, "cannot read configuration file '%.300s': %s", path, strerror(errno))
                 : dit_toml_parse(text, size, path, document, err);
  }
  dit_free(text);
  fclose(file);
  return status;
}

void dit_toml_reset(struct dit_toml_document *document) {
  for (size_t i = 0; i < document->count; i++) {
    dit_free(document->entries[i].path);
    dit_toml_value_reset(&document->entries[i].value);
  }
  dit_free(document->entries);
  *document = (struct dit_toml_document){0};
}
