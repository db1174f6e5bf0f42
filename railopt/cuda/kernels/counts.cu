// What ranks told each other: rows from rank to rank, each sender's cap, and whether all agree.
//
// told [RANKS, HEAD + 2 * RANKS]: a head (whether something is wrong, two digests, which call), rows to
// each rank, rows from each.  A block for each node; `status` gets 1 where a rank finds something
// wrong, 2 where heads differ, 4 where one sends what another does not expect.
#include "block.cuh"

struct Told {
  const i64* told;
  i64 pieces, both;  // both: whether ranks say what they expect
  i64 *counts, *caps, *status;
};

struct Shared {
  u64 space[32];
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Told given) {
  constexpr int LENGTH = HEAD + 2 * RANKS;
  const int t = threadIdx.x, k = blockIdx.x;
  u64 own = 0, all;
  int wrong = 0;
  for (int at = t; at < GPUS * RANKS; at += THREADS) {
    const int s = k * GPUS + at / RANKS, d = at % RANKS;
    const i64 rows = given.told[(i64)s * LENGTH + HEAD + d];
    given.counts[(i64)s * RANKS + d] = rows;
    if (d / GPUS != k) own += rows;
    if (given.both && rows != given.told[(i64)d * LENGTH + HEAD + RANKS + s]) wrong |= 4;
  }
  if (t < GPUS) {
    const i64* head = given.told + (i64)(k * GPUS + t) * LENGTH;
    if (head[0]) wrong |= 1;
    for (int i = 1; i < HEAD; ++i)
      if (head[i] != given.told[i]) wrong |= 2;
  }
  if (wrong) atomicOr((u64*)given.status, (u64)wrong);
  sum_before(own, ((Shared*)(room + ROOM_AT))->space, all);
  const i64 shares = RAILS * given.pieces, cap = ((i64)all + shares - 1) / shares;
  if (t == 0) given.caps[k] = cap < 1 ? 1 : cap;
}
