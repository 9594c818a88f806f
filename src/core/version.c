/// The version text; the build passes DIT_VERSION_TEXT from the file VERSION. Depends on nothing.
#include "dit/version.h"

const char *dit_version_get(void) {
  return DIT_VERSION_TEXT;
}
