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
#include "dit/kernel.h"

extern struct dit_device_vtable wrong_table;        ///< what the doctor sees
extern const struct dit_device_vtable *wrong_base;  ///< what is right
extern const struct dit_kernel_vtable *wrong_base_kernels;

struct wrong_defect {
  const char *name;
  void (*apply)(void);
};

/// Each file of defects ends with its list; a NULL name ends it.
extern const struct wrong_defect wrong_start_defects[], wrong_memory_defects[], wrong_copy_defects[],
    wrong_stream_defects[], wrong_event_defects[], wrong_error_defects[], wrong_collective_defects[],
    wrong_kernel_defects[];

/// The kernel table of a defect; NULL: this vendor has none.
const struct dit_kernel_vtable *wrong_get_kernels(void);

/// Take a slot of the table.
#define REPLACE(slot, function) wrong_table.slot = function

#endif
