/// Anonymous files between processes: what is opened is what was meant, and every other case is an error.
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "dit/peer_file.h"

static struct dit_error err;

static void test_both_see_the_same_bytes(void) {
  struct dit_peer_handle handle;
  int mine = -1, theirs = -1;
  size_t size = 0;
  CHECK_OK(dit_peer_file_create(8192, &mine, &handle, &err));
  char *first = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, mine, 0);
  CHECK_OK(dit_peer_file_open(&handle, &theirs, &size, &err));
  CHECK(size == 8192 && theirs != mine);
  char *second = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, theirs, 0);
  CHECK(first != MAP_FAILED && second != MAP_FAILED && first != second && second[8191] == 0);
  first[8191] = 42;
  CHECK(second[8191] == 42);
  CHECK((fcntl(mine, F_GETFD) & FD_CLOEXEC) && (fcntl(theirs, F_GETFD) & FD_CLOEXEC));
  CHECK(ftruncate(theirs, 4096) != 0 && ftruncate(theirs, 16384) != 0);  // a mapping never meets the file's end
  munmap(first, 8192);
  munmap(second, 8192);
  close(theirs);
  close(mine);
}

static void test_a_closed_or_reused_descriptor_is_noticed(void) {
  struct dit_peer_handle handle, other;
  int fd = -1, again = -1, opened = -1;
  size_t size = 0;
  CHECK_OK(dit_peer_file_create(4096, &fd, &handle, &err));
  close(fd);
  CHECK(dit_peer_file_open(&handle, &opened, &size, &err) == DIT_ERR_IO && strstr(err.message, "given the shared"));
  CHECK_OK(dit_peer_file_create(4096, &again, &other, &err));
  CHECK(again == fd);  // the number is used again, by another file
  CHECK(dit_peer_file_open(&handle, &opened, &size, &err) == DIT_ERR_IO && opened == -1 && size == 0);
  close(again);
  again = open("/dev/null", O_RDWR);
  CHECK(again == fd && dit_peer_file_open(&handle, &opened, &size, &err) == DIT_ERR_IO && opened == -1);
  close(again);
}

static void test_an_owner_that_ended_is_named(void) {
  int pipes[2], opened = -1;
  struct dit_peer_handle handle;
  size_t size = 0;
  CHECK(pipe(pipes) == 0);
  pid_t child = fork();
  if (child == 0) {
    int fd = -1;
    bool made = dit_peer_file_create(4096, &fd, &handle, &err) == DIT_OK;
    _exit(made && write(pipes[1], &handle, sizeof handle) == (ssize_t)sizeof handle ? 0 : 1);
  }
  CHECK(read(pipes[0], &handle, sizeof handle) == (ssize_t)sizeof handle);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(dit_peer_file_open(&handle, &opened, &size, &err) == DIT_ERR_IO);
  char number[32];
  snprintf(number, sizeof number, "process %ld", (long)child);
  CHECK(strstr(err.message, number) && strstr(err.message, "has ended") && opened == -1);
  close(pipes[0]);
  close(pipes[1]);
}

static void test_bytes_that_are_no_handle(void) {
  struct dit_peer_handle handle, changed;
  int fd = -1, opened = -1;
  size_t size = 0;
  CHECK_OK(dit_peer_file_create(4096, &fd, &handle, &err));
  for (size_t i = 0; i < sizeof handle.bytes; i++) {
    changed = handle;
    changed.bytes[i] ^= 0x80;
    enum dit_status status = dit_peer_file_open(&changed, &opened, &size, &err);
    CHECK(status == DIT_ERR_CORRUPT || status == DIT_ERR_IO);
    CHECK(opened == -1);
  }
  memset(&changed, 0, sizeof changed);
  CHECK(dit_peer_file_open(&changed, &opened, &size, &err) == DIT_ERR_CORRUPT && strstr(err.message, "no handle"));
  CHECK(dit_peer_file_open(&changed, &opened, &size, NULL) == DIT_ERR_CORRUPT);
  CHECK(dit_peer_file_create(0, &opened, &changed, &err) == DIT_ERR_INVALID && opened == -1);
  close(fd);
}

int main(void) {
  RUN(test_both_see_the_same_bytes);
  RUN(test_a_closed_or_reused_descriptor_is_noticed);
  RUN(test_an_owner_that_ended_is_named);
  RUN(test_bytes_that_are_no_handle);
  return 0;
}
