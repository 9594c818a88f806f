/// Reading packs: the file, its index, and checksums. decode.c reads a case's payload.
///
/// The file is read, never mapped: a file that shrinks while it is read is an error, not a signal.
#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "store/crc32.h"

#define HEADER_SIZE 64
#define ENTRY_SIZE 24

struct header {
  char magic[8];
  uint32_t version, header_size;
  uint64_t count, index_offset, file_size;
  uint32_t index_checksum, checksum;  ///< checksum: of the bytes before it
  uint8_t zero[16];
};

static enum dit_status read_at(int file, void *buffer, size_t size, uint64_t offset, struct dit_error *err) {
  char *to = buffer;
  while (size > 0) {
    const ssize_t got = pread(file, to, size, (off_t)offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return dit_error_set(err, DIT_ERR_IO, "reading %zu bytes at %llu failed: %s", size, (unsigned long long)offset,
                           strerror(errno));
    }
    if (got == 0) {
      return dit_error_set(err, DIT_ERR_CORRUPT, "the file ends %zu bytes too early, at %llu", size,
                           (unsigned long long)offset);
    }
    to += got;
    offset += (uint64_t)got;
    size -= (size_t)got;
  }
  return DIT_OK;
}

static enum dit_status check_header(const struct header *header, uint64_t size, struct dit_error *err) {
  static const uint8_t zero[sizeof header->zero];
  if (memcmp(header->magic, "DITCONF\n", 8) != 0) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "this is no conformance pack (`ditorch conform pack` writes one)");
  }
  if (header->version != PACK_VERSION || header->header_size != HEADER_SIZE) {
    return dit_error_set(err, DIT_ERR_CORRUPT,
                         "the pack has version %u with a header of %u bytes, this program reads version %d with %d; "
                         "write it again with this ditorch",
                         header->version, header->header_size, PACK_VERSION, HEADER_SIZE);
  }
  if (header->checksum != dit_crc32(0, header, offsetof(struct header, checksum)) ||
      memcmp(header->zero, zero, sizeof zero) != 0) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "the header is damaged (its checksum is wrong)");
  }
  if (header->file_size != size) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "the file has %llu bytes, its header says %llu: was it cut off?",
                         (unsigned long long)size, (unsigned long long)header->file_size);
  }
  if (header->index_offset < HEADER_SIZE || header->index_offset > size ||
      header->count != (size - header->index_offset) / ENTRY_SIZE ||
      header->count * ENTRY_SIZE != size - header->index_offset) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "the index of %llu cases at %llu does not fit a file of %llu bytes",
                         (unsigned long long)header->count, (unsigned long long)header->index_offset,
                         (unsigned long long)size);
  }
  return DIT_OK;
}

static enum dit_status read_index(struct pack *pack, const struct header *header, struct dit_error *err) {
  const size_t bytes = (size_t)header->count * ENTRY_SIZE;
  unsigned char *raw = dit_malloc(bytes + 1);
  pack->entries = dit_calloc((size_t)header->count + 1, sizeof *pack->entries);
  if (!raw || !pack->entries) {
    dit_free(raw);
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for an index of %llu cases", (unsigned long long)header->count);
  }
  enum dit_status status = read_at(pack->file, raw, bytes, header->index_offset, err);
  if (status == DIT_OK && dit_crc32(0, raw, bytes) != header->index_checksum) {
    status = dit_error_set(err, DIT_ERR_CORRUPT, "the index is damaged (its checksum is wrong)");
  }
  for (uint64_t i = 0; status == DIT_OK && i < header->count; i++) {
    struct pack_entry *entry = &pack->entries[i];
    memcpy(&entry->offset, raw + i * ENTRY_SIZE, 8);
    memcpy(&entry->size, raw + i * ENTRY_SIZE + 8, 8);
    memcpy(&entry->checksum, raw + i * ENTRY_SIZE + 16, 4);
    if (entry->offset < HEADER_SIZE || entry->offset > header->index_offset ||
        entry->size > header->index_offset - entry->offset) {
      status = dit_error_set(err, DIT_ERR_CORRUPT, "case %llu lies outside the file", (unsigned long long)i);
    }
  }
  dit_free(raw);
  return status;
}

enum dit_status pack_open(struct pack *pack, const char *path, struct dit_error *err) {
  struct header header;
  struct stat info;
  _Static_assert(sizeof(struct header) == HEADER_SIZE, "the header is 64 bytes");
  const uint16_t probe = 1;
  memset(pack, 0, sizeof *pack);
  pack->file = -1;
  if (*(const unsigned char *)&probe != 1) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "packs are little endian, and this machine is not");
  }
  pack->file = open(path, O_RDONLY | O_CLOEXEC);
  if (pack->file < 0 || fstat(pack->file, &info) != 0) {
    enum dit_status status = dit_error_set(err, DIT_ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    pack_close(pack);
    return status;
  }
  enum dit_status status = read_at(pack->file, &header, sizeof header, 0, err);
  if (status == DIT_OK) {
    status = check_header(&header, (uint64_t)info.st_size, err);
  }
  if (status == DIT_OK) {
    pack->count = (int64_t)header.count;
    pack->identity = header.index_checksum;
    status = read_index(pack, &header, err);
  }
  if (status != DIT_OK) {
    dit_error_prefix(err, "'%s'", path);
    pack_close(pack);
  }
  return status;
}

void pack_close(struct pack *pack) {
  if (pack->file >= 0) {
    close(pack->file);
  }
  dit_free(pack->entries);
  memset(pack, 0, sizeof *pack);
  pack->file = -1;
}

enum dit_status pack_read(const struct pack *pack, int64_t number, struct pack_case *out, struct dit_error *err) {
  memset(out, 0, sizeof *out);
  if (number < 0 || number >= pack->count) {
    return dit_error_set(err, DIT_ERR_INVALID, "there is no case %lld; valid: 0 to %lld", (long long)number,
                         (long long)pack->count - 1);
  }
  const struct pack_entry *entry = &pack->entries[number];
  unsigned char *payload = dit_malloc((size_t)entry->size + 1);
  if (!payload) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for case %lld (%llu bytes)", (long long)number,
                         (unsigned long long)entry->size);
  }
  enum dit_status status = read_at(pack->file, payload, (size_t)entry->size, entry->offset, err);
  if (status == DIT_OK && dit_crc32(0, payload, (size_t)entry->size) != entry->checksum) {
    status = dit_error_set(err, DIT_ERR_CORRUPT, "its checksum is wrong");
  }
  if (status != DIT_OK) {
    dit_free(payload);
  } else {
    status = pack_decode(payload, (size_t)entry->size, out, err);
  }
  if (status != DIT_OK) {
    dit_error_prefix(err, "case %lld", (long long)number);
  }
  return status;
}
