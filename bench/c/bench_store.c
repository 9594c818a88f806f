/// The capture store against the same work in plain C, measured side by side in one run.
///
/// Checksum: GB/s. Small items: microseconds per put on the caller's side and per item in all; files against a program
/// that makes the same folders and files with mkdir, open, write, close and rename. Large items: GB/s against write()
/// of the same bytes in pieces of 1 MiB. Medians of ROUNDS interleaved rounds. Usage: bench_store [folder] [part ...],
/// parts crc, put, files, large.
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dit/dit.h"
#include "dit/store.h"
#include "store/crc32.c"  // internal: not exported by libdit

enum { ROUNDS = 5, SMALL_ITEMS = 500, FLUSH_MS = 600000 };
#define LARGE_BYTES ((size_t)1 << 29)

static char root[4000];
static unsigned char *bytes;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/// Of this thread: not disturbed by what else the machine does.
static double get_cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double get_median(double *values) {
  qsort(values, ROUNDS, sizeof(*values), order);
  return values[ROUNDS / 2];
}

static void die(const char *what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static void check(enum dit_status status, const struct dit_error *err) {
  if (status != DIT_OK) {
    fprintf(stderr, "%s\n", err->message);
    exit(1);
  }
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *ftw) {
  (void)info;
  (void)flag;
  (void)ftw;
  return remove(path);
}

static void clear_folder(void) {
  nftw(root, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

static struct dit_store *open_store(enum dit_store_layout layout) {
  struct dit_error err = {0};
  struct dit_store *store = NULL;
  struct dit_store_options options = {.layout = layout};
  check(dit_store_create(root, &options, &store, &err), &err);
  return store;
}

static void close_store(struct dit_store *store) {
  struct dit_error err = {0};
  struct dit_store_counts counts;
  check(dit_store_flush(store, FLUSH_MS, &err), &err);
  dit_store_get_counts(store, &counts);
  if (counts.written != counts.put) {
    fprintf(stderr, "only %llu of %llu items were written\n", (unsigned long long)counts.written,
            (unsigned long long)counts.put);
    exit(1);
  }
  check(dit_store_destroy(store, FLUSH_MS, &err), &err);
}

/// Three storages of 1 KiB, a pickle of 600 bytes, 800 bytes of JSON; the i-th differs from all others.
static void fill_small(struct dit_store_item *item, struct dit_store_blob blobs[3], char path[200], size_t i) {
  static const char *const what[] = {"input", "output"};
  snprintf(path, 200, "op_capture_results/torch.add/%d/%zu/2026-01-01-00-00-00/%s.pth", (int)getpid(), i / 2,
           what[i % 2]);
  for (int k = 0; k < 3; k++) {
    blobs[k] = (struct dit_store_blob){.data = bytes + 64 * (3 * i + (size_t)k), .size = 1024};
  }
  *item = (struct dit_store_item){.path = path,
                                  .pickle = bytes,
                                  .pickle_size = 600,
                                  .json = (const char *)bytes + 1000,
                                  .json_size = 800,
                                  .blobs = blobs,
                                  .blob_count = 3};
}

static void make_parents(char *path) {
  for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
      die(path);
    }
    *slash = '/';
  }
}

static void write_plain(const char *path, const void *data, size_t size) {
  char temp[4300];
  snprintf(temp, sizeof(temp), "%s.tmp", path);
  int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd) != 0 || rename(temp, path) != 0) {
    die(temp);
  }
}

/// What a simple program does: a folder per call, made once, and two files per item.
static double run_plain_files(size_t archive) {
  double begin = now();
  char path[200], full[4200];
  struct dit_store_item item;
  struct dit_store_blob blobs[3];
  for (size_t i = 0; i < SMALL_ITEMS; i++) {
    fill_small(&item, blobs, path, i);
    snprintf(full, sizeof(full), "%s/%s", root, path);
    if (i == 0) {
      make_parents(full);
    } else if (i % 2 == 0) {
      char *last = strrchr(full, '/'), *before = NULL;
      *last = '\0';
      before = strrchr(full, '/');
      *before = '\0';
      mkdir(full, 0777);
      *before = '/';
      mkdir(full, 0777);
      *last = '/';
    }
    write_plain(full, bytes + i, archive);
    size_t length = strlen(full);
    snprintf(full + length, sizeof(full) - length, ".json");
    write_plain(full, item.json, item.json_size);
  }
  return (now() - begin) / SMALL_ITEMS * 1e6;
}

/// Microseconds per item: processor time and time of the caller, and the time until all is written.
static void run_small(enum dit_store_layout layout, double *cpu, double *put, double *all) {
  struct dit_error err = {0};
  struct dit_store *store = open_store(layout);
  char path[200];
  struct dit_store_item item;
  struct dit_store_blob blobs[3];
  double begin = now(), cpu_begin = get_cpu();
  for (size_t i = 0; i < SMALL_ITEMS; i++) {
    fill_small(&item, blobs, path, i);
    check(dit_store_put(store, &item, false, NULL, &err), &err);
  }
  *put = (now() - begin) / SMALL_ITEMS * 1e6;
  *cpu = (get_cpu() - cpu_begin) / SMALL_ITEMS * 1e6;
  check(dit_store_flush(store, FLUSH_MS, &err), &err);
  *all = (now() - begin) / SMALL_ITEMS * 1e6;
  close_store(store);
}

static double run_direct(void) {
  struct dit_error err = {0};
  char path[200], full[4200];
  struct dit_store_item item;
  struct dit_store_blob blobs[3];
  double begin = now();
  for (size_t i = 0; i < SMALL_ITEMS; i++) {
    fill_small(&item, blobs, path, i);
    snprintf(full, sizeof(full), "%s/%s", root, path);
    check(dit_store_write_file(full, &item, &err), &err);
  }
  return (now() - begin) / SMALL_ITEMS * 1e6;
}

static void run_files_part(void) {
  double plain[ROUNDS], put[ROUNDS], all[ROUNDS], direct[ROUNDS];
  size_t archive = 0;
  for (int round = -1; round < ROUNDS; round++) {  // the first one warms up and tells the size of an archive
    double p = 0, a = 0, c = 0;
    run_small(DIT_STORE_FILES, &c, &p, &a);
    if (round < 0) {
      char path[200], full[4200];
      struct dit_store_item item;
      struct dit_store_blob blobs[3];
      struct stat info;
      fill_small(&item, blobs, path, 0);
      snprintf(full, sizeof(full), "%s/%s", root, path);
      if (stat(full, &info) != 0) {
        die(full);
      }
      archive = (size_t)info.st_size;
      clear_folder();
      continue;
    }
    clear_folder();
    put[round] = p;
    all[round] = a;
    mkdir(root, 0777);
    plain[round] = run_plain_files(archive);
    clear_folder();
    direct[round] = run_direct();
    clear_folder();
  }
  double base = get_median(plain), whole = get_median(all), alone = get_median(direct);
  printf("small items as files (%zu + 800 bytes, folder per two items), us per item:\n", archive);
  printf("  plain C %.1f   store %.1f (x%.2f; caller %.2f)   write_file %.1f (x%.2f)\n", base, whole, whole / base,
         get_median(put), alone, alone / base);
}

/// Microseconds per write-ahead put: it returns when the item is with the kernel.
static double run_ahead(void) {
  enum { COUNT = 300 };
  struct dit_error err = {0};
  struct dit_store *store = open_store(DIT_STORE_PACKED);
  char path[200];
  struct dit_store_item item;
  struct dit_store_blob blobs[3];
  double begin = now();
  for (size_t i = 0; i < COUNT; i++) {
    fill_small(&item, blobs, path, i);
    check(dit_store_put(store, &item, true, NULL, &err), &err);
  }
  double each = (now() - begin) / COUNT * 1e6;
  close_store(store);
  return each;
}

static void run_put_part(void) {
  double cpu[ROUNDS], put[ROUNDS], all[ROUNDS], ahead[ROUNDS];
  for (int round = 0; round < ROUNDS; round++) {
    run_small(DIT_STORE_PACKED, &cpu[round], &put[round], &all[round]);
    clear_folder();
    ahead[round] = run_ahead();
    clear_folder();
  }
  printf("small items packed (3 x 1 KiB, 600, 800 bytes), us per item:\n");
  printf("  caller %.2f (processor time %.2f), in all %.2f; write-ahead %.1f\n", get_median(put), get_median(cpu),
         get_median(all), get_median(ahead));
}

/// GB/s of write() in pieces of 1 MiB into one file, as a program would that has nothing else to do.
static double run_raw(void) {
  char path[4100];
  mkdir(root, 0777);
  snprintf(path, sizeof(path), "%s/raw", root);
  double begin = now();
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  for (size_t at = 0; at < LARGE_BYTES; at += 1 << 20) {
    if (write(fd, bytes + at, 1 << 20) != 1 << 20) {
      die(path);
    }
  }
  close(fd);
  return (double)LARGE_BYTES / (now() - begin) / 1e9;
}

/// The same bytes as one file per item, each in its own folder, as a program would without the store.
static double run_raw_files(size_t size) {
  double begin = now();
  mkdir(root, 0777);
  for (size_t at = 0; at < LARGE_BYTES; at += size) {
    char path[4200];
    snprintf(path, sizeof(path), "%s/%zu", root, at / size);
    mkdir(path, 0777);
    size_t length = strlen(path);
    snprintf(path + length, sizeof(path) - length, "/input.pth");
    write_plain(path, bytes + at, size);
  }
  return (double)LARGE_BYTES / (now() - begin) / 1e9;
}

static double run_large(enum dit_store_layout layout, size_t size) {
  struct dit_error err = {0};
  struct dit_store *store = open_store(layout);
  double begin = now();
  for (size_t at = 0; at < LARGE_BYTES; at += size) {
    char path[100];
    snprintf(path, sizeof(path), "torch.add/%zu/input.pth", at / size);
    struct dit_store_blob blob = {.data = bytes + at, .size = size};
    struct dit_store_item item = {.path = path, .pickle = bytes, .pickle_size = 600, .blobs = &blob, .blob_count = 1};
    check(dit_store_put(store, &item, false, NULL, &err), &err);
  }
  check(dit_store_flush(store, FLUSH_MS, &err), &err);
  double rate = (double)LARGE_BYTES / (now() - begin) / 1e9;
  close_store(store);
  return rate;
}

static void run_large_part(void) {
  static const size_t sizes[] = {1 << 20, 16 << 20, 256 << 20};
  for (int k = 0; k < 3; k++) {
    double raw[ROUNDS], plain[ROUNDS], files[ROUNDS], packed[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
      raw[round] = run_raw();
      clear_folder();
      plain[round] = run_raw_files(sizes[k]);
      clear_folder();
      files[round] = run_large(DIT_STORE_FILES, sizes[k]);
      clear_folder();
      packed[round] = run_large(DIT_STORE_PACKED, sizes[k]);
      clear_folder();
    }
    double base = get_median(raw), f = get_median(files), p = get_median(packed);
    printf("blobs of %3zu MiB, GB/s: raw %.2f (%.2f to %.2f), as plain files %.2f;", sizes[k] >> 20, base, raw[0],
           raw[ROUNDS - 1], get_median(plain));
    printf(" store: files %.2f (%.0f %%), packed %.2f (%.0f %%)\n", f, 100 * f / base, p, 100 * p / base);
  }
}

static void run_crc_part(void) {
  static const size_t sizes[] = {1 << 10, 512 << 10, 64 << 20};
  volatile uint32_t crc = 0;
  for (int k = 0; k < 3; k++) {
    double fast[ROUNDS], table[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
      size_t repeats = ((size_t)64 << 20) / sizes[k];
      double begin = now();
      for (size_t i = 0; i < repeats; i++) {
        crc = dit_crc32(crc, bytes, sizes[k]);
      }
      fast[round] = (double)(sizes[k] * repeats) / (now() - begin) / 1e9;
      begin = now();
      for (size_t i = 0; i < repeats; i++) {
        crc = dit_crc32_table(crc, bytes, sizes[k]);
      }
      table[round] = (double)(sizes[k] * repeats) / (now() - begin) / 1e9;
    }
    printf("CRC-32 of %8zu bytes, GB/s: %.1f (by table %.1f)\n", sizes[k], get_median(fast), get_median(table));
  }
}

static bool wants(int count, char **parts, const char *part) {
  for (int i = 2; i < count; i++) {
    if (strcmp(parts[i], part) == 0) {
      return true;
    }
  }
  return count <= 2;
}

int main(int count, char **arguments) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  snprintf(root, sizeof(root), "%s/dit-bench-store-%d", count > 1 ? arguments[1] : "/tmp", (int)getpid());
  bytes = malloc(LARGE_BYTES + (1 << 20));
  if (!bytes) {
    die("memory");
  }
  uint64_t state = 1;
  for (size_t i = 0; i < LARGE_BYTES + (1 << 20); i += 8) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    memcpy(bytes + i, &state, 8);
  }
  if (wants(count, arguments, "crc")) {
    run_crc_part();
  }
  if (wants(count, arguments, "put")) {
    run_put_part();
  }
  if (wants(count, arguments, "files")) {
    run_files_part();
  }
  if (wants(count, arguments, "large")) {
    run_large_part();
  }
  free(bytes);
  return 0;
}
