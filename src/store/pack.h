/// The container: its bytes and the side that writes it. Internal to store; docs/store-format.md is the authority.
#ifndef DIT_STORE_PACK_H
#define DIT_STORE_PACK_H

#include <stdatomic.h>

#include "store/folder.h"
#include "store/sink.h"
#include "store/squeeze.h"

#define DIT_PACK_MAGIC \
  "\x8A"               \
  "DPACK\r\n"
enum {
  DIT_PACK_MAGIC_SIZE = 8,
  DIT_PACK_MAJOR = 1,
  DIT_PACK_MINOR = 1,
  DIT_PACK_MAJOR_COMPRESSED = 2,  ///< may have compressed blobs; its minor version is 0
  DIT_PACK_ALIGNMENT = 64,
  DIT_PACK_NAME_SIZE = 300
};

/// Offsets in the file header of 64 bytes.
enum {
  DIT_PACK_FILE_MAJOR = 8,
  DIT_PACK_FILE_MINOR = 10,
  DIT_PACK_FILE_LENGTH = 12,
  DIT_PACK_FILE_WALL = 16,
  DIT_PACK_FILE_PID = 24,
  DIT_PACK_FILE_RANK = 28,
  DIT_PACK_FILE_SALT = 32,
  DIT_PACK_FILE_ORDER = 36,  ///< of the bytes in blobs: 1 little-endian, 2 big-endian
  DIT_PACK_FILE_CRC = 60,
  DIT_PACK_FILE_SIZE = 64,
};

/// Offsets in a frame, which begins at a multiple of 64: a head of 64 bytes, the payload, its checksum, zeros.
enum {
  DIT_PACK_MARKER = 0,
  DIT_PACK_TYPE = 4,
  DIT_PACK_FLAGS = 6,
  DIT_PACK_NUMBER = 8,
  DIT_PACK_PAYLOAD_SIZE = 16,
  DIT_PACK_PATH_SIZE = 24,
  DIT_PACK_BLOBS = 28,
  DIT_PACK_PICKLE_SIZE = 32,
  DIT_PACK_JSON_SIZE = 40,
  DIT_PACK_HEAD_CRC = 60,
  DIT_PACK_HEAD_SIZE = 64,
  DIT_PACK_CRC_SIZE = 4,
  DIT_PACK_REFERENCE_SIZE = 24,  ///< number, offset, size of a blob
};
#define DIT_PACK_MARKER_VALUE UINT32_C(0xA5D07AC3)  ///< first byte in the file: 0xC3
enum { DIT_PACK_BLOB = 1, DIT_PACK_ITEM = 2, DIT_PACK_FILLER = 3, DIT_PACK_SQUEEZED = 4 };
/// Offsets in the head of a compressed blob.
enum { DIT_PACK_METHOD = 24, DIT_PACK_WIDTH = 28, DIT_PACK_FULL_SIZE = 32, DIT_PACK_PACKED_SIZE = 40 };
enum { DIT_PACK_HAS_JSON = 1 };

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
enum { DIT_PACK_ORDER = 2 };
#else
enum { DIT_PACK_ORDER = 1 };
#endif

/// The whole frame: head, payload, checksum, zeros up to the next one.
static inline uint64_t dit_pack_get_frame_size(uint64_t payload) {
  uint64_t size = DIT_PACK_HEAD_SIZE + payload + DIT_PACK_CRC_SIZE;
  return (size + DIT_PACK_ALIGNMENT - 1) / DIT_PACK_ALIGNMENT * DIT_PACK_ALIGNMENT;
}

struct dit_pack_seen;  ///< what is known of the blobs in the file

struct dit_pack {
  struct dit_folder *folder;
  char name[256];                   ///< as asked for
  char opened[DIT_PACK_NAME_SIZE];  ///< the file that was free
  bool broken;                      ///< by a failed commit: recover first
  bool direct;                      ///< chosen
  atomic_int fd;                    ///< -1 when there is none
  int direct_fd;                    ///< the same file past the page cache; -1 where it cannot be
  int32_t rank;
  uint32_t salt;
  uint64_t number;        ///< of the last blob or item
  uint64_t sound;         ///< bytes of the file that were committed
  unsigned char *buffer;  ///< aligned to blocks of the sink, inside `memory`
  void *memory;
  struct dit_sink sink;
  struct dit_pack_seen *seen;
  struct dit_squeeze squeeze;
};

/// Create the container in the folder's root: `name` (NULL for "capture-r<rank>-p<pid>.dpack"), with ".1" and so on
/// before the extension when it is taken. DIT_ERR_IO, DIT_ERR_NOMEM, DIT_ERR_UNSUPPORTED.
DIT_NODISCARD enum dit_status dit_pack_init(struct dit_pack *pack, struct dit_folder *folder, const char *name,
                                            int32_t rank, enum dit_store_compress compress, struct dit_error *err);
void dit_pack_reset(struct dit_pack *pack);   ///< close and free; accepts a zeroed one whose fd is -1
void dit_pack_forget(struct dit_pack *pack);  ///< close: in a forked child the file is the parent's
void dit_pack_remove(struct dit_pack *pack);  ///< unlink
/// Put an item; blobs that are there already are referred to. `bytes` is what it takes in the file, `shared` the size
/// of the blobs that were not written again. ENOMEM: nothing was put; other errors are those of the batch, see commit.
int dit_pack_append(struct dit_pack *pack, const struct dit_store_item *item, uint64_t *bytes, uint64_t *shared);
/// From the next item on write past the page cache, or through it. The former leaves the processor and the memory to
/// the program, the latter takes bursts that the disk cannot follow. Nothing may be put and not committed.
void dit_pack_choose(struct dit_pack *pack, bool direct);
/// Hand everything to the kernel. 0, or errno: then everything since the last commit is lost and cut off, and the
/// next append starts again (in a new file when this one was removed).
int dit_pack_commit(struct dit_pack *pack);
/// "container '...' cannot be written: ..."
void dit_pack_describe(const struct dit_pack *pack, int error, char *text, size_t size);

#endif
