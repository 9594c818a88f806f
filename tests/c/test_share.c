/// Device memory between processes: the same bytes on both sides, kept as long as somebody needs them, nothing lost
/// while a block becomes shareable.
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_test.h"
#include "dit/share.h"
#include "dit/thread.h"

#define MIB ((size_t)1 << 20)

static struct dit_error err;

// The other process: obeys one command at a time

enum command { RECEIVE, CLOSE, DISMISS, READ, WRITE, DIE };

struct request {
  enum command command;
  struct dit_share_message message;
  size_t index;
  uint32_t value;
};

struct reply {
  enum dit_status status;
  uint32_t value;
  char message[256];
};

struct peer {
  pid_t pid;
  int to, from;
};

static void transfer(int fd, void *bytes, size_t size, bool writing) {
  for (char *at = bytes; size > 0;) {
    ssize_t done = writing ? write(fd, at, size) : read(fd, at, size);
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      _exit(9);  // the other side is gone
    }
    at += done;
    size -= (size_t)done;
  }
}

static void serve(int from, int to) {
  struct dit_share_import *import = NULL;
  void *ptr = NULL;
  struct request request;
  start_host(NULL);
  for (;;) {
    struct reply reply = {.status = DIT_OK};
    struct dit_error error = {0};
    transfer(from, &request, sizeof request, false);
    uint32_t *words = ptr;
    switch (request.command) {
      case RECEIVE:
        reply.status = dit_share_receive(&request.message, 0, &import, &ptr, &error);
        break;
      case CLOSE:
        dit_share_close(import);
        import = NULL;
        break;
      case DISMISS:
        reply.status = dit_share_dismiss(&request.message.counters, request.message.ticket, &error);
        break;
      case READ:
        reply.value = words[request.index];
        break;
      case WRITE:
        words[request.index] = request.value;
        break;
      case DIE:
        kill(getpid(), SIGKILL);
        break;
    }
    snprintf(reply.message, sizeof reply.message, "%.255s", error.message);
    transfer(to, &reply, sizeof reply, true);
  }
}

/// Must be called before this process has used the device.
static struct peer peer_start(void) {
  int to[2], from[2];
  dit_runtime_shutdown();
  CHECK(pipe(to) == 0 && pipe(from) == 0);
  fflush(stdout);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    close(to[1]);
    close(from[0]);
    serve(to[0], from[1]);
  }
  close(to[0]);
  close(from[1]);
  return (struct peer){pid, to[1], from[0]};
}

static struct reply peer_ask(struct peer *peer, struct request request) {
  struct reply reply;
  transfer(peer->to, &request, sizeof request, true);
  transfer(peer->from, &reply, sizeof reply, false);
  return reply;
}

static void peer_end(struct peer *peer) {
  close(peer->to);
  close(peer->from);
  kill(peer->pid, SIGKILL);
  CHECK(waitpid(peer->pid, NULL, 0) == peer->pid);
}

static void peer_kill(struct peer *peer) {
  struct request request = {.command = DIE};
  transfer(peer->to, &request, sizeof request, true);
  peer_end(peer);
}

// This process: sends

static int released;

static void on_release(void *context) {
  released++;
  dit_memory_free(context);
}

static uint32_t *take_words(size_t size) {
  void *ptr = NULL;
  CHECK_OK(dit_memory_alloc(0, 0, size, &ptr, &err));
  return ptr;
}

static struct dit_share *share_words(uint32_t *words, size_t size) {
  struct dit_share *share = NULL;
  released = 0;
  CHECK_OK(dit_share_create(0, words, size, on_release, words, &share, &err));
  return share;
}

static struct dit_share_message send_to(struct dit_share *share, struct peer *peer) {
  struct dit_share_message message;
  CHECK_OK(dit_share_send(share, &message, &err));
  struct reply reply = peer_ask(peer, (struct request){.command = RECEIVE, .message = message});
  if (reply.status != DIT_OK) {
    fprintf(stderr, "%s\n", reply.message);
  }
  CHECK(reply.status == DIT_OK);
  return message;
}

static uint32_t peer_read(struct peer *peer, size_t index) {
  return peer_ask(peer, (struct request){.command = READ, .index = index}).value;
}

static void test_both_processes_see_one_memory(void) {
  struct peer peer = peer_start();
  start_host(NULL);
  size_t sizes[] = {512, 3 * MIB, 25 * MIB};
  for (int i = 0; i < 3; i++) {
    size_t last = sizes[i] / 4 - 1;
    uint32_t *before = take_words(512), *words = take_words(sizes[i]), *behind = take_words(512);
    before[127] = 11;
    words[0] = 22;
    words[last] = 33;
    behind[0] = 44;
    struct dit_share *share = share_words(words, sizes[i]);
    CHECK(before[127] == 11 && words[0] == 22 && words[last] == 33 && behind[0] == 44);
    send_to(share, &peer);
    CHECK(peer_read(&peer, 0) == 22 && peer_read(&peer, last) == 33 && peer_read(&peer, last / 2) == words[last / 2]);
    words[last] = 55;
    CHECK(peer_read(&peer, last) == 55);
    peer_ask(&peer, (struct request){.command = WRITE, .index = 1, .value = 66});
    CHECK(words[1] == 66);
    peer_ask(&peer, (struct request){.command = CLOSE});
    dit_share_destroy(share);
    CHECK(released == 1);
    dit_memory_free(before);
    dit_memory_free(behind);
    CHECK_OK(dit_memory_empty_cache(0, &err));
  }
  peer_end(&peer);
}

static void test_memory_waits_for_its_receivers(void) {
  struct peer peer = peer_start(), other = peer_start();
  start_host(NULL);
  uint32_t *words = take_words(1000);
  struct dit_share *share = share_words(words, 1000);
  words[7] = 7;
  send_to(share, &peer);
  send_to(share, &other);
  CHECK(dit_share_count_unreceived() == 0);
  dit_share_destroy(share);
  CHECK(released == 0 && dit_share_collect() == 0);
  uint32_t *next = take_words(1000);
  CHECK(next != words);  // not handed out again
  peer_ask(&peer, (struct request){.command = CLOSE});
  CHECK(dit_share_collect() == 0 && released == 0 && peer_read(&other, 7) == 7);
  peer_ask(&other, (struct request){.command = CLOSE});
  CHECK(dit_share_collect() == 1 && released == 1);
  dit_memory_free(next);
  peer_end(&peer);
  peer_end(&other);
}

static void test_a_receiver_that_dies_frees_what_it_held(void) {
  struct peer peer = peer_start();
  start_host(NULL);
  struct dit_share *share = share_words(take_words(100), 100);
  send_to(share, &peer);
  dit_share_destroy(share);
  CHECK(dit_share_collect() == 0 && released == 0);
  peer_kill(&peer);
  CHECK(dit_share_collect() == 1 && released == 1);
}

static void test_a_sender_that_ends(void) {
  struct peer peer = peer_start();
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  pid_t sender = fork();
  if (sender == 0) {
    start_host(NULL);
    struct dit_share_message messages[2];
    uint32_t *words = take_words(100);
    words[0] = 5;
    struct dit_share *share = share_words(words, 100);
    CHECK_OK(dit_share_send(share, &messages[0], &err));
    CHECK_OK(dit_share_send(share, &messages[1], &err));
    CHECK(dit_share_count_unreceived() == 2);
    transfer(pipes[1], messages, sizeof messages, true);
    pause();
  }
  struct dit_share_message messages[2];
  transfer(pipes[0], messages, sizeof messages, false);
  CHECK(peer_ask(&peer, (struct request){.command = RECEIVE, .message = messages[0]}).status == DIT_OK);
  kill(sender, SIGKILL);
  CHECK(waitpid(sender, NULL, 0) == sender);
  CHECK(peer_read(&peer, 0) == 5);  // what was received lives on
  start_host(NULL);                 // this process never had the counter file open
  struct dit_share_import *import = NULL;
  void *ptr = NULL;
  CHECK(dit_share_receive(&messages[1], 0, &import, &ptr, &err) == DIT_ERR_IO && !import && !ptr);
  CHECK_CONTAINS(err.message, "has ended");
  close(pipes[0]);
  close(pipes[1]);
  peer_end(&peer);
}

static void test_a_message_is_received_once(void) {
  struct peer peer = peer_start();
  start_host(NULL);
  struct dit_share *share = share_words(take_words(100), 100);
  struct dit_share_message message = send_to(share, &peer);
  struct dit_share_import *import = NULL;
  void *ptr = NULL;
  CHECK(dit_share_receive(&message, 0, &import, &ptr, &err) == DIT_ERR_INVALID && !import);
  CHECK_CONTAINS(err.message, "received before");
  CHECK_OK(dit_share_send(share, &message, &err));
  CHECK(peer_ask(&peer, (struct request){.command = DISMISS, .message = message}).status == DIT_OK);
  CHECK(dit_share_receive(&message, 0, &import, &ptr, &err) == DIT_ERR_INVALID);
  peer_ask(&peer, (struct request){.command = CLOSE});
  dit_share_destroy(share);
  CHECK(released == 1);
  CHECK(dit_share_receive(&message, 0, &import, &ptr, &err) == DIT_ERR_INVALID);
  peer_end(&peer);
}

static void test_one_process_is_both(void) {
  start_host((const char *const[]){"host_devices", "2", NULL});
  uint32_t *words = take_words(100);
  struct dit_share *share = share_words(words, 100);
  struct dit_share_message message;
  struct dit_share_import *import = NULL;
  void *ptr = NULL;
  int device = -1;
  CHECK_OK(dit_share_send(share, &message, &err));
  CHECK_OK(dit_share_receive(&message, 1, &import, &ptr, &err));
  words[3] = 9;
  CHECK(ptr != words && ((uint32_t *)ptr)[3] == 9);
  CHECK(dit_share_find((char *)ptr + 50, &device) && device == 1 && !dit_share_find(words, &device));
  dit_share_destroy(share);
  CHECK(released == 0);
  dit_share_close(import);
  CHECK(!dit_share_find(ptr, &device) && dit_share_collect() == 1 && released == 1);
  dit_share_close(NULL);
  dit_share_destroy(NULL);
}

static void test_closing_after_a_shutdown(void) {
  start_host(NULL);
  struct dit_share *share = share_words(take_words(100), 100);
  struct dit_share_message message;
  struct dit_share_import *import = NULL;
  void *ptr = NULL;
  CHECK_OK(dit_share_send(share, &message, &err));
  CHECK_OK(dit_share_receive(&message, 0, &import, &ptr, &err));
  dit_runtime_shutdown();
  dit_share_close(import);
  dit_share_destroy(share);
  CHECK(released == 1 && dit_share_collect() == 0);
}

static void test_bad_messages(void) {
  start_host(NULL);
  struct dit_share *share = share_words(take_words(100), 100);
  struct dit_share_message good, bad;
  struct dit_share_import *import = NULL;
  void *ptr = NULL;
  uint64_t wrong[][2] = {{0, 0}, {0, UINT64_MAX}, {UINT64_MAX, 1}, {2 * MIB, 1}, {1, 2 * MIB}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    CHECK_OK(dit_share_send(share, &good, &err));
    bad = good;
    bad.offset = wrong[i][0];
    bad.size = wrong[i][1];
    CHECK(dit_share_receive(&bad, 0, &import, &ptr, &err) == DIT_ERR_CORRUPT && !import && !ptr);
  }
  CHECK_OK(dit_share_send(share, &good, &err));
  bad = good;
  bad.counters = (struct dit_peer_handle){{0}};
  CHECK(dit_share_receive(&bad, 0, &import, &ptr, &err) == DIT_ERR_CORRUPT);
  bad = good;
  memcpy(bad.counters.bytes, good.memory.bytes, sizeof bad.counters);  // a file, but not a counter file
  CHECK(dit_share_receive(&bad, 0, &import, &ptr, &err) == DIT_ERR_CORRUPT);
  CHECK_CONTAINS(err.message, "counter file");
  bad = good;
  bad.ticket = UINT64_MAX;
  CHECK(dit_share_receive(&bad, 0, &import, &ptr, &err) == DIT_ERR_INVALID);
  CHECK(dit_share_receive(&good, 1, &import, &ptr, &err) == DIT_ERR_ORDINAL);
  CHECK_OK(dit_share_receive(&good, 0, &import, &ptr, &err));
  dit_share_close(import);
  dit_share_destroy(share);
  CHECK(released == 1);
  CHECK(dit_share_create(0, &good, 1, on_release, NULL, &share, &err) == DIT_ERR_INVALID);  // no device memory
}

static void test_small_vendor_blocks_are_refused(void) {
  start_host(NULL);
  CHECK_OK(dit_memory_configure("backend:raw", &err));
  uint32_t *small = take_words(4096), *large = take_words(2 * MIB);
  struct dit_share *share = NULL;
  CHECK(dit_share_create(0, small, 4096, on_release, small, &share, &err) == DIT_ERR_UNSUPPORTED && !share);
  CHECK_CONTAINS(err.message, "DITORCH_ALLOCATOR=torch");
  share = share_words(large, 2 * MIB);
  dit_share_destroy(share);
  CHECK(released == 1);
  dit_memory_free(small);
  CHECK_OK(dit_memory_configure(NULL, &err));
}

static void test_host_memory_runs_out(void) {
  start_host(NULL);
  uint32_t *words = take_words(100);
  struct dit_share *share = NULL;
  struct dit_share_message message;
  struct dit_share_import *import = NULL;
  void *ptr = NULL;
  enum dit_status status = DIT_ERR_NOMEM;
  for (int n = 0; status == DIT_ERR_NOMEM; n++) {
    dit_alloc_set_failure(n);
    status = dit_share_create(0, words, 100, on_release, words, &share, &err);
    CHECK(status == DIT_OK || (status == DIT_ERR_NOMEM && !share));
  }
  for (int n = 0; n == 0 || status == DIT_ERR_NOMEM; n++) {
    dit_alloc_set_failure(n);
    status = dit_share_send(share, &message, &err);
    CHECK(status == DIT_OK || status == DIT_ERR_NOMEM);
  }
  for (int n = 0; n == 0 || status == DIT_ERR_NOMEM; n++) {
    dit_alloc_set_failure(n);
    status = dit_share_receive(&message, 0, &import, &ptr, &err);
    dit_alloc_set_failure(-1);
    if (status == DIT_ERR_NOMEM) {
      CHECK(!import && !ptr);
      CHECK_OK(dit_share_send(share, &message, &err));  // the failed one may have used its ticket up
    }
  }
  CHECK(status == DIT_OK);
  released = 0;
  dit_share_close(import);
  dit_share_destroy(share);
  dit_share_count_unreceived();
}

// No write is lost while a block becomes shareable

#define WRITERS 3
#define SPAN (6 * MIB / sizeof(uint64_t))

struct writer {
  pthread_t thread;
  _Atomic uint64_t *words;
  size_t first;
  _Atomic bool *stop;
  uint64_t rounds;
};

static void *count_up(void *context) {
  struct writer *writer = context;
  while (!atomic_load_explicit(writer->stop, memory_order_relaxed)) {
    for (size_t i = writer->first; i < SPAN; i += 512 * WRITERS) {  // every page, each writer its own words
      atomic_store_explicit(&writer->words[i], atomic_load_explicit(&writer->words[i], memory_order_relaxed) + 1,
                            memory_order_relaxed);
    }
    writer->rounds++;
  }
  return NULL;
}

static void test_no_write_is_lost(void) {
  start_host(NULL);
  for (int attempt = 0; attempt < 30; attempt++) {
    void *ptr = take_words(SPAN * sizeof(uint64_t));
    memset(ptr, 0, SPAN * sizeof(uint64_t));
    _Atomic bool stop = false;
    struct writer writers[WRITERS];
    for (size_t w = 0; w < WRITERS; w++) {
      writers[w] = (struct writer){.words = ptr, .first = w * 512, .stop = &stop};
      CHECK(dit_thread_create(&writers[w].thread, count_up, &writers[w]) == 0);  // as kernels run
    }
    struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
    struct dit_share *share = share_words(ptr, SPAN * sizeof(uint64_t));
    nanosleep(&pause, NULL);
    atomic_store(&stop, true);
    for (size_t w = 0; w < WRITERS; w++) {
      CHECK(pthread_join(writers[w].thread, NULL) == 0);
      for (size_t i = writers[w].first; i < SPAN; i += 512 * WRITERS) {
        CHECK(atomic_load(&writers[w].words[i]) == writers[w].rounds);
      }
    }
    dit_share_destroy(share);
    CHECK_OK(dit_memory_empty_cache(0, &err));  // the next attempt gets a block that was never shared
  }
}

/// On a busy machine the handler may hear of a fault when its piece, and many after it, have been done for long.
static void test_a_late_fault_is_repeated(void) {
  start_host(NULL);
  uint32_t *words = take_words(40 * MIB);
  struct dit_share *share = share_words(words, 40 * MIB);
  struct sigaction before, after;
  CHECK(sigaction(SIGSEGV, NULL, &before) == 0 && (before.sa_flags & SA_SIGINFO));
  siginfo_t fault = {.si_signo = SIGSEGV, .si_code = SEGV_ACCERR};
  fault.si_addr = words + MIB / 8;
  before.sa_sigaction(SIGSEGV, &fault, NULL);
  CHECK(sigaction(SIGSEGV, NULL, &after) == 0);
  CHECK((after.sa_flags & SA_SIGINFO) && after.sa_sigaction == before.sa_sigaction);  // not given up
  dit_share_destroy(share);
}

/// A fault that is not ours still reaches the handler that was there before.
static void test_other_faults_are_passed_on(void) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    volatile int *volatile nowhere = NULL;
    *nowhere = 1;
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(!(WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

int main(void) {
  RUN(test_both_processes_see_one_memory);
  RUN(test_memory_waits_for_its_receivers);
  RUN(test_a_receiver_that_dies_frees_what_it_held);
  RUN(test_a_sender_that_ends);
  RUN(test_a_message_is_received_once);
  RUN(test_one_process_is_both);
  RUN(test_closing_after_a_shutdown);
  RUN(test_bad_messages);
  RUN(test_small_vendor_blocks_are_refused);
  RUN(test_host_memory_runs_out);
  RUN(test_no_write_is_lost);
  RUN(test_a_late_fault_is_repeated);
  RUN(test_other_faults_are_passed_on);
  dit_runtime_shutdown();
  return 0;
}
