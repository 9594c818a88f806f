/// The record log: what a record costs the thread that commits it, how fast whole logs are written and read, and a raw
/// write() of the same bytes in batches of the same size in the same run.
///
/// Two records: three numbers, and an operator call as OpObserve writes it (ten fields, three of them tensors).
/// "commit" is the producer's time alone (bursts that fit into the queue, flushed in between); "through" includes the
/// wait for the kernel to have everything. Rounds take turns; compare figures of one run only. argument: directory
/// (default TMPDIR, /tmp).
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dit/dit.h"
#include "dit/record.h"

#define ROUNDS 9
#define BURST 1500
#define BURSTS 40
#define RECORDS (BURST * BURSTS)

enum measure { COMMIT, THROUGH, RAW, READ, JSONL, MEASURES };
static const char *const measure_names[MEASURES] = {"commit", "through", "raw write", "read", "jsonl"};

static uint32_t keys[16];
static uint32_t op, tool, location, module_path, device;
static char folder[4096];
static double samples[MEASURES][ROUNDS];

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void check(enum dit_status status, const struct dit_error *err) {
  if (status != DIT_OK) {
    fprintf(stderr, "bench_record: %s\n", err->message);
    exit(1);
  }
}

static uint32_t intern(const char *text) {
  struct dit_error err = {0};
  uint32_t id = 0;
  check(dit_record_intern(text, strlen(text), &id, &err), &err);
  return id;
}

static void fill_small(struct dit_record_builder *builder, int64_t i) {
  dit_record_begin(builder, 16, 0, 0);
  dit_record_field_i64(builder, keys[0], i);
  dit_record_field_interned(builder, keys[1], op);
  dit_record_field_f64(builder, keys[2], 0.5);
}

static void fill_call(struct dit_record_builder *builder, int64_t i) {
  static const int64_t sizes[] = {2, 32, 64}, strides[] = {2048, 64, 1};
  struct dit_record_tensor tensor = {
      .dtype = DIT_DTYPE_F32, .device = device, .ndim = 3, .sizes = sizes, .strides = strides, .requires_grad = true};
  dit_record_begin(builder, 16, 0, 0);
  dit_record_field_u64(builder, keys[0], (uint64_t)i);
  dit_record_field_interned(builder, keys[1], op);
  dit_record_field_interned(builder, keys[2], tool);
  dit_record_field_i64(builder, keys[3], i / 1100);
  dit_record_field_interned(builder, keys[4], location);
  dit_record_field_interned(builder, keys[5], module_path);
  dit_record_field_i64(builder, keys[6], 12345);
  for (uint32_t k = 0; k < 3; k++) {
    tensor.storage_id = UINT64_C(0x7F0012340000) + (uint64_t)i * 64 + k;
    dit_record_field_tensor(builder, keys[7 + k], &tensor);
  }
}

static struct dit_record_writer *create(void) {
  struct dit_error err = {0};
  struct dit_record_writer *writer = NULL;
  check(dit_record_writer_create(folder, NULL, &writer, &err), &err);
  return writer;
}

/// Writes RECORDS records; `bursts`: only the time of the commits counts. Nanoseconds in total.
static double run_writer(void (*fill)(struct dit_record_builder *, int64_t), bool bursts, char *path,
                         struct dit_record_counts *counts) {
  struct dit_error err = {0};
  struct dit_record_writer *writer = create();
  struct dit_record_builder *builder = dit_record_builder_get_local();
  int64_t total = 0, start = dit_record_get_time();
  for (int64_t i = 0; i < RECORDS; i++) {
    fill(builder, i);
    (void)dit_record_commit(builder, writer, NULL);
    if (bursts && i % BURST == BURST - 1) {
      total += dit_record_get_time() - start;
      check(dit_record_writer_flush(writer, 60000, &err), &err);
      start = dit_record_get_time();
    }
  }
  check(dit_record_writer_flush(writer, 60000, &err), &err);
  total = bursts ? total : dit_record_get_time() - start;
  dit_record_writer_get_counts(writer, counts);
  dit_record_writer_get_path(writer, path, 4096);
  check(dit_record_writer_destroy(writer, 60000, &err), &err);
  return (double)total;
}

/// The same bytes by write() in batches of the same mean size.
static double run_raw(const char *path, const struct dit_record_counts *counts) {
  char copy[4200];
  snprintf(copy, sizeof(copy), "%s.raw", path);
  size_t size = (size_t)counts->bytes, batch = size / (size_t)counts->batches + 1;
  char *data = malloc(size);
  int in = open(path, O_RDONLY), out = open(copy, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (!data || in < 0 || out < 0 || read(in, data, size) != (ssize_t)size) {
    fprintf(stderr, "bench_record: '%s' cannot be read again\n", path);
    exit(1);
  }
  int64_t start = dit_record_get_time();
  for (size_t at = 0; at < size; at += batch) {
    size_t part = size - at < batch ? size - at : batch;
    if (write(out, data + at, part) != (ssize_t)part) {
      fprintf(stderr, "bench_record: '%s' cannot be written\n", copy);
      exit(1);
    }
  }
  double taken = (double)(dit_record_get_time() - start);
  close(in);
  close(out);
  unlink(copy);
  free(data);
  return taken;
}

static bool swallow(void *context, const void *data, size_t size) {
  (void)data;
  *(uint64_t *)context += size;
  return true;
}

static double run_reader(const char *path, bool jsonl) {
  struct dit_error err = {0};
  struct dit_record_reader *reader = NULL;
  const struct dit_record *record = NULL;
  uint64_t bytes = 0;
  struct dit_record_sink sink = {swallow, &bytes};
  int64_t start = dit_record_get_time();
  check(dit_record_reader_open(&path, 1, &reader, &err), &err);
  if (jsonl) {
    check(dit_record_export_jsonl(reader, &sink, &err), &err);
  } else {
    do {
      check(dit_record_reader_next(reader, &record, &err), &err);
    } while (record);
  }
  double taken = (double)(dit_record_get_time() - start);
  dit_record_reader_close(reader);
  return taken;
}

static void run(const char *name, void (*fill)(struct dit_record_builder *, int64_t)) {
  struct dit_record_counts counts = {0};
  char path[4096];
  for (int round = 0; round < ROUNDS; round++) {
    samples[COMMIT][round] = run_writer(fill, true, path, &counts);
    unlink(path);
    samples[THROUGH][round] = run_writer(fill, false, path, &counts);
    samples[RAW][round] = run_raw(path, &counts);
    samples[READ][round] = run_reader(path, false);
    samples[JSONL][round] = run_reader(path, true);
    unlink(path);
    if (counts.written != RECORDS) {
      fprintf(stderr, "bench_record: %llu of %d records written\n", (unsigned long long)counts.written, RECORDS);
      exit(1);
    }
  }
  for (enum measure m = 0; m < MEASURES; m++) {
    qsort(samples[m], ROUNDS, sizeof(double), order);
    double best = samples[m][0], median = samples[m][ROUNDS / 2];
    printf("%-16s %-9s best %7.1f ns  median %7.1f ns per record", name, measure_names[m], best / RECORDS,
           median / RECORDS);
    if (m != COMMIT) {
      printf("  %8.1f MB/s", (double)counts.bytes * 1e3 / median);
    }
    printf(m == THROUGH ? "  %.1f bytes per record, %llu batches\n" : "\n", (double)counts.bytes / RECORDS,
           (unsigned long long)counts.batches);
  }
  fflush(stdout);
}

int main(int count, char **arguments) {
  static const char *const names[] = {"id",     "name",    "tool",   "step",   "location",
                                      "module", "host_ns", "args.0", "args.1", "out"};
  const char *base = count > 1 ? arguments[1] : getenv("TMPDIR");
  snprintf(folder, sizeof(folder), "%s/bench-record-XXXXXX", base ? base : "/tmp");
  if (!mkdtemp(folder)) {
    fprintf(stderr, "bench_record: no folder can be made in '%s'\n", base ? base : "/tmp");
    return 1;
  }
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
    keys[i] = intern(names[i]);
  }
  op = intern("torch.nn.functional.linear");
  tool = intern("observe");
  location = intern("/home/user/train.py:120 forward: x = self.linear(x)");
  module_path = intern("blocks.3.mlp.0");
  device = intern("cuda");
  run("3 fields", fill_small);
  run("call, 3 tensors", fill_call);
  rmdir(folder);
  return 0;
}
