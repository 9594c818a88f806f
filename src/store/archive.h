/// One item as the ZIP archive that torch.save writes. Internal to store.
#ifndef DIT_STORE_ARCHIVE_H
#define DIT_STORE_ARCHIVE_H

#include "dit/store.h"
#include "store/sink.h"

/// Put the archive of `item` into the sink, which must be at the beginning of a file. `stem` is the name of the folder
/// in the archive (the file's name without its extension). The bytes depend on stem and item alone. DIT_ERR_NOMEM;
/// failures of the file are in the sink.
DIT_NODISCARD enum dit_status dit_archive_put(struct dit_sink *sink, const char *stem, size_t stem_size,
                                              const struct dit_store_item *item, struct dit_error *err);

#endif
