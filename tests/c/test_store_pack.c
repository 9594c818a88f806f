/// The container: names, round trips, sharing (also of forged checksums), unpacking, failing allocations.
#include "record/format.h"
#include "store/crc32.c"  // internal: not exported by libdit
#include "store/pack.h"
#include "store_test.h"

enum { SEED = 21 };

static void write_random(enum dit_store_layout layout, const char *root, uint64_t first, uint64_t count) {
  static struct random_item random;
  struct dit_error err = {0};
  struct dit_store *store = NULL;
  struct dit_store_options options = {.layout = layout, .container = "c.dpack"};
  CHECK_OK(dit_store_create(in_folder(root), &options, &store, &err));
  for (uint64_t i = first; i < first + count; i++) {
    make_random(&random, SEED, i);
    CHECK_OK(dit_store_put(store, &random.item, false, NULL, &err));
  }
  CHECK_OK(dit_store_destroy(store, FLUSH_MS, &err));
}

/// All items of a container, each checked against what was put; their number.
static uint64_t read_all(const char *path, struct dit_store_read_counts *counts) {
  struct dit_error err = {0};
  struct dit_store_reader *reader = NULL;
  const struct dit_store_item *item = NULL;
  uint64_t read = 0;
  CHECK_OK(dit_store_reader_open(path, &reader, &err));
  for (;; read++) {
    CHECK_OK(dit_store_reader_next(reader, &item, &err));
    if (!item) {
      break;
    }
    (void)check_random(item, SEED);
  }
  CHECK_OK(dit_store_reader_next(reader, &item, &err));
  CHECK(!item);
  dit_store_reader_get_counts(reader, counts);
  CHECK(counts->items == read);
  dit_store_reader_close(reader);
  return read;
}

static void test_names(void) {
  char name[100], path[PATH_MAX];
  struct dit_store_options options = {.layout = DIT_STORE_PACKED, .rank = 3};
  struct stat info;
  struct dit_store *first = create_store(&options), *second = create_store(&options);
  snprintf(name, sizeof(name), "root/capture-r3-p%d.dpack", (int)getpid());
  dit_store_get_path(first, path, sizeof(path));
  CHECK(strcmp(path, in_folder(name)) == 0 && stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
  snprintf(name, sizeof(name), "root/capture-r3-p%d.1.dpack", (int)getpid());
  dit_store_get_path(second, path, sizeof(path));
  CHECK(strcmp(path, in_folder(name)) == 0);
  destroy_store(first);
  destroy_store(second);
  CHECK(symlink(in_folder("target"), in_folder("root/link.dpack")) == 0);
  options.container = "link.dpack";
  first = create_store(&options);
  dit_store_get_path(first, path, sizeof(path));
  CHECK(strcmp(path, in_folder("root/link.1.dpack")) == 0 && access(in_folder("target"), F_OK) != 0);
  destroy_store(first);
  remove_tree(in_folder("root"));
}

static void compare_trees(const char *a, const char *b, size_t *files) {
  DIR *dir = opendir(a);
  CHECK(dir && count_entries(a) == count_entries(b));
  for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
    char left[PATH_MAX + 300], right[PATH_MAX + 300];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
      continue;
    }
    snprintf(left, sizeof(left), "%.3000s/%s", a, entry->d_name);
    snprintf(right, sizeof(right), "%.3000s/%s", b, entry->d_name);
    struct stat info;
    CHECK(lstat(left, &info) == 0);
    if (S_ISDIR(info.st_mode)) {
      compare_trees(left, right, files);
      continue;
    }
    size_t sizes[2];
    unsigned char *data[2] = {load_file(left, &sizes[0]), load_file(right, &sizes[1])};
    CHECK(sizes[0] == sizes[1] && memcmp(data[0], data[1], sizes[0]) == 0);
    free(data[0]);
    free(data[1]);
    ++*files;
  }
  closedir(dir);
}

static void test_round_trip(void) {
  struct dit_store_read_counts counts;
  struct dit_error err = {0};
  uint64_t written = 0;
  size_t files = 0;
  write_random(DIT_STORE_PACKED, "packed", 0, 150);
  CHECK(read_all(in_folder("packed/c.dpack"), &counts) == 150 && counts.torn_bytes == 0 && counts.damaged == 0);
  write_random(DIT_STORE_FILES, "files", 0, 150);
  CHECK_OK(dit_store_unpack(in_folder("packed/c.dpack"), in_folder("unpacked/to"), &written, &err));
  compare_trees(in_folder("files"), in_folder("unpacked/to"), &files);
  CHECK(written == 150 && files > 250);
  // once more over what is there
  CHECK_OK(dit_store_unpack(in_folder("packed/c.dpack"), in_folder("unpacked/to"), NULL, &err));
  compare_trees(in_folder("files"), in_folder("unpacked/to"), &files);
  remove_tree(in_folder("packed"));
  remove_tree(in_folder("files"));
  remove_tree(in_folder("unpacked"));
  check_released();
}

/// Changes the last four bytes so that the checksum becomes `target`: it is linear, so 32 equations do.
static void forge(unsigned char *data, size_t size, uint32_t target) {
  uint32_t rows[32], picks[32], base = 0, solution = 0;
  unsigned char *last = data + size - 4;
  memset(last, 0, 4);
  base = dit_crc32(0, data, size);
  for (int i = 0; i < 32; i++) {
    dit_put_u32(last, UINT32_C(1) << i);
    rows[i] = dit_crc32(0, data, size) ^ base;
    picks[i] = UINT32_C(1) << i;
  }
  uint32_t rest = target ^ base;
  for (int bit = 0; bit < 32; bit++) {
    int pivot = bit;
    while (pivot < 32 && !(rows[pivot] >> bit & 1)) {
      pivot++;
    }
    CHECK(pivot < 32);
    uint32_t row = rows[pivot], pick = picks[pivot];
    rows[pivot] = rows[bit];
    picks[pivot] = picks[bit];
    rows[bit] = row;
    picks[bit] = pick;
    for (int i = bit + 1; i < 32; i++) {
      if (rows[i] >> bit & 1) {
        rows[i] ^= row;
        picks[i] ^= pick;
      }
    }
  }
  for (int bit = 0; bit < 32; bit++) {
    if (rest >> bit & 1) {
      rest ^= rows[bit];
      solution ^= picks[bit];
    }
  }
  dit_put_u32(last, solution);
  CHECK(dit_crc32(0, data, size) == target);
}

/// Puts blobs that stay, one item each.
static void put_bytes(struct dit_store *store, const unsigned char *data, size_t size) {
  struct dit_error err = {0};
  struct dit_store_blob blob = {.data = data, .size = size};
  struct dit_store_item item = {.path = "a.pth", .pickle = "p", .pickle_size = 1, .blobs = &blob, .blob_count = 1};
  CHECK_OK(dit_store_put(store, &item, false, NULL, &err));
}

static void test_sharing(void) {
  static unsigned char large[2][3000000], small[2][100];
  struct dit_error err = {0};
  struct dit_store_options options = {.layout = DIT_STORE_PACKED, .container = "s.dpack"};
  struct dit_store *store = create_store(&options);
  struct dit_store_counts counts;
  uint64_t state = 9;
  for (size_t i = 0; i < sizeof(large[0]); i++) {
    large[0][i] = large[1][i] = (unsigned char)draw(&state);
  }
  large[1][1234567] ^= 1;  // where no sample is taken
  memcpy(small[0], large[0], 100);
  memcpy(small[1], large[0] + 500, 100);
  forge(small[1], 100, dit_crc32(0, small[0], 100));  // only comparing the bytes tells them apart
  const unsigned char *blobs[] = {large[0], small[0], small[1], large[1], large[0], small[1], small[0], large[1]};
  for (int i = 0; i < 8; i++) {
    put_bytes(store, blobs[i], blobs[i] == large[0] || blobs[i] == large[1] ? sizeof(large[0]) : 100);
    if (i == 5) {
      CHECK_OK(dit_store_flush(store, FLUSH_MS, &err));  // the last two are compared with the file, not the buffer
    }
  }
  CHECK_OK(dit_store_flush(store, FLUSH_MS, &err));
  dit_store_get_counts(store, &counts);
  CHECK(counts.written == 8 && counts.shared == 2 * 3000000 + 200 && counts.bytes < 6010000);
  destroy_store(store);
  struct dit_store_reader *reader = NULL;
  const struct dit_store_item *item = NULL;
  CHECK_OK(dit_store_reader_open(in_folder("root/s.dpack"), &reader, &err));
  for (int i = 0; i < 8; i++) {
    CHECK_OK(dit_store_reader_next(reader, &item, &err));
    CHECK(item && memcmp(item->blobs[0].data, blobs[i], item->blobs[0].size) == 0);
  }
  dit_store_reader_close(reader);
  remove_tree(in_folder("root"));
}

/// Blobs of one identity are not looked at again; another size under it is another blob.
static void test_identities(void) {
  static unsigned char bytes[2][5000];
  struct dit_error err = {0};
  struct dit_store_options options = {.layout = DIT_STORE_PACKED, .container = "i.dpack"};
  struct dit_store *store = create_store(&options);
  struct dit_store_counts counts;
  memset(bytes[0], 1, 5000);
  memset(bytes[1], 2, 5000);
  const struct {
    size_t which, size;
    uint64_t identity;
  } puts[] = {{0, 5000, 7}, {1, 5000, 7}, {1, 4000, 7}, {0, 5000, 8}, {1, 4000, 7}, {1, 5000, 7 + (1 << 15)}};
  const unsigned char expected[] = {1, 1, 2, 1, 2, 2};
  for (size_t i = 0; i < 6; i++) {
    struct dit_store_blob blob = {.data = bytes[puts[i].which], .size = puts[i].size, .identity = puts[i].identity};
    struct dit_store_item item = {.path = "a.pth", .pickle = "p", .pickle_size = 1, .blobs = &blob, .blob_count = 1};
    CHECK_OK(dit_store_put(store, &item, false, NULL, &err));
  }
  CHECK_OK(dit_store_flush(store, FLUSH_MS, &err));
  dit_store_get_counts(store, &counts);
  CHECK(counts.written == 6 && counts.shared == 5000 + 5000 + 4000);
  destroy_store(store);
  struct dit_store_reader *reader = NULL;
  const struct dit_store_item *item = NULL;
  CHECK_OK(dit_store_reader_open(in_folder("root/i.dpack"), &reader, &err));
  for (size_t i = 0; i < 6; i++) {
    CHECK_OK(dit_store_reader_next(reader, &item, &err));
    const unsigned char *data = item->blobs[0].data;
    CHECK(item->blobs[0].size == puts[i].size && data[0] == expected[i] && data[puts[i].size - 1] == expected[i]);
  }
  dit_store_reader_close(reader);
  remove_tree(in_folder("root"));
}

/// The types of all frames, one letter each, in the order of the file; each begins where the one before ends.
static size_t list_frames(const char *path, char *types, size_t most) {
  size_t size = 0, count = 0;
  unsigned char *data = load_file(path, &size);
  for (size_t at = DIT_PACK_FILE_SIZE; at < size && count < most;) {
    CHECK(dit_get_u32(data + at) == DIT_PACK_MARKER_VALUE);
    int type = data[at + DIT_PACK_TYPE];
    uint64_t payload = dit_get_u64(data + at + DIT_PACK_PAYLOAD_SIZE);
    types[count++] = type == DIT_PACK_BLOB ? 'b' : type == DIT_PACK_ITEM ? 'i' : 'f';
    at += (size_t)dit_pack_get_frame_size(payload);
    CHECK(type != DIT_PACK_FILLER || at % DIT_SINK_BLOCK == 0);
  }
  free(data);
  types[count] = '\0';
  return size;
}

/// Large batches go past the page cache, in whole blocks with fillers between; small ones follow through it. What is
/// read is what was put, whichever way it went.
static void test_past_the_page_cache(void) {
  static unsigned char large[3][1500001];
  char types[100];
  struct dit_error err = {0};
  struct dit_store_options options = {.layout = DIT_STORE_PACKED, .container = "d.dpack"};
  struct dit_store *store = create_store(&options);
  atomic_int released = 0;
  uint64_t state = 4;
  for (size_t i = 0; i < 3 * sizeof(large[0]); i++) {
    large[i / sizeof(large[0])][i % sizeof(large[0])] = (unsigned char)draw(&state);
  }
  for (int round = 0; round < 3; round++) {
    pthread_mutex_lock(&gate);
    put_gate(store, &released);  // all that follows is one list
    put_bytes(store, large[round], sizeof(large[round]) - (size_t)round);
    put_bytes(store, large[round], 100);
    put_bytes(store, large[(round + 1) % 3], 1100000);
    pthread_mutex_unlock(&gate);
    CHECK_OK(dit_store_flush(store, FLUSH_MS, &err));
    put_bytes(store, large[round] + 7, 50);
    CHECK_OK(dit_store_flush(store, FLUSH_MS, &err));
  }
  destroy_store(store);
  size_t size = list_frames(in_folder("root/d.dpack"), types, sizeof(types) - 1);
  int fd = open(in_folder("root/d.dpack"), O_WRONLY | O_DIRECT);
  if (fd >= 0) {  // the file system takes it
    CHECK(size > 7000000 && strchr(types, 'f') && strchr(strchr(types, 'f') + 1, 'f'));
    close(fd);
  }
  struct dit_store_reader *reader = NULL;
  const struct dit_store_item *item = NULL;
  struct dit_store_read_counts counts;
  CHECK_OK(dit_store_reader_open(in_folder("root/d.dpack"), &reader, &err));
  for (int round = 0; round < 3; round++) {
    const struct {
      const void *data;
      size_t size;
    } expected[] = {{"x", 1},
                    {large[round], sizeof(large[round]) - (size_t)round},
                    {large[round], 100},
                    {large[(round + 1) % 3], 1100000},
                    {large[round] + 7, 50}};
    for (int i = 0; i < 5; i++) {
      CHECK_OK(dit_store_reader_next(reader, &item, &err));
      CHECK(item && item->blobs[0].size == expected[i].size);
      CHECK(memcmp(item->blobs[0].data, expected[i].data, expected[i].size) == 0);
    }
  }
  CHECK_OK(dit_store_reader_next(reader, &item, &err));
  dit_store_reader_get_counts(reader, &counts);
  CHECK(!item && counts.items == 15 && counts.damaged == 0 && counts.torn_bytes == 0);
  dit_store_reader_close(reader);
  remove_tree(in_folder("root"));
}

enum { RAMP_BYTES = 300000, ZERO_BYTES = 8 << 20, NOISE_BYTES = 100001, SQUEEZED_ITEMS = 6 };

/// Puts tensors that shrink, that do not, that are equal, and that differ in one byte.
static bool write_compressed(enum dit_store_compress compress, unsigned char *const *blobs, const size_t *sizes,
                             struct dit_store_counts *counts) {
  struct dit_error err = {0};
  struct dit_store *store = NULL;
  struct dit_store_options options = {.layout = DIT_STORE_PACKED, .container = "z.dpack", .compress = compress};
  enum dit_status status = dit_store_create(in_folder("root"), &options, &store, &err);
  if (status == DIT_ERR_UNSUPPORTED) {
    printf("skip %s\n", err.message);
    return false;
  }
  CHECK_OK(status);
  for (int i = 0; i < SQUEEZED_ITEMS; i++) {
    put_bytes(store, blobs[i], sizes[i]);
  }
  CHECK_OK(dit_store_flush(store, FLUSH_MS, &err));
  dit_store_get_counts(store, counts);
  destroy_store(store);
  return true;
}

/// The number of items; each is what was put.
static uint64_t read_compressed(const char *path, unsigned char *const *blobs, const size_t *sizes, bool damaged) {
  struct dit_error err = {0};
  struct dit_store_reader *reader = NULL;
  const struct dit_store_item *item = NULL;
  uint64_t count = 0;
  enum dit_status status = dit_store_reader_open(path, &reader, &err);
  if (status != DIT_OK) {
    CHECK(damaged && (status == DIT_ERR_CORRUPT || status == DIT_ERR_UNSUPPORTED));
    return 0;
  }
  for (;; count++) {
    status = dit_store_reader_next(reader, &item, &err);
    CHECK(status == DIT_OK || (damaged && status == DIT_ERR_UNSUPPORTED));  // the method of a library that is not here
    if (status != DIT_OK || !item) {
      break;
    }
    bool known = false;
    for (int i = 0; i < SQUEEZED_ITEMS; i++) {
      known = known || (item->blobs[0].size == sizes[i] && memcmp(item->blobs[0].data, blobs[i], sizes[i]) == 0);
    }
    CHECK(known && (damaged || memcmp(item->blobs[0].data, blobs[count], sizes[count]) == 0));
  }
  dit_store_reader_close(reader);
  return count;
}

static void test_compression(void) {
  static const enum dit_store_compress kinds[] = {DIT_STORE_COMPRESS_ZLIB, DIT_STORE_COMPRESS_ZSTD,
                                                  DIT_STORE_COMPRESS_AUTO};
  float *ramp = malloc(RAMP_BYTES);
  unsigned char *twin = malloc(RAMP_BYTES), *zeros = calloc(1, ZERO_BYTES), *noise = malloc(NOISE_BYTES);
  CHECK(ramp && twin && zeros && noise);
  uint64_t state = 3;
  for (size_t i = 0; i < RAMP_BYTES / sizeof(float); i++) {
    ramp[i] = 1.0F + (float)(i % 1000) * 0.001F;
  }
  for (size_t i = 0; i < NOISE_BYTES; i++) {
    noise[i] = (unsigned char)draw(&state);
  }
  memcpy(twin, ramp, RAMP_BYTES);
  twin[200001] ^= 1;
  unsigned char *first = (unsigned char *)ramp, *blobs[] = {first, zeros, noise, first, twin, zeros};
  size_t sizes[] = {RAMP_BYTES, ZERO_BYTES, NOISE_BYTES, RAMP_BYTES, RAMP_BYTES - 3, ZERO_BYTES};
  for (size_t kind = 0; kind < 3; kind++) {
    struct dit_store_counts counts;
    size_t size = 0;
    if (!write_compressed(kinds[kind], blobs, sizes, &counts)) {
      continue;
    }
    CHECK(counts.written == SQUEEZED_ITEMS && counts.shared == RAMP_BYTES + ZERO_BYTES);
    CHECK(kinds[kind] == DIT_STORE_COMPRESS_AUTO || counts.bytes < 2 * NOISE_BYTES + 2 * RAMP_BYTES / 3);
    CHECK(read_compressed(in_folder("root/z.dpack"), blobs, sizes, false) == SQUEEZED_ITEMS);
    unsigned char *data = load_file(in_folder("root/z.dpack"), &size);
    CHECK(data[8] == 2);  // older readers refuse it
    for (int i = 0; i < 150; i++) {
      size_t at = i < 64 ? DIT_PACK_FILE_SIZE + (size_t)i : (size_t)(draw(&state) % size);
      data[at] ^= (unsigned char)(1 << i % 8);
      save_file(in_folder("broken.dpack"), data, size);
      CHECK(read_compressed(in_folder("broken.dpack"), blobs, sizes, true) <= SQUEEZED_ITEMS);
      data[at] ^= (unsigned char)(1 << i % 8);
    }
    free(data);
    remove_tree(in_folder("root"));
  }
  remove(in_folder("broken.dpack"));
  free(ramp);
  free(twin);
  free(zeros);
  free(noise);
}

/// Heads under a right checksum that promise what their payload does not give: the item is left out, nothing is written
/// beyond its place.
static void test_forged_compression(void) {
  static unsigned char zeros[100000];
  unsigned char *blobs[SQUEEZED_ITEMS];
  size_t sizes[SQUEEZED_ITEMS], size = 0;
  struct dit_store_counts counts;
  for (int i = 0; i < SQUEEZED_ITEMS; i++) {
    blobs[i] = zeros;
    sizes[i] = sizeof(zeros);
  }
  CHECK(write_compressed(DIT_STORE_COMPRESS_AUTO, blobs, sizes, &counts));
  remove_tree(in_folder("root"));
  if (!write_compressed(DIT_STORE_COMPRESS_ZLIB, blobs, sizes, &counts)) {
    return;
  }
  unsigned char *data = load_file(in_folder("root/z.dpack"), &size), *head = data + DIT_PACK_FILE_SIZE;
  uint32_t salt = dit_get_u32(data + DIT_PACK_FILE_SALT);
  CHECK(head[DIT_PACK_TYPE] == DIT_PACK_SQUEEZED);
  unsigned char sound[DIT_PACK_HEAD_SIZE];
  memcpy(sound, head, sizeof(sound));
  const struct {
    int place, wide;
    uint64_t value;
  } forgeries[] = {{DIT_PACK_METHOD, 4, 0},          {DIT_PACK_METHOD, 4, 3},
                   {DIT_PACK_METHOD, 4, 2},          {DIT_PACK_WIDTH, 4, 0},
                   {DIT_PACK_WIDTH, 4, 3},           {DIT_PACK_FULL_SIZE, 8, 99999},
                   {DIT_PACK_FULL_SIZE, 8, 1 << 30}, {DIT_PACK_PACKED_SIZE, 8, 0},
                   {DIT_PACK_PACKED_SIZE, 8, 20},    {DIT_PACK_PACKED_SIZE, 8, UINT64_MAX}};
  for (size_t i = 0; i < sizeof(forgeries) / sizeof(forgeries[0]); i++) {
    memcpy(head, sound, sizeof(sound));
    if (forgeries[i].wide == 8) {
      dit_put_u64(head + forgeries[i].place, forgeries[i].value);
    } else {
      dit_put_u32(head + forgeries[i].place, (uint32_t)forgeries[i].value);
    }
    dit_put_u32(head + DIT_PACK_HEAD_CRC, dit_crc32(salt, head, DIT_PACK_HEAD_CRC));
    save_file(in_folder("broken.dpack"), data, size);
    CHECK(read_compressed(in_folder("broken.dpack"), blobs, sizes, true) == 0);
  }
  free(data);
  remove(in_folder("broken.dpack"));
  remove_tree(in_folder("root"));
}

static void test_allocation_failures(void) {
  int64_t live = dit_alloc_get_live();
  write_random(DIT_STORE_PACKED, "packed", 0, 10);
  for (int64_t after = 0;; after++) {
    struct dit_error err = {0};
    uint64_t written = 99;
    dit_alloc_set_failure(after);
    enum dit_status status = dit_store_unpack(in_folder("packed/c.dpack"), in_folder("out"), &written, &err);
    dit_alloc_set_failure(-1);
    CHECK(dit_alloc_get_live() == live);
    if (status == DIT_OK) {
      CHECK(written == 10 && after > 5);
      break;
    }
    CHECK(status == DIT_ERR_NOMEM && written == 99);
  }
  remove_tree(in_folder("packed"));
  remove_tree(in_folder("out"));
}

int main(void) {
  make_folder();
  RUN(test_names);
  RUN(test_round_trip);
  RUN(test_sharing);
  RUN(test_identities);
  RUN(test_past_the_page_cache);
  RUN(test_compression);
  RUN(test_forged_compression);
  RUN(test_allocation_failures);
  remove_tree(test_folder);
  return 0;
}
