/// The original tools' CSV of operator times: one row per call with its backward in it.
///
/// Backwards are collected first (a table of keys sorted by process and id; their cells wait in a spool), then the
/// calls are read and each row is written with what belongs to it. When the table is full its upper half is forgotten
/// and left to a further round, so that memory is bounded whatever the size of the log: rounds cover ascending,
/// disjoint ranges of keys.
///
/// Invariant: every forward record is one row, every backward record is in exactly one row. Depends on reader, spool,
/// text, python_text, tool_record and core's alloc.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dit/alloc.h"
#include "record/python_text.h"
#include "record/spool.h"
#include "record/tool_record.h"

enum { DEFAULT_MEMORY = 64 << 20, LEAST_ENTRIES = 4 };

static const char header[] =
    "name,forward_id,forward_elasped,backward_elasped,unit,input,output,grad_inputs,grad_outputs\r\n";

struct key {
  uint64_t process, id;
};

/// A backward record. Its cells in the spool: the row's name, its time, and both gradients with their commas.
struct entry {
  struct key key;
  uint64_t position;
  uint32_t round;
  uint32_t name_size, time_size, rest_size;
  bool used;
};

struct join {
  struct entry *entries;
  size_t count, capacity;
  struct key from, until;  ///< the round's range; until belongs to the next one
  bool has_until;
  bool stuck;  ///< the table is full of one key
  struct dit_spool spool;
  struct dit_text line, cell;
};

static int compare_keys(const struct key *a, const struct key *b) {
  if (a->process != b->process) {
    return a->process < b->process ? -1 : 1;
  }
  return a->id < b->id ? -1 : a->id > b->id;
}

static int compare_entries(const void *left, const void *right) {
  const struct entry *a = left, *b = right;
  int order = compare_keys(&a->key, &b->key);
  if (order == 0 && a->round != b->round) {
    order = a->round < b->round ? -1 : 1;
  }
  return order ? order : a->position < b->position ? -1 : a->position > b->position;
}

static bool get_key(const struct dit_record *record, struct key *key) {
  int64_t id = 0;
  if (!dit_tool_record_get_number(dit_tool_record_find(record, "id"), &id)) {
    return false;
  }
  *key = (struct key){dit_tool_record_get_process(record->header), (uint64_t)id};
  return true;
}

static bool is_in_range(const struct join *join, const struct key *key) {
  return compare_keys(key, &join->from) >= 0 && (!join->has_until || compare_keys(key, &join->until) < 0);
}

/// True for a time record of that kind whose key is in the round's range.
static bool is_wanted(const struct join *join, const struct dit_record *record, const char *kind, struct key *key) {
  return dit_tool_record_get_type(record) == DIT_TOOL_TIME &&
         dit_tool_record_text_is(dit_tool_record_get_text(record, "kind"), kind) && get_key(record, key) &&
         is_in_range(join, key);
}

/// Milliseconds as ">10.8f": the device's time where it is known.
static void append_elapsed(struct dit_text *text, const struct dit_record *record) {
  int64_t ns = -1;
  if (!dit_tool_record_get_number(dit_tool_record_find(record, "device_ns"), &ns) || ns < 0) {
    ns = -1;
    (void)dit_tool_record_get_number(dit_tool_record_find(record, "duration_ns"), &ns);
  }
  if (ns < 0) {
    dit_text_append(text, "-", 1);
    return;
  }
  // by integers: a locale's decimal sign would spoil the columns, and 1 ns is the sixth decimal
  char number[40];
  snprintf(number, sizeof(number), "%lld.%06lld00", (long long)(ns / 1000000), (long long)(ns % 1000000));
  dit_text_append_format(text, "%10s", number);
}

/// What the scratch cell holds as a CSV cell; the scratch is empty afterwards.
static void take_cell(struct join *join, struct dit_text *line) {
  dit_text_append_cell(line, join->cell.data, join->cell.size);
  line->failed |= join->cell.failed;
  join->cell.size = 0;
}

static void append_name(struct join *join, struct dit_text *line, const struct dit_record *record) {
  struct dit_record_text name = dit_tool_record_get_text(record, "name");
  dit_text_append(&join->cell, name.size ? name.data : "-", name.size ? name.size : 1);
  take_cell(join, line);
}

/// Only the lower half of the keys stays for this round. When all keys are one (a damaged log), nothing can go.
static bool narrow(struct join *join) {
  qsort(join->entries, join->count, sizeof(*join->entries), compare_entries);
  size_t half = join->count / 2;
  while (half > 0 && compare_keys(&join->entries[half - 1].key, &join->entries[half].key) == 0) {
    half--;
  }
  if (half == 0) {
    half = join->count / 2;
    while (half < join->count && compare_keys(&join->entries[0].key, &join->entries[half].key) == 0) {
      half++;
    }
    if (half == join->count) {
      return false;
    }
  }
  join->until = join->entries[half].key;
  join->has_until = true;
  join->count = half;
  return true;
}

static enum dit_status grow(struct join *join, size_t most, struct dit_error *err) {
  size_t capacity = join->capacity ? join->capacity * 2 : 1024;
  capacity = capacity < most ? capacity : most;
  struct entry *grown = dit_realloc(join->entries, capacity * sizeof(*grown));
  if (!grown) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory to join %zu backward records", capacity);
  }
  join->entries = grown;
  join->capacity = capacity;
  return DIT_OK;
}

/// A row without a forward, from the spooled cells of a backward.
static enum dit_status write_backward(struct join *join, struct entry *entry, const struct dit_record_sink *sink,
                                      struct dit_error *err) {
  struct dit_text *line = &join->line;
  uint64_t at = entry->position;
  DIT_RETURN_IF_NOT_OK(dit_spool_read(&join->spool, at, entry->name_size, line, err));
  dit_text_append_format(line, ",%llu,-,", (unsigned long long)entry->key.id);
  at += entry->name_size;
  DIT_RETURN_IF_NOT_OK(dit_spool_read(&join->spool, at, entry->time_size, line, err));
  dit_text_append_format(line, ",ms,-,-");
  at += entry->time_size;
  DIT_RETURN_IF_NOT_OK(dit_spool_read(&join->spool, at, entry->rest_size, line, err));
  dit_text_append(line, "\r\n", 2);
  entry->used = true;
  return dit_text_flush(line, sink, err);
}

/// The cells of a backward record into the spool.
static enum dit_status spool_cells(struct join *join, const struct dit_record *record, struct entry *entry,
                                   struct dit_error *err) {
  struct dit_text *line = &join->line;
  int64_t round = 0;
  (void)dit_tool_record_get_number(dit_tool_record_find(record, "round"), &round);
  entry->round = round < 0 || round > UINT32_MAX ? UINT32_MAX : (uint32_t)round;
  append_name(join, line, record);
  entry->name_size = (uint32_t)line->size;
  append_elapsed(line, record);
  entry->time_size = (uint32_t)(line->size - entry->name_size);
  dit_text_append(line, ",", 1);
  dit_python_append_output(&join->cell, record, "grad_in");
  take_cell(join, line);
  dit_text_append(line, ",", 1);
  dit_python_append_output(&join->cell, record, "grad_out");
  take_cell(join, line);
  entry->rest_size = (uint32_t)(line->size - entry->name_size - entry->time_size);
  if (line->failed) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a row of %zu bytes", line->size);
  }
  enum dit_status status = dit_spool_append(&join->spool, line->data, line->size, &entry->position, err);
  line->size = 0;
  return status;
}

static enum dit_status collect(struct join *join, struct dit_record_reader *reader, size_t most,
                               const struct dit_record_sink *sink, struct dit_error *err) {
  const struct dit_record *record = NULL;
  DIT_RETURN_IF_NOT_OK(dit_record_reader_next(reader, &record, err));
  for (; record;) {
    struct entry entry = {0};
    if (is_wanted(join, record, "backward", &entry.key)) {
      DIT_RETURN_IF_NOT_OK(spool_cells(join, record, &entry, err));
      join->stuck = join->stuck || (join->count == most && !narrow(join));
      if (join->stuck) {
        DIT_RETURN_IF_NOT_OK(write_backward(join, &entry, sink, err));
      } else if (is_in_range(join, &entry.key)) {
        if (join->count == join->capacity) {
          DIT_RETURN_IF_NOT_OK(grow(join, most, err));
        }
        join->entries[join->count++] = entry;
      }
    }
    DIT_RETURN_IF_NOT_OK(dit_record_reader_next(reader, &record, err));
  }
  if (join->count > 0) {
    qsort(join->entries, join->count, sizeof(*join->entries), compare_entries);
  }
  return DIT_OK;
}

/// The first entry of the key, or the number of entries.
static size_t find_entry(const struct join *join, const struct key *key) {
  size_t low = 0, high = join->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (compare_keys(&join->entries[middle].key, key) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < join->count && compare_keys(&join->entries[low].key, key) == 0 ? low : join->count;
}

/// A call's row, then the further rounds of its backward.
static enum dit_status write_forward(struct join *join, const struct dit_record *record, const struct key *key,
                                     const struct dit_record_sink *sink, struct dit_error *err) {
  struct dit_text *line = &join->line;
  size_t at = find_entry(join, key);
  struct entry *entry = at < join->count && !join->entries[at].used ? &join->entries[at] : NULL;
  append_name(join, line, record);
  dit_text_append_format(line, ",%llu,", (unsigned long long)key->id);
  append_elapsed(line, record);
  dit_text_append(line, ",", 1);
  uint64_t position = entry ? entry->position + entry->name_size : 0;
  if (entry) {
    DIT_RETURN_IF_NOT_OK(dit_spool_read(&join->spool, position, entry->time_size, line, err));
  } else {
    dit_text_append(line, "-", 1);
  }
  dit_text_append_format(line, ",ms,");
  dit_python_append_input(&join->cell, record);
  take_cell(join, line);
  dit_text_append(line, ",", 1);
  dit_python_append_output(&join->cell, record, "out");
  take_cell(join, line);
  if (entry) {
    entry->used = true;
    DIT_RETURN_IF_NOT_OK(dit_spool_read(&join->spool, position + entry->time_size, entry->rest_size, line, err));
  } else {
    dit_text_append_format(line, ",-,-");
  }
  dit_text_append(line, "\r\n", 2);
  DIT_RETURN_IF_NOT_OK(dit_text_flush(line, sink, err));
  for (at++; entry && at < join->count && compare_keys(&join->entries[at].key, key) == 0; at++) {
    DIT_RETURN_IF_NOT_OK(write_backward(join, &join->entries[at], sink, err));
  }
  return DIT_OK;
}

static enum dit_status write_rows(struct join *join, struct dit_record_reader *reader,
                                  const struct dit_record_sink *sink, struct dit_error *err) {
  const struct dit_record *record = NULL;
  DIT_RETURN_IF_NOT_OK(dit_record_reader_next(reader, &record, err));
  while (record) {
    struct key key;
    if (is_wanted(join, record, "forward", &key)) {
      DIT_RETURN_IF_NOT_OK(write_forward(join, record, &key, sink, err));
    }
    DIT_RETURN_IF_NOT_OK(dit_record_reader_next(reader, &record, err));
  }
  for (size_t i = 0; i < join->count; i++) {
    if (!join->entries[i].used) {
      DIT_RETURN_IF_NOT_OK(write_backward(join, &join->entries[i], sink, err));
    }
  }
  return DIT_OK;
}

/// One range of keys: both passes. `*more`: there are keys beyond it.
static enum dit_status run_round(struct join *join, struct dit_record_reader *reader, size_t most, bool *more,
                                 const struct dit_record_sink *sink, struct dit_error *err) {
  join->count = 0;
  join->has_until = join->stuck = false;
  dit_spool_clear(&join->spool);
  DIT_RETURN_IF_NOT_OK(dit_record_reader_rewind(reader, err));
  DIT_RETURN_IF_NOT_OK(collect(join, reader, most, sink, err));
  DIT_RETURN_IF_NOT_OK(dit_record_reader_rewind(reader, err));
  DIT_RETURN_IF_NOT_OK(write_rows(join, reader, sink, err));
  *more = join->has_until;
  join->from = join->until;
  return DIT_OK;
}

enum dit_status dit_record_export_legacy_csv(struct dit_record_reader *reader, size_t memory,
                                             const struct dit_record_sink *sink, struct dit_error *err) {
  struct join join = {0};
  size_t most = (memory ? memory : (size_t)DEFAULT_MEMORY) / sizeof(struct entry);
  most = most < LEAST_ENTRIES ? (size_t)LEAST_ENTRIES : most;
  bool more = true;
  dit_spool_init(&join.spool);
  dit_text_append(&join.line, header, sizeof(header) - 1);
  enum dit_status status = dit_text_flush(&join.line, sink, err);
  while (status == DIT_OK && more) {
    status = run_round(&join, reader, most, &more, sink, err);
  }
  dit_free(join.entries);
  dit_spool_reset(&join.spool);
  dit_text_reset(&join.line);
  dit_text_reset(&join.cell);
  return status;
}
