/// Reading a container, and writing its items as files.
///
/// Invariant: nothing of the file is believed before its checksum was right and its numbers were checked against the
/// size of the file; an item is delivered only with all its blobs. Memory is bounded by the size of the file. Where no
/// sound frame begins, the next one is searched at every multiple of 64, first inside the frame before (a failed write
/// may have left its head alone). Finding items reads the file a few times at most, however its frames overlap. Depends
/// on files (unpacking), folder, crc32.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "record/format.h"
#include "store/crc32.h"
#include "store/files.h"
#include "store/pack.h"

enum { WINDOW_BYTES = 1 << 20 };
/// Payloads of items may be read for so many times the size of the file: frames that a program wrote do not overlap,
/// and the few that failed writes left behind do not need it.
enum { MOST_READS = 4 };

struct buffer {
  unsigned char *data;
  size_t capacity;
};

/// A checked head.
struct frame {
  uint64_t offset, payload, number, pickle, json;
  uint32_t path, blobs;
  int type;
  bool has_json;
};

/// A blob as an item refers to it.
struct reference {
  uint64_t number, offset, size;
  size_t index;  ///< in the item
  size_t place;  ///< in the blobs' memory
};

struct dit_store_reader {
  char *name;
  int fd;
  uint64_t size;
  uint32_t salt;
  uint64_t position;   ///< of the next frame
  uint64_t last;       ///< where the frame before it begins
  uint64_t sound_end;  ///< of the last sound frame
  uint64_t payloads;   ///< of items, read so far
  uint64_t window_at;  ///< place in the file of what is in `window`
  size_t window_size;
  struct dit_store_read_counts counts;
  uint64_t most;  ///< a blob is at most so many times as large as what the file has of it
  struct buffer window, payload, references, blobs, bytes, path, packed;
  struct dit_store_item item;
};

static enum dit_status reserve(struct dit_store_reader *reader, struct buffer *buffer, size_t size,
                               struct dit_error *err) {
  if (size <= buffer->capacity && buffer->data) {
    return DIT_OK;
  }
  unsigned char *grown = dit_realloc(buffer->data, size);
  if (!grown) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory to read '%s' (%zu bytes)", reader->name, size);
  }
  buffer->data = grown;
  buffer->capacity = size;
  return DIT_OK;
}

/// All of the bytes, or as many as there are: `*got`.
static enum dit_status read_some(struct dit_store_reader *reader, uint64_t offset, void *data, size_t size, size_t *got,
                                 struct dit_error *err) {
  *got = 0;
  while (*got < size) {
    ssize_t done = pread(reader->fd, (char *)data + *got, size - *got, (off_t)(offset + *got));
    if (done < 0 && errno != EINTR) {
      return dit_error_set(err, DIT_ERR_IO, "reading '%s': %s", reader->name, strerror(errno));
    }
    if (done == 0) {
      break;
    }
    *got += done > 0 ? (size_t)done : 0;
  }
  return DIT_OK;
}

/// Is this a sound head at `offset`, with a payload that the file can hold?
static bool take_head(const struct dit_store_reader *reader, const unsigned char *head, uint64_t offset,
                      struct frame *frame) {
  if (dit_get_u32(head) != DIT_PACK_MARKER_VALUE ||
      dit_crc32(reader->salt, head, DIT_PACK_HEAD_CRC) != dit_get_u32(head + DIT_PACK_HEAD_CRC)) {
    return false;
  }
  *frame = (struct frame){.offset = offset,
                          .payload = dit_get_u64(head + DIT_PACK_PAYLOAD_SIZE),
                          .number = dit_get_u64(head + DIT_PACK_NUMBER),
                          .pickle = dit_get_u64(head + DIT_PACK_PICKLE_SIZE),
                          .json = dit_get_u64(head + DIT_PACK_JSON_SIZE),
                          .path = dit_get_u32(head + DIT_PACK_PATH_SIZE),
                          .blobs = dit_get_u32(head + DIT_PACK_BLOBS),
                          .type = dit_get_u16(head + DIT_PACK_TYPE),
                          .has_json = dit_get_u16(head + DIT_PACK_FLAGS) & DIT_PACK_HAS_JSON};
  uint64_t around = DIT_PACK_HEAD_SIZE + DIT_PACK_CRC_SIZE, room = reader->size - offset;
  return room >= around && frame->payload <= room - around;
}

static enum dit_status look_head(struct dit_store_reader *reader, uint64_t offset, struct frame *frame, bool *sound,
                                 struct dit_error *err) {
  unsigned char head[DIT_PACK_HEAD_SIZE];
  size_t got = 0;
  *sound = false;
  if (offset > reader->size || reader->size - offset < sizeof(head)) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(read_some(reader, offset, head, sizeof(head), &got, err));
  *sound = got == sizeof(head) && take_head(reader, head, offset, frame);
  return DIT_OK;
}

/// The payload into `data`; `*sound` when its checksum is right.
static enum dit_status read_payload(struct dit_store_reader *reader, const struct frame *frame, unsigned char *data,
                                    bool *sound, struct dit_error *err) {
  unsigned char crc[DIT_PACK_CRC_SIZE];
  size_t got = 0, size = (size_t)frame->payload;
  *sound = false;
  DIT_RETURN_IF_NOT_OK(read_some(reader, frame->offset + DIT_PACK_HEAD_SIZE, data, size, &got, err));
  if (got < size) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(read_some(reader, frame->offset + DIT_PACK_HEAD_SIZE + size, crc, sizeof(crc), &got, err));
  *sound = got == sizeof(crc) && dit_get_u32(crc) == dit_crc32(0, data, size);
  return DIT_OK;
}

/// The first sound head at `offset` (a multiple of 64) or later.
static enum dit_status scan(struct dit_store_reader *reader, uint64_t offset, struct frame *frame, bool *found,
                            struct dit_error *err) {
  *found = false;
  DIT_RETURN_IF_NOT_OK(reserve(reader, &reader->window, WINDOW_BYTES, err));
  while (!*found && offset < reader->size) {
    bool inside = offset >= reader->window_at && offset + DIT_PACK_HEAD_SIZE <= reader->window_at + reader->window_size;
    if (!inside) {
      reader->window_size = 0;
      DIT_RETURN_IF_NOT_OK(read_some(reader, offset, reader->window.data, WINDOW_BYTES, &reader->window_size, err));
      reader->window_at = offset;
    }
    size_t at = (size_t)(offset - reader->window_at);
    for (; !*found && at + DIT_PACK_HEAD_SIZE <= reader->window_size; at += DIT_PACK_ALIGNMENT) {
      *found = take_head(reader, reader->window.data + at, reader->window_at + at, frame);
    }
    if (reader->window_size < DIT_PACK_HEAD_SIZE) {
      break;
    }
    offset = reader->window_at + at;
  }
  return DIT_OK;
}

/// The next sound head, passing over damage; `*found` is false at the end.
static enum dit_status next_frame(struct dit_store_reader *reader, struct frame *frame, bool *found,
                                  struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(look_head(reader, reader->position, frame, found, err));
  if (!*found && reader->position < reader->size) {
    DIT_RETURN_IF_NOT_OK(scan(reader, reader->last + DIT_PACK_ALIGNMENT, frame, found, err));
    reader->counts.damaged += *found;
  }
  if (!*found) {
    reader->counts.torn_bytes = reader->size > reader->sound_end ? reader->size - reader->sound_end : 0;
    reader->position = reader->size;
    return DIT_OK;
  }
  reader->last = frame->offset;
  reader->position = frame->offset + dit_pack_get_frame_size(frame->payload);
  reader->sound_end = reader->position;
  return DIT_OK;
}

static int order_references(const void *a, const void *b) {
  uint64_t x = ((const struct reference *)a)->offset, y = ((const struct reference *)b)->offset;
  return x < y ? -1 : x > y;
}

/// Gives every blob of the item its place in the memory, equal references the same one. False when they are not
/// sound or together larger than the file (uncompressed, than DIT_COMPRESS_MOST files), which no writer makes.
static bool place_blobs(const struct dit_store_reader *reader, const struct frame *frame, struct reference *references,
                        size_t *total) {
  const unsigned char *p = reader->payload.data;
  for (size_t i = 0; i < frame->blobs; i++, p += DIT_PACK_REFERENCE_SIZE) {
    references[i] = (struct reference){dit_get_u64(p), dit_get_u64(p + 8), dit_get_u64(p + 16), i, 0};
  }
  qsort(references, frame->blobs, sizeof(*references), order_references);
  uint64_t used = 0;
  for (size_t i = 0; i < frame->blobs; i++) {
    struct reference *one = &references[i], *before = i > 0 ? one - 1 : NULL;
    if (one->size == 0) {
      continue;
    }
    if (one->offset % DIT_PACK_ALIGNMENT != 0 || one->offset >= frame->offset ||
        one->size > reader->most * (frame->offset - one->offset)) {
      return false;
    }
    if (before && before->size > 0 && before->offset == one->offset) {
      one->place = before->place;
      continue;
    }
    one->place = (size_t)used;
    used += (one->size + DIT_PACK_ALIGNMENT - 1) / DIT_PACK_ALIGNMENT * DIT_PACK_ALIGNMENT;
    if (used > reader->most * reader->size) {
      return false;
    }
  }
  *total = (size_t)used;
  return true;
}

/// The bytes of a compressed blob into `data`. `*sound` is false when they are not those that its head promises.
static enum dit_status read_squeezed(struct dit_store_reader *reader, const struct frame *frame, unsigned char *data,
                                     size_t size, bool *sound, struct dit_error *err) {
  enum dit_compress_method method = frame->path;
  uint32_t width = frame->blobs;
  uint64_t packed = frame->json;
  *sound = method > DIT_COMPRESS_NONE && method < DIT_COMPRESS_COUNT && dit_compress_is_width(width) &&
           frame->pickle == size && packed > 0 && packed <= frame->payload &&
           size <= DIT_COMPRESS_MOST * frame->payload;
  if (!*sound) {
    return DIT_OK;
  }
  if (!dit_compress_has(method)) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "'%s' is compressed with %s, and %s is not on this machine",
                         reader->name, dit_compress_get_name(method), dit_compress_get_library(method));
  }
  DIT_RETURN_IF_NOT_OK(reserve(reader, &reader->packed, (size_t)frame->payload + size, err));
  DIT_RETURN_IF_NOT_OK(read_payload(reader, frame, reader->packed.data, sound, err));
  unsigned char *planes = width > 1 ? reader->packed.data + frame->payload : data;
  *sound = *sound && dit_compress_unpack(method, reader->packed.data, (size_t)packed, planes, size);
  if (*sound && width > 1) {
    dit_compress_join(planes, data, size, width);
  }
  return DIT_OK;
}

static enum dit_status read_blobs(struct dit_store_reader *reader, const struct reference *references, size_t count,
                                  bool *sound, struct dit_error *err) {
  struct dit_store_blob *blobs = (struct dit_store_blob *)(void *)reader->blobs.data;
  for (size_t i = 0; i < count && *sound; i++) {
    const struct reference *one = &references[i];
    struct frame frame;
    blobs[one->index] = (struct dit_store_blob){.data = reader->bytes.data + one->place, .size = (size_t)one->size};
    if (one->size == 0) {
      continue;
    }
    bool again = i > 0 && one[-1].size > 0 && one[-1].offset == one->offset;
    if (again) {
      *sound = one[-1].size == one->size && one[-1].number == one->number;
      continue;
    }
    DIT_RETURN_IF_NOT_OK(look_head(reader, one->offset, &frame, sound, err));
    bool squeezed = *sound && frame.type == DIT_PACK_SQUEEZED;
    *sound = *sound && frame.number == one->number &&
             (squeezed || (frame.type == DIT_PACK_BLOB && frame.payload == one->size));
    unsigned char *place = reader->bytes.data + one->place;
    if (*sound && squeezed) {
      DIT_RETURN_IF_NOT_OK(read_squeezed(reader, &frame, place, (size_t)one->size, sound, err));
    } else if (*sound) {
      DIT_RETURN_IF_NOT_OK(read_payload(reader, &frame, place, sound, err));
    }
  }
  return DIT_OK;
}

/// Do the parts of an item's payload fill it exactly?
static bool check_parts(const struct frame *frame) {
  uint64_t rest = frame->payload, table = (uint64_t)frame->blobs * DIT_PACK_REFERENCE_SIZE;
  if (frame->blobs > DIT_STORE_MAX_BLOBS || table > rest || frame->path > rest - table) {
    return false;
  }
  rest -= table + frame->path;
  return frame->pickle > 0 && frame->pickle <= rest && frame->json == rest - frame->pickle;
}

/// The item of a sound head; `*sound` is false when something of it is damaged.
static enum dit_status read_item(struct dit_store_reader *reader, const struct frame *frame, bool *sound,
                                 struct dit_error *err) {
  *sound = check_parts(frame) && frame->payload <= MOST_READS * reader->size - reader->payloads;
  if (!*sound) {
    return DIT_OK;
  }
  reader->payloads += frame->payload;
  DIT_RETURN_IF_NOT_OK(reserve(reader, &reader->payload, (size_t)frame->payload, err));
  DIT_RETURN_IF_NOT_OK(read_payload(reader, frame, reader->payload.data, sound, err));
  size_t table = (size_t)frame->blobs * DIT_PACK_REFERENCE_SIZE, total = 0;
  const unsigned char *text = reader->payload.data + table;
  *sound = *sound && dit_path_check((const char *)text, frame->path, NULL) == DIT_OK;
  if (!*sound) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(reserve(reader, &reader->references, frame->blobs * sizeof(struct reference) + 1, err));
  DIT_RETURN_IF_NOT_OK(reserve(reader, &reader->blobs, frame->blobs * sizeof(struct dit_store_blob) + 1, err));
  DIT_RETURN_IF_NOT_OK(reserve(reader, &reader->path, (size_t)frame->path + 1, err));
  struct reference *references = (struct reference *)(void *)reader->references.data;
  *sound = place_blobs(reader, frame, references, &total);
  if (!*sound) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(reserve(reader, &reader->bytes, total + 1, err));
  DIT_RETURN_IF_NOT_OK(read_blobs(reader, references, frame->blobs, sound, err));
  memcpy(reader->path.data, text, frame->path);
  reader->path.data[frame->path] = '\0';
  reader->item = (struct dit_store_item){.path = (const char *)reader->path.data,
                                         .pickle = text + frame->path,
                                         .pickle_size = (size_t)frame->pickle,
                                         .json_size = (size_t)frame->json,
                                         .blobs = (struct dit_store_blob *)(void *)reader->blobs.data,
                                         .blob_count = frame->blobs};
  if (frame->has_json) {
    reader->item.json = (const char *)text + frame->path + frame->pickle;
  }
  return DIT_OK;
}

enum dit_status dit_store_reader_next(struct dit_store_reader *reader, const struct dit_store_item **item,
                                      struct dit_error *err) {
  for (;;) {
    struct frame frame;
    bool found = false, sound = false;
    DIT_RETURN_IF_NOT_OK(next_frame(reader, &frame, &found, err));
    if (!found) {
      *item = NULL;
      return DIT_OK;
    }
    if (frame.type != DIT_PACK_ITEM) {
      continue;  // a blob, or a frame of a later minor version
    }
    DIT_RETURN_IF_NOT_OK(read_item(reader, &frame, &sound, err));
    if (sound) {
      reader->counts.items++;
      *item = &reader->item;
      return DIT_OK;
    }
    reader->counts.damaged++;
  }
}

/// The file's header. A damaged one does as long as it still says enough for the first frame.
static enum dit_status take_header(struct dit_store_reader *reader, struct dit_error *err) {
  unsigned char header[DIT_PACK_FILE_SIZE] = {0};
  size_t got = 0;
  DIT_RETURN_IF_NOT_OK(read_some(reader, 0, header, sizeof(header), &got, err));
  size_t prefix = got < DIT_PACK_MAGIC_SIZE ? got : DIT_PACK_MAGIC_SIZE;
  bool whole = dit_crc32(0, header, DIT_PACK_FILE_CRC) == dit_get_u32(header + DIT_PACK_FILE_CRC);
  bool magic = memcmp(header, DIT_PACK_MAGIC, prefix) == 0;
  if (got < sizeof(header) && magic) {
    reader->position = reader->size;  // torn inside the header: no items
    reader->counts.torn_bytes = reader->size;
    return DIT_OK;
  }
  unsigned major = dit_get_u16(header + DIT_PACK_FILE_MAJOR), length = dit_get_u32(header + DIT_PACK_FILE_LENGTH);
  if (magic && whole && major != DIT_PACK_MAJOR && major != DIT_PACK_MAJOR_COMPRESSED) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                         "'%s' is a container of format %u; this program reads formats %d and %d", reader->name, major,
                         DIT_PACK_MAJOR, DIT_PACK_MAJOR_COMPRESSED);
  }
  reader->most = whole && major == DIT_PACK_MAJOR ? 1 : DIT_COMPRESS_MOST;
  if (magic && whole && header[DIT_PACK_FILE_ORDER] != DIT_PACK_ORDER) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "'%s' was written on a machine of the other byte order",
                         reader->name);
  }
  struct frame frame;
  bool sound = whole && magic && length % DIT_PACK_ALIGNMENT == 0 && length >= DIT_PACK_FILE_SIZE;
  reader->salt = dit_get_u32(header + DIT_PACK_FILE_SALT);
  reader->position = reader->sound_end = sound ? length : DIT_PACK_FILE_SIZE;
  reader->last = reader->position - DIT_PACK_ALIGNMENT;
  if (!sound && got == sizeof(header)) {
    reader->counts.damaged = 1;
    DIT_RETURN_IF_NOT_OK(look_head(reader, reader->position, &frame, &sound, err));
  }
  if (!sound) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "'%s' is not a capture container (its header is wrong)", reader->name);
  }
  return DIT_OK;
}

enum dit_status dit_store_reader_open(const char *path, struct dit_store_reader **out, struct dit_error *err) {
  struct stat info;
  struct dit_store_reader *reader = dit_calloc(1, sizeof(*reader));
  char *name = dit_strdup(path);
  if (!reader || !name) {
    dit_free(reader);
    dit_free(name);
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory to read '%s'", path);
  }
  reader->name = name;
  reader->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  enum dit_status status = DIT_OK;
  if (reader->fd < 0 || fstat(reader->fd, &info) != 0) {
    status = dit_error_set(err, DIT_ERR_IO, "container '%s' cannot be read: %s", path, strerror(errno));
  } else if (!S_ISREG(info.st_mode)) {
    status = dit_error_set(err, DIT_ERR_IO, "container '%s' cannot be read: it is not a file", path);
  } else {
    reader->size = (uint64_t)info.st_size;
    status = take_header(reader, err);
  }
  if (status != DIT_OK) {
    dit_store_reader_close(reader);
    return status;
  }
  *out = reader;
  return DIT_OK;
}

void dit_store_reader_close(struct dit_store_reader *reader) {
  if (!reader) {
    return;
  }
  if (reader->fd >= 0) {
    close(reader->fd);
  }
  struct buffer *buffers[] = {&reader->window, &reader->payload, &reader->references, &reader->blobs,
                              &reader->bytes,  &reader->path,    &reader->packed};
  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
    dit_free(buffers[i]->data);
  }
  dit_free(reader->name);
  dit_free(reader);
}

void dit_store_reader_get_counts(const struct dit_store_reader *reader, struct dit_store_read_counts *counts) {
  *counts = reader->counts;
}

enum dit_status dit_store_unpack(const char *container, const char *root, uint64_t *written, struct dit_error *err) {
  struct dit_store_reader *reader = NULL;
  struct dit_files files = {0};
  const struct dit_store_item *item = NULL;
  uint64_t count = 0, bytes = 0;
  int error = 0;
  DIT_RETURN_IF_NOT_OK(dit_store_reader_open(container, &reader, err));
  enum dit_status status = dit_files_init(&files, root, false, err);
  status = status == DIT_OK ? dit_store_reader_next(reader, &item, err) : status;
  while (status == DIT_OK && item) {
    status = dit_files_write(&files, item->path, item, &bytes, &error, err);
    count += status == DIT_OK;
    status = status == DIT_OK ? dit_store_reader_next(reader, &item, err) : status;
  }
  dit_files_reset(&files);
  dit_store_reader_close(reader);
  if (written && status == DIT_OK) {
    *written = count;
  }
  return status;
}
