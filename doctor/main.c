/// dit_doctor: exercises every slot of a vendor's device functions (dit/device.h), without a framework. One line of
/// JSON per check, and one about the library at the end.
#include <stdlib.h>

#include "dit/options.h"
#include "doctor.h"

static const char usage[] =
    "dit_doctor [options] VENDOR   a name (host) or a path with a '/'\n"
    "\n"
    "  --only SLOT     the checks of one slot alone\n"
    "  --timeout S     seconds that a check may take (default 60)\n"
    "  --gentle        do not fill the device's memory to see what happens then\n"
    "\n"
    "Exit status: 0 all right, 1 something is wrong, 2 wrong use or no such library, 3 the library has no device.\n";

static int fail(const char *what, const char *word) {
  fprintf(stderr, "dit_doctor: %s '%s'\n\n%s", what, word, usage);
  return 2;
}

static int refuse_slot(const char *name) {
  fprintf(stderr, "dit_doctor: there is no slot '%s'; valid: %s", name, slot_infos[0].name);
  for (size_t i = 1; i < slot_count; i++) {
    fprintf(stderr, ", %s", slot_infos[i].name);
  }
  fputc('\n', stderr);
  return 2;
}

int main(int count, char **words) {
  struct runner_options options = {.timeout = 60, .out = stdout};
  for (int i = 1; i < count; i++) {
    const char *word = words[i], *value = i + 1 < count ? words[i + 1] : "";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
      fputs(usage, stdout);
      return 0;
    }
    if (strcmp(word, "--gentle") == 0) {
      options.gentle = true;
    } else if (strcmp(word, "--only") == 0) {
      options.only = value;
      if (!slot_find(value)) {
        return refuse_slot(value);
      }
      i++;
    } else if (strcmp(word, "--timeout") == 0) {
      char *end;
      options.timeout = strtod(value, &end);
      if (end == value || *end || !(options.timeout >= 1 && options.timeout <= 86400)) {
        return fail("--timeout takes seconds from 1 to 86400, not", value);
      }
      i++;
    } else if (word[0] == '-') {
      return fail("there is no option", word);
    } else if (options.library) {
      return fail("one vendor at a time; this is a second one:", word);
    } else {
      options.library = word;
    }
  }
  struct dit_error err = {0};
  if (dit_options_load(NULL, &err) != DIT_OK) {  // some vendors have options: DITORCH_HOST_DEVICES
    fprintf(stderr, "dit_doctor: %s\n", err.message);
    return 2;
  }
  return options.library ? runner_run(&options) : fail("no vendor was given; valid: a name or a path, not", "");
}
