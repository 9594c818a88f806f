/// The container: names, round trips, sharing (also of forged checksums), unpacking, failing allocations.
#include "record/format.h"
#include "store/crc32.c"  // internal: not exported by libdit
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
  RUN(test_allocation_failures);
  remove_tree(test_folder);
  return 0;
}
