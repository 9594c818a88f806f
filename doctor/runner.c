/// Runs the checks, each group in a child process, and outlives what a vendor library does to it.
///
/// The parent never loads the library. A child runs a group's checks one after another and ends after the first that is
/// not all right; the rest of the group goes on in a fresh child, so a crash, a hang or an exit costs one check. A
/// check is skipped when a slot that it needs was found wrong before: the slot that is wrong is named, not all that
/// rest on it. Findings lie in shared memory; the pipe says only that the child lives.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "doctor.h"

enum { MOST_CHECKS = 160 };

static const struct check_group *const groups[] = {
    &load_group,   &table_group,      &process_group, &device_group, &stream_group, &memory_group,
    &copy_group,   &host_group,       &async_group,   &event_group,  &order_group,  &thread_group,
    &kernel_group, &collective_group, &share_group,   &end_group,
};

struct shared {
  struct facts facts;
  struct finding findings[MOST_CHECKS];
  bool empty[64];  ///< slots that the library leaves NULL, by number
};

struct runner {
  const struct runner_options *options;
  struct shared *shared;
  int written;  ///< file in memory that stands for standard output and standard error
  char wrong[64][32];
  size_t wrong_count;
  bool no_device;
};

// Output

static void write_text(FILE *out, const char *key, const char *text) {
  fprintf(out, "\"%s\": \"", key);
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\') {
      fprintf(out, "\\%c", *c);
    } else if (*c < 0x20 || *c >= 0x7f) {
      fprintf(out, "\\u%04x", *c);  // bytes of a vendor are of any kind: taken as Latin-1
    } else {
      fputc(*c, out);
    }
  }
  fputc('"', out);
}

static void write_finding(FILE *out, const struct check *check, const struct finding *f) {
  static const char *const states[] = {"none", "running", "ok", "wrong", "skipped", "missing"};
  fputc('{', out);
  write_text(out, "slot", f->slot);
  fputs(", ", out);
  write_text(out, "check", check->title);
  fputs(", ", out);
  write_text(out, "state", states[f->state]);
  if (f->state != FINDING_OK) {
    fputs(", ", out);
    write_text(out, "seen", f->seen);
    fputs(", ", out);
    write_text(out, "expected", f->expected);
    fputs(", ", out);
    write_text(out, "look", f->look);
  }
  fprintf(out, ", \"milliseconds\": %.1f}\n", f->milliseconds);
  fflush(out);
}

static void write_facts(FILE *out, const struct shared *shared) {
  const struct facts *facts = &shared->facts;
  const struct {
    const char *key, *text;
  } texts[] = {
      {"name", facts->name}, {"version", facts->version}, {"path", facts->path}, {"description", facts->description}};
  fputc('{', out);
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    write_text(out, texts[i].key, texts[i].text);
    fputs(", ", out);
  }
  fprintf(out, "\"abi_version\": %u, \"struct_size\": %u, \"devices\": %d, \"queued\": %s, \"slots\": {",
          (unsigned)facts->abi_version, (unsigned)facts->struct_size, facts->devices, facts->queued ? "true" : "false");
  for (size_t i = 0; i < slot_count; i++) {
    write_text(out, slot_infos[i].name, !shared->empty[i] ? "there" : slot_infos[i].required ? "required" : "optional");
    fputs(i + 1 < slot_count ? ", " : "}}\n", out);
  }
}

// The child

static void copy_output(int file, off_t from, char *text, size_t size) {
  const ssize_t length = pread(file, text, size - 1, from);
  text[length > 0 ? length : 0] = '\0';
  for (char *c = text; *c; c++) {
    *c = *c == '\n' || *c == '\r' || *c == '\t' ? ' ' : *c;
  }
}

static off_t get_output_size(int file) {
  struct stat status;
  return fstat(file, &status) == 0 ? status.st_size : 0;
}

static bool prepare(struct bench *b, const struct check *check) {
  if (!(check->flags & CHECK_NOT_LOADED) && !b->handle) {
    snprintf(b->finding->slot, sizeof b->finding->slot, "library");
    TRY(bench_load(b));
  }
  if (!(check->flags & (CHECK_NOT_LOADED | CHECK_NOT_STARTED)) && !b->started) {
    snprintf(b->finding->slot, sizeof b->finding->slot, "init");
    TRY(bench_start(b));
  }
  snprintf(b->finding->slot, sizeof b->finding->slot, "%s", check->slot);
  return true;
}

static void note_slots(struct runner *r, const struct bench *b) {
  for (size_t i = 0; i < slot_count; i++) {
    r->shared->empty[i] = slot_is_empty(&b->v, slot_infos[i].offset);
  }
  if (b->v.describe) {
    char text[sizeof r->shared->facts.description] = "";
    b->v.describe(text, sizeof text - 1);
    snprintf(r->shared->facts.description, sizeof r->shared->facts.description, "%s", text);
  }
}

static bool has_printed(struct runner *r, struct bench *b) {
  char text[256];
  fflush(NULL);
  if (get_output_size(r->written) == 0) {
    return false;
  }
  copy_output(r->written, 0, text, sizeof text);
  return !bench_blame(b, b->finding->slot, "nothing on standard output or standard error",
                      "printf, perror and the vendor runtime's own log", "it printed \"%s\"", text);
}

static bool is_one_of(const char *name, const char *words) {
  const size_t length = strlen(name);
  for (const char *at = words; (at = strstr(at, name)) != NULL; at += length) {
    if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) {
      return true;
    }
  }
  return false;
}

/// Why a check is not run; "" when it is.
static void find_reason(const struct runner *r, const struct check *check, char *reason, size_t size) {
  reason[0] = '\0';
  for (size_t i = 0; i < r->wrong_count && !reason[0]; i++) {
    const char *wrong = r->wrong[i];
    const bool always = slot_find(wrong) == NULL && strcmp(wrong, "name") != 0 && strcmp(wrong, "version") != 0 &&
                        strcmp(wrong, DIT_VENDOR_KERNELS_SYMBOL) != 0;
    const bool start = strcmp(wrong, "init") == 0 || strcmp(wrong, "count") == 0;
    if (always || start || is_one_of(wrong, check->needs)) {
      snprintf(reason, size, "it needs %s, which is wrong", wrong);
    }
  }
  for (size_t i = 0; i < slot_count && !reason[0]; i++) {
    if (r->shared->empty[i] && is_one_of(slot_infos[i].name, check->needs)) {
      snprintf(reason, size, "it needs %s, which is NULL", slot_infos[i].name);
    }
  }
}

/// 1: the check was decided without running it.
static bool decide_early(struct runner *r, const struct check *check, struct finding *f) {
  const struct slot_info *slot = slot_find(check->slot);
  snprintf(f->slot, sizeof f->slot, "%s", check->slot);
  if (r->options->only && strcmp(r->options->only, check->slot) != 0 && !(check->flags & CHECK_FIRST)) {
    f->state = FINDING_SKIPPED;
    snprintf(f->seen, sizeof f->seen, "only %s was asked for", r->options->only);
    return true;
  }
  if (check->flags & CHECK_FIRST) {
    return false;
  }
  if (slot && r->shared->empty[slot - slot_infos]) {
    f->state = slot->required ? FINDING_SKIPPED : FINDING_MISSING;
    snprintf(f->seen, sizeof f->seen, "%s", slot->required ? "the slot is NULL" : "(optional)");
    return true;
  }
  find_reason(r, check, f->seen, sizeof f->seen);
  if (f->seen[0]) {
    f->state = FINDING_SKIPPED;
    return true;
  }
  if (r->no_device && !(check->flags & CHECK_NOT_STARTED)) {
    f->state = FINDING_SKIPPED;
    snprintf(f->seen, sizeof f->seen, "there is no device");
    return true;
  }
  return false;
}

/// The child: the group's checks from `first` on, until one is not all right.
static void run_child(struct runner *r, const struct check_group *group, struct finding *findings, size_t first,
                      int progress) {
  struct bench b = {.library = r->options->library,
                    .gentle = r->options->gentle,
                    .timeout = r->options->timeout,
                    .progress = progress,
                    .facts = &r->shared->facts};
  bool right = true;
  dup2(r->written, STDOUT_FILENO);
  dup2(r->written, STDERR_FILENO);
  for (size_t i = first; i < group->count && right; i++) {
    const struct check *check = &group->checks[i];
    if (findings[i].state != FINDING_NONE) {
      continue;
    }
    if (check->flags & CHECK_NOT_STARTED && b.started) {
      break;  // it wants a process of its own
    }
    b.finding = &findings[i];
    b.finding->state = FINDING_RUNNING;
    const double begin = bench_get_seconds();
    right = prepare(&b, check) && check->run(&b) && !has_printed(r, &b);
    b.finding->milliseconds = (bench_get_seconds() - begin) * 1e3;
    b.finding->state = right ? FINDING_OK : FINDING_WRONG;
    if (right && group == &load_group) {
      note_slots(r, &b);
    }
    (void)!write(progress, "", 1);
  }
  _exit(0);
}

// The parent

/// Wait for the child's end. False: nothing was heard of it for the time limit, and it was killed.
static bool follow_child(int progress, pid_t child, double timeout, int *status) {
  struct pollfd poller = {.fd = progress, .events = POLLIN};
  char bytes[64];
  bool in_time = true;
  for (;;) {
    const int ready = poll(&poller, 1, (int)(timeout * 1000));
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    if (ready <= 0) {
      in_time = false;
      break;
    }
    if (read(progress, bytes, sizeof bytes) <= 0) {
      break;
    }
  }
  kill(-child, SIGKILL);  // and whatever it left behind
  while (waitpid(child, status, 0) < 0 && errno == EINTR) {
  }
  return in_time;
}

static bool has_passed(const struct runner *r, const char *slot) {
  bool passed = false;
  for (size_t i = 0; i < MOST_CHECKS && !passed; i++) {
    const struct finding *f = &r->shared->findings[i];
    passed = f->state == FINDING_OK && strcmp(f->slot, slot) == 0;
  }
  return passed;
}

/// A check that was under way when its process ended. A slot that did so before any check of its own has passed is to
/// blame itself; later on it is the slot that the check is about.
static void blame_end(struct runner *r, struct finding *f, bool in_time, int status) {
  char text[200] = "", said[260] = "";
  if (f->calling && !has_passed(r, f->calling)) {
    snprintf(f->slot, sizeof f->slot, "%s", f->calling);
  }
  fflush(NULL);
  copy_output(r->written, 0, text, sizeof text);
  if (text[0]) {
    snprintf(said, sizeof said, "; it printed \"%s\"", text);
  }
  f->state = FINDING_WRONG;
  if (!in_time) {
    snprintf(f->seen, sizeof f->seen, "nothing came back within %.0f s%s", r->options->timeout, said);
    snprintf(f->expected, sizeof f->expected, "an answer");
    snprintf(f->look, sizeof f->look, "a wait that nobody ends, a lock that is held twice (gdb shows where it stands)");
  } else if (WIFSIGNALED(status)) {
    snprintf(f->seen, sizeof f->seen, "the process died of signal %d (%s)%s", WTERMSIG(status),
             strsignal(WTERMSIG(status)), said);
    snprintf(f->expected, sizeof f->expected, "no crash, whatever the arguments are");
    snprintf(f->look, sizeof f->look, "a debugger on this check: ditorch doctor --vendor LIB --only %s", f->slot);
  } else {
    snprintf(f->seen, sizeof f->seen, "the process ended with exit status %d%s", WEXITSTATUS(status), said);
    snprintf(f->expected, sizeof f->expected, "functions return, they do not exit");
    snprintf(f->look, sizeof f->look, "exit, abort and atexit handlers of the library");
  }
}

/// Run one child from the check `first` on. False: no child could be made.
static bool run_process(struct runner *r, const struct check_group *group, struct finding *findings, size_t first) {
  int ends[2];
  if (ftruncate(r->written, 0) != 0 || lseek(r->written, 0, SEEK_SET) != 0 || pipe2(ends, O_CLOEXEC) != 0) {
    return false;
  }
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    close(ends[0]);
    run_child(r, group, findings, first, ends[1]);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return false;
  }
  setpgid(child, child);
  int status = 0;
  const bool in_time = follow_child(ends[0], child, r->options->timeout, &status);
  close(ends[0]);
  for (size_t i = first; i < group->count; i++) {
    if (findings[i].state == FINDING_RUNNING) {
      blame_end(r, &findings[i], in_time, status);
    }
  }
  return true;
}

static void remember_wrong(struct runner *r, const struct finding *f) {
  if (f->state == FINDING_WRONG && r->wrong_count < sizeof r->wrong / sizeof r->wrong[0]) {
    snprintf(r->wrong[r->wrong_count++], sizeof r->wrong[0], "%s", f->slot);
  }
}

/// False: the machine gave no process.
static bool run_group(struct runner *r, const struct check_group *group, struct finding *findings) {
  size_t reported = 0;
  while (reported < group->count) {
    size_t first = group->count;
    for (size_t i = group->count; i-- > reported;) {
      if (findings[i].state == FINDING_NONE && !decide_early(r, &group->checks[i], &findings[i])) {
        first = i;
      }
    }
    if (first < group->count && !run_process(r, group, findings, first)) {
      return false;
    }
    // Up to the next check that has not been decided.
    for (; reported < group->count && findings[reported].state != FINDING_NONE; reported++) {
      remember_wrong(r, &findings[reported]);
      write_finding(r->options->out, &group->checks[reported], &findings[reported]);
    }
  }
  return true;
}

static int get_status(const struct runner *r) {
  if (r->shared->findings[0].state != FINDING_OK) {
    return 2;
  }
  return r->wrong_count > 0 ? 1 : r->no_device ? 3 : 0;
}

int runner_run(const struct runner_options *options) {
  struct runner r = {.options = options};
  r.shared = mmap(NULL, sizeof *r.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  r.written = memfd_create("dit_doctor", MFD_CLOEXEC);
  if (r.shared == MAP_FAILED || r.written < 0) {
    fprintf(stderr, "dit_doctor: no shared memory: %s\n", strerror(errno));
    return 2;
  }
  r.shared->facts.devices = -1;
  size_t first = 0;
  for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
    if (first + groups[i]->count > MOST_CHECKS || !run_group(&r, groups[i], &r.shared->findings[first])) {
      fprintf(stderr, "dit_doctor: no process could be started: %s\n", strerror(errno));
      return 2;
    }
    first += groups[i]->count;
    r.no_device = r.shared->facts.devices == 0;
  }
  write_facts(options->out, r.shared);
  return get_status(&r);
}
