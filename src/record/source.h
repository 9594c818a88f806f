/// One file (or block of memory) being read. Internal to record; dit_record_reader merges several.
#ifndef DIT_RECORD_SOURCE_H
#define DIT_RECORD_SOURCE_H

#include "record/format.h"

struct dit_string_slot {
  uint32_t generation;  ///< of the definition; another one than the source's means undefined
  uint32_t size;
  size_t offset;  ///< into the text block
};

/// The strings defined since the last sync record.
struct dit_string_table {
  struct dit_string_slot *slots;
  size_t slot_count;
  char *text;
  size_t text_size, text_capacity;
  uint32_t generation;
};

struct dit_record_source {
  const char *name;
  int fd;  ///< -1 for memory
  unsigned char *window;
  const unsigned char *memory;
  size_t window_size, window_capacity;
  uint64_t window_offset;  ///< of the window's first byte in the file
  bool window_at_end;      ///< nothing follows the window
  uint64_t position;       ///< of the next record
  uint64_t valid_end;      ///< end of the last sound record
  bool ended, has_header;
  struct dit_record_header header;
  struct dit_record_pair *pairs;
  char *pair_text;
  struct dit_string_table strings;
  uint64_t last_sequence;
  struct dit_record record;
  struct dit_record_field *fields;
  size_t field_capacity;
  int64_t *numbers;
  size_t number_capacity;
  struct dit_record_read_counts counts;
};

/// Read from the file, or from memory when `path` is NULL. On failure nothing is left behind.
DIT_NODISCARD enum dit_status dit_record_source_init(struct dit_record_source *source, const char *path,
                                                     const void *data, size_t size, struct dit_error *err);
/// Read an open file, which the source then owns even on failure.
DIT_NODISCARD enum dit_status dit_record_source_init_fd(struct dit_record_source *source, const char *path, int fd,
                                                        struct dit_error *err);
void dit_record_source_reset(struct dit_record_source *source);
DIT_NODISCARD enum dit_status dit_record_source_rewind(struct dit_record_source *source, struct dit_error *err);
/// Fills source->record; `*more` is false at the end.
DIT_NODISCARD enum dit_status dit_record_source_next(struct dit_record_source *source, bool *more,
                                                     struct dit_error *err);

/// True when the frame at the position is in the window, or the file has ended.
bool dit_record_source_is_ready(const struct dit_record_source *source);

/// Takes a header from bytes. False when they are not a sound one of a version this code reads; `*newer` says whether
/// only the version is in the way. NOMEM counts as not sound and sets `*nomem`.
bool dit_record_source_take_header(struct dit_record_source *source, const unsigned char *data, size_t size,
                                   bool *newer, bool *nomem);

enum dit_decode { DIT_DECODE_OK, DIT_DECODE_MALFORMED, DIT_DECODE_UNRESOLVED, DIT_DECODE_NOMEM };
/// The fields of a payload into source->record.
enum dit_decode dit_record_decode(struct dit_record_source *source, const unsigned char *payload, size_t size);
/// A string definition's payload into the table.
enum dit_decode dit_string_table_define(struct dit_string_table *table, const unsigned char *payload, size_t size);
/// Forget all strings.
void dit_string_table_clear(struct dit_string_table *table);

#endif
