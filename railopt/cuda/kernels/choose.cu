// The slot of each choice of an expert with copies, a block for each expert: its choices, in order,
// first to its first copy, as many as its share of them (SlotTable.quotas).
//
// weights, slot, turn   [experts, COPIES]: of each copy; weight 0: there is none
#include "block.cuh"

struct Choices {
  const i64* chosen;
  const i64 *weights, *slot, *turn;
  i64* slots;
  u64* status;
  int count, experts;
};

struct Shared {
  u32 space[32];
  u64 end[COPIES];  // of a copy's choices
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Choices given) {
  Shared& shared = *(Shared*)(room + ROOM_AT);
  const int t = threadIdx.x, e = blockIdx.x;
  u32 own = 0, all;
  for (int i = t; i < given.count; i += THREADS) {
    const i64 chosen = given.chosen[i];
    own += chosen == e;
    if (e == 0 && (chosen < 0 || chosen >= given.experts)) {
      given.slots[i] = -1;
      if (chosen != -1) atomicOr(given.status, (u64)1);
    }
  }
  sum_before(own, shared.space, all);
  if (t == 0) {
    const i64 *weights = given.weights + e * COPIES, *turn = given.turn + e * COPIES;
    i64 whole = 0, rest = all;
    for (int j = 0; j < COPIES; ++j) whole += weights[j];
    for (int j = 0; j < COPIES; ++j) rest -= whole ? all * weights[j] / whole : 0;
    u64 end = 0;
    for (int j = 0; j < COPIES; ++j) {
      end += (whole ? all * weights[j] / whole : 0) + (weights[j] > 0 && turn[j] < rest);
      shared.end[j] = end;
    }
  }
  __syncthreads();
  u32 reached = 0;
  for (int from = 0; from < given.count; from += THREADS) {
    const int i = from + t;
    const bool is = i < given.count && given.chosen[i] == e;
    const u32 at = reached + sum_before((u32)is, shared.space, all);
    reached += all;
    __syncthreads();
    if (!is) continue;
    int j = 0;
    while (j + 1 < COPIES && at >= shared.end[j]) ++j;
    given.slots[i] = given.slot[e * COPIES + j];
  }
}
