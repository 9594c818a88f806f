/// Conversions of the adaptor by operator: a list of names behind a mutex, which only calls that converted something
/// enter.
///
/// The adaptor notes what a thread's calls did and hands it out once (take_conversions of its library). What calls
/// outside of operators left behind is thrown away before an operator runs.
#include "dit/conversion.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "conversion_take.h"
#include "dit/alloc.h"

struct entry {
  struct entry *next;
  struct dit_conversions did;
  char name[];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;

// Sums

void dit_conversions_add_pair(struct dit_conversions *to, int from_dtype, int to_dtype, uint64_t tensors) {
  int at = 0;
  while (at < to->pair_count && (to->pairs[at].from != from_dtype || to->pairs[at].to != to_dtype)) {
    at++;
  }
  if (at >= DIT_CONVERSION_PAIRS - 1 && at == to->pair_count) {
    at = DIT_CONVERSION_PAIRS - 1;
    from_dtype = to_dtype = -1;
  }
  if (at == to->pair_count) {
    to->pair_count++;
    to->pairs[at].tensors = 0;
  }
  to->pairs[at].from = (int16_t)from_dtype;
  to->pairs[at].to = (int16_t)to_dtype;
  to->pairs[at].tensors += tensors;
}

void dit_conversions_add(struct dit_conversions *to, const struct dit_conversions *from) {
  to->converted += from->converted;
  to->composed += from->composed;
  to->layouts += from->layouts;
  to->written += from->written;
  for (int i = 0; i < from->pair_count; i++) {
    dit_conversions_add_pair(to, from->pairs[i].from, from->pairs[i].to, from->pairs[i].tensors);
  }
}

// Rows

static bool has_any(const struct dit_conversions *did) {
  return did->converted || did->composed || did->layouts || did->written || did->pair_count;
}

static struct entry *find_or_create(const char *name) {
  struct entry *entry = entries;
  while (entry && strcmp(entry->name, name) != 0) {
    entry = entry->next;
  }
  if (!entry) {
    const size_t size = strlen(name) + 1;
    entry = dit_calloc(1, sizeof *entry + size);
    if (entry) {
      memcpy(entry->name, name, size);
      entry->next = entries;
      entries = entry;
    }
  }
  return entry;
}

void dit_conversion_note(const char *name, const struct dit_conversions *did) {
  pthread_mutex_lock(&mutex);
  struct entry *entry = find_or_create(name);
  if (entry) {
    dit_conversions_add(&entry->did, did);
  }
  pthread_mutex_unlock(&mutex);
}

int dit_conversion_read(struct dit_conversion_row *rows, int capacity) {
  int count = 0;
  pthread_mutex_lock(&mutex);
  for (const struct entry *entry = entries; entry; entry = entry->next) {
    if (has_any(&entry->did)) {
      if (count < capacity) {
        rows[count] = (struct dit_conversion_row){entry->name, entry->did};
      }
      count++;
    }
  }
  pthread_mutex_unlock(&mutex);
  return count;
}

void dit_conversion_reset(void) {
  pthread_mutex_lock(&mutex);
  for (struct entry *entry = entries; entry; entry = entry->next) {
    memset(&entry->did, 0, sizeof entry->did);
  }
  pthread_mutex_unlock(&mutex);
}

enum dit_status conversion_run(struct dit_call *call) {
  struct dit_conversions did;
  char name[256];
  (void)call->diopi->take_conversions(&did);
  const enum dit_status status = call->op->run(call);
  if (call->diopi->take_conversions(&did)) {
    snprintf(name, sizeof name, "%s%s%s", call->op->name, call->op->overload[0] ? "." : "", call->op->overload);
    dit_conversion_note(name, &did);
  }
  return status;
}
