/// Appending to a container.
///
/// Invariant: the first `sound` bytes of the file are whole frames; what a commit could not write is cut off again (or
/// left for readers to pass over, where that fails too). An item comes behind all its blobs. Two blobs are one only if
/// their bytes were compared (the checksum merely finds the candidate) or whoever put them says so by an identity. The
/// memory of blobs is a cache of fixed size in which the oldest give way: an equal blob that was forgotten is stored
/// again. Depends on folder, sink, crc32.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "record/format.h"
#include "store/crc32.h"
#include "store/pack.h"

enum { BUFFER_BYTES = 4 << 20, MOST_NAMES = 100000, SETS = 1 << 14, WAYS = 8, IDENTITIES = 1 << 15 };
enum { SAMPLE_BYTES = 1 << 10, COMPARE_BYTES = 64 << 10, INLINE_REFERENCES = 32 };

struct seen {
  uint64_t key;
  uint64_t offset, size;  ///< of the payload
  uint64_t number;        ///< 0: free
  uint64_t packed;        ///< bytes that count of a compressed one's payload; 0: it is written as it is
  uint32_t crc;           ///< of its bytes, not of their compressed form
  uint32_t width;
};

struct dit_pack_seen {
  struct seen entries[SETS][WAYS];
  struct seen identities[IDENTITIES];  ///< `key` is the identity: they are numbered, so the last ones have places apart
  unsigned char compared[COMPARE_BYTES];
};

static uint32_t make_salt(void) {
  uint32_t salt = 0;
  if (getrandom(&salt, sizeof(salt), GRND_NONBLOCK) != (ssize_t)sizeof(salt)) {
    salt = (uint32_t)(dit_record_get_time() * INT64_C(2654435761) >> 7) ^ (uint32_t)getpid();
  }
  return salt;
}

static void put_header(struct dit_pack *pack) {
  unsigned char header[DIT_PACK_FILE_SIZE] = {0};
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  pack->salt = make_salt();
  memcpy(header, DIT_PACK_MAGIC, DIT_PACK_MAGIC_SIZE);
  bool compressed = pack->squeeze.method != DIT_COMPRESS_NONE;
  dit_put_u16(header + DIT_PACK_FILE_MAJOR, compressed ? DIT_PACK_MAJOR_COMPRESSED : DIT_PACK_MAJOR);
  dit_put_u16(header + DIT_PACK_FILE_MINOR, compressed ? 0 : DIT_PACK_MINOR);
  dit_put_u32(header + DIT_PACK_FILE_LENGTH, DIT_PACK_FILE_SIZE);
  dit_put_u64(header + DIT_PACK_FILE_WALL, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
  dit_put_u32(header + DIT_PACK_FILE_PID, (uint32_t)getpid());
  dit_put_u32(header + DIT_PACK_FILE_RANK, (uint32_t)pack->rank);
  dit_put_u32(header + DIT_PACK_FILE_SALT, pack->salt);
  header[DIT_PACK_FILE_ORDER] = DIT_PACK_ORDER;
  dit_put_u32(header + DIT_PACK_FILE_CRC, dit_crc32(0, header, DIT_PACK_FILE_CRC));
  dit_sink_put(&pack->sink, header, sizeof(header));
}

/// The first free name: "x.dpack", "x.1.dpack" ... The descriptor, or -1 and errno.
static int open_fresh(struct dit_pack *pack, char name[DIT_PACK_NAME_SIZE]) {
  const char *dot = strrchr(pack->name, '.');
  int stem = dot && dot > pack->name ? (int)(dot - pack->name) : (int)strlen(pack->name), fd = -1;
  for (int counter = 0; counter < MOST_NAMES; counter++) {
    if (counter == 0) {
      snprintf(name, DIT_PACK_NAME_SIZE, "%s", pack->name);
    } else {
      snprintf(name, DIT_PACK_NAME_SIZE, "%.*s.%d%s", stem, pack->name, counter, pack->name + stem);
    }
    fd = openat(pack->folder->root_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST) {
      break;
    }
  }
  return fd;
}

/// The file that `fd` has open once more, past the page cache; -1 where that cannot be.
static int open_direct(const struct dit_pack *pack, int fd) {
  struct stat info, other;
  int direct = openat(pack->folder->root_fd, pack->opened, O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
  bool same = direct >= 0 && fstat(fd, &info) == 0 && fstat(direct, &other) == 0 && info.st_ino == other.st_ino &&
              info.st_dev == other.st_dev;
  if (direct >= 0 && !same) {
    close(direct);
  }
  return same ? direct : -1;
}

static void forget_blobs(struct dit_pack *pack) {
  memset(pack->seen->entries, 0, sizeof(pack->seen->entries));
  memset(pack->seen->identities, 0, sizeof(pack->seen->identities));
}

/// 0 or errno.
static int start_file(struct dit_pack *pack) {
  dit_folder_leave(pack->folder);
  int error = dit_folder_enter(pack->folder, "");  // makes the root again where it was removed
  int fd = error ? -1 : open_fresh(pack, pack->opened);
  if (fd < 0) {
    return error ? error : errno;
  }
  (void)flock(fd, LOCK_EX | LOCK_NB);  // says "being written"; a file system may not have it
  atomic_store(&pack->fd, fd);
  pack->direct_fd = open_direct(pack, fd);
  dit_sink_init(&pack->sink, fd, pack->buffer, BUFFER_BYTES, 0);
  pack->direct = false;
  pack->sound = 0;
  pack->number = 0;
  put_header(pack);
  return 0;
}

/// After a failed commit: the file as it is, or a new one. 0 or errno.
static int recover(struct dit_pack *pack) {
  struct stat info;
  int fd = atomic_load(&pack->fd);
  forget_blobs(pack);
  if (fd >= 0 && fstat(fd, &info) == 0 && info.st_nlink > 0 && (uint64_t)info.st_size >= DIT_PACK_FILE_SIZE) {
    uint64_t size = (uint64_t)info.st_size;
    dit_sink_init(&pack->sink, fd, pack->buffer, BUFFER_BYTES, size);
    pack->direct = false;
    dit_sink_fill(&pack->sink, 0, (size_t)(-size % DIT_PACK_ALIGNMENT));
    return 0;
  }
  if (fd >= 0) {
    dit_pack_remove(pack);  // without a header it is no container
    dit_pack_forget(pack);
  }
  return start_file(pack);
}

enum dit_status dit_pack_init(struct dit_pack *pack, struct dit_folder *folder, const char *name, int32_t rank,
                              enum dit_store_compress compress, struct dit_error *err) {
  pack->folder = folder;
  pack->rank = rank;
  DIT_RETURN_IF_NOT_OK(dit_squeeze_init(&pack->squeeze, compress, err));
  if (name) {
    snprintf(pack->name, sizeof(pack->name), "%s", name);
  } else {
    snprintf(pack->name, sizeof(pack->name), "capture-r%d-p%d.dpack", (int)rank, (int)getpid());
  }
  pack->memory = dit_malloc(BUFFER_BYTES + DIT_SINK_BLOCK);
  pack->seen = dit_calloc(1, sizeof(*pack->seen));
  if (!pack->memory || !pack->seen) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a container (%zu bytes)",
                         (size_t)BUFFER_BYTES + sizeof(*pack->seen));
  }
  pack->buffer = (unsigned char *)pack->memory + (-(uintptr_t)pack->memory % DIT_SINK_BLOCK);
  int error = start_file(pack);
  error = error ? error : dit_pack_commit(pack);
  if (error) {
    if (atomic_load(&pack->fd) >= 0) {
      dit_pack_remove(pack);
    }
    return dit_error_set(err, DIT_ERR_IO, "container '%s/%s' cannot be made: %s; choose another folder", folder->root,
                         pack->name, strerror(error));
  }
  return DIT_OK;
}

static void close_direct(struct dit_pack *pack) {
  if (pack->direct_fd >= 0) {
    close(pack->direct_fd);
  }
  pack->direct_fd = -1;
}

void dit_pack_forget(struct dit_pack *pack) {
  int fd = atomic_exchange(&pack->fd, -1);
  if (fd >= 0) {
    close(fd);
  }
  close_direct(pack);
}

void dit_pack_reset(struct dit_pack *pack) {
  dit_pack_forget(pack);
  dit_squeeze_reset(&pack->squeeze);
  dit_free(pack->memory);
  dit_free(pack->seen);
  pack->memory = NULL;
  pack->buffer = NULL;
  pack->seen = NULL;
}

void dit_pack_remove(struct dit_pack *pack) {
  if (pack->opened[0] != '\0') {
    unlinkat(pack->folder->root_fd, pack->opened, 0);
  }
}

void dit_pack_describe(const struct dit_pack *pack, int error, char *text, size_t size) {
  snprintf(text, size, "container '%s/%s' cannot be written: %s", pack->folder->root, pack->opened,
           error == ENOENT ? "it was removed" : strerror(error));
}

/// A few places of the bytes and their number.
static uint64_t make_key(const unsigned char *data, size_t size) {
  uint32_t crc = 0;
  if (size <= 4 * SAMPLE_BYTES) {
    crc = dit_crc32(0, data, size);
  } else {
    for (size_t i = 0; i < 4; i++) {
      crc = dit_crc32(crc, data + (size - SAMPLE_BYTES) / 3 * i, SAMPLE_BYTES);
    }
  }
  uint64_t key = ((uint64_t)crc << 32 ^ size) * UINT64_C(0x9E3779B97F4A7C15);
  return key ^ key >> 29;
}

/// Are these the bytes at `offset` of the file? They may still be in the buffer.
static bool is_same(struct dit_pack *pack, uint64_t offset, const unsigned char *data, size_t size) {
  const struct dit_sink *sink = &pack->sink;
  while (size > 0) {
    size_t piece = size < COMPARE_BYTES ? size : COMPARE_BYTES;
    const unsigned char *there = pack->seen->compared;
    if (offset >= sink->written) {
      piece = size;
      there = sink->buffer + (offset - sink->written);
    } else {
      piece = piece < sink->written - offset ? piece : (size_t)(sink->written - offset);
      ssize_t got = pread(sink->fd, pack->seen->compared, piece, (off_t)offset);
      if (got <= 0) {
        return false;
      }
      piece = (size_t)got;
    }
    if (memcmp(there, data, piece) != 0) {
      return false;
    }
    offset += piece;
    data += piece;
    size -= piece;
  }
  return true;
}

/// `size` bytes at `offset` of the file, which may still be in the buffer.
static bool read_back(const struct dit_sink *sink, uint64_t offset, unsigned char *to, size_t size) {
  while (size > 0 && offset < sink->written) {
    size_t piece = size < sink->written - offset ? size : (size_t)(sink->written - offset);
    ssize_t got = pread(sink->fd, to, piece, (off_t)offset);
    if (got <= 0) {
      return false;
    }
    offset += (uint64_t)got;
    to += got;
    size -= (size_t)got;
  }
  if (size > 0) {
    memcpy(to, sink->buffer + (offset - sink->written), size);
  }
  return true;
}

/// Are these the bytes of a compressed blob of this size? No, too, where there is no memory to tell.
static bool is_same_squeezed(struct dit_pack *pack, const struct seen *blob, const unsigned char *data) {
  size_t packed = (size_t)blob->packed, size = (size_t)blob->size;
  unsigned char *memory = dit_malloc(packed + 2 * size), *planes = memory + packed, *plain = planes + size;
  bool same = memory && read_back(&pack->sink, blob->offset, memory, packed) &&
              dit_compress_unpack(pack->squeeze.method, memory, packed, planes, size);
  if (same) {
    dit_compress_join(planes, plain, size, blob->width);
    same = memcmp(plain, data, size) == 0;
  }
  dit_free(memory);
  return same;
}

/// The remembered blob with these bytes, NULL for none. `*crc` is computed only when there may be one.
static const struct seen *find_blob(struct dit_pack *pack, uint64_t key, const void *data, size_t size, uint32_t *crc,
                                    bool *has_crc) {
  const struct seen *set = pack->seen->entries[key % SETS];
  for (int way = 0; way < WAYS; way++) {
    if (set[way].number == 0 || set[way].key != key || set[way].size != size) {
      continue;
    }
    if (!*has_crc) {
      *crc = dit_crc32(0, data, size);
      *has_crc = true;
    }
    if (set[way].crc == *crc &&
        (set[way].packed > 0 ? is_same_squeezed(pack, &set[way], data) : is_same(pack, set[way].offset, data, size))) {
      return &set[way];
    }
  }
  return NULL;
}

static void remember_blob(struct dit_pack *pack, const struct seen *blob) {
  struct seen *set = pack->seen->entries[blob->key % SETS], *oldest = set;
  for (int way = 1; way < WAYS; way++) {
    oldest = set[way].number < oldest->number ? &set[way] : oldest;
  }
  *oldest = *blob;
}

static void put_head(struct dit_pack *pack, unsigned char head[DIT_PACK_HEAD_SIZE], int type, uint64_t payload) {
  dit_put_u32(head + DIT_PACK_MARKER, DIT_PACK_MARKER_VALUE);
  dit_put_u16(head + DIT_PACK_TYPE, (uint16_t)type);
  dit_put_u64(head + DIT_PACK_NUMBER, ++pack->number);
  dit_put_u64(head + DIT_PACK_PAYLOAD_SIZE, payload);
  dit_put_u32(head + DIT_PACK_HEAD_CRC, dit_crc32(pack->salt, head, DIT_PACK_HEAD_CRC));
  dit_sink_put(&pack->sink, head, DIT_PACK_HEAD_SIZE);
}

/// The checksum behind a payload and the zeros up to the next frame.
static void put_tail(struct dit_pack *pack, uint32_t crc) {
  unsigned char bytes[DIT_PACK_CRC_SIZE];
  dit_put_u32(bytes, crc);
  dit_sink_put(&pack->sink, bytes, sizeof(bytes));
  dit_sink_fill(&pack->sink, 0, (size_t)(-dit_sink_get_position(&pack->sink) % DIT_PACK_ALIGNMENT));
}

static void set_reference(unsigned char *reference, const struct seen *blob) {
  dit_put_u64(reference, blob->number);
  dit_put_u64(reference + 8, blob->offset - DIT_PACK_HEAD_SIZE);
  dit_put_u64(reference + 16, blob->size);
}

/// The compressed form of a blob.
static void put_squeezed(struct dit_pack *pack, struct seen *fresh, const struct dit_squeezed *squeezed) {
  unsigned char head[DIT_PACK_HEAD_SIZE] = {0};
  dit_put_u32(head + DIT_PACK_METHOD, (uint32_t)pack->squeeze.method);
  dit_put_u32(head + DIT_PACK_WIDTH, squeezed->width);
  dit_put_u64(head + DIT_PACK_FULL_SIZE, fresh->size);
  dit_put_u64(head + DIT_PACK_PACKED_SIZE, squeezed->packed);
  put_head(pack, head, DIT_PACK_SQUEEZED, squeezed->size);
  fresh->packed = squeezed->packed;
  fresh->width = squeezed->width;
  fresh->offset = dit_sink_get_position(&pack->sink);
  put_tail(pack, dit_sink_put_crc(&pack->sink, squeezed->payload, squeezed->size));
}

/// Writes the blob, or finds an equal one; `*shared` grows by the bytes that were not written.
static struct seen take_blob(struct dit_pack *pack, const struct dit_store_blob *blob, uint64_t *shared) {
  struct seen fresh = {.key = make_key(blob->data, blob->size), .size = blob->size};
  bool has_crc = false;
  const struct seen *equal = find_blob(pack, fresh.key, blob->data, blob->size, &fresh.crc, &has_crc);
  if (equal) {
    *shared += blob->size;
    return *equal;
  }
  struct dit_squeezed squeezed;
  if (dit_squeeze_take(&pack->squeeze, blob->data, blob->size, dit_sink_get_speed(&pack->sink), &squeezed)) {
    fresh.crc = has_crc ? fresh.crc : dit_crc32(0, blob->data, blob->size);
    put_squeezed(pack, &fresh, &squeezed);
    fresh.number = pack->number;
    remember_blob(pack, &fresh);
    return fresh;
  }
  unsigned char head[DIT_PACK_HEAD_SIZE] = {0};
  put_head(pack, head, DIT_PACK_BLOB, blob->size);
  fresh.number = pack->number;
  fresh.offset = dit_sink_get_position(&pack->sink);
  if (has_crc) {
    dit_sink_put(&pack->sink, blob->data, blob->size);
  } else {
    fresh.crc = dit_sink_put_crc(&pack->sink, blob->data, blob->size);
  }
  put_tail(pack, fresh.crc);
  remember_blob(pack, &fresh);
  return fresh;
}

/// The blob, or a reference to an equal one. Empty ones have no frame.
static void put_blob(struct dit_pack *pack, const struct dit_store_blob *blob, unsigned char *reference,
                     uint64_t *shared) {
  memset(reference, 0, DIT_PACK_REFERENCE_SIZE);
  if (blob->size == 0) {
    return;
  }
  struct seen *known = blob->identity ? &pack->seen->identities[blob->identity % IDENTITIES] : NULL;
  if (known && known->key == blob->identity && known->size == blob->size) {
    *shared += blob->size;
    set_reference(reference, known);
    return;
  }
  struct seen taken = take_blob(pack, blob, shared);
  set_reference(reference, &taken);
  if (known) {
    *known = taken;
    known->key = blob->identity;
  }
}

static uint32_t put_piece(struct dit_pack *pack, uint32_t crc, const void *data, size_t size) {
  dit_sink_put(&pack->sink, data, size);
  return dit_crc32(crc, data, size);
}

static void put_item(struct dit_pack *pack, const struct dit_store_item *item, const unsigned char *references) {
  unsigned char head[DIT_PACK_HEAD_SIZE] = {0};
  size_t path = strlen(item->path), table = item->blob_count * DIT_PACK_REFERENCE_SIZE;
  size_t json = item->json ? item->json_size : 0;
  dit_put_u16(head + DIT_PACK_FLAGS, item->json ? DIT_PACK_HAS_JSON : 0);
  dit_put_u32(head + DIT_PACK_PATH_SIZE, (uint32_t)path);
  dit_put_u32(head + DIT_PACK_BLOBS, (uint32_t)item->blob_count);
  dit_put_u64(head + DIT_PACK_PICKLE_SIZE, item->pickle_size);
  dit_put_u64(head + DIT_PACK_JSON_SIZE, json);
  put_head(pack, head, DIT_PACK_ITEM, (uint64_t)table + path + item->pickle_size + json);
  uint32_t crc = put_piece(pack, 0, references, table);
  crc = put_piece(pack, crc, item->path, path);
  crc = put_piece(pack, crc, item->pickle, item->pickle_size);
  crc = put_piece(pack, crc, item->json, json);
  put_tail(pack, crc);
}

/// A frame without content up to the next multiple of the sink's blocks.
static void put_filler(struct dit_pack *pack) {
  static const unsigned char zeros[DIT_SINK_BLOCK + DIT_PACK_ALIGNMENT];
  size_t room = (size_t)(-dit_sink_get_position(&pack->sink) % DIT_SINK_BLOCK);
  if (room == 0) {
    return;
  }
  room += room == DIT_PACK_HEAD_SIZE ? DIT_SINK_BLOCK : 0;  // the checksum has no place
  unsigned char head[DIT_PACK_HEAD_SIZE] = {0};
  size_t payload = room - DIT_PACK_HEAD_SIZE - DIT_PACK_CRC_SIZE;
  put_head(pack, head, DIT_PACK_FILLER, payload);
  dit_sink_put(&pack->sink, zeros, payload);
  put_tail(pack, dit_crc32(0, zeros, payload));
}

void dit_pack_choose(struct dit_pack *pack, bool direct) {
  direct = direct && pack->direct_fd >= 0 && !pack->broken;
  if (direct == pack->direct) {
    return;
  }
  pack->direct = direct;
  if (direct) {
    put_filler(pack);
  }
  dit_sink_set_direct(&pack->sink, direct ? pack->direct_fd : -1);
}

int dit_pack_append(struct dit_pack *pack, const struct dit_store_item *item, uint64_t *bytes, uint64_t *shared) {
  unsigned char few[INLINE_REFERENCES * DIT_PACK_REFERENCE_SIZE], *references = few;
  if (item->blob_count > INLINE_REFERENCES) {
    references = dit_malloc(item->blob_count * DIT_PACK_REFERENCE_SIZE);
    if (!references) {
      return ENOMEM;
    }
  }
  if (pack->broken) {
    pack->sink.error = recover(pack);
    pack->broken = pack->sink.error != 0;
  }
  uint64_t before = dit_sink_get_position(&pack->sink);
  for (size_t i = 0; i < item->blob_count && !pack->sink.error; i++) {
    put_blob(pack, &item->blobs[i], references + i * DIT_PACK_REFERENCE_SIZE, shared);
  }
  put_item(pack, item, references);
  *bytes = dit_sink_get_position(&pack->sink) - before;
  if (references != few) {
    dit_free(references);
  }
  return pack->sink.error;
}

int dit_pack_commit(struct dit_pack *pack) {
  struct stat info;
  if (pack->sink.direct_fd >= 0) {
    put_filler(pack);
  }
  int error = dit_sink_flush(&pack->sink) ? 0 : pack->sink.error, fd = atomic_load(&pack->fd);
  if (!error && (fstat(fd, &info) != 0 || info.st_nlink == 0)) {
    error = ENOENT;
  }
  if (pack->direct && pack->sink.direct_fd < 0) {  // refused: not asked again
    close_direct(pack);
    pack->direct = false;
  }
  if (!error) {
    pack->sound = pack->sink.written;
    return 0;
  }
  if (fd >= 0 && pack->sound > 0) {
    (void)!ftruncate(fd, (off_t)pack->sound);
  }
  pack->broken = true;
  return error;
}
