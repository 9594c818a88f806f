/// Damaged containers: every cut, flipped bytes, frames that lie under a right checksum, paths and links that leave the
/// root, a mutated corpus. Nothing crashes, and what is delivered is what was put.
#include <sys/mman.h>

#include "record/format.h"
#include "store/crc32.c"  // internal: not exported by libdit
#include "store/pack.h"
#include "store_test.h"

/// A small container with its frames, for damage.
struct image {
  unsigned char *data;
  size_t size;
  size_t frames[400];
  size_t frame_count;
  uint32_t salt;
};

static void find_frames(struct image *image) {
  image->frame_count = 0;
  image->salt = dit_get_u32(image->data + DIT_PACK_FILE_SALT);
  for (size_t at = DIT_PACK_FILE_SIZE; at + DIT_PACK_HEAD_SIZE <= image->size && image->frame_count < 400;) {
    CHECK(dit_get_u32(image->data + at) == DIT_PACK_MARKER_VALUE);
    image->frames[image->frame_count++] = at;
    at += (size_t)dit_pack_get_frame_size(dit_get_u64(image->data + at + DIT_PACK_PAYLOAD_SIZE));
  }
}

static const char *const small_names[] = {"one.pth", "two/three.pth", "four.pth", "five/six/seven.pth"};
enum { SMALL_ITEMS = 12 };

/// Twelve items without large blobs; the blob of item i is i % 5 repeated, so that some are shared.
static void make_small(struct image *image) {
  struct dit_store_options options = {.layout = DIT_STORE_PACKED, .container = "small.dpack"};
  struct dit_store *store = create_store(&options);
  for (int i = 0; i < SMALL_ITEMS; i++) {
    struct dit_error err = {0};
    struct dit_store_blob blobs[] = {make_blob(200, i % 5), make_blob(0, 0), make_blob(70 + (size_t)i, 'b')};
    struct dit_store_item item = {.path = small_names[i % 4], .pickle = "a pickle stream", .pickle_size = 15};
    item.blobs = blobs;
    item.blob_count = 3;
    item.json = i % 2 ? "{\"key\": 1}" : NULL;
    item.json_size = i % 2 ? 10 : 0;
    CHECK_OK(dit_store_put(store, &item, false, NULL, &err));
  }
  destroy_store(store);
  image->data = load_file(in_folder("root/small.dpack"), &image->size);
  find_frames(image);
  remove_tree(in_folder("root"));
  check_released();
}

/// Is this an item of make_small?
static void check_small(const struct dit_store_item *item) {
  int known = 0;
  for (int i = 0; i < 4; i++) {
    known += strcmp(item->path, small_names[i]) == 0;
  }
  CHECK(known == 1 && item->pickle_size == 15 && memcmp(item->pickle, "a pickle stream", 15) == 0);
  CHECK(!item->json || (item->json_size == 10 && memcmp(item->json, "{\"key\": 1}", 10) == 0));
  CHECK(item->blob_count == 3 && item->blobs[0].size == 200 && item->blobs[1].size == 0);
  const unsigned char *first = item->blobs[0].data, *third = item->blobs[2].data;
  for (size_t i = 0; i < 200; i++) {
    CHECK(first[i] == first[0] && first[0] < 5);
  }
  for (size_t i = 0; i < item->blobs[2].size; i++) {
    CHECK(third[i] == 'b');
  }
}

/// A file in memory: thousands of damaged ones would keep a disk busy.
static const char *save_memory(const void *data, size_t size) {
  static char path[64];
  static int fd = -1;
  fd = fd < 0 ? memfd_create("damaged", MFD_CLOEXEC) : fd;
  CHECK(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  return path;
}

/// Reads what may be damaged; with `exact` every item must be one of make_small. The number of items.
static uint64_t read_damaged(const void *data, size_t size, bool exact, struct dit_store_read_counts *counts) {
  struct dit_error err = {0};
  struct dit_store_reader *reader = NULL;
  const struct dit_store_item *item = NULL;
  enum dit_status status = dit_store_reader_open(save_memory(data, size), &reader, &err);
  *counts = (struct dit_store_read_counts){0};
  if (status != DIT_OK) {
    CHECK(status == DIT_ERR_CORRUPT || status == DIT_ERR_UNSUPPORTED);
    return 0;
  }
  for (;;) {
    CHECK_OK(dit_store_reader_next(reader, &item, &err));
    if (!item) {
      break;
    }
    if (exact) {
      check_small(item);
    }
    uint32_t sum = dit_crc32(0, item->path, strlen(item->path)) ^ dit_crc32(0, item->pickle, item->pickle_size);
    for (size_t i = 0; i < item->blob_count; i++) {
      sum ^= dit_crc32(0, item->blobs[i].data, item->blobs[i].size);  // touches every byte
    }
    CHECK(item->path[0] != '/' && !strstr(item->path, "..") && (sum || true));
  }
  dit_store_reader_get_counts(reader, counts);
  dit_store_reader_close(reader);
  return counts->items;
}

/// Bytes that this process has read so far.
static uint64_t count_read(void) {
  char text[200] = {0};
  int fd = open("/proc/self/io", O_RDONLY);
  if (fd < 0) {
    return 0;
  }
  CHECK(read(fd, text, sizeof(text) - 1) > 0);
  close(fd);
  unsigned long long bytes = 0;
  CHECK(sscanf(text, "rchar: %llu", &bytes) == 1);
  return bytes;
}

/// Thousands of heads at every multiple of 64, each an item whose payload reaches to the end: reading them all would
/// take the square of the file's size. The sound items before them are there.
static void test_overlaps(void) {
  enum { HEADS = 20000 };
  struct image image;
  struct dit_store_read_counts counts;
  make_small(&image);
  size_t begin = image.size, size = begin + HEADS * 64 + 256;
  unsigned char *data = calloc(1, size);
  CHECK(data);
  memcpy(data, image.data, begin);
  for (size_t i = 0; i < HEADS; i++) {
    unsigned char *head = data + begin + i * 64;
    uint64_t payload = size - (begin + i * 64) - DIT_PACK_HEAD_SIZE - DIT_PACK_CRC_SIZE;
    dit_put_u32(head, DIT_PACK_MARKER_VALUE);
    dit_put_u16(head + DIT_PACK_TYPE, DIT_PACK_ITEM);
    dit_put_u64(head + DIT_PACK_NUMBER, 1000 + i);
    dit_put_u64(head + DIT_PACK_PAYLOAD_SIZE, payload - payload % 64 - 100);
    dit_put_u32(head + DIT_PACK_PATH_SIZE, 1);
    dit_put_u64(head + DIT_PACK_PICKLE_SIZE, payload - payload % 64 - 101);
    dit_put_u32(head + DIT_PACK_HEAD_CRC, dit_crc32(image.salt, head, DIT_PACK_HEAD_CRC));
  }
  uint64_t before = count_read();
  CHECK(read_damaged(data, size, true, &counts) == SMALL_ITEMS && counts.damaged >= HEADS);
  CHECK(count_read() - before <= 16 * size);
  free(data);
  free(image.data);
}

static void test_cuts(void) {
  struct image image;
  struct dit_store_read_counts counts;
  make_small(&image);
  uint64_t last = SMALL_ITEMS;
  CHECK(read_damaged(image.data, image.size, true, &counts) == SMALL_ITEMS && counts.torn_bytes == 0);
  for (size_t cut = image.size; cut-- > 0;) {
    if (cut % 7 != 0 && cut > 200 && cut < image.size - 300) {
      continue;
    }
    uint64_t read = read_damaged(image.data, cut, true, &counts);
    CHECK(read <= last && counts.damaged == 0);
    last = read;
  }
  CHECK(last == 0);
  free(image.data);
}

static void test_damaged_bytes(void) {
  struct image image;
  struct dit_store_read_counts counts;
  make_small(&image);
  uint64_t state = 5;
  for (size_t at = 0; at < image.size; at += 1 + draw(&state) % 5) {
    unsigned char bit = (unsigned char)(1u << draw(&state) % 8);
    image.data[at] ^= bit;
    uint64_t read = read_damaged(image.data, image.size, true, &counts);
    CHECK(at < DIT_PACK_FILE_SIZE || read >= SMALL_ITEMS - 5);  // a blob belongs to at most three items
    CHECK(read == SMALL_ITEMS || counts.damaged > 0 || counts.torn_bytes > 0 || at < DIT_PACK_FILE_SIZE);
    image.data[at] ^= bit;
  }
  free(image.data);
}

static void seal_head(const struct image *image, unsigned char *head) {
  dit_put_u32(head + DIT_PACK_HEAD_CRC, dit_crc32(image->salt, head, DIT_PACK_HEAD_CRC));
}

static void seal_payload(const struct image *image, unsigned char *head) {
  uint64_t size = dit_get_u64(head + DIT_PACK_PAYLOAD_SIZE), room = (uint64_t)(image->data + image->size - head);
  if (room >= DIT_PACK_HEAD_SIZE + DIT_PACK_CRC_SIZE && size <= room - DIT_PACK_HEAD_SIZE - DIT_PACK_CRC_SIZE) {
    dit_put_u32(head + DIT_PACK_HEAD_SIZE + size, dit_crc32(0, head + DIT_PACK_HEAD_SIZE, (size_t)size));
  }
}

static uint64_t draw_evil(uint64_t *state, uint64_t size) {
  const uint64_t values[] = {0,
                             1,
                             23,
                             24,
                             63,
                             64,
                             65,
                             4096,
                             size,
                             size - 1,
                             size - 68,
                             size / 2,
                             UINT32_MAX,
                             (uint64_t)1 << 32,
                             UINT64_MAX,
                             UINT64_MAX - 63,
                             UINT64_MAX / 24,
                             (uint64_t)1 << 63,
                             DIT_STORE_MAX_BLOBS,
                             DIT_STORE_MAX_BLOBS + 1};
  return draw(state) % 4 == 0 ? draw(state) % (size + 1) / 64 * 64 : values[draw(state) % 20];
}

/// Numbers that lie, under checksums that are right: the reader's checks alone stand between them and the memory.
static void test_lies(void) {
  struct image image;
  struct dit_store_read_counts counts;
  uint64_t state = 77;
  printf("seed %llu\n", (unsigned long long)state);
  make_small(&image);
  unsigned char *whole = malloc(image.size);
  CHECK(whole);
  memcpy(whole, image.data, image.size);
  static const int fields[] = {DIT_PACK_TYPE,      DIT_PACK_FLAGS, DIT_PACK_NUMBER,      DIT_PACK_PAYLOAD_SIZE,
                               DIT_PACK_PATH_SIZE, DIT_PACK_BLOBS, DIT_PACK_PICKLE_SIZE, DIT_PACK_JSON_SIZE};
  for (int round = 0; round < 3000; round++) {
    for (uint64_t changes = 1 + draw(&state) % 3; changes > 0; changes--) {
      unsigned char *head = image.data + image.frames[draw(&state) % image.frame_count];
      uint64_t value = draw_evil(&state, image.size);
      if (draw(&state) % 2) {
        int field = fields[draw(&state) % 8];
        if (field == DIT_PACK_TYPE || field == DIT_PACK_FLAGS) {
          dit_put_u16(head + field, (uint16_t)(value % 4));
        } else if (field == DIT_PACK_PATH_SIZE || field == DIT_PACK_BLOBS) {
          dit_put_u32(head + field, (uint32_t)value);
        } else {
          dit_put_u64(head + field, value);
        }
        seal_head(&image, head);
      } else {
        size_t at = DIT_PACK_HEAD_SIZE + draw(&state) % 9 * 8;  // a reference of an item, or bytes of a blob
        if (head + at + 8 <= image.data + image.size) {
          dit_put_u64(head + at, value);
        }
      }
      seal_payload(&image, head);
    }
    (void)read_damaged(image.data, image.size, false, &counts);
    memcpy(image.data, whole, image.size);
  }
  free(whole);
  free(image.data);
}

/// Paths that leave the root are never delivered and never written.
static void test_evil_paths(void) {
  struct image image;
  struct dit_store_read_counts counts;
  struct dit_error err = {0};
  uint64_t written = 0;
  make_small(&image);
  static const char *const evil[] = {"../evil", "/tmp/ev", "a/../..", "./x.pth", "a//b.pt", "ab/../x", "a/b/c/."};
  for (size_t k = 0; k < sizeof(evil) / sizeof(evil[0]); k++) {
    CHECK(strlen(evil[k]) == 7);
    for (size_t i = 0; i < image.frame_count; i++) {
      unsigned char *head = image.data + image.frames[i];
      unsigned char *path = head + DIT_PACK_HEAD_SIZE + 3 * DIT_PACK_REFERENCE_SIZE;
      if (dit_get_u16(head + DIT_PACK_TYPE) == DIT_PACK_ITEM && dit_get_u32(head + DIT_PACK_PATH_SIZE) == 7) {
        memcpy(path, evil[k], 7);
        seal_payload(&image, head);
      }
    }
    CHECK(read_damaged(image.data, image.size, true, &counts) == 9 && counts.damaged == 3);
    CHECK_OK(dit_store_unpack(save_memory(image.data, image.size), in_folder("unpacked/deep/er"), &written, &err));
    CHECK(written == 9 && count_entries(in_folder("unpacked")) == 1 && count_entries(in_folder("unpacked/deep")) == 1);
  }
  free(image.data);
  remove_tree(in_folder("unpacked"));
}

static void test_unpack_stays_below_root(void) {
  struct dit_error err = {0};
  struct image image;
  make_small(&image);
  save_file(in_folder("small.dpack"), image.data, image.size);
  free(image.data);
  CHECK(mkdir(in_folder("elsewhere"), 0700) == 0 && mkdir(in_folder("out"), 0700) == 0);
  CHECK(symlink(in_folder("elsewhere"), in_folder("out/two")) == 0);
  CHECK(dit_store_unpack(in_folder("small.dpack"), in_folder("out"), NULL, &err) == DIT_ERR_IO);
  CHECK_CONTAINS(err.message, "two/three.pth");
  CHECK(count_entries(in_folder("elsewhere")) == 0);
  CHECK(unlink(in_folder("out/two")) == 0 && mkdir(in_folder("out/five"), 0700) == 0);
  CHECK(symlink("../../elsewhere", in_folder("out/five/six")) == 0);
  CHECK(dit_store_unpack(in_folder("small.dpack"), in_folder("out"), NULL, &err) == DIT_ERR_IO);
  CHECK(count_entries(in_folder("elsewhere")) == 0);
  CHECK(symlink(in_folder("out"), in_folder("out-link")) == 0 && unlink(in_folder("out/five/six")) == 0);
  CHECK_OK(dit_store_unpack(in_folder("small.dpack"), in_folder("out-link"), NULL, &err));  // the root may be a link
  remove_tree(in_folder("out"));
  remove_tree(in_folder("elsewhere"));
}

static void test_headers(void) {
  struct image image;
  struct dit_error err = {0};
  struct dit_store_reader *reader = NULL;
  struct dit_store_read_counts counts;
  make_small(&image);
  CHECK(dit_store_reader_open(in_folder("nothing"), &reader, &err) == DIT_ERR_IO);
  CHECK(dit_store_reader_open(test_folder, &reader, &err) == DIT_ERR_IO);
  CHECK_CONTAINS(err.message, "not a file");
  save_file(in_folder("x"), "PK\3\4 something else, longer than a header, but not a container at all", 70);
  CHECK(dit_store_reader_open(in_folder("x"), &reader, &err) == DIT_ERR_CORRUPT && !reader);
  image.data[DIT_PACK_FILE_WALL] ^= 1;  // says nothing about the frames
  CHECK(read_damaged(image.data, image.size, true, &counts) == SMALL_ITEMS && counts.damaged == 1);
  image.data[DIT_PACK_FILE_SALT] ^= 1;
  CHECK(read_damaged(image.data, image.size, true, &counts) == 0);
  image.data[DIT_PACK_FILE_SALT] ^= 1;
  const int fields[] = {DIT_PACK_FILE_MAJOR, DIT_PACK_FILE_ORDER};
  for (int i = 0; i < 2; i++) {
    image.data[fields[i]] += 2;
    dit_put_u32(image.data + DIT_PACK_FILE_CRC, dit_crc32(0, image.data, DIT_PACK_FILE_CRC));
    save_file(in_folder("x"), image.data, image.size);
    CHECK(dit_store_reader_open(in_folder("x"), &reader, &err) == DIT_ERR_UNSUPPORTED);
    image.data[fields[i]] -= 2;
  }
  image.data[DIT_PACK_FILE_MINOR] = 9;  // a later minor version: read on
  dit_put_u32(image.data + DIT_PACK_FILE_CRC, dit_crc32(0, image.data, DIT_PACK_FILE_CRC));
  CHECK(read_damaged(image.data, image.size, true, &counts) == SMALL_ITEMS && counts.damaged == 0);
  dit_store_reader_close(NULL);
  free(image.data);
}

enum { HAND_BYTES = 20000 };

/// A container made by hand begins with the header of a real one.
static void begin_by_hand(struct image *image) {
  make_small(image);
  unsigned char *data = calloc(1, HAND_BYTES);
  CHECK(data);
  memcpy(data, image->data, DIT_PACK_FILE_SIZE);
  free(image->data);
  image->data = data;
  image->size = DIT_PACK_FILE_SIZE;
}

/// The head of a frame at `at`.
static void add_head(struct image *image, size_t at, int type, uint64_t number, uint64_t payload) {
  unsigned char *head = image->data + at;
  CHECK(at + dit_pack_get_frame_size(payload) <= HAND_BYTES);
  dit_put_u32(head, DIT_PACK_MARKER_VALUE);
  dit_put_u16(head + DIT_PACK_TYPE, (uint16_t)type);
  dit_put_u64(head + DIT_PACK_NUMBER, number);
  dit_put_u64(head + DIT_PACK_PAYLOAD_SIZE, payload);
  seal_head(image, head);
}

/// An item at the end, "a.pth", with the blobs whose heads are at `offsets`.
static void add_item(struct image *image, const size_t *offsets, size_t count) {
  unsigned char *head = image->data + image->size, *p = head + DIT_PACK_HEAD_SIZE;
  dit_put_u32(head + DIT_PACK_PATH_SIZE, 5);
  dit_put_u32(head + DIT_PACK_BLOBS, (uint32_t)count);
  dit_put_u64(head + DIT_PACK_PICKLE_SIZE, 1);
  add_head(image, image->size, DIT_PACK_ITEM, 99, count * DIT_PACK_REFERENCE_SIZE + 6);
  for (size_t i = 0; i < count; i++, p += DIT_PACK_REFERENCE_SIZE) {
    const unsigned char *blob = image->data + offsets[i];
    dit_put_u64(p, dit_get_u64(blob + DIT_PACK_NUMBER));
    dit_put_u64(p + 8, offsets[i]);
    dit_put_u64(p + 16, dit_get_u64(blob + DIT_PACK_PAYLOAD_SIZE));
  }
  memcpy(p, "a.pthp", 6);
  image->size += (size_t)dit_pack_get_frame_size(count * DIT_PACK_REFERENCE_SIZE + 6);
  seal_payload(image, head);
}

static size_t add_blob(struct image *image, uint64_t number, uint64_t payload) {
  size_t at = image->size;
  add_head(image, at, DIT_PACK_BLOB, number, payload);
  image->size += (size_t)dit_pack_get_frame_size(payload);
  seal_payload(image, image->data + at);
  return at;
}

/// The head of a blob stands, its payload was cut off and other frames follow: a failed write that could not be undone.
static void test_lost_payload(void) {
  struct image image;
  struct dit_store_read_counts counts;
  begin_by_hand(&image);
  size_t blob = add_blob(&image, 1, 100);
  add_item(&image, &blob, 1);
  add_head(&image, image.size, DIT_PACK_BLOB, 2, 500);  // promises more than the next two frames
  image.size += DIT_PACK_ALIGNMENT;
  blob = add_blob(&image, 3, 70);
  add_item(&image, &blob, 1);
  for (int i = 0; i < 4; i++) {
    blob = add_blob(&image, 4 + (uint64_t)i, 300);
  }
  add_item(&image, &blob, 1);
  CHECK(read_damaged(image.data, image.size, false, &counts) == 3 && counts.damaged == 1 && counts.torn_bytes == 0);
  free(image.data);
}

/// Frames inside frames, all sound: together they would take many times the size of the file.
static void test_nested_blobs(void) {
  enum { NESTED = 40, END = 6000 };
  struct image image;
  struct dit_store_read_counts counts;
  size_t offsets[NESTED], first[2];
  begin_by_hand(&image);
  for (size_t i = NESTED; i-- > 0;) {
    offsets[i] = DIT_PACK_FILE_SIZE + i * DIT_PACK_ALIGNMENT;
    add_head(&image, offsets[i], DIT_PACK_BLOB, i + 1, END - 4 * i - offsets[i] - DIT_PACK_HEAD_SIZE);
  }
  image.size = DIT_PACK_FILE_SIZE + (size_t)dit_pack_get_frame_size(END - DIT_PACK_FILE_SIZE - DIT_PACK_HEAD_SIZE);
  for (size_t i = NESTED; i-- > 0;) {
    seal_payload(&image, image.data + offsets[i]);
  }
  first[0] = first[1] = offsets[0];
  add_item(&image, first, 2);
  CHECK(read_damaged(image.data, image.size, false, &counts) == 1 && counts.damaged == 0);
  add_item(&image, offsets, NESTED);
  CHECK(read_damaged(image.data, image.size, false, &counts) == 1 && counts.damaged == 1);
  free(image.data);
}

/// Random damage to the files of the corpus.
static void test_corpus(void) {
  static const char *const names[] = {"empty.dpack", "small.dpack", "torn.dpack", "damaged.dpack"};
  static const uint64_t items[] = {0, 12, 9, 10};
  char path[PATH_MAX];
  const char *folder = DIT_TEST_FOLDER;
  uint64_t state = 4242;
  printf("seed %llu\n", (unsigned long long)state);
  for (size_t k = 0; k < 4; k++) {
    struct dit_store_read_counts counts;
    size_t size = 0;
    snprintf(path, sizeof(path), "%s/corpus/store/%s", folder, names[k]);
    unsigned char *data = load_file(path, &size), *copy = malloc(size + 1);
    CHECK(copy && read_damaged(data, size, true, &counts) == items[k]);
    CHECK((k == 2) == (counts.torn_bytes > 0) && (k == 3) == (counts.damaged > 0));
    for (int round = 0; round < 400; round++) {
      memcpy(copy, data, size);
      size_t cut = draw(&state) % 4 ? size : (size_t)(draw(&state) % (size + 1));
      for (uint64_t i = 1 + draw(&state) % 6; i > 0; i--) {
        size_t at = (size_t)(draw(&state) % size), length = (size_t)(draw(&state) % 200),
               from = (size_t)(draw(&state) % size);
        length = length < size - at ? length : size - at;
        length = length < size - from ? length : size - from;
        if (draw(&state) % 3 == 0) {
          memmove(copy + at, copy + from, length);
        } else {
          copy[at] = (unsigned char)draw(&state);
        }
      }
      (void)read_damaged(copy, cut, true, &counts);
    }
    free(data);
    free(copy);
  }
}

int main(void) {
  make_folder();
  RUN(test_overlaps);
  RUN(test_cuts);
  RUN(test_damaged_bytes);
  RUN(test_lies);
  RUN(test_evil_paths);
  RUN(test_unpack_stays_below_root);
  RUN(test_headers);
  RUN(test_lost_payload);
  RUN(test_nested_blobs);
  RUN(test_corpus);
  remove_tree(test_folder);
  return 0;
}
