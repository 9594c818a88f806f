/// Blocks of threads in one thread: fibers that give way at barriers and shuffles (see emulator.h).
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "emulator.h"

#define MAX_THREADS 1024
#define STACK_SIZE ((size_t)128 << 10)
#define SHARED_SIZE ((size_t)228 << 10)

enum state { RUNNABLE, AT_BLOCK, AT_WARP, DONE };

struct fiber {
  ucontext_t context;
  enum state state;
  unsigned exchanges;
};

struct emulator_dim threadIdx, blockIdx, blockDim, gridDim;

static struct fiber fibers[MAX_THREADS];
static ucontext_t scheduler;
static char *stacks;
static unsigned current, thread_count;
static const struct emulated_kernel *running;
static const void *argument;
static uint64_t slots[MAX_THREADS / 32][2][32];
static _Alignas(128) char shared_memory[SHARED_SIZE];

static void give_way(enum state state) {
  fibers[current].state = state;
  swapcontext(&fibers[current].context, &scheduler);
}

void emulator_wait_block(void) {
  give_way(AT_BLOCK);
}

void emulator_wait_warp(void) {
  give_way(AT_WARP);
}

void *emulator_get_shared(void) {
  return shared_memory;
}

uint64_t *emulator_get_slots(void) {
  return slots[current / 32][fibers[current].exchanges++ % 2];
}

unsigned emulator_get_lane(void) {
  return current % 32;
}

unsigned emulator_get_lanes(void) {
  const unsigned left = thread_count - current / 32 * 32;
  return left < 32 ? left : 32;
}

static bool trapped;

void emulator_trap(void) {
  trapped = true;
}

static void set_thread(unsigned number) {
  current = number;
  threadIdx.x = number % blockDim.x;
  threadIdx.y = number / blockDim.x % blockDim.y;
  threadIdx.z = number / blockDim.x / blockDim.y;
}

static void start_fiber(void) {
  running->run(argument);
  fibers[current].state = DONE;
}

/// Are all threads of [first, end) that still run in this state? At least one is.
static bool is_all(unsigned first, unsigned end, enum state state) {
  bool any = false;
  for (unsigned i = first; i < end; i++) {
    if (fibers[i].state != state && fibers[i].state != DONE) {
      return false;
    }
    any = any || fibers[i].state == state;
  }
  return any;
}

static bool release(unsigned first, unsigned end, enum state state) {
  if (!is_all(first, end, state)) {
    return false;
  }
  for (unsigned i = first; i < end; i++) {
    fibers[i].state = fibers[i].state == state ? RUNNABLE : fibers[i].state;
  }
  return true;
}

static bool run_fibers(void) {
  for (unsigned i = 0; i < thread_count; i++) {
    getcontext(&fibers[i].context);
    fibers[i].context.uc_stack.ss_sp = stacks + STACK_SIZE * i;
    fibers[i].context.uc_stack.ss_size = STACK_SIZE;
    fibers[i].context.uc_link = &scheduler;
    fibers[i].state = RUNNABLE;
    fibers[i].exchanges = 0;
    makecontext(&fibers[i].context, start_fiber, 0);
  }
  for (;;) {
    bool moved = false, left = false;
    for (unsigned i = 0; i < thread_count; i++) {
      if (fibers[i].state == RUNNABLE) {
        set_thread(i);
        swapcontext(&scheduler, &fibers[i].context);
        moved = true;
      }
      left = left || fibers[i].state != DONE;
    }
    if (!left) {
      return true;
    }
    for (unsigned first = 0; first < thread_count; first += 32) {
      moved = release(first, first + 32 < thread_count ? first + 32 : thread_count, AT_WARP) || moved;
    }
    moved = release(0, thread_count, AT_BLOCK) || moved;
    if (!moved) {
      return false;
    }
  }
}

static bool run_block(void) {
  // what the last block left must not look like zeros
  memset(shared_memory, 0xA5, sizeof shared_memory < 4096 ? sizeof shared_memory : 4096);
  if (running->has_barriers) {
    return run_fibers();
  }
  for (unsigned i = 0; i < thread_count; i++) {
    set_thread(i);
    running->run(argument);
  }
  return true;
}

int emulator_run(const struct emulated_kernel *kernel, struct emulator_dim grid, struct emulator_dim block,
                 size_t shared, const void *parameter) {
  if (!stacks) {
    stacks = mmap(NULL, STACK_SIZE * MAX_THREADS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
  }
  thread_count = block.x * block.y * block.z;
  if (stacks == MAP_FAILED || thread_count == 0 || thread_count > MAX_THREADS || shared > SHARED_SIZE) {
    return 0;
  }
  running = kernel;
  argument = parameter;
  blockDim = block;
  gridDim = grid;
  trapped = false;
  // from the last to the first: a kernel that counts on an order of its blocks shows
  for (unsigned z = grid.z; z-- > 0;) {
    for (unsigned y = grid.y; y-- > 0;) {
      for (unsigned x = grid.x; x-- > 0;) {
        blockIdx.x = x;
        blockIdx.y = y;
        blockIdx.z = z;
        if (!run_block()) {
          return 0;
        }
      }
    }
  }
  return !trapped;
}
