/// Helpers of the store tests: a folder that goes away, random items that can be made again from their number, and
/// blobs that count how often they were waited for and released.
#ifndef DIT_TESTS_STORE_TEST_H
#define DIT_TESTS_STORE_TEST_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "dit/alloc.h"
#include "dit/log.h"
#include "dit/store.h"

enum { FLUSH_MS = 60000, MOST_BLOBS = 6 };

static char test_folder[PATH_MAX];

static inline int remove_one(const char *path, const struct stat *info, int flag, struct FTW *ftw) {
  (void)info;
  (void)flag;
  (void)ftw;
  return remove(path);
}

static inline void remove_tree(const char *path) {
  nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void make_folder(void) {
  const char *base = getenv("TMPDIR");
  snprintf(test_folder, sizeof(test_folder), "%s/dit-store-XXXXXX", base ? base : "/tmp");
  CHECK(mkdtemp(test_folder));
}

/// A path below the test folder.
static inline const char *in_folder(const char *name) {
  static char paths[8][PATH_MAX];
  static int next;
  char *path = paths[next++ % 8];
  CHECK(snprintf(path, PATH_MAX, "%.2000s/%.2000s", test_folder, name) < PATH_MAX);
  return path;
}

static inline uint64_t draw(uint64_t *state) {
  *state += UINT64_C(0x9E3779B97F4A7C15);
  uint64_t z = *state;
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}

static inline unsigned char *load_file(const char *path, size_t *size) {
  FILE *stream = fopen(path, "rb");
  CHECK(stream && fseek(stream, 0, SEEK_END) == 0);
  *size = (size_t)ftell(stream);
  rewind(stream);
  unsigned char *data = malloc(*size + 1);
  CHECK(data && fread(data, 1, *size, stream) == *size);
  fclose(stream);
  data[*size] = '\0';
  return data;
}

static inline void save_file(const char *path, const void *data, size_t size) {
  FILE *stream = fopen(path, "wb");
  CHECK(stream && fwrite(data, 1, size, stream) == size);
  CHECK(fclose(stream) == 0);
}

static inline size_t count_entries(const char *path) {
  size_t count = 0;
  DIR *dir = opendir(path);
  CHECK(dir);
  for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
    count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
  }
  closedir(dir);
  return count;
}

static atomic_int blobs_made, blobs_waited, blobs_released;

/// A blob on the heap that notices a second release (the sanitizer does) and a lost one (the counters do).
struct test_blob {
  atomic_int released;
  bool arrives;
  size_t size;
  unsigned char data[];
};

static inline bool wait_blob(void *context) {
  struct test_blob *blob = context;
  atomic_fetch_add(&blobs_waited, 1);
  return blob->arrives;
}

static inline void release_blob(void *context) {
  struct test_blob *blob = context;
  CHECK(atomic_fetch_add(&blob->released, 1) == 0);
  atomic_fetch_add(&blobs_released, 1);
  free(blob);
}

static inline struct dit_store_blob make_blob(size_t size, int byte) {
  struct test_blob *blob = calloc(1, sizeof(*blob) + size);
  CHECK(blob);
  blob->arrives = true;
  blob->size = size;
  memset(blob->data, byte, size);
  atomic_fetch_add(&blobs_made, 1);
  return (struct dit_store_blob){
      .data = blob->data, .size = size, .wait = wait_blob, .release = release_blob, .context = blob};
}

static inline void check_released(void) {
  CHECK(atomic_load(&blobs_made) == atomic_load(&blobs_released));
}

/// A random item. Blobs are drawn from few contents, so that some repeat; sizes include 0 and some beyond a buffer.
struct random_item {
  char path[80];
  unsigned char pickle[3000];
  char json[500];
  struct dit_store_blob blobs[MOST_BLOBS];
  struct dit_store_item item;
};

static inline size_t draw_size(uint64_t *state) {
  static const size_t special[] = {0, 1, 63, 64, 1024, 60, 4096, 4097};
  uint64_t kind = draw(state) % 40;
  return kind == 0 ? 1100000 + draw(state) % 1000 : kind < 20 ? special[kind % 8] : (size_t)(draw(state) % 5000);
}

static inline void make_random(struct random_item *random, uint64_t seed, uint64_t number) {
  uint64_t state = seed * 1000003 + number;
  struct dit_store_item *item = &random->item;
  snprintf(random->path, sizeof(random->path), "torch.add/%llu/%llu/input.pth", (unsigned long long)(number / 3),
           (unsigned long long)number);
  *item = (struct dit_store_item){.path = random->path, .pickle = random->pickle, .blobs = random->blobs};
  item->pickle_size = 1 + draw(&state) % sizeof(random->pickle);
  for (size_t i = 0; i < item->pickle_size; i++) {
    random->pickle[i] = (unsigned char)draw(&state);
  }
  if (draw(&state) % 4 > 0) {
    item->json = random->json;
    item->json_size = draw(&state) % sizeof(random->json);
    memset(random->json, 'a' + (int)(number % 26), sizeof(random->json));
  }
  item->blob_count = draw(&state) % (MOST_BLOBS + 1);
  for (size_t i = 0; i < item->blob_count; i++) {
    uint64_t content = draw(&state) % 3 == 0 ? 77 : draw(&state);
    size_t size = draw_size(&content);
    random->blobs[i] = make_blob(size, 0);
    unsigned char *data = ((struct test_blob *)random->blobs[i].context)->data;
    for (size_t k = 0; k < size; k++) {
      data[k] = (unsigned char)(content >> 8 * (k % 8)) ^ (unsigned char)(k / 8);
    }
  }
}

static inline void drop_random(struct random_item *random) {
  for (size_t i = 0; i < random->item.blob_count; i++) {
    release_blob(random->blobs[i].context);
  }
}

static inline bool is_same_item(const struct dit_store_item *a, const struct dit_store_item *b) {
  bool same = strcmp(a->path, b->path) == 0 && a->pickle_size == b->pickle_size && !a->json == !b->json &&
              memcmp(a->pickle, b->pickle, a->pickle_size) == 0 && a->blob_count == b->blob_count &&
              (!a->json || (a->json_size == b->json_size && memcmp(a->json, b->json, a->json_size) == 0));
  for (size_t i = 0; same && i < a->blob_count; i++) {
    same = a->blobs[i].size == b->blobs[i].size && memcmp(a->blobs[i].data, b->blobs[i].data, a->blobs[i].size) == 0;
  }
  return same;
}

/// The number in a random item's path; is the item what make_random makes of it?
static inline uint64_t check_random(const struct dit_store_item *item, uint64_t seed) {
  static struct random_item expected;
  unsigned long long folder = 0, number = 0;
  CHECK(sscanf(item->path, "torch.add/%llu/%llu/input.pth", &folder, &number) == 2);
  make_random(&expected, seed, number);
  CHECK(is_same_item(item, &expected.item));
  drop_random(&expected);
  return number;
}

static inline struct dit_store *create_store(const struct dit_store_options *options) {
  struct dit_error err = {0};
  struct dit_store *store = NULL;
  CHECK_OK(dit_store_create(in_folder("root"), options, &store, &err));
  return store;
}

static inline void destroy_store(struct dit_store *store) {
  struct dit_error err = {0};
  CHECK_OK(dit_store_destroy(store, FLUSH_MS, &err));
}

/// An item with one blob.
static inline bool put_simple(struct dit_store *store, const char *path, size_t size, int byte, bool now) {
  struct dit_error err = {0};
  struct dit_store_blob blob = make_blob(size, byte);
  struct dit_store_item item = {.path = path, .pickle = "pickle", .pickle_size = 6, .blobs = &blob, .blob_count = 1};
  bool kept = false;
  CHECK_OK(dit_store_put(store, &item, now, &kept, &err));
  return kept;
}

/// What the store's thread waits for in a gate item.
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static inline bool wait_for_gate(void *context) {
  (void)context;
  pthread_mutex_lock(&gate);
  pthread_mutex_unlock(&gate);
  return true;
}

static inline void count_release(void *context) {
  atomic_fetch_add((atomic_int *)context, 1);
}

/// Holds the store's thread until the gate opens.
static inline void put_gate(struct dit_store *store, atomic_int *released) {
  struct dit_error err = {0};
  struct dit_store_blob blob = {
      .data = "x", .size = 1, .wait = wait_for_gate, .release = count_release, .context = released};
  struct dit_store_item item = {.path = "gate.pth", .pickle = "p", .pickle_size = 1, .blobs = &blob, .blob_count = 1};
  CHECK_OK(dit_store_put(store, &item, false, NULL, &err));
}

#endif
