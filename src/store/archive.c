/// The ZIP archive of torch.save (miniz, driven by PyTorchStreamWriter), byte for byte but for the serialization id.
///
/// Records, in this order: data.pkl, .format_version, .storage_alignment, byteorder, data/<n>, version,
/// .data/serialization_id, each below `<stem>/`. Stored, not compressed; times and attributes are 0. A local header has
/// no sizes: they follow the bytes (flag 8), so the archive is written in one pass; an empty record has none. The extra
/// field "FB" pads the local header so that the bytes begin at a multiple of 64: torch.load(mmap=True) needs that. A
/// size or an offset of 4 GiB and more adds a ZIP64 extra field, and there are always a ZIP64 end record and locator.
/// Depends on sink and crc32.
#include "store/archive.h"

#include <stdio.h>

#include "dit/alloc.h"
#include "record/format.h"
#include "store/crc32.h"

enum { LOCAL_SIZE = 30, CENTRAL_SIZE = 46, ALIGNMENT = 64, INLINE_ENTRIES = 40, FIXED_RECORDS = 6, NAME_SIZE = 40 };
enum { FLAG_SIZES_BEHIND = 8, FLAG_UTF8 = 1 << 11 };
#define LIMIT_32 UINT32_C(0xFFFFFFFF)

struct entry {
  uint64_t offset, size;
  uint32_t crc;
};

struct archive {
  struct dit_sink *sink;
  const char *stem;
  size_t stem_size;
  size_t count;  ///< records put so far
  struct entry *entries;
  uint64_t names, contents;  ///< for the serialization id
};

/// The name of record `index` of an archive with `blobs` storages, without the stem.
static size_t get_name(size_t index, size_t blobs, char name[NAME_SIZE]) {
  static const char *const before[] = {"data.pkl", ".format_version", ".storage_alignment", "byteorder"};
  static const char *const after[] = {"version", ".data/serialization_id"};
  if (index >= 4 && index - 4 < blobs) {
    return (size_t)snprintf(name, NAME_SIZE, "data/%zu", index - 4);
  }
  return (size_t)snprintf(name, NAME_SIZE, "%s", index < 4 ? before[index] : after[index - 4 - blobs]);
}

static uint16_t get_flags(const struct entry *entry) {
  return entry->size > 0 ? FLAG_UTF8 | FLAG_SIZES_BEHIND : FLAG_UTF8;
}

/// The ZIP64 extra field of an entry; its size, 0 when it needs none.
static size_t make_zip64(const struct entry *entry, unsigned char extra[28]) {
  size_t size = 4;
  if (entry->size >= LIMIT_32) {
    dit_put_u64(extra + size, entry->size);
    dit_put_u64(extra + size + 8, entry->size);
    size += 16;
  }
  if (entry->offset >= LIMIT_32) {
    dit_put_u64(extra + size, entry->offset);
    size += 8;
  }
  dit_put_u16(extra, 1);
  dit_put_u16(extra + 2, (uint16_t)(size - 4));
  return size > 4 ? size : 0;
}

static uint32_t limit(uint64_t value) {
  return value >= LIMIT_32 ? LIMIT_32 : (uint32_t)value;
}

static void put_local(struct archive *archive, const struct entry *entry, const char *name, size_t name_size,
                      const unsigned char *extra, size_t extra_size) {
  size_t full = archive->stem_size + 1 + name_size;
  uint64_t start = entry->offset + LOCAL_SIZE + full + extra_size + 4;
  size_t padding = (size_t)((ALIGNMENT - start % ALIGNMENT) % ALIGNMENT);
  unsigned char header[LOCAL_SIZE] = {'P', 'K', 3, 4}, fb[4] = {'F', 'B'};
  dit_put_u16(header + 6, get_flags(entry));
  dit_put_u16(header + 26, (uint16_t)full);
  dit_put_u16(header + 28, (uint16_t)(extra_size + 4 + padding));
  dit_put_u16(fb + 2, (uint16_t)padding);
  dit_sink_put(archive->sink, header, sizeof(header));
  dit_sink_put(archive->sink, archive->stem, archive->stem_size);
  dit_sink_put(archive->sink, "/", 1);
  dit_sink_put(archive->sink, name, name_size);
  dit_sink_put(archive->sink, extra, extra_size);
  dit_sink_put(archive->sink, fb, sizeof(fb));
  dit_sink_fill(archive->sink, 'Z', padding);
}

static void put_descriptor(struct archive *archive, const struct entry *entry, bool wide) {
  unsigned char descriptor[24] = {'P', 'K', 7, 8};
  dit_put_u32(descriptor + 4, entry->crc);
  if (wide) {
    dit_put_u64(descriptor + 8, entry->size);
    dit_put_u64(descriptor + 16, entry->size);
  } else {
    dit_put_u32(descriptor + 8, (uint32_t)entry->size);
    dit_put_u32(descriptor + 12, (uint32_t)entry->size);
  }
  dit_sink_put(archive->sink, descriptor, wide ? 24 : 16);
}

static void mix(uint64_t *hash, uint64_t value) {
  *hash ^= value + UINT64_C(0x9E3779B97F4A7C15) + (*hash << 6) + (*hash >> 2);
  *hash *= UINT64_C(0xFF51AFD7ED558CCD);
  *hash ^= *hash >> 32;
}

static void put_record(struct archive *archive, size_t blobs, const void *data, size_t size) {
  struct entry *entry = &archive->entries[archive->count];
  char name[NAME_SIZE];
  unsigned char extra[28];
  size_t name_size = get_name(archive->count++, blobs, name);
  *entry = (struct entry){.offset = dit_sink_get_position(archive->sink), .size = size};
  size_t extra_size = make_zip64(entry, extra);
  put_local(archive, entry, name, name_size, extra, extra_size);
  entry->crc = dit_sink_put_crc(archive->sink, data, size);
  if (size > 0) {
    put_descriptor(archive, entry, extra_size > 0);
  }
  mix(&archive->names, dit_crc32(0, name, name_size));
  mix(&archive->contents, (uint64_t)entry->crc << 32 ^ size);
}

static void put_central(struct archive *archive, size_t index, size_t blobs) {
  const struct entry *entry = &archive->entries[index];
  unsigned char header[CENTRAL_SIZE] = {'P', 'K', 1, 2}, extra[28];
  char name[NAME_SIZE];
  size_t name_size = get_name(index, blobs, name), extra_size = make_zip64(entry, extra);
  dit_put_u16(header + 8, get_flags(entry));
  dit_put_u32(header + 16, entry->crc);
  dit_put_u32(header + 20, limit(entry->size));
  dit_put_u32(header + 24, limit(entry->size));
  dit_put_u16(header + 28, (uint16_t)(archive->stem_size + 1 + name_size));
  dit_put_u16(header + 30, (uint16_t)extra_size);
  dit_put_u32(header + 42, limit(entry->offset));
  dit_sink_put(archive->sink, header, sizeof(header));
  dit_sink_put(archive->sink, archive->stem, archive->stem_size);
  dit_sink_put(archive->sink, "/", 1);
  dit_sink_put(archive->sink, name, name_size);
  dit_sink_put(archive->sink, extra, extra_size);
}

/// The end record in its 64-bit form, its locator, and the end record of old.
static void put_end(struct archive *archive, uint64_t begin, uint64_t size) {
  unsigned char end[56 + 20 + 22] = {'P', 'K', 6, 6}, *locator = end + 56, *old = locator + 20;
  dit_put_u64(end + 4, 44);
  dit_put_u16(end + 12, 0x031E);
  dit_put_u16(end + 14, 45);
  dit_put_u64(end + 24, archive->count);
  dit_put_u64(end + 32, archive->count);
  dit_put_u64(end + 40, size);
  dit_put_u64(end + 48, begin);
  memcpy(locator, "PK\6\7", 4);
  dit_put_u64(locator + 8, begin + size);
  dit_put_u32(locator + 16, 1);
  memcpy(old, "PK\5\6", 4);
  uint16_t count = archive->count >= 0xFFFF ? 0xFFFF : (uint16_t)archive->count;
  dit_put_u16(old + 8, count);
  dit_put_u16(old + 10, count);
  dit_put_u32(old + 12, limit(size));
  dit_put_u32(old + 16, limit(begin));
  dit_sink_put(archive->sink, end, sizeof(end));
}

static void put_all(struct archive *archive, const struct dit_store_item *item) {
  size_t blobs = item->blob_count;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  static const char order[] = "big";
#else
  static const char order[] = "little";
#endif
  char id[48];
  put_record(archive, blobs, item->pickle, item->pickle_size);
  put_record(archive, blobs, "1", 1);
  put_record(archive, blobs, "64", 2);
  put_record(archive, blobs, order, sizeof(order) - 1);
  for (size_t i = 0; i < blobs && !archive->sink->error; i++) {
    put_record(archive, blobs, item->blobs[i].data, item->blobs[i].size);
  }
  put_record(archive, blobs, "3\n", 2);
  snprintf(id, sizeof(id), "%020llu%020llu", (unsigned long long)archive->names, (unsigned long long)archive->contents);
  put_record(archive, blobs, id, 40);
  uint64_t begin = dit_sink_get_position(archive->sink);
  for (size_t i = 0; i < archive->count && !archive->sink->error; i++) {
    put_central(archive, i, blobs);
  }
  put_end(archive, begin, dit_sink_get_position(archive->sink) - begin);
}

enum dit_status dit_archive_put(struct dit_sink *sink, const char *stem, size_t stem_size,
                                const struct dit_store_item *item, struct dit_error *err) {
  struct entry few[INLINE_ENTRIES];
  struct archive archive = {.sink = sink, .stem = stem, .stem_size = stem_size, .entries = few};
  size_t count = item->blob_count + FIXED_RECORDS;
  if (count > INLINE_ENTRIES) {
    archive.entries = dit_malloc(count * sizeof(struct entry));
    if (!archive.entries) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the directory of an archive with %zu storages",
                           item->blob_count);
    }
  }
  put_all(&archive, item);
  if (archive.entries != few) {
    dit_free(archive.entries);
  }
  return DIT_OK;
}
