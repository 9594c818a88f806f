/// Vendors that are wrong in one way each, for the tests of dit_doctor and of the runtime.
///
/// The library has the functions of another vendor (WRONG_BASE: opaque or host) and one defect of them, which
/// WRONG_DEFECT names; "none" has no defect. A defect replaces slots of `table`; `base` holds the right functions.
#ifndef DIT_TESTS_WRONG_H
#define DIT_TESTS_WRONG_H

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "dit/device.h"

extern struct dit_device_vtable wrong_table;        ///< what the doctor sees
extern const struct dit_device_vtable *wrong_base;  ///< what is right

struct wrong_defect {
  const char *name;
  void (*apply)(void);
};

/// Each file of defects ends with its list; a NULL name ends it.
extern const struct wrong_defect wrong_start_defects[], wrong_memory_defects[], wrong_copy_defects[],
    wrong_stream_defects[], wrong_event_defects[], wrong_error_defects[];

/// Take a slot of the table.
#define REPLACE(slot, function) wrong_table.slot = function

#endif
