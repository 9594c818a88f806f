/// What can be asked of the opaque device with DITORCH_OPAQUE: words separated by commas.
///
///   slow:MICROSECONDS   every piece of work takes that much longer
///   fail:N              the N-th piece of work of the process fails, counted from 1
///   lose:N              from the N-th piece of work on, every piece fails: the device fell off the bus
///   nomem:N             the N-th allocation of the process fails
///   nomem:N+            the devices are full from the N-th allocation on: each holds no more than it held when it was
///                       asked next, so an allocation fails until as much was freed
///
/// Depends on libdit's options.
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dit/options.h"
#include "opaque.h"

static struct {
  int64_t slow, fail, lose, nomem, full;
} asked;
static atomic_int_least64_t works, allocations;

static enum dit_status read_word(const char *word, size_t length, struct dit_error *err) {
  static const struct {
    const char *name, *end;
    int64_t *value;
  } words[] = {{"slow:", "", &asked.slow},
               {"fail:", "", &asked.fail},
               {"lose:", "", &asked.lose},
               {"nomem:", "", &asked.nomem},
               {"nomem:", "+", &asked.full}};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    const size_t size = strlen(words[i].name), tail = strlen(words[i].end);
    if (length <= size + tail || strncmp(word + length - tail, words[i].end, tail) != 0 ||
        strncmp(word, words[i].name, size) != 0) {
      continue;
    }
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(word + size, &end, 10);
    if (errno == 0 && end == word + length - tail && value > 0) {
      *words[i].value = value;
      return DIT_OK;
    }
  }
  return dit_error_set(
      err, DIT_ERR_INVALID,
      "DITORCH_OPAQUE has '%.*s'; valid: slow:MICROSECONDS, fail:N, lose:N, nomem:N, nomem:N+ with numbers from 1 on",
      (int)length, word);
}

enum dit_status opaque_mishap_init(struct dit_error *err) {
  const int index = dit_option_find("opaque");
  const char *text = index >= 0 ? dit_option_get_text(index) : "";
  memset(&asked, 0, sizeof asked);
  atomic_store(&works, 0);
  atomic_store(&allocations, 0);
  while (*text) {
    const size_t length = strcspn(text, ",");
    DIT_RETURN_IF_NOT_OK(read_word(text, length, err));
    text += length + (text[length] == ',');
  }
  return DIT_OK;
}

bool opaque_mishap_is_asked(void) {
  return asked.slow > 0 || asked.fail > 0 || asked.lose > 0;
}

bool opaque_mishap_strike(struct dit_error *err) {
  const int64_t number = atomic_fetch_add(&works, 1) + 1;
  if (asked.slow > 0) {
    const struct timespec pause = {.tv_sec = asked.slow / 1000000, .tv_nsec = asked.slow % 1000000 * 1000};
    nanosleep(&pause, NULL);
  }
  if (number == asked.fail) {
    (void)dit_error_set(err, DIT_ERR_DEVICE, "it was piece %lld of the work, as DITORCH_OPAQUE asked",
                        (long long)number);
    return false;
  }
  if (asked.lose > 0 && number >= asked.lose) {
    (void)dit_error_set(err, DIT_ERR_DEVICE, "the device fell off the bus, as DITORCH_OPAQUE asked");
    return false;
  }
  return true;
}

enum dit_status opaque_mishap_strike_allocation(size_t size, uint64_t used, uint64_t *most, struct dit_error *err) {
  const int64_t number = atomic_fetch_add(&allocations, 1) + 1;
  if (number == asked.nomem) {
    return dit_error_set(err, DIT_ERR_NOMEM, "allocation %lld, of %zu bytes, fails, as DITORCH_OPAQUE asked",
                         (long long)number, size);
  }
  if (asked.full == 0 || number < asked.full) {
    return DIT_OK;
  }
  *most = *most == UINT64_MAX ? used : *most;
  return size <= *most - used
             ? DIT_OK
             : dit_error_set(err, DIT_ERR_NOMEM,
                             "allocation %lld, of %zu bytes, fails: the device is full from allocation "
                             "%lld on, as DITORCH_OPAQUE asked; %llu of %llu bytes are in use",
                             (long long)number, size, (long long)asked.full, (unsigned long long)used,
                             (unsigned long long)*most);
}
