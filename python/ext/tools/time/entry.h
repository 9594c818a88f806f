/// A measurement on its way: events, the queue in which it waits for the device, its record.
///
/// An entry is in the queue, on the idle list, open in one kept window, or in the hands of one call; entries in the
/// queue hold two recorded events. Entries and events are pooled. All functions need the GIL; waiting drops it.
#ifndef DIT_EXT_TOOLS_TIME_ENTRY_H
#define DIT_EXT_TOOLS_TIME_ENTRY_H

#include "dit/record.h"
#include "tools/device.h"
#include "tools/time/table.h"

/// One measurement on its way.
struct time_entry {
  struct time_entry *next;
  struct time_row *row;
  struct tools_source *source;  // NULL: inline, or no device time to be had
  void *begin, *end;            // events
  int64_t host_begin, host_ns;
  int32_t round;      // of an open backward
  int16_t device;     // site of the events
  uint8_t place;      // likewise, enum engine_place
  uint8_t direction;  // enum time_direction
  bool inline_clock;  // the host clock is the device's
  bool remembered;    // the device was guessed from earlier calls
  bool has_record;    // `builder` holds a record without device_ns
  struct dit_record_builder builder;
};

/// What a call's window keeps for its backward.
struct time_kept {
  struct time_row *row;
  struct time_entry *open;  // rounds that have begun
};

struct time_state {
  struct time_table table;
  struct tools_sources sources;
  struct time_entry *head, *tail, *idle;
  int64_t pending, pending_max;
  struct tools_site last;  // the device seen last, for calls that have no tensor on it yet
  bool sync, use_torch, leaves, backward, log;
  // share of the wall time
  int64_t mark_ns, wall_ns, steps;
  int64_t step;  // of the engine, that goes on
  bool running, seen;
  // what could not be measured
  int64_t incomplete, unmeasured, failed_events;
};

/// NULL without memory.
struct time_entry *time_entry_take(struct time_state *state);
/// Back to the idle list, its events to their pool; `spoiled` events are destroyed.
void time_entry_give(struct time_state *state, struct time_entry *entry, bool spoiled);
/// Get both events for the site, or none: then the entry has no source and its device time is the host's or unknown.
void time_entry_arm(struct time_state *state, struct time_entry *entry, const struct tools_site *site);
void time_entry_drop_events(struct time_entry *entry);
/// Start the device's clock; with `sync`, wait for the stream first.
void time_entry_begin(struct time_state *state, struct time_entry *entry, const struct tools_site *site);
/// Stop it. With `sync`, wait: then the host's clock has the time.
void time_entry_end(struct time_state *state, struct time_entry *entry, const struct tools_site *site);
/// Measured: into the table and the log, or into the queue while the device is not there yet. Takes the entry.
void time_entry_close(struct time_state *state, struct time_entry *entry);

/// The record, without its device time, is built in the entry: its arguments before the call, which may resize them,
/// the rest after it. NULL: no call, for a backward.
void time_record_begin(const struct time_state *state, struct time_entry *entry, const struct engine_call *call);
void time_record_forward(const struct time_state *state, struct time_entry *entry, const struct engine_call *call);
/// The whole record.
void time_record_backward(const struct time_state *state, struct time_entry *entry,
                          const struct engine_backward *backward);

enum time_drain {
  TIME_DRAIN_PASSED,  ///< what has passed
  TIME_DRAIN_HALF,    ///< at least half of the queue, waiting when nothing has passed
  TIME_DRAIN_ALL,     ///< everything, waiting
};
void time_queue_drain(struct time_state *state, enum time_drain drain);

#endif
