/// What decides a call's result besides its arguments: autocast, deterministic algorithms, the random generator.
///
/// Saved with captured inputs as the member "state" (docs/tools/case-files.md), and only what is not as usual: a plain
/// call has none. Needs the GIL and the engine's guard.
#ifndef DIT_EXT_CALL_SETTINGS_H
#define DIT_EXT_CALL_SETTINGS_H

#include "engine/engine.h"

/// New dictionary (autocast, deterministic, random), or NULL: everything is as usual. Never leaves an exception; what
/// cannot be found out is left out. To be called before the operator draws its numbers; without a call (NULL) nothing
/// is said about generators.
PyObject *call_settings_get(const struct engine_call *call);

#endif
