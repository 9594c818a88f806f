/// The record log: an append-only, checksummed file of typed records, its writer, its reader and its views.
///
/// A producer fills a builder (dit_record_begin, dit_record_field_*) and commits it to a writer, which queues it; one
/// background thread per writer hands batches to the kernel. Committing never fails the caller: what cannot be kept is
/// counted. docs/record-format.md describes the bytes.
#ifndef DIT_RECORD_H
#define DIT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

DIT_EXTERN_C_BEGIN

#define DIT_RECORD_MAX_BYTES (16 << 20)       ///< a whole record with its frame
#define DIT_RECORD_MAX_HEADER (64 << 10)      ///< the file header with its metadata
#define DIT_RECORD_MAX_STRING (64 << 10)      ///< an interned string; longer text goes inline
#define DIT_RECORD_MAX_STRINGS (1 << 20)      ///< interned strings of a process
#define DIT_RECORD_MAX_INTERNED (64 << 20)    ///< their bytes
#define DIT_RECORD_MAX_DIMS 64                ///< of a tensor description (PyTorch's own limit)
#define DIT_RECORD_TYPE_USER 16               ///< first record type of applications; lower ones belong to the format
#define DIT_RECORD_QUEUE_BYTES (4 << 20)      ///< default of dit_record_options.queue_bytes
#define DIT_RECORD_MIN_QUEUE_BYTES (4 << 10)  ///< and its least value

/// The monotonic clock of all record times, in nanoseconds.
DIT_API int64_t dit_record_get_time(void);

/// The process-wide number (from 1) of a string that is used often: keys, operator names. The same bytes always have
/// the same number; it stays valid for the life of the process and may be used with every writer. DIT_ERR_INVALID
/// beyond DIT_RECORD_MAX_STRING, DIT_ERR_UNSUPPORTED when the table is full (write the text inline), DIT_ERR_NOMEM.
DIT_API DIT_NODISCARD enum dit_status dit_record_intern(const char *text, size_t size, uint32_t *id,
                                                        struct dit_error *err);

/// What a record says about a tensor. `device` is an interned name ("cuda", "cpu"), 0 for none.
struct dit_record_tensor {
  int32_t dtype;  ///< enum dit_dtype
  uint32_t device;
  int32_t device_index;  ///< -1 for none
  int32_t ndim;          ///< 0 to DIT_RECORD_MAX_DIMS
  const int64_t *sizes;
  const int64_t *strides;  ///< in elements; NULL when unknown
  uint64_t storage_id;
  int64_t storage_offset;  ///< in elements
  int64_t version;
  bool requires_grad;
};

/// A record under construction. All members are private; it belongs to one thread at a time.
struct dit_record_builder {
  unsigned char *data;
  size_t size, capacity;
  bool on_heap;
  bool failed;
};

/// Starts with `storage` (may be NULL) and moves to the heap when a record needs more. The heap block is kept for the
/// next record, so that the steady state allocates nothing. End with dit_record_builder_reset.
DIT_API void dit_record_builder_init(struct dit_record_builder *builder, void *storage, size_t size);
/// Frees what is on the heap; the builder is then as after init with NULL.
DIT_API void dit_record_builder_reset(struct dit_record_builder *builder);
/// The calling thread's own builder, freed with the thread; NULL when memory is exhausted. Not for use across calls
/// into code that may build records itself.
DIT_API struct dit_record_builder *dit_record_builder_get_local(void);

/// Begin a record of an application type (DIT_RECORD_TYPE_USER or more) at `time` (0: now), dropping what the builder
/// held. Keys and ids come from dit_record_intern. A field that cannot be added spoils the record, and its commit then
/// counts as a drop. Text that is not UTF-8 is stored as it is.
DIT_API void dit_record_begin(struct dit_record_builder *builder, uint16_t type, uint16_t flags, int64_t time);
DIT_API void dit_record_field_i64(struct dit_record_builder *builder, uint32_t key, int64_t value);
DIT_API void dit_record_field_u64(struct dit_record_builder *builder, uint32_t key, uint64_t value);
DIT_API void dit_record_field_f64(struct dit_record_builder *builder, uint32_t key, double value);
DIT_API void dit_record_field_bool(struct dit_record_builder *builder, uint32_t key, bool value);
DIT_API void dit_record_field_interned(struct dit_record_builder *builder, uint32_t key, uint32_t id);
DIT_API void dit_record_field_string(struct dit_record_builder *builder, uint32_t key, const char *text, size_t size);
DIT_API void dit_record_field_bytes(struct dit_record_builder *builder, uint32_t key, const void *data, size_t size);
DIT_API void dit_record_field_i64s(struct dit_record_builder *builder, uint32_t key, const int64_t *values,
                                   size_t count);
DIT_API void dit_record_field_tensor(struct dit_record_builder *builder, uint32_t key,
                                     const struct dit_record_tensor *tensor);

/// A key and a value of the file header, NUL-terminated. "type.<number>" = "name" names an application's record type.
struct dit_record_pair {
  const char *key;
  const char *value;
};

enum dit_record_pressure {
  DIT_RECORD_BLOCK,  ///< a full queue makes the producer wait, at most block_ms
  DIT_RECORD_DROP,   ///< a full queue drops the new record and counts it
};

enum dit_record_sync {
  DIT_RECORD_SYNC_NONE,   ///< the kernel decides; survives the death of the process, not of the machine
  DIT_RECORD_SYNC_FLUSH,  ///< dit_record_writer_flush also waits for the disk
  DIT_RECORD_SYNC_BATCH,  ///< so does every batch
};

/// Zero everything that should have its default.
struct dit_record_options {
  size_t queue_bytes;  ///< bound of the queue (default DIT_RECORD_QUEUE_BYTES); a record may take half of it
  enum dit_record_pressure pressure;
  enum dit_record_sync sync;
  int block_ms;           ///< longest wait of a producer (default 10000)
  int linger_ms;          ///< how long a batch may collect before it is written (default 10)
  uint64_t rotate_bytes;  ///< start a new file beyond this size; 0: never
  int32_t rank;
  int32_t world_size;
  const struct dit_record_pair *metadata;  ///< copied
  size_t metadata_count;
};

/// committed = accepted + dropped; accepted = written + lost + what is still queued.
struct dit_record_counts {
  uint64_t committed;  ///< calls of dit_record_commit
  uint64_t accepted;   ///< of those, taken into the queue
  uint64_t dropped;    ///< of those, refused: full queue, failing file, spoiled record, forked child
  uint64_t written;    ///< accepted and handed to the kernel
  uint64_t lost;       ///< accepted, but the file could not take them
  uint64_t bytes;      ///< handed to the kernel
  uint64_t batches;    ///< write calls
  uint64_t failures;   ///< times the file stopped taking data
  uint64_t files;      ///< files opened
  bool failing;        ///< counting only, until the next attempt succeeds
};

struct dit_record_writer;

/// Create `ops-r<rank>-p<pid>.dlog` in `directory` (which must exist; `.1.dlog` and so on when taken; mode 0600, never
/// through a symbolic link) and start its thread. DIT_ERR_INVALID, DIT_ERR_IO, DIT_ERR_NOMEM. In a forked child the
/// writer is closed: commits count as dropped and the parent's file is left alone; create a new one there. A process
/// that returns from main or calls exit writes out what is queued first, also without destroy; _exit and a fatal signal
/// lose the last linger_ms (more only while the disk cannot keep up).
DIT_API DIT_NODISCARD enum dit_status dit_record_writer_create(const char *directory,
                                                               const struct dit_record_options *options,
                                                               struct dit_record_writer **writer,
                                                               struct dit_error *err);
/// Write out what is queued, for at most `timeout_ms`, and free the writer. No other thread may use it any more.
/// Accepts NULL. DIT_ERR_IO when records were not written: the time was over, or the file did not take them.
DIT_API enum dit_status dit_record_writer_destroy(struct dit_record_writer *writer, int timeout_ms,
                                                  struct dit_error *err);
/// Hand the builder's record over. False when it was dropped (and counted). `sequence` (nullable) receives the
/// record's number: commits are numbered from 1 in the order of the file, dropped ones included. May wait, see
/// dit_record_pressure. The builder is ready for the next dit_record_begin.
DIT_API bool dit_record_commit(struct dit_record_builder *builder, struct dit_record_writer *writer,
                               uint64_t *sequence);
/// Return when everything accepted before the call is with the kernel: it then survives kill -9. DIT_ERR_IO when
/// records were lost since the last flush or the file is failing or `timeout_ms` is over; DIT_ERR_INVALID in a forked
/// child.
DIT_API DIT_NODISCARD enum dit_status dit_record_writer_flush(struct dit_record_writer *writer, int timeout_ms,
                                                              struct dit_error *err);
DIT_API void dit_record_writer_get_counts(struct dit_record_writer *writer, struct dit_record_counts *counts);
/// The path of the newest file into `path`, cut to `size`.
DIT_API void dit_record_writer_get_path(struct dit_record_writer *writer, char *path, size_t size);

enum dit_record_field_type {
  DIT_RECORD_I64 = 1,
  DIT_RECORD_U64 = 2,
  DIT_RECORD_F64 = 3,
  DIT_RECORD_BOOL = 4,
  DIT_RECORD_INTERNED = 5,  ///< in the file only: readers deliver DIT_RECORD_STRING
  DIT_RECORD_STRING = 6,
  DIT_RECORD_BYTES = 7,
  DIT_RECORD_I64S = 8,
  DIT_RECORD_TENSOR = 9,
};

/// Bytes that the reader owns; strings may contain NUL and are NUL-terminated only by accident.
struct dit_record_text {
  const char *data;
  size_t size;
};

struct dit_record_field {
  struct dit_record_text key;
  enum dit_record_field_type type;
  union {
    int64_t i64;
    uint64_t u64;
    double f64;
    bool boolean;
    struct dit_record_text text;  ///< STRING and BYTES
    struct {
      const int64_t *data;
      size_t count;
    } i64s;
    struct dit_record_tensor tensor;  ///< `device` is 0; see device_name
  } v;
  struct dit_record_text device_name;  ///< of a tensor
};

struct dit_record_header {
  uint16_t major, minor;
  int64_t wall_ns;       ///< CLOCK_REALTIME when the file was made
  int64_t monotonic_ns;  ///< CLOCK_MONOTONIC at the same moment
  uint32_t pid;
  int32_t rank, world_size;
  uint32_t file_index;  ///< number of the file within its writer
  uint32_t salt;        ///< seed of the checksums
  size_t metadata_count;
  const struct dit_record_pair *metadata;
};

/// One record as the reader delivers it, valid until the next call on the reader.
struct dit_record {
  uint16_t type, flags;
  uint32_t thread;
  uint64_t sequence;
  int64_t time_ns;  ///< monotonic
  int64_t wall_ns;  ///< the same moment as CLOCK_REALTIME
  const struct dit_record_header *header;
  const struct dit_record_field *fields;
  size_t field_count;
  size_t file;  ///< index into the paths of dit_record_reader_open
};

/// What a reader has met so far, summed over its files.
struct dit_record_read_counts {
  uint64_t records;          ///< delivered
  uint64_t missing;          ///< gaps in the sequence numbers: dropped by the writer or lost in the file
  uint64_t damages;          ///< places where bytes were skipped up to the next sound record
  uint64_t damaged_bytes;    ///< and their size
  uint64_t malformed;        ///< records with a right checksum and a wrong inside
  uint64_t unresolved;       ///< records whose strings were lost to damage
  uint64_t unknown;          ///< records of types this version does not know
  uint64_t truncated_files;  ///< files that end inside a record
  uint64_t truncated_bytes;  ///< size of those ends
  uint64_t noted_drops;      ///< drops and losses that the writer noted in the file
};

struct dit_record_reader;

/// Read `count` files merged by wall time (within a file the file's order stays). DIT_ERR_IO, DIT_ERR_CORRUPT for a
/// file that is no record log, DIT_ERR_UNSUPPORTED for a newer major version, DIT_ERR_NOMEM.
DIT_API DIT_NODISCARD enum dit_status dit_record_reader_open(const char *const *paths, size_t count,
                                                             struct dit_record_reader **reader, struct dit_error *err);
/// Read a file's bytes from memory, which must outlive the reader.
DIT_API DIT_NODISCARD enum dit_status dit_record_reader_open_memory(const void *data, size_t size,
                                                                    struct dit_record_reader **reader,
                                                                    struct dit_error *err);
DIT_API void dit_record_reader_close(struct dit_record_reader *reader);  ///< accepts NULL
/// The next record, NULL at the end. Damage is skipped and counted, never an error. DIT_ERR_IO, DIT_ERR_NOMEM.
DIT_API DIT_NODISCARD enum dit_status dit_record_reader_next(struct dit_record_reader *reader,
                                                             const struct dit_record **record, struct dit_error *err);
/// Back to the first record; the counts start again.
DIT_API DIT_NODISCARD enum dit_status dit_record_reader_rewind(struct dit_record_reader *reader, struct dit_error *err);
DIT_API void dit_record_reader_get_counts(const struct dit_record_reader *reader,
                                          struct dit_record_read_counts *counts);
/// The same for file `index` alone; zeros beyond the last.
DIT_API void dit_record_reader_get_file_counts(const struct dit_record_reader *reader, size_t index,
                                               struct dit_record_read_counts *counts);
DIT_API size_t dit_record_reader_get_file_count(const struct dit_record_reader *reader);
/// Bytes of all files that lie behind the reader, for a progress display; damaged ones count as well.
DIT_API uint64_t dit_record_reader_get_position(const struct dit_record_reader *reader);
/// Deliver only what `accept` says yes to; NULL: everything. The counts still tell of all records. Rewind keeps it.
DIT_API void dit_record_reader_set_filter(struct dit_record_reader *reader,
                                          bool (*accept)(void *context, const struct dit_record *record),
                                          void *context);
/// True when the next record lies in memory, so that the next call will not wait for the disk (a filter may make it).
DIT_API bool dit_record_reader_is_ready(const struct dit_record_reader *reader);
/// Header of file `index`; NULL beyond the last, or when the file has no readable header yet.
DIT_API const struct dit_record_header *dit_record_reader_get_header(const struct dit_record_reader *reader,
                                                                     size_t index);
/// The name of a record's type from the header's metadata, NULL when it has none.
DIT_API const char *dit_record_get_type_name(const struct dit_record *record);

/// Cut a torn end off a file (one system call; sound records stay as they are). `removed` (nullable) receives its size,
/// 0 for a whole file. DIT_ERR_INVALID while a writer has the file open; otherwise as dit_record_reader_open.
DIT_API DIT_NODISCARD enum dit_status dit_record_repair(const char *path, uint64_t *removed, struct dit_error *err);

/// Where views go. `write` returns false to stop: the export then ends with DIT_ERR_IO.
struct dit_record_sink {
  bool (*write)(void *context, const void *data, size_t size);
  void *context;
};
/// A `write` for stdio: the context is a FILE *, which the caller owns and closes.
DIT_API bool dit_record_sink_write_file(void *context, const void *data, size_t size);

/// One JSON object per line: type, seq, time (wall, ns), rank, pid, tid, flags when not 0, then the fields. A key that
/// repeats in a record, or that has one of those names, gets a suffix: "key[1]". NaN and infinities are the strings
/// "NaN", "Infinity", "-Infinity"; bytes are hexadecimal text; what is not UTF-8 becomes U+FFFD. Reads from where the
/// reader stands to its end.
DIT_API DIT_NODISCARD enum dit_status dit_record_export_jsonl(struct dit_record_reader *reader,
                                                              const struct dit_record_sink *sink,
                                                              struct dit_error *err);
/// RFC 4180, one header line: the same columns as above, then the union of all fields in order of appearance; cells of
/// arrays and tensors are JSON. Rewinds the reader first: it reads twice.
DIT_API DIT_NODISCARD enum dit_status dit_record_export_csv(struct dit_record_reader *reader,
                                                            const struct dit_record_sink *sink, struct dit_error *err);
/// Chrome / Perfetto trace JSON of the records that have a number "duration_ns": a complete event that starts at the
/// field "begin_ns" (monotonic), or at the record's time, called by the field "name" or else the type; and of the
/// tools' calls, which took "host_ns" from the record's time on. Records whose "kind" is "backward" have a track of
/// their own, and so has the device where "device_ns" is 0 or more: its spans begin with the call or where the last one
/// ended. Times are microseconds from the earliest file header; other fields are "args". Reads from where the reader
/// stands.
DIT_API DIT_NODISCARD enum dit_status dit_record_export_trace(struct dit_record_reader *reader,
                                                              const struct dit_record_sink *sink,
                                                              struct dit_error *err);
/// One line per record for people: local time, rank, step, number, operator, what goes in -> what comes out, time.
/// Reads from where the reader stands.
DIT_API DIT_NODISCARD enum dit_status dit_record_export_text(struct dit_record_reader *reader,
                                                             const struct dit_record_sink *sink, struct dit_error *err);
/// The original tools' table of times as CSV: name, forward_id, forward_elasped, backward_elasped, unit, input, output,
/// grad_inputs, grad_outputs; one row per call, in which its backward is joined however far away it is. Further rounds
/// of a backward, and backwards whose call is not in the files, are rows without a forward. Rewinds first and reads at
/// least twice; the table that joins takes at most `memory` bytes (0: 64 MiB), more calls mean more rounds. Texts wait
/// in a temporary file without a name in TMPDIR.
DIT_API DIT_NODISCARD enum dit_status dit_record_export_legacy_csv(struct dit_record_reader *reader, size_t memory,
                                                                   const struct dit_record_sink *sink,
                                                                   struct dit_error *err);

DIT_EXTERN_C_END

#endif
