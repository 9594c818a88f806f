/// The tools' record log: one writer per process, shared by all tools.
#ifndef DIT_EXT_ENGINE_LOG_H
#define DIT_EXT_ENGINE_LOG_H

#include "dit/record.h"
#include "engine/engine.h"

/// The one list of record types: X(suffix, number, name).
#define ENGINE_RECORD_LIST(X) \
  X(CALL, 16, "call")         \
  X(BACKWARD, 17, "backward") \
  X(TIME, 18, "time")         \
  X(FINDING, 19, "finding")   \
  X(CAPTURE, 20, "capture")   \
  X(TOOL, 21, "tool")         \
  X(NOTE, 22, "note")         \
  X(COMPARE, 23, "compare")

enum engine_record_type {
#define ENGINE_RECORD_ENUM(suffix, number, name) ENGINE_RECORD_##suffix = number,
  ENGINE_RECORD_LIST(ENGINE_RECORD_ENUM)
#undef ENGINE_RECORD_ENUM
};

/// Keys that every tool uses, interned once: engine_key_id and so on.
// clang-format off
#define ENGINE_KEY_LIST(X) \
  X(id) X(name) X(tool) X(step) X(location) X(module) X(host_ns) X(error) X(recompute) X(kind) X(begin_ns) \
  X(duration_ns) X(device_ns) X(signature) X(round) X(complete) X(nan) X(inf) X(verdict) X(what) X(path) X(bytes) \
  X(event) X(text)
// clang-format on
#define ENGINE_KEY_DECLARE(name) extern uint32_t engine_key_##name;
ENGINE_KEY_LIST(ENGINE_KEY_DECLARE)
#undef ENGINE_KEY_DECLARE

/// The process's writer, NULL when no log is open.
struct dit_record_writer *engine_log_get(void);
/// Start a record of a call in the thread's builder: id, name, tool, step, location, module, recompute. NULL when no
/// log is open or memory is exhausted. Nothing may call back into Python between begin and commit, except
/// engine_log_leaves.
struct dit_record_builder *engine_log_begin(const struct engine_tool *tool, const struct engine_call *call,
                                            uint16_t type);
struct dit_record_builder *engine_log_begin_backward(const struct engine_tool *tool,
                                                     const struct engine_backward *backward, uint16_t type);
/// One field per leaf.
void engine_log_leaves(struct dit_record_builder *builder, const struct engine_leaves *leaves);
void engine_log_tensor(struct dit_record_builder *builder, uint32_t key, const struct engine_tensor *tensor);
/// "grad_out.0" ... and "grad_in.0" ... of a backward event.
void engine_log_gradients(struct dit_record_builder *builder, const struct engine_backward *backward);
void engine_log_commit(struct dit_record_builder *builder);
/// A free text, type note.
void engine_log_note(const char *text);

#endif
