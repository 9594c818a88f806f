/// The file side of a writer: opening, encoding a batch, writing, recovering. Internal to record; one thread at a time.
#ifndef DIT_RECORD_FILE_H
#define DIT_RECORD_FILE_H

#include <limits.h>
#include <stdatomic.h>

#include "record/format.h"

/// A batch is one write as long as it fits: half a queue and this much for definitions and synchronisation.
enum { DIT_RECORD_OUT_EXTRA = 256 << 10, DIT_RECORD_SYNC_BYTES = 1 << 20 };

struct dit_record_file {
  char directory[PATH_MAX];
  char path[PATH_MAX + 64];
  atomic_int fd;  ///< -1 when there is none
  int32_t rank, world_size;
  uint64_t rotate_bytes;
  unsigned char *pairs;  ///< the metadata as the header has it
  size_t pairs_size;
  uint32_t pair_count;
  unsigned char *header;  ///< of the current file
  size_t header_size;
  uint32_t index, salt;
  unsigned char *out;
  size_t out_size, out_capacity;
  uint64_t out_records;
  uint64_t offset;      ///< sound bytes in the file
  uint64_t since_sync;  ///< bytes since the last sync record
  bool need_sync;
  uint32_t epoch;     ///< strings with defined[id] == epoch are known to the reader
  uint32_t *defined;  ///< may stay short when memory is: the string is then defined again
  size_t defined_count;
  uint64_t noted, note;  ///< drops noted in the file, and in the batch under way
  uint64_t written, lost, bytes, batches, files;
  int error;  ///< errno of the failure; 0 when the file had been removed
};

/// Checks the metadata, allocates, opens the first file. `process` becomes the metadata pair of that name. On failure
/// nothing is left behind.
DIT_NODISCARD enum dit_status dit_record_file_init(struct dit_record_file *file, const char *directory,
                                                   const struct dit_record_options *options, const char *process,
                                                   size_t out_capacity, struct dit_error *err);
/// Closes and frees; accepts a zeroed one whose fd is -1.
void dit_record_file_reset(struct dit_record_file *file);
/// Encode and write `count` frames of a queue. `drops` is the total the file should know of. False when the file did
/// not take everything: what it did not take is in `lost`.
bool dit_record_file_append(struct dit_record_file *file, const unsigned char *frames, size_t size, uint64_t count,
                            uint64_t drops);
/// After a failure: true when the file (or a new one) takes data again.
bool dit_record_file_recover(struct dit_record_file *file);
/// fdatasync; false on failure.
bool dit_record_file_sync(struct dit_record_file *file);

#endif
