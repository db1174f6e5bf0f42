// The units of a rank in the order of exchange 1, and what it tells others of them: a block for each
// node that they go to.
//
// list      [NODES, stride]: the tokens of each node's units, in order; counts: how many
// own       [RANKS, GPUS]: rows to a rank, by the rail group that carries them
// index     the token of each unit, by rail group and node; inverse [tokens, width]: by node
// told      [RANKS, 2 * GPUS + SLOTS]: to GPU x of a node, copies that it passes on to each GPU, copies
//           that each GPU passes on to it, and choices of each of its slots
#include "lists.cuh"

struct Units {
  const int* list;
  const i64 *counts, *own, *seen;
  i64 stride;
  int *index, *inverse;
  i64* told;
  int width, rank, counts_step;
};

struct Shared {
  u32 rows[NODES * GPUS];         // by node and rail group
  u32 start[GPUS], before[GPUS];  // where a rail group's units begin, and units of those before it
  u32 copies[GPUS * GPUS];        // by rail group and GPU
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Entries entries, Units units) {
  Shared& shared = *(Shared*)(room + ROOM_AT);
  const int t = threadIdx.x, f = blockIdx.x, local = units.rank % GPUS;
  for (int p = t; p < NODES * GPUS; p += THREADS)
    shared.rows[p] = units.own[(i64)(p / GPUS * GPUS + local) * GPUS + p % GPUS];
  for (int p = t; p < GPUS * GPUS; p += THREADS) shared.copies[p] = 0;
  __syncthreads();
  if (t < GPUS) {
    u32 start = 0, before = 0;
    for (int c = 0; c <= t; ++c)
      for (int k = 0; k < (c < t ? NODES : f); ++k) start += shared.rows[k * GPUS + c];
    for (int c = 0; c < t; ++c) before += shared.rows[f * GPUS + c];
    shared.start[t] = start, shared.before[t] = before;
  }
  __syncthreads();
  const int many = units.counts[(i64)f * units.counts_step];
  for (int p = t; p < many; p += THREADS) {
    int c = GPUS - 1;
    while (c > 0 && shared.before[c] > p) --c;
    const int token = units.list[f * units.stride + p], at = shared.start[c] + p - shared.before[c];
    const i64* own = entries.of(token);
    units.index[at] = token;
    units.inverse[(i64)token * units.width + entries.named_below(own, f)] = at;
    for (int j = 0; j < entries.k; ++j) {
      if (entries.class_of(own[j]) != f) continue;
      const int x = own[j] / SLOTS % GPUS;
      bool again = false;
      for (int i = 0; i < j; ++i) again |= own[i] >= 0 && own[i] / SLOTS == own[j] / SLOTS;
      if (!again) atomicAdd(shared.copies + c * GPUS + x, 1u);
    }
  }
  __syncthreads();
  if (!units.told) return;
  constexpr int WIDTH = 2 * GPUS + SLOTS;
  for (int p = t; p < GPUS * WIDTH; p += THREADS) {
    const int x = p / WIDTH, w = p % WIDTH;
    const i64 told = w < GPUS       ? shared.copies[x * GPUS + w]
                     : w < 2 * GPUS ? shared.copies[(w - GPUS) * GPUS + x]
                                    : units.seen[(f * GPUS + x) * SLOTS + w - 2 * GPUS];
    units.told[(i64)(f * GPUS + x) * WIDTH + w] = told;
  }
}
