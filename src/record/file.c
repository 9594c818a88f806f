/// The file side of a writer.
///
/// Invariant: the first `offset` bytes of the file are whole records; every string a record uses was defined after the
/// last sync record before it, so that damage never reaches beyond one sync interval. A failed write is cut off again
/// (a reader skips it where that fails too). Depends on core's alloc and error.
#include "record/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "record/crc32c.h"
#include "record/intern.h"

enum { MOST_NAMES = 100000 };

static int64_t get_wall(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint32_t make_salt(void) {
  uint32_t salt = 0;
  if (getrandom(&salt, sizeof(salt), GRND_NONBLOCK) != (ssize_t)sizeof(salt)) {
    salt = (uint32_t)(dit_record_get_time() * INT64_C(2654435761) >> 7) ^ (uint32_t)getpid();
  }
  return salt;
}

static void fill_header(struct dit_record_file *file) {
  unsigned char *p = file->header;
  file->salt = make_salt();
  memcpy(p, DIT_RECORD_MAGIC, DIT_RECORD_MAGIC_SIZE);
  dit_put_u16(p + DIT_HEADER_MAJOR, DIT_RECORD_MAJOR);
  dit_put_u16(p + DIT_HEADER_MINOR, DIT_RECORD_MINOR);
  dit_put_u32(p + DIT_HEADER_LENGTH, (uint32_t)file->header_size);
  dit_put_u64(p + DIT_HEADER_WALL, (uint64_t)get_wall());
  dit_put_u64(p + DIT_HEADER_MONOTONIC, (uint64_t)dit_record_get_time());
  dit_put_u32(p + DIT_HEADER_PID, (uint32_t)getpid());
  dit_put_u32(p + DIT_HEADER_RANK, (uint32_t)file->rank);
  dit_put_u32(p + DIT_HEADER_WORLD, (uint32_t)file->world_size);
  dit_put_u32(p + DIT_HEADER_INDEX, file->index);
  dit_put_u32(p + DIT_HEADER_SALT, file->salt);
  dit_put_u32(p + DIT_HEADER_PAIRS, file->pair_count);
  if (file->pairs_size > 0) {
    memcpy(p + DIT_HEADER_FIXED, file->pairs, file->pairs_size);
  }
  size_t body = file->header_size - DIT_FRAME_CRC_SIZE;
  dit_put_u32(p + body, dit_crc32c(0, p, body));
}

/// Opens a file that did not exist; the first free name.
static int open_fresh(struct dit_record_file *file) {
  int directory = open(file->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) {
    return -1;
  }
  int fd = -1;
  char name[64];
  for (int counter = 0; counter < MOST_NAMES; counter++) {
    int length = snprintf(name, sizeof(name), "ops-r%d-p%d", (int)file->rank, (int)getpid());
    if (counter > 0) {
      length += snprintf(name + length, sizeof(name) - (size_t)length, ".%d", counter);
    }
    snprintf(name + length, sizeof(name) - (size_t)length, ".dlog");
    fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST) {
      break;
    }
  }
  int saved = errno;
  close(directory);
  if (fd >= 0) {
    (void)flock(fd, LOCK_EX | LOCK_NB);  // says "being written" to dit_record_repair; a file system may not have it
    snprintf(file->path, sizeof(file->path), "%s/%s", file->directory, name);
  }
  errno = saved;
  return fd;
}

static void close_file(struct dit_record_file *file) {
  int fd = atomic_exchange(&file->fd, -1);
  if (fd >= 0) {
    close(fd);
  }
}

/// Starts a new file; its header goes out with the first batch.
static bool start_file(struct dit_record_file *file) {
  close_file(file);
  int fd = open_fresh(file);
  if (fd < 0) {
    file->error = errno;
    return false;
  }
  atomic_store(&file->fd, fd);
  fill_header(file);
  file->index++;
  file->files++;
  file->offset = 0;
  file->need_sync = true;
  memcpy(file->out, file->header, file->header_size);
  file->out_size = file->header_size;
  return true;
}

static bool write_all(int fd, const unsigned char *data, size_t size) {
  while (size > 0) {
    ssize_t done = write(fd, data, size);
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      errno = done == 0 ? ENOSPC : errno;
      return false;
    }
    data += done;
    size -= (size_t)done;
  }
  return true;
}

static bool fail_out(struct dit_record_file *file, int error) {
  file->error = error;
  file->lost += file->out_records;
  file->out_size = 0;
  file->out_records = 0;
  file->note = 0;
  file->need_sync = true;
  return false;
}

/// Hands the out buffer to the kernel.
static bool write_out(struct dit_record_file *file) {
  if (file->out_size == 0) {
    return true;
  }
  int fd = atomic_load(&file->fd);
  if (fd < 0) {
    return fail_out(file, EBADF);
  }
  if (!write_all(fd, file->out, file->out_size)) {
    int error = errno;
    (void)!ftruncate(fd, (off_t)file->offset);
    return fail_out(file, error);
  }
  struct stat info;
  if (fstat(fd, &info) != 0 || info.st_nlink == 0) {
    return fail_out(file, 0);
  }
  file->offset += file->out_size;
  file->bytes += file->out_size;
  file->batches++;
  file->written += file->out_records;
  file->noted += file->note;
  file->out_size = 0;
  file->out_records = 0;
  file->note = 0;
  return true;
}

/// Where `size` bytes go; makes room by writing. NULL when that fails.
static unsigned char *reserve_out(struct dit_record_file *file, size_t size) {
  if (file->out_size + size > file->out_capacity && !write_out(file)) {
    return NULL;
  }
  unsigned char *p = file->out + file->out_size;
  file->out_size += size;
  file->since_sync += size;
  return p;
}

/// A structural record with two parts of payload.
static bool put_structural(struct dit_record_file *file, uint16_t type, uint32_t seed, const void *first,
                           size_t first_size, const void *second, size_t second_size) {
  size_t length = DIT_FRAME_MIN + first_size + second_size;
  unsigned char *p = reserve_out(file, length);
  if (!p) {
    return false;
  }
  memset(p, 0, DIT_FRAME_PAYLOAD);
  dit_put_u32(p + DIT_FRAME_MARKER, DIT_FRAME_MARKER_VALUE);
  dit_put_u32(p + DIT_FRAME_LENGTH, (uint32_t)length);
  dit_put_u16(p + DIT_FRAME_TYPE, type);
  dit_put_u64(p + DIT_FRAME_TIME, (uint64_t)dit_record_get_time());
  memcpy(p + DIT_FRAME_PAYLOAD, first, first_size);
  if (second_size > 0) {
    memcpy(p + DIT_FRAME_PAYLOAD + first_size, second, second_size);
  }
  size_t body = length - DIT_FRAME_CRC_SIZE;
  dit_put_u32(p + body, dit_crc32c(seed, p, body));
  return true;
}

/// The header again, readable without the header; from here on no string is known.
static bool put_sync(struct dit_record_file *file) {
  file->need_sync = false;
  file->since_sync = 0;
  file->epoch++;
  return put_structural(file, DIT_RECORD_TYPE_SYNC, 0, file->header, file->header_size, NULL, 0);
}

static bool define_string(struct dit_record_file *file, uint64_t id) {
  if (id < file->defined_count && file->defined[id] == file->epoch) {
    return true;
  }
  const char *text = NULL;
  size_t size = 0;
  if (id > DIT_RECORD_MAX_STRINGS || !dit_intern_get((uint32_t)id, &text, &size)) {
    return true;  // not a number of ours: the reader will call the record unresolved
  }
  unsigned char number[DIT_VARINT_MAX];
  size_t number_size = (size_t)(dit_put_varint(number, id) - number);
  if (!put_structural(file, DIT_RECORD_TYPE_STRING, file->salt, number, number_size, text, size)) {
    return false;
  }
  if (id >= file->defined_count) {
    size_t count = id * 2 + 64;
    uint32_t *grown = dit_realloc(file->defined, count * sizeof(*grown));
    if (!grown) {
      return true;
    }
    memset(grown + file->defined_count, 0, (count - file->defined_count) * sizeof(*grown));
    file->defined = grown;
    file->defined_count = count;
  }
  file->defined[id] = file->epoch;
  return true;
}

static bool define_strings(struct dit_record_file *file, const unsigned char *frame, size_t length) {
  struct dit_cursor cursor = {frame + DIT_FRAME_PAYLOAD, frame + length - DIT_FRAME_CRC_SIZE};
  struct dit_raw_field field;
  while (cursor.at < cursor.end && dit_take_field(&cursor, &field)) {
    if (!define_string(file, field.key)) {
      return false;
    }
    if (field.type == DIT_RECORD_INTERNED && !define_string(file, field.number)) {
      return false;
    }
    uint64_t device = 0;
    if (field.type == DIT_RECORD_TENSOR && dit_take_varint(&field.body, &device) &&
        dit_take_varint(&field.body, &device) && dit_take_varint(&field.body, &device) && device > 0 &&
        !define_string(file, device)) {
      return false;
    }
  }
  return true;
}

static bool rotate(struct dit_record_file *file, size_t length) {
  uint64_t size = file->offset + file->out_size;
  uint64_t empty = file->header_size * 2 + DIT_FRAME_MIN;
  if (file->rotate_bytes == 0 || size <= empty || size + length <= file->rotate_bytes) {
    return true;
  }
  return write_out(file) && start_file(file);
}

static bool put_frame(struct dit_record_file *file, const unsigned char *frame, size_t length) {
  if (!rotate(file, length)) {
    return false;
  }
  if ((file->need_sync || file->since_sync >= DIT_RECORD_SYNC_BYTES) && !put_sync(file)) {
    return false;
  }
  if (!define_strings(file, frame, length)) {
    return false;
  }
  unsigned char *p = reserve_out(file, length);
  if (!p) {
    return false;
  }
  size_t body = length - DIT_FRAME_CRC_SIZE;
  memcpy(p, frame, body);
  dit_put_u32(p + body, dit_crc32c(file->salt, p, body));
  file->out_records++;
  return true;
}

static bool put_note(struct dit_record_file *file, uint64_t drops) {
  if (drops <= file->noted) {
    return true;
  }
  unsigned char number[DIT_VARINT_MAX];
  size_t size = (size_t)(dit_put_varint(number, drops - file->noted) - number);
  if ((file->need_sync && !put_sync(file)) ||
      !put_structural(file, DIT_RECORD_TYPE_DROPS, file->salt, number, size, NULL, 0)) {
    return false;
  }
  file->note = drops - file->noted;
  return true;
}

bool dit_record_file_append(struct dit_record_file *file, const unsigned char *frames, size_t size, uint64_t count,
                            uint64_t drops) {
  bool ok = put_note(file, drops);
  uint64_t done = 0;
  for (size_t at = 0; ok && at < size; done++) {
    size_t length = dit_get_u32(frames + at + DIT_FRAME_LENGTH);
    ok = put_frame(file, frames + at, length);
    at += length;
    if (!ok) {
      break;  // this one was not put into the out buffer
    }
  }
  if (!ok) {
    file->lost += count - done;
    if (file->out_size > 0) {
      fail_out(file, file->error);
    }
    return false;
  }
  return write_out(file);
}

bool dit_record_file_recover(struct dit_record_file *file) {
  struct stat info;
  int fd = atomic_load(&file->fd);
  bool usable = fd >= 0 && fstat(fd, &info) == 0 && info.st_nlink > 0;
  file->out_size = 0;
  if (!usable && !start_file(file)) {
    return false;
  }
  if (usable && file->offset == 0) {
    memcpy(file->out, file->header, file->header_size);
    file->out_size = file->header_size;
  }
  return put_sync(file) && write_out(file);
}

bool dit_record_file_sync(struct dit_record_file *file) {
  int fd = atomic_load(&file->fd);
  if (fd >= 0 && fdatasync(fd) == 0) {
    return true;
  }
  file->error = errno;
  return false;
}

static size_t get_pair_size(const struct dit_record_pair *pair) {
  return 8 + strlen(pair->key) + strlen(pair->value);
}

static unsigned char *put_pair(unsigned char *p, const struct dit_record_pair *pair) {
  size_t key = strlen(pair->key), value = strlen(pair->value);
  dit_put_u32(p, (uint32_t)key);
  dit_put_u32(p + 4, (uint32_t)value);
  memcpy(p + 8, pair->key, key);
  memcpy(p + 8 + key, pair->value, value);
  return p + 8 + key + value;
}

static enum dit_status encode_pairs(struct dit_record_file *file, const struct dit_record_options *options,
                                    const char *process, struct dit_error *err) {
  const struct dit_record_pair own = {"process", process};
  size_t size = get_pair_size(&own);
  for (size_t i = 0; i < options->metadata_count; i++) {
    size += get_pair_size(&options->metadata[i]);
  }
  file->header_size = DIT_HEADER_FIXED + size + DIT_FRAME_CRC_SIZE;
  if (file->header_size > DIT_RECORD_MAX_HEADER) {
    return dit_error_set(err, DIT_ERR_INVALID, "the metadata of a record file takes %zu bytes; at most %d fit", size,
                         DIT_RECORD_MAX_HEADER - DIT_HEADER_FIXED - DIT_FRAME_CRC_SIZE);
  }
  file->pairs = dit_malloc(size);
  file->header = dit_malloc(file->header_size);
  if (!file->pairs || !file->header) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the header of a record file (%zu bytes)", size);
  }
  unsigned char *p = put_pair(file->pairs, &own);
  for (size_t i = 0; i < options->metadata_count; i++) {
    p = put_pair(p, &options->metadata[i]);
  }
  file->pairs_size = size;
  file->pair_count = (uint32_t)options->metadata_count + 1;
  return DIT_OK;
}

enum dit_status dit_record_file_init(struct dit_record_file *file, const char *directory,
                                     const struct dit_record_options *options, const char *process, size_t out_capacity,
                                     struct dit_error *err) {
  *file = (struct dit_record_file){.rank = options->rank, .world_size = options->world_size};
  atomic_store(&file->fd, -1);
  file->rotate_bytes = options->rotate_bytes;
  if (!realpath(directory, file->directory)) {
    return dit_error_set(err, DIT_ERR_IO, "record directory '%s': %s; create it or choose another", directory,
                         strerror(errno));
  }
  enum dit_status status = encode_pairs(file, options, process, err);
  if (status == DIT_OK) {
    file->out_capacity = out_capacity;
    file->out = dit_malloc(out_capacity);
    if (!file->out) {
      status = dit_error_set(err, DIT_ERR_NOMEM, "no memory for a record writer (%zu bytes)", out_capacity);
    }
  }
  if (status == DIT_OK && !start_file(file)) {
    status = dit_error_set(err, DIT_ERR_IO, "record directory '%s': no file can be made: %s; choose another", directory,
                           strerror(file->error));
  }
  if (status == DIT_OK && !(put_sync(file) && write_out(file))) {
    status = dit_error_set(err, DIT_ERR_IO, "record file '%s' cannot be written: %s", file->path,
                           file->error ? strerror(file->error) : "it was removed");
  }
  if (status != DIT_OK) {
    dit_record_file_reset(file);
  }
  return status;
}

void dit_record_file_reset(struct dit_record_file *file) {
  close_file(file);
  dit_free(file->pairs);
  dit_free(file->header);
  dit_free(file->out);
  dit_free(file->defined);
  file->pairs = file->header = file->out = NULL;
  file->defined = NULL;
}
