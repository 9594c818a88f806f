/// The reader: one or several sources merged by wall time with a heap; repair of a torn end.
///
/// Invariant: the heap holds the sources that have a record in hand, earliest first; the record last delivered belongs
/// to the source at the top, which moves on at the next call. Depends on source and core's alloc and error.
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "record/source.h"

struct dit_record_reader {
  struct dit_record_source *sources;
  char **paths;
  size_t count;
  size_t *heap;
  size_t heap_size;
  bool started;
  bool (*accept)(void *context, const struct dit_record *record);
  void *accept_context;
};

static bool is_before(const struct dit_record_reader *reader, size_t a, size_t b) {
  int64_t left = reader->sources[a].record.wall_ns, right = reader->sources[b].record.wall_ns;
  return left != right ? left < right : a < b;
}

static void sift_down(struct dit_record_reader *reader, size_t at) {
  for (;;) {
    size_t best = at;
    for (size_t child = at * 2 + 1; child <= at * 2 + 2 && child < reader->heap_size; child++) {
      if (is_before(reader, reader->heap[child], reader->heap[best])) {
        best = child;
      }
    }
    if (best == at) {
      return;
    }
    size_t swapped = reader->heap[at];
    reader->heap[at] = reader->heap[best];
    reader->heap[best] = swapped;
    at = best;
  }
}

static enum dit_status start(struct dit_record_reader *reader, struct dit_error *err) {
  reader->heap_size = 0;
  for (size_t i = 0; i < reader->count; i++) {
    bool more = false;
    DIT_RETURN_IF_NOT_OK(dit_record_source_next(&reader->sources[i], &more, err));
    if (more) {
      reader->heap[reader->heap_size++] = i;
    }
  }
  for (size_t i = reader->heap_size; i-- > 0;) {
    sift_down(reader, i);
  }
  reader->started = true;
  return DIT_OK;
}

static enum dit_status advance(struct dit_record_reader *reader, struct dit_error *err) {
  bool more = false;
  DIT_RETURN_IF_NOT_OK(dit_record_source_next(&reader->sources[reader->heap[0]], &more, err));
  if (!more) {
    reader->heap[0] = reader->heap[--reader->heap_size];
  }
  sift_down(reader, 0);
  return DIT_OK;
}

enum dit_status dit_record_reader_next(struct dit_record_reader *reader, const struct dit_record **record,
                                       struct dit_error *err) {
  for (;;) {
    if (!reader->started) {
      DIT_RETURN_IF_NOT_OK(start(reader, err));
    } else if (reader->heap_size > 0) {
      DIT_RETURN_IF_NOT_OK(advance(reader, err));
    }
    *record = NULL;
    if (reader->heap_size == 0) {
      return DIT_OK;
    }
    struct dit_record_source *source = &reader->sources[reader->heap[0]];
    source->record.file = reader->heap[0];
    if (!reader->accept || reader->accept(reader->accept_context, &source->record)) {
      *record = &source->record;
      return DIT_OK;
    }
  }
}

void dit_record_reader_set_filter(struct dit_record_reader *reader,
                                  bool (*accept)(void *context, const struct dit_record *record), void *context) {
  reader->accept = accept;
  reader->accept_context = context;
}

bool dit_record_reader_is_ready(const struct dit_record_reader *reader) {
  return reader->started && (reader->heap_size == 0 || dit_record_source_is_ready(&reader->sources[reader->heap[0]]));
}

enum dit_status dit_record_reader_rewind(struct dit_record_reader *reader, struct dit_error *err) {
  reader->started = false;
  reader->heap_size = 0;
  for (size_t i = 0; i < reader->count; i++) {
    DIT_RETURN_IF_NOT_OK(dit_record_source_rewind(&reader->sources[i], err));
  }
  return DIT_OK;
}

static struct dit_record_reader *make_reader(size_t count) {
  struct dit_record_reader *reader = dit_calloc(1, sizeof(*reader));
  count = count > 0 ? count : 1;  // no files: no records
  if (!reader) {
    return NULL;
  }
  reader->sources = dit_calloc(count, sizeof(*reader->sources));
  reader->heap = dit_calloc(count, sizeof(*reader->heap));
  reader->paths = dit_calloc(count, sizeof(*reader->paths));
  if (!reader->sources || !reader->heap || !reader->paths) {
    dit_record_reader_close(reader);
    return NULL;
  }
  return reader;
}

enum dit_status dit_record_reader_open(const char *const *paths, size_t count, struct dit_record_reader **out,
                                       struct dit_error *err) {
  struct dit_record_reader *reader = make_reader(count);
  enum dit_status status = reader ? DIT_OK : dit_error_set(err, DIT_ERR_NOMEM, "no memory for a record reader");
  for (size_t i = 0; i < count && status == DIT_OK; i++) {
    reader->paths[i] = dit_strdup(paths[i]);
    if (!reader->paths[i]) {
      status = dit_error_set(err, DIT_ERR_NOMEM, "no memory for a record reader");
    } else {
      status = dit_record_source_init(&reader->sources[i], reader->paths[i], NULL, 0, err);
      reader->count += status == DIT_OK;
    }
    if (status != DIT_OK) {
      dit_free(reader->paths[i]);
    }
  }
  if (status != DIT_OK) {
    dit_record_reader_close(reader);
    return status;
  }
  *out = reader;
  return DIT_OK;
}

enum dit_status dit_record_reader_open_memory(const void *data, size_t size, struct dit_record_reader **out,
                                              struct dit_error *err) {
  struct dit_record_reader *reader = make_reader(1);
  if (!reader) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a record reader");
  }
  enum dit_status status = dit_record_source_init(&reader->sources[0], NULL, data, size, err);
  if (status != DIT_OK) {
    dit_record_reader_close(reader);
    return status;
  }
  reader->count = 1;
  *out = reader;
  return DIT_OK;
}

void dit_record_reader_close(struct dit_record_reader *reader) {
  if (!reader) {
    return;
  }
  for (size_t i = 0; i < reader->count; i++) {
    dit_record_source_reset(&reader->sources[i]);
    dit_free(reader->paths[i]);
  }
  dit_free(reader->sources);
  dit_free(reader->heap);
  dit_free(reader->paths);
  dit_free(reader);
}

void dit_record_reader_get_counts(const struct dit_record_reader *reader, struct dit_record_read_counts *counts) {
  *counts = (struct dit_record_read_counts){0};
  for (size_t i = 0; i < reader->count; i++) {
    const struct dit_record_read_counts *one = &reader->sources[i].counts;
    counts->records += one->records;
    counts->missing += one->missing;
    counts->damages += one->damages;
    counts->damaged_bytes += one->damaged_bytes;
    counts->malformed += one->malformed;
    counts->unresolved += one->unresolved;
    counts->unknown += one->unknown;
    counts->truncated_files += one->truncated_files;
    counts->truncated_bytes += one->truncated_bytes;
    counts->noted_drops += one->noted_drops;
  }
}

void dit_record_reader_get_file_counts(const struct dit_record_reader *reader, size_t index,
                                       struct dit_record_read_counts *counts) {
  *counts = index < reader->count ? reader->sources[index].counts : (struct dit_record_read_counts){0};
}

uint64_t dit_record_reader_get_position(const struct dit_record_reader *reader) {
  uint64_t position = 0;
  for (size_t i = 0; i < reader->count; i++) {
    position += reader->sources[i].position;
  }
  return position;
}

size_t dit_record_reader_get_file_count(const struct dit_record_reader *reader) {
  return reader->count;
}

const struct dit_record_header *dit_record_reader_get_header(const struct dit_record_reader *reader, size_t index) {
  return index < reader->count && reader->sources[index].has_header ? &reader->sources[index].header : NULL;
}

const char *dit_record_get_type_name(const struct dit_record *record) {
  for (size_t i = 0; i < record->header->metadata_count; i++) {
    const struct dit_record_pair *pair = &record->header->metadata[i];
    const char *p = pair->key + 5;
    if (strncmp(pair->key, "type.", 5) != 0 || *p == '0') {
      continue;
    }
    unsigned number = 0;
    for (; *p >= '0' && *p <= '9' && number <= UINT16_MAX; p++) {
      number = number * 10 + (unsigned)(*p - '0');
    }
    if (*p == '\0' && number == record->type) {
      return pair->value;
    }
  }
  return NULL;
}

static enum dit_status read_to_end(struct dit_record_source *source, struct dit_error *err) {
  bool more = true;
  while (more) {
    DIT_RETURN_IF_NOT_OK(dit_record_source_next(source, &more, err));
  }
  return DIT_OK;
}

enum dit_status dit_record_repair(const char *path, uint64_t *removed, struct dit_error *err) {
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    return dit_error_set(err, DIT_ERR_IO, "record file '%s' cannot be opened for repair: %s", path, strerror(errno));
  }
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(fd);
    return dit_error_set(err, DIT_ERR_INVALID, "record file '%s' is being written; repair it after its writer ended",
                         path);
  }
  struct dit_record_source source;
  DIT_RETURN_IF_NOT_OK(dit_record_source_init_fd(&source, path, fd, err));
  enum dit_status status = read_to_end(&source, err);
  uint64_t torn = source.counts.truncated_bytes;
  if (status == DIT_OK && torn > 0 && (ftruncate(fd, (off_t)source.valid_end) != 0 || fsync(fd) != 0)) {
    status = dit_error_set(err, DIT_ERR_IO, "record file '%s' cannot be cut to %llu bytes: %s", path,
                           (unsigned long long)source.valid_end, strerror(errno));
  }
  if (status == DIT_OK && removed) {
    *removed = torn;
  }
  dit_record_source_reset(&source);
  return status;
}
