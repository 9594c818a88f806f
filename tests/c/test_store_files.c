/// Files of the store: the checksum, the archive's structure, atomic replacement, refused paths, failures that leave
/// nothing behind, failing allocations.
#include <signal.h>
#include <sys/resource.h>

#include "store/crc32.c"  // internal: not exported by libdit
#include "store_test.h"

static void test_crc(void) {
  static unsigned char data[70000];
  uint64_t state = 3;
  CHECK(dit_crc32(0, "123456789", 9) == UINT32_C(0xCBF43926) && dit_crc32(5, "", 0) == 5);
  for (size_t i = 0; i < sizeof(data); i++) {
    data[i] = (unsigned char)draw(&state);
  }
  for (size_t size = 0; size < 700; size++) {
    size_t at = size % 33;
    CHECK(dit_crc32((uint32_t)size, data + at, size) == dit_crc32_table((uint32_t)size, data + at, size));
  }
  for (int i = 0; i < 300; i++) {
    size_t at = draw(&state) % 100, size = draw(&state) % (sizeof(data) - at), cut = draw(&state) % (size + 1);
    uint32_t whole = dit_crc32_table(0, data + at, size);
    CHECK(dit_crc32(0, data + at, size) == whole);
    CHECK(dit_crc32(dit_crc32(0, data + at, cut), data + at + cut, size - cut) == whole);
  }
}

/// Walks the archive from its central directory, as an unzip program does; checks sizes, checksums and alignment.
static void check_archive(const char *path, const struct dit_store_item *item, const char *stem) {
  size_t size = 0;
  unsigned char *data = load_file(path, &size);
  const unsigned char *end = data + size - 22;
  CHECK(size > 98 && memcmp(end, "PK\5\6", 4) == 0 && memcmp(end - 20, "PK\6\7", 4) == 0);
  size_t count = dit_get_u16(end + 10), at = dit_get_u32(end + 16);
  CHECK(count == item->blob_count + 6);
  for (size_t i = 0; i < count; i++) {
    const unsigned char *central = data + at, *local = data + dit_get_u32(central + 42);
    size_t name = dit_get_u16(central + 28), bytes = dit_get_u32(central + 24);
    CHECK(memcmp(central, "PK\1\2", 4) == 0 && memcmp(local, "PK\3\4", 4) == 0);
    CHECK(dit_get_u16(local + 26) == name && memcmp(local + 30, central + 46, name) == 0);
    const unsigned char *content = local + 30 + name + dit_get_u16(local + 28);
    CHECK((size_t)(content - data) % 64 == 0 && content + bytes <= end);
    CHECK(dit_crc32_table(0, content, bytes) == dit_get_u32(central + 16));
    CHECK(name > strlen(stem) && memcmp(local + 30, stem, strlen(stem)) == 0 && local[30 + strlen(stem)] == '/');
    if (i == 0) {
      CHECK(bytes == item->pickle_size && memcmp(content, item->pickle, bytes) == 0);
    }
    if (i >= 4 && i - 4 < item->blob_count) {
      CHECK(bytes == item->blobs[i - 4].size && memcmp(content, item->blobs[i - 4].data, bytes) == 0);
    }
    at += 46 + name + dit_get_u16(central + 30);
  }
  CHECK(memcmp(data + at, "PK\6\6", 4) == 0);
  free(data);
}

static void test_archive(void) {
  static struct random_item random;
  struct dit_error err = {0};
  for (uint64_t number = 0; number < 60; number++) {
    make_random(&random, 11, number);
    struct dit_store_blob kept[MOST_BLOBS];  // as blobs that stay for the comparison
    struct dit_store_item item = random.item;
    for (size_t i = 0; i < item.blob_count; i++) {
      kept[i] = (struct dit_store_blob){.data = random.blobs[i].data, .size = random.blobs[i].size};
    }
    item.blobs = kept;
    CHECK_OK(dit_store_write_file(in_folder("deep/er/in.put.pth"), &item, &err));
    check_archive(in_folder("deep/er/in.put.pth"), &item, "in.put");
    drop_random(&random);
  }
  struct stat info;
  CHECK(stat(in_folder("deep/er/in.put.pth"), &info) == 0 && (info.st_mode & 0777) == 0600);
  CHECK(count_entries(in_folder("deep/er")) == 2);
  remove_tree(in_folder("deep"));
}

static void write_simple(const char *path, size_t size, enum dit_status expected, const char *part) {
  struct dit_error err = {0};
  struct dit_store_blob blob = make_blob(size, 'x');
  struct dit_store_item item = {.pickle = "p", .pickle_size = 1, .blobs = &blob, .blob_count = 1};
  item.json = "{}";
  item.json_size = 2;
  enum dit_status status = dit_store_write_file(path, &item, &err);
  if (status != expected) {
    fprintf(stderr, "%s: %s\n", dit_status_get_name(status), err.message);
  }
  CHECK(status == expected);
  CHECK_CONTAINS(err.message, part);
  check_released();
}

/// What stands at the name is replaced, never followed, never half.
static void test_existing(void) {
  struct stat info;
  size_t size = 0;
  write_simple(in_folder("a.pth"), 10, DIT_OK, "");
  write_simple(in_folder("a.pth"), 5000, DIT_OK, "");
  save_file(in_folder("victim"), "precious", 8);
  CHECK(symlink(in_folder("victim"), in_folder("link.pth")) == 0);
  write_simple(in_folder("link.pth"), 100, DIT_OK, "");
  unsigned char *victim = load_file(in_folder("victim"), &size);
  CHECK(size == 8 && memcmp(victim, "precious", 8) == 0);
  free(victim);
  CHECK(lstat(in_folder("link.pth"), &info) == 0 && S_ISREG(info.st_mode));
  CHECK(mkdir(in_folder("taken.pth"), 0700) == 0);
  write_simple(in_folder("taken.pth"), 10, DIT_ERR_IO, "taken.pth");
  CHECK(count_entries(test_folder) == 6);  // a, link with their companions, victim, taken; no companion of taken
  remove_tree(test_folder);
  CHECK(mkdir(test_folder, 0700) == 0);
}

static void test_c4_failure_leaves_nothing(void) {
  struct rlimit old, small;
  signal(SIGXFSZ, SIG_IGN);
  CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
  small = old;
  small.rlim_cur = 100000;
  CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
  write_simple(in_folder("full/big.pth"), 3000000, DIT_ERR_IO, "big.pth");
  write_simple(in_folder("full/medium.pth"), 120000, DIT_ERR_IO, "File too large");
  CHECK(count_entries(in_folder("full")) == 0);
  CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
  write_simple(in_folder("full/big.pth"), 3000000, DIT_OK, "");
  save_file(in_folder("file"), "x", 1);
  write_simple(in_folder("file/below.pth"), 10, DIT_ERR_IO, "file");
  write_simple("/proc/nowhere/below.pth", 10, DIT_ERR_IO, "/proc/nowhere");
  write_simple("/dev/full/x.pth", 10, DIT_ERR_IO, "/dev/full");
  write_simple("", 10, DIT_ERR_INVALID, "no path");
  write_simple("/tmp/", 10, DIT_ERR_INVALID, "no path");
  char name[400];
  memset(name, 'n', 300);
  snprintf(name + 300, 100, ".pth");
  write_simple(in_folder(name), 10, DIT_ERR_IO, "too long");
}

static void test_bad_items(void) {
  struct dit_error err = {0};
  struct dit_store_blob blob = make_blob(10, 1);
  struct dit_store_item item = {.path = "a", .blobs = &blob, .blob_count = 1};
  CHECK(dit_store_write_file(in_folder("bad.pth"), &item, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "no pickle");
  blob = make_blob(10, 1);
  blob.data = NULL;
  item.pickle = "p";
  item.pickle_size = 1;
  CHECK(dit_store_write_file(in_folder("bad.pth"), &item, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "no data");
  blob = make_blob(10, 1);
  ((struct test_blob *)blob.context)->arrives = false;
  CHECK(dit_store_write_file(in_folder("bad.pth"), &item, &err) == DIT_ERR_DEVICE);
  check_released();
  CHECK(access(in_folder("bad.pth"), F_OK) != 0);
}

static void test_relative(void) {
  char before[PATH_MAX];
  CHECK(getcwd(before, sizeof(before)) && chdir(test_folder) == 0);
  write_simple("here.pth", 10, DIT_OK, "");
  write_simple("./below/here.pth", 10, DIT_OK, "");
  CHECK(chdir(before) == 0);
  CHECK(access(in_folder("here.pth.json"), F_OK) == 0 && access(in_folder("below/here.pth"), F_OK) == 0);
}

static void test_allocation_failures(void) {
  int64_t live = dit_alloc_get_live();
  for (int64_t after = 0;; after++) {
    struct dit_error err = {0};
    struct dit_store_blob blobs[50];
    for (int i = 0; i < 50; i++) {
      blobs[i] = make_blob(100, i);
    }
    struct dit_store_item item = {.pickle = "p", .pickle_size = 1, .blobs = blobs, .blob_count = 50};
    dit_alloc_set_failure(after);
    enum dit_status status = dit_store_write_file(in_folder("alloc/a.pth"), &item, &err);
    dit_alloc_set_failure(-1);
    check_released();
    CHECK(dit_alloc_get_live() == live);
    if (status == DIT_OK) {
      CHECK(after >= 2);
      break;
    }
    CHECK(status == DIT_ERR_NOMEM && count_entries(in_folder("alloc")) == 0);
  }
}

int main(void) {
  make_folder();
  RUN(test_crc);
  RUN(test_archive);
  RUN(test_existing);
  RUN(test_c4_failure_leaves_nothing);
  RUN(test_bad_items);
  RUN(test_relative);
  RUN(test_allocation_failures);
  check_released();
  remove_tree(test_folder);
  return 0;
}
