/// CPU shares of devices and local ranks, and that a thread is bound only when asked, inside what the process has.
#include <sched.h>

#include "device/device_internal.h"
#include "device_test.h"

static struct dit_error err;

static void check_share(int device, int devices, int rank, int size, int share, int shares) {
  int got = -1, of = -1;
  dit_affinity_get_share(device, devices, rank, size, &got, &of);
  CHECK(got == share && of == shares);
}

static void test_shares(void) {
  check_share(0, 1, -1, -1, 0, 1);  // one process, one device
  check_share(3, 4, -1, -1, 3, 4);  // one process, four devices
  check_share(2, 4, 2, 4, 2, 4);    // four ranks that see all devices
  check_share(0, 1, 2, 4, 2, 4);    // four ranks that see one device each
  check_share(1, 2, 3, 8, 3, 8);    // eight ranks over two devices
  check_share(0, 2, 9, 8, 0, 2);    // nonsense of the launcher
  check_share(5, 8, 1, 2, 5, 8);    // two ranks with eight devices: by device
}

static void check_cpus(const char *name, const int *cpus, int count, int share, int shares, int64_t cores,
                       const char *wanted) {
  int out[64], got = dit_affinity_choose(cpus, count, share, shares, cores, out);
  char text[256] = "";
  for (int i = 0; i < got; i++) {
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d", i ? " " : "", out[i]);
  }
  if (strcmp(text, wanted) != 0) {
    fprintf(stderr, "%s: got '%s', wanted '%s'\n", name, text, wanted);
    exit(1);
  }
}

static void test_cpus_of_a_share(void) {
  const int eight[] = {0, 1, 2, 3, 4, 5, 6, 7}, cpuset[] = {3, 5, 9, 12, 40};
  check_cpus("first half", eight, 8, 0, 2, 0, "0 1 2 3");
  check_cpus("second half", eight, 8, 1, 2, 0, "4 5 6 7");
  check_cpus("uneven", eight, 8, 2, 3, 0, "4 5");
  check_cpus("cores per device", eight, 8, 1, 2, 3, "3 4 5");
  check_cpus("more cores than there are", eight, 8, 0, 2, 99, "0 1 2 3 4 5 6 7");
  check_cpus("only what the process has", cpuset, 5, 1, 2, 0, "9 12");
  check_cpus("more shares than CPUs", cpuset, 5, 7, 16, 0, "9");
  check_cpus("shares beyond the CPUs begin again", cpuset, 5, 2, 3, 2, "40 3");
  check_cpus("no CPUs", cpuset, 0, 0, 1, 0, "");
}

static cpu_set_t get_mask(void) {
  cpu_set_t mask;
  CHECK(sched_getaffinity(0, sizeof(mask), &mask) == 0);
  return mask;
}

static void test_dipu_25_no_binding_unless_asked(void) {
  cpu_set_t before = get_mask();
  start_host((const char *[]){"host_devices", "2", NULL});
  CHECK_OK(dit_device_set_current(1, &err));
  cpu_set_t after = get_mask();
  CHECK(CPU_EQUAL(&before, &after));
}

static void *get_mask_of_thread(void *argument) {
  CHECK_OK(dit_device_set_current(0, &err));
  *(cpu_set_t *)argument = get_mask();
  return NULL;
}

static void test_dipu_25_binding_stays_inside_the_cpus_of_the_process(void) {
  cpu_set_t before = get_mask(), narrow, joined;
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    last = CPU_ISSET(cpu, &before) ? cpu : last;
  }
  CPU_ZERO(&narrow);
  CPU_SET(last, &narrow);
  dit_runtime_shutdown();
  CHECK(sched_setaffinity(0, sizeof(narrow), &narrow) == 0);  // as taskset or a cpuset would
  start_host((const char *[]){"host_devices", "2", "cpu_affinity", "0", NULL});
  for (int device = 0; device < 2; device++) {
    CHECK_OK(dit_device_set_current(device, &err));
    cpu_set_t now = get_mask();
    CHECK(CPU_EQUAL(&now, &narrow));
  }
  start_host(NULL);
  CHECK(sched_setaffinity(0, sizeof(before), &before) == 0);
  start_host((const char *[]){"host_devices", "2", "cpu_affinity", "1", NULL});
  cpu_set_t bound[2];
  for (int device = 0; device < 2; device++) {
    CHECK_OK(dit_device_set_current(device, &err));
    bound[device] = get_mask();
    CPU_AND(&joined, &bound[device], &before);
    CHECK(CPU_COUNT(&bound[device]) == 1 && CPU_EQUAL(&joined, &bound[device]));
  }
  CHECK(CPU_COUNT(&before) == 1 || !CPU_EQUAL(&bound[0], &bound[1]));
  pthread_t thread;
  cpu_set_t other;
  CHECK(pthread_create(&thread, NULL, get_mask_of_thread, &other) == 0);
  pthread_join(thread, NULL);
  CHECK(CPU_EQUAL(&other, &bound[0]));
  start_host(NULL);  // off again: this thread has its CPUs back
  cpu_set_t after = get_mask();
  CHECK(CPU_EQUAL(&before, &after));
}

int main(void) {
  RUN(test_shares);
  RUN(test_cpus_of_a_share);
  RUN(test_dipu_25_no_binding_unless_asked);
  RUN(test_dipu_25_binding_stays_inside_the_cpus_of_the_process);
  dit_runtime_shutdown();
  return 0;
}
