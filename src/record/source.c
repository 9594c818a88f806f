/// Walking through one file: frames, resynchronisation after damage, the torn end.
///
/// Invariant: a record is delivered only when its checksum, seeded with the file's salt, is right and every string it
/// uses is known; everything else is counted. The window holds at most one record and a read-ahead. Depends on decode
/// and core's alloc and error.
#include "record/source.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "record/crc32c.h"

enum { READ_AHEAD = 256 << 10 };

static enum dit_status fill_window(struct dit_record_source *source, size_t need, struct dit_error *err) {
  size_t capacity = need > READ_AHEAD ? need : (size_t)READ_AHEAD;
  if (capacity > source->window_capacity) {
    unsigned char *grown = dit_realloc(source->window, capacity);
    if (!grown) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no memory to read '%s' (%zu bytes)", source->name, capacity);
    }
    source->window = grown;
    source->window_capacity = capacity;
  }
  while (source->window_size < source->window_capacity && !source->window_at_end) {
    off_t offset = (off_t)(source->window_offset + source->window_size);
    ssize_t got =
        pread(source->fd, source->window + source->window_size, source->window_capacity - source->window_size, offset);
    if (got < 0 && errno != EINTR) {
      return dit_error_set(err, DIT_ERR_IO, "reading '%s': %s", source->name, strerror(errno));
    }
    source->window_at_end = got == 0;
    source->window_size += got > 0 ? (size_t)got : 0;
  }
  return DIT_OK;
}

/// `need` bytes from `offset` on, if there are so many: `*available` says how many there are. Offsets never go back
/// behind the window's start except by rewind.
static enum dit_status look(struct dit_record_source *source, uint64_t offset, size_t need, const unsigned char **data,
                            size_t *available, struct dit_error *err) {
  uint64_t inside = offset - source->window_offset;
  if (source->fd >= 0 && inside + need > source->window_size && !source->window_at_end) {
    size_t kept = inside < source->window_size ? source->window_size - (size_t)inside : 0;
    if (kept > 0) {
      memmove(source->window, source->window + inside, kept);
    }
    source->window_offset = offset;
    source->window_size = kept;
    inside = 0;
    DIT_RETURN_IF_NOT_OK(fill_window(source, need, err));
  }
  const unsigned char *base = source->fd >= 0 ? source->window : source->memory;
  *available = inside < source->window_size ? source->window_size - (size_t)inside : 0;
  *data = *available > 0 ? base + inside : NULL;
  return DIT_OK;
}

/// The sound frame at `offset`; `*length` is 0 when there is none. A sync record must repeat the header in force.
static enum dit_status look_frame(struct dit_record_source *source, uint64_t offset, const unsigned char **frame,
                                  size_t *length, struct dit_error *err) {
  const unsigned char *p = NULL;
  size_t available = 0;
  *length = 0;
  DIT_RETURN_IF_NOT_OK(look(source, offset, DIT_FRAME_MIN, &p, &available, err));
  if (available < DIT_FRAME_MIN || dit_get_u32(p) != DIT_FRAME_MARKER_VALUE) {
    return DIT_OK;
  }
  size_t size = dit_get_u32(p + DIT_FRAME_LENGTH);
  if (size < DIT_FRAME_MIN || size > DIT_RECORD_MAX_BYTES) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(look(source, offset, size, &p, &available, err));
  bool is_sync = available >= DIT_FRAME_MIN && dit_get_u16(p + DIT_FRAME_TYPE) == DIT_RECORD_TYPE_SYNC;
  if (available < size || !(source->has_header || is_sync)) {
    return DIT_OK;
  }
  size_t body = size - DIT_FRAME_CRC_SIZE;
  if (dit_crc32c(is_sync ? 0 : source->header.salt, p, body) != dit_get_u32(p + body)) {
    return DIT_OK;
  }
  if (is_sync) {
    bool newer = false, nomem = false, had = source->has_header;
    size_t payload = body - DIT_FRAME_PAYLOAD;
    if (had &&
        (payload < DIT_HEADER_FIXED || dit_get_u32(p + DIT_FRAME_PAYLOAD + DIT_HEADER_SALT) != source->header.salt)) {
      return DIT_OK;
    }
    if (!had && !dit_record_source_take_header(source, p + DIT_FRAME_PAYLOAD, payload, &newer, &nomem)) {
      return nomem ? dit_error_set(err, DIT_ERR_NOMEM, "no memory to read '%s'", source->name) : DIT_OK;
    }
  }
  *frame = p;
  *length = size;
  return DIT_OK;
}

/// The first sound frame at `offset` or later; `*length` is 0 when there is none, and `*found` then the end.
static enum dit_status scan(struct dit_record_source *source, uint64_t offset, uint64_t *found,
                            const unsigned char **frame, size_t *length, struct dit_error *err) {
  const unsigned char marker = (unsigned char)(DIT_FRAME_MARKER_VALUE & 0xFF);
  for (;;) {
    const unsigned char *p = NULL;
    size_t available = 0;
    DIT_RETURN_IF_NOT_OK(look(source, offset, 1, &p, &available, err));
    const unsigned char *hit = available > 0 ? memchr(p, marker, available) : NULL;
    if (!hit) {
      offset += available;
      if (available == 0) {
        *found = offset;
        *length = 0;
        return DIT_OK;
      }
      continue;
    }
    offset += (uint64_t)(hit - p);
    DIT_RETURN_IF_NOT_OK(look_frame(source, offset, frame, length, err));
    if (*length > 0) {
      *found = offset;
      return DIT_OK;
    }
    offset++;
  }
}

/// A file appended to another one: its header stands where a record would begin.
static enum dit_status take_joined_header(struct dit_record_source *source, bool *taken, struct dit_error *err) {
  const unsigned char *p = NULL;
  size_t available = 0;
  bool newer = false, nomem = false;
  DIT_RETURN_IF_NOT_OK(look(source, source->position, DIT_RECORD_MAX_HEADER, &p, &available, err));
  *taken = available > 0 && dit_record_source_take_header(source, p, available, &newer, &nomem);
  if (nomem) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory to read '%s'", source->name);
  }
  if (*taken) {
    source->position += dit_get_u32(p + DIT_HEADER_LENGTH);
    source->valid_end = source->position;
    source->last_sequence = 0;
    dit_string_table_clear(&source->strings);
  }
  return DIT_OK;
}

/// The next sound frame, passing over damage. `*length` is 0 at the end.
static enum dit_status next_frame(struct dit_record_source *source, const unsigned char **frame, size_t *length,
                                  struct dit_error *err) {
  bool joined = true;
  while (joined) {
    DIT_RETURN_IF_NOT_OK(look_frame(source, source->position, frame, length, err));
    if (*length > 0) {
      source->position += *length;
      source->valid_end = source->position;
      return DIT_OK;
    }
    DIT_RETURN_IF_NOT_OK(take_joined_header(source, &joined, err));
  }
  uint64_t found = source->position;
  DIT_RETURN_IF_NOT_OK(scan(source, source->position + 1, &found, frame, length, err));
  const uint64_t skipped = found > source->position ? found - source->position : 0;
  if (*length > 0) {
    source->counts.damages++;
    source->counts.damaged_bytes += skipped;
    source->position = found + *length;
    source->valid_end = source->position;
    return DIT_OK;
  }
  source->ended = true;
  const unsigned char *p = NULL;
  size_t available = 0;
  DIT_RETURN_IF_NOT_OK(look(source, found, 1, &p, &available, err));
  uint64_t end = source->window_offset + source->window_size;
  if (end > source->valid_end) {
    source->counts.truncated_files = 1;
    source->counts.truncated_bytes = end - source->valid_end;
  }
  return DIT_OK;
}

static void count_gap(struct dit_record_source *source, uint64_t sequence) {
  bool first = source->last_sequence == 0;
  if (sequence > source->last_sequence && !(first && source->header.file_index > 0)) {
    source->counts.missing += sequence - source->last_sequence - 1;
  }
  source->last_sequence = sequence > source->last_sequence ? sequence : source->last_sequence;
}

static enum dit_decode take_record(struct dit_record_source *source, const unsigned char *frame, size_t length) {
  struct dit_record *record = &source->record;
  *record = (struct dit_record){
      .type = dit_get_u16(frame + DIT_FRAME_TYPE),
      .flags = dit_get_u16(frame + DIT_FRAME_FLAGS),
      .thread = dit_get_u32(frame + DIT_FRAME_THREAD),
      .sequence = dit_get_u64(frame + DIT_FRAME_SEQUENCE),
      .time_ns = (int64_t)dit_get_u64(frame + DIT_FRAME_TIME),
      .header = &source->header,
  };
  // unsigned, because a file may hold any number
  record->wall_ns =
      (int64_t)((uint64_t)record->time_ns - (uint64_t)source->header.monotonic_ns + (uint64_t)source->header.wall_ns);
  count_gap(source, record->sequence);
  return dit_record_decode(source, frame + DIT_FRAME_PAYLOAD, length - DIT_FRAME_MIN);
}

/// A structural record. Others of a later minor version are passed over.
static enum dit_decode take_structural(struct dit_record_source *source, const unsigned char *frame, size_t length) {
  const unsigned char *payload = frame + DIT_FRAME_PAYLOAD;
  struct dit_cursor cursor = {payload, payload + length - DIT_FRAME_MIN};
  uint64_t drops = 0;
  switch (dit_get_u16(frame + DIT_FRAME_TYPE)) {
    case DIT_RECORD_TYPE_SYNC:
      dit_string_table_clear(&source->strings);
      return DIT_DECODE_OK;
    case DIT_RECORD_TYPE_STRING:
      return dit_string_table_define(&source->strings, payload, length - DIT_FRAME_MIN);
    case DIT_RECORD_TYPE_DROPS:
      if (!dit_take_varint(&cursor, &drops)) {
        return DIT_DECODE_MALFORMED;
      }
      source->counts.noted_drops += drops;
      return DIT_DECODE_OK;
    default:
      source->counts.unknown++;
      return DIT_DECODE_OK;
  }
}

enum dit_status dit_record_source_next(struct dit_record_source *source, bool *more, struct dit_error *err) {
  while (!source->ended) {
    const unsigned char *frame = NULL;
    size_t length = 0;
    DIT_RETURN_IF_NOT_OK(next_frame(source, &frame, &length, err));
    if (length == 0) {
      break;
    }
    bool user = dit_get_u16(frame + DIT_FRAME_TYPE) >= DIT_RECORD_TYPE_USER;
    enum dit_decode outcome = user ? take_record(source, frame, length) : take_structural(source, frame, length);
    source->counts.malformed += outcome == DIT_DECODE_MALFORMED;
    source->counts.unresolved += outcome == DIT_DECODE_UNRESOLVED;
    if (outcome == DIT_DECODE_NOMEM) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a record of '%s' (%zu bytes)", source->name, length);
    }
    if (user && outcome == DIT_DECODE_OK) {
      source->counts.records++;
      *more = true;
      return DIT_OK;
    }
  }
  *more = false;
  return DIT_OK;
}

bool dit_record_source_is_ready(const struct dit_record_source *source) {
  uint64_t inside = source->position - source->window_offset;
  if (source->ended || source->window_at_end) {
    return true;
  }
  if (inside + DIT_FRAME_MIN > source->window_size) {
    return false;
  }
  const unsigned char *p = (source->fd >= 0 ? source->window : source->memory) + inside;
  return dit_get_u32(p) == DIT_FRAME_MARKER_VALUE && inside + dit_get_u32(p + DIT_FRAME_LENGTH) <= source->window_size;
}

/// The header, or its copy in the first sound sync record. A file that ends inside its header has no records.
static enum dit_status begin(struct dit_record_source *source, struct dit_error *err) {
  const unsigned char *p = NULL, *frame = NULL;
  size_t available = 0, length = 0;
  bool newer = false, nomem = false;
  DIT_RETURN_IF_NOT_OK(look(source, 0, DIT_RECORD_MAX_HEADER, &p, &available, err));
  if (available > 0 && dit_record_source_take_header(source, p, available, &newer, &nomem)) {
    source->position = source->valid_end = dit_get_u32(p + DIT_HEADER_LENGTH);
    return DIT_OK;
  }
  if (nomem) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory to read '%s'", source->name);
  }
  if (newer) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "'%s' is a record log of format %u; this program reads format %d",
                         source->name, dit_get_u16(p + DIT_HEADER_MAJOR), DIT_RECORD_MAJOR);
  }
  size_t prefix = available < DIT_RECORD_MAGIC_SIZE ? available : DIT_RECORD_MAGIC_SIZE;
  bool similar = available == 0 || memcmp(p, DIT_RECORD_MAGIC, prefix) == 0;
  uint64_t found = 0;
  DIT_RETURN_IF_NOT_OK(scan(source, 0, &found, &frame, &length, err));
  if (length > 0) {
    source->counts.damages++;
    source->counts.damaged_bytes += found;
    source->position = found;
    return DIT_OK;
  }
  if (!similar) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "'%s' is not a record log (wrong first bytes, no sync record)",
                         source->name);
  }
  source->ended = true;
  source->counts.truncated_files = found > 0;
  source->counts.truncated_bytes = found;
  return DIT_OK;
}

enum dit_status dit_record_source_rewind(struct dit_record_source *source, struct dit_error *err) {
  if (source->fd >= 0) {
    source->window_size = 0;
    source->window_at_end = false;
  }
  source->window_offset = source->position = source->valid_end = source->last_sequence = 0;
  source->ended = source->has_header = false;
  source->counts = (struct dit_record_read_counts){0};
  dit_string_table_clear(&source->strings);
  return begin(source, err);
}

enum dit_status dit_record_source_init_fd(struct dit_record_source *source, const char *path, int fd,
                                          struct dit_error *err) {
  *source = (struct dit_record_source){.name = path, .fd = fd};
  enum dit_status status = dit_record_source_rewind(source, err);
  if (status != DIT_OK) {
    dit_record_source_reset(source);
  }
  return status;
}

enum dit_status dit_record_source_init(struct dit_record_source *source, const char *path, const void *data,
                                       size_t size, struct dit_error *err) {
  if (path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      return dit_error_set(err, DIT_ERR_IO, "record file '%s' cannot be read: %s", path, strerror(errno));
    }
    return dit_record_source_init_fd(source, path, fd, err);
  }
  *source = (struct dit_record_source){.name = "memory", .fd = -1, .memory = data, .window_size = size};
  source->window_at_end = true;
  enum dit_status status = dit_record_source_rewind(source, err);
  if (status != DIT_OK) {
    dit_record_source_reset(source);
  }
  return status;
}

void dit_record_source_reset(struct dit_record_source *source) {
  if (source->fd >= 0) {
    close(source->fd);
  }
  dit_free(source->window);
  dit_free(source->pairs);
  dit_free(source->pair_text);
  dit_free(source->strings.slots);
  dit_free(source->strings.text);
  dit_free(source->fields);
  dit_free(source->numbers);
  *source = (struct dit_record_source){.fd = -1};
}
