/// The CSV view: a first pass collects the columns, a second one writes the rows.
///
/// Invariant: every row has as many cells as the header line. Columns are looked up from where the last one was found,
/// so that records of one kind cost one comparison per field. Depends on reader, text and core's alloc.
#include <string.h>

#include "dit/alloc.h"
#include "record/text.h"

enum { MOST_COLUMNS = 65536 };

struct column {
  char *name;
  size_t size;
  const struct dit_record_field *field;  ///< of the record being written
};

struct table {
  struct column *columns;
  size_t count, capacity, hint;
  struct dit_text line, name, cell;
};

static struct column *find_column(struct table *table, const char *name, size_t size) {
  for (size_t i = 0; i < table->count; i++) {
    size_t at = (table->hint + i) % table->count;
    if (table->columns[at].size == size && memcmp(table->columns[at].name, name, size) == 0) {
      table->hint = at + 1;
      return &table->columns[at];
    }
  }
  return NULL;
}

static enum dit_status add_column(struct table *table, const char *name, size_t size, struct dit_error *err) {
  if (table->count == MOST_COLUMNS) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "the records have more than %d different fields; export JSONL",
                         MOST_COLUMNS);
  }
  if (table->count == table->capacity) {
    size_t capacity = table->capacity ? table->capacity * 2 : 32;
    struct column *grown = dit_realloc(table->columns, capacity * sizeof(*grown));
    if (!grown) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no memory for %zu columns", capacity);
    }
    table->columns = grown;
    table->capacity = capacity;
  }
  char *copy = dit_malloc(size);
  if (!copy) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the name of a column (%zu bytes)", size);
  }
  memcpy(copy, name, size);
  table->columns[table->count++] = (struct column){.name = copy, .size = size};
  return DIT_OK;
}

static enum dit_status name_column(struct table *table, const struct dit_record *record, size_t index,
                                   struct dit_error *err) {
  table->name.size = 0;
  dit_text_append_column(&table->name, record, index);
  dit_text_append(&table->name, "", 1);  // so that there is always a block to point at
  if (table->name.failed) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the name of a column");
  }
  return DIT_OK;
}

static enum dit_status collect_columns(struct table *table, struct dit_record_reader *reader, struct dit_error *err) {
  const struct dit_record *record = NULL;
  DIT_RETURN_IF_NOT_OK(dit_record_reader_next(reader, &record, err));
  while (record) {
    for (size_t i = 0; i < record->field_count; i++) {
      DIT_RETURN_IF_NOT_OK(name_column(table, record, i, err));
      if (!find_column(table, table->name.data, table->name.size)) {
        DIT_RETURN_IF_NOT_OK(add_column(table, table->name.data, table->name.size, err));
      }
    }
    DIT_RETURN_IF_NOT_OK(dit_record_reader_next(reader, &record, err));
  }
  return DIT_OK;
}

static void append_field(struct table *table, const struct dit_record_field *field) {
  dit_text_append(&table->line, ",", 1);
  if (!field) {
    return;
  }
  if (field->type == DIT_RECORD_STRING) {
    dit_text_append_cell(&table->line, field->v.text.data, field->v.text.size);
    return;
  }
  table->cell.size = 0;
  dit_text_append_value(&table->cell, field);
  size_t strip = field->type == DIT_RECORD_BYTES || (table->cell.size > 0 && table->cell.data[0] == '"');
  if (table->cell.failed) {
    table->line.failed = true;
  } else {
    dit_text_append_cell(&table->line, table->cell.data + strip, table->cell.size - 2 * strip);
  }
}

static enum dit_status write_row(struct table *table, const struct dit_record *record,
                                 const struct dit_record_sink *sink, struct dit_error *err) {
  for (size_t i = 0; i < record->field_count; i++) {
    DIT_RETURN_IF_NOT_OK(name_column(table, record, i, err));
    struct column *column = find_column(table, table->name.data, table->name.size);
    if (column) {  // absent only when the file grew between the passes
      column->field = &record->fields[i];
    }
  }
  const char *type = dit_record_get_type_name(record);
  if (type) {
    dit_text_append_cell(&table->line, type, strlen(type));
  } else {
    dit_text_append_format(&table->line, "%u", record->type);
  }
  dit_text_append_format(&table->line, ",%llu,%lld,%d,%u,%u,%u", (unsigned long long)record->sequence,
                         (long long)record->wall_ns, (int)record->header->rank, record->header->pid, record->thread,
                         record->flags);
  for (size_t i = 0; i < table->count; i++) {
    append_field(table, table->columns[i].field);
    table->columns[i].field = NULL;
  }
  dit_text_append(&table->line, "\r\n", 2);
  return dit_text_flush(&table->line, sink, err);
}

static enum dit_status write_rows(struct table *table, struct dit_record_reader *reader,
                                  const struct dit_record_sink *sink, struct dit_error *err) {
  dit_text_append_format(&table->line, "type,seq,time,rank,pid,tid,flags");
  for (size_t i = 0; i < table->count; i++) {
    dit_text_append(&table->line, ",", 1);
    dit_text_append_cell(&table->line, table->columns[i].name, table->columns[i].size - 1);
  }
  dit_text_append(&table->line, "\r\n", 2);
  DIT_RETURN_IF_NOT_OK(dit_text_flush(&table->line, sink, err));
  const struct dit_record *record = NULL;
  DIT_RETURN_IF_NOT_OK(dit_record_reader_next(reader, &record, err));
  while (record) {
    DIT_RETURN_IF_NOT_OK(write_row(table, record, sink, err));
    DIT_RETURN_IF_NOT_OK(dit_record_reader_next(reader, &record, err));
  }
  return DIT_OK;
}

enum dit_status dit_record_export_csv(struct dit_record_reader *reader, const struct dit_record_sink *sink,
                                      struct dit_error *err) {
  struct table table = {0};
  enum dit_status status = dit_record_reader_rewind(reader, err);
  if (status == DIT_OK) {
    status = collect_columns(&table, reader, err);
  }
  if (status == DIT_OK) {
    status = dit_record_reader_rewind(reader, err);
  }
  if (status == DIT_OK) {
    status = write_rows(&table, reader, sink, err);
  }
  for (size_t i = 0; i < table.count; i++) {
    dit_free(table.columns[i].name);
  }
  dit_free(table.columns);
  dit_text_reset(&table.line);
  dit_text_reset(&table.name);
  dit_text_reset(&table.cell);
  return status;
}
