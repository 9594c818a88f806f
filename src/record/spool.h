/// Texts that wait: appended, read back by their position, kept in memory up to a size and then in a temporary file
/// without a name. Internal to record.
#ifndef DIT_RECORD_SPOOL_H
#define DIT_RECORD_SPOOL_H

#include "record/text.h"

struct dit_spool {
  struct dit_text tail;  ///< what is not in the file yet
  uint64_t flushed;      ///< bytes in the file
  int fd;                ///< -1: none yet
};

void dit_spool_init(struct dit_spool *spool);
void dit_spool_reset(struct dit_spool *spool);
/// Forget the content, keep the file.
void dit_spool_clear(struct dit_spool *spool);
/// `*position` receives where it went. DIT_ERR_NOMEM, DIT_ERR_IO.
DIT_NODISCARD enum dit_status dit_spool_append(struct dit_spool *spool, const char *data, size_t size,
                                               uint64_t *position, struct dit_error *err);
/// Append what stands at a position to `text`.
DIT_NODISCARD enum dit_status dit_spool_read(const struct dit_spool *spool, uint64_t position, size_t size,
                                             struct dit_text *text, struct dit_error *err);

#endif
