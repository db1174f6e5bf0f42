// CUDA's words for one CPU thread, so that the kernels run where there is no GPU: every thread of a
// block is a coroutine, which gives way where the block or its warp meets.
// Few headers: every kernel is compiled with them, and <algorithm> and <vector> take longer than it.
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#define __device__
#define __global__
#define __shared__
#define __launch_bounds__(...)

struct Index {
  int x;
};
static Index threadIdx, blockIdx;
template <class Value>
static Value max(Value a, Value b) { return a < b ? b : a; }
template <class Value>
static Value min(Value a, Value b) { return b < a ? b : a; }
static long long max(long long a, int b) { return a > b ? a : b; }

namespace host {

enum class At { RUNNING, WARP, BLOCK, DONE };
struct Thread {
  ucontext_t context;
  char stack[1 << 16];
  At at;
  unsigned mask;         // whom it waits for
  unsigned long long given[2];  // what it gave the last two meetings, in turn
  int meetings;
};
static Thread threads[1024];
static int block_size;
static ucontext_t scheduler;
static int votes, votes_before;

static Thread& self() { return threads[threadIdx.x]; }

static void wait(At at, unsigned mask) {
  const int t = threadIdx.x;
  threads[t].at = at, threads[t].mask = mask;
  swapcontext(&threads[t].context, &scheduler);
  threadIdx.x = t;
}

// What all lanes of `mask` gave, by lane.
template <class Value>
static auto meet(unsigned mask, Value value) {
  const int turn = self().meetings++ % 2, first = threadIdx.x / 32 * 32;
  self().given[turn] = (unsigned long long)value;
  wait(At::WARP, mask);
  return [turn, first](int lane) { return (Value)threads[first + lane].given[turn]; };
}

template <class Value, class Join>
static Value reduced(unsigned mask, Value value, Join join) {
  auto given = meet(mask, value);
  for (int lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) value = join(value, given(lane));
  return value;
}

static bool warp_meets(int t) {
  for (int lane = 0; lane < 32; ++lane) {
    const Thread& other = threads[t / 32 * 32 + lane];
    if (threads[t].mask >> lane & 1 && (other.at != At::WARP || other.mask != threads[t].mask))
      return false;
  }
  return true;
}

// Lets waiting threads go on where all for whom they wait have come; whether any can.
static bool release() {
  bool any = false, all = true;
  for (int t = 0; t < block_size; ++t)
    if (threads[t].at == At::WARP && warp_meets(t)) {
      const unsigned mask = threads[t].mask;
      for (int lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1) threads[t / 32 * 32 + lane].at = At::RUNNING;
      any = true;
    }
  for (int t = 0; t < block_size; ++t)
    all &= threads[t].at == At::BLOCK || threads[t].at == At::DONE;
  if (any || !all) return any;
  votes_before = votes, votes = 0;
  for (int t = 0; t < block_size; ++t)
    if (threads[t].at == At::BLOCK) threads[t].at = At::RUNNING, any = true;
  return any;
}

static void run_block(void (*body)()) {
  for (int t = 0; t < block_size; ++t) {
    Thread& thread = threads[t];
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack;
    thread.context.uc_stack.ss_size = sizeof thread.stack;
    thread.context.uc_link = &scheduler;
    thread.at = At::RUNNING, thread.meetings = 0;
    makecontext(&thread.context, body, 0);
  }
  votes = 0;
  do {
    for (int t = 0; t < block_size; ++t)
      if (threads[t].at == At::RUNNING) {
        threadIdx.x = t, threads[t].at = At::DONE;  // unless it waits
        swapcontext(&scheduler, &threads[t].context);
      }
  } while (release());
  for (int t = 0; t < block_size; ++t)
    if (threads[t].at != At::DONE) {
      std::fprintf(stderr, "threads of a block wait for each other\n");
      std::abort();
    }
}

// The kernel, with arguments that `parameters` points at, on blocks of threads, one after another.
template <class... Argument>
static void launch(void (*kernel)(Argument...), int blocks, int block, void** parameters) {
  static void (*called)(Argument...);
  static void** given;
  called = kernel, given = parameters;
  block_size = block;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    run_block([] {
      [&]<size_t... at>(std::index_sequence<at...>) {
        called(*(Argument*)given[at]...);
      }(std::index_sequence_for<Argument...>());
    });
}

}  // namespace host

static void __syncthreads() { host::wait(host::At::BLOCK, 0); }
static int __syncthreads_or(int value) {
  host::votes |= value != 0;
  __syncthreads();
  return host::votes_before;
}
static void __syncwarp(unsigned mask = ~0u) { host::meet(mask, 0); }
static unsigned __ballot_sync(unsigned mask, bool vote) {
  const unsigned own = vote ? 1u << threadIdx.x % 32 : 0u;
  return host::reduced(mask, own, [](unsigned a, unsigned b) { return a | b; });
}
static unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  return host::reduced(mask, value, [](unsigned a, unsigned b) { return a | b; });
}
static unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  auto given = host::meet(mask, value);
  unsigned sum = 0;
  for (int lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) sum += given(lane);
  return sum;
}
template <class Value>
static Value __reduce_min_sync(unsigned mask, Value value) {
  return host::reduced(mask, value, [](Value a, Value b) { return min(a, b); });
}
template <class Value>
static Value __reduce_max_sync(unsigned mask, Value value) {
  return host::reduced(mask, value, [](Value a, Value b) { return max(a, b); });
}
template <class Value>
static Value __shfl_sync(unsigned mask, Value value, int lane) {
  return host::meet(mask, value)(lane);
}
template <class Value>
static Value __shfl_up_sync(unsigned mask, Value value, int step) {
  return host::meet(mask, value)(max(0, threadIdx.x % 32 - step));
}
template <class Value>
static Value __shfl_xor_sync(unsigned mask, Value value, int step) {
  return host::meet(mask, value)(threadIdx.x % 32 ^ step);
}
template <class Value>
static void atomicAdd(Value* at, Value value) {
  *at += value;
}
template <class Value>
static void atomicOr(Value* at, Value value) {
  *at |= value;
}
template <class Value>
static void atomicMax(Value* at, Value value) {
  *at = max(*at, value);
}
static int __popc(unsigned value) { return __builtin_popcount(value); }
static int __clz(int value) { return value ? __builtin_clz(value) : 32; }
static int __ffs(int value) { return __builtin_ffs(value); }

alignas(16) unsigned long long room[(227 << 10) / 8];  // shared memory
#include KERNEL
extern "C" void launch(int blocks, int block, void** parameters) {
  host::launch(plan, blocks, block, parameters);
}
