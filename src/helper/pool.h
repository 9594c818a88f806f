/// A cache of memory blocks over any pair of allocate and free functions: staging memory is dear to get (page faults,
/// pinning) and is wanted again soon.
///
/// Blocks have sizes of powers of two, a header of POOL_HEADER bytes in front and POOL_HEADER alignment behind it. At
/// most `limit` bytes are kept unused; what is beyond goes back at once. Thread safe. Depends on libc and pthread.
#ifndef DIT_HELPER_POOL_H
#define DIT_HELPER_POOL_H

#include <pthread.h>
#include <stddef.h>

#include "dit/error.h"

#define POOL_HEADER 64
#define POOL_CLASSES 48

struct pool_block;

struct pool {
  pthread_mutex_t lock;
  /// Aligned to POOL_HEADER.
  enum dit_status (*allocate)(size_t size, void **memory, struct dit_error *err);
  void (*release)(void *memory);
  size_t limit;
  size_t kept;                              ///< bytes in `unused`
  struct pool_block *unused[POOL_CLASSES];  ///< by power of two
};

#define POOL_INITIALIZER(allocate_, release_, limit_) \
  {.lock = PTHREAD_MUTEX_INITIALIZER, .allocate = (allocate_), .release = (release_), .limit = (limit_)}

DIT_NODISCARD enum dit_status pool_take(struct pool *pool, size_t size, void **memory, struct dit_error *err);
/// NULL allowed.
void pool_give(struct pool *pool, void *memory);
/// Give all unused blocks back.
void pool_trim(struct pool *pool);

#endif
