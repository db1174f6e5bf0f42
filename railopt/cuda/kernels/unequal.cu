// `lpt` and `lpt-local` where rails differ: each sender's chunks, largest first, to the rail where
// they would be done first, at the slower end's pace; where WEIGHT is not 0, what goes to the same
// receiver counts WEIGHT times more, and ties go round from rail (src + dst) mod RAILS on.
//
// One warp, a lane for each rail, chunk after chunk: a rail's time with its place in the low bits is
// one word, and the least of the warp is the answer.  Each lane reads one of the next 32 chunks and
// keeps its rail.
#include "sized.cuh"

// Time a byte, 0 where a NIC is dead: tx [senders, RAILS], rx [NODES, RAILS].
struct Costs {
  const i64 *tx, *rx;
};

struct Shared {
  Sized sized;
  i64 cost[NODES * RAILS];                       // the slower end's, 0 where one is dead
  i64 time[WEIGHT ? NODES * RAILS : 1];          // of what a rail has for a receiver
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

struct alignas(16) Item {
  u32 size, to, chunk, none;
};

constexpr int RAIL_BITS = bits_of(RAILS - 1);

__device__ u32 least(u32 score) { return __reduce_min_sync(ALL, score); }

template <class Word>
__device__ void on_soonest(Shared& shared, const Item* item, int items, int k, short* rail) {
  const int n = own_rail(), lane = threadIdx.x % 32;
  const Word far = (Word)1 << (8 * sizeof(Word) - 2);
  Word* same = (Word*)shared.time + n;
  if (WEIGHT)
    for (int f = 0; f < NODES; ++f) same[f * RAILS] = 0;
  Word busy = 0;
  Item next = item[lane];
  for (int from = 0; from < items; from += 32) {
    const Item own = next;
    next = item[from + 32 + lane];
    u32 kept = 0;
#pragma unroll 8
    for (int j = 0; j < 32; ++j) {
      const int f = __shfl_sync(ALL, own.to, j), row = f * RAILS;
      const Word cost = shared.cost[row + n], time = __shfl_sync(ALL, own.size, j) * cost;
      const Word after = busy + time, here = WEIGHT ? same[row] + time : 0;
      Word score = after;
      int place = n;
      if (WEIGHT) {
        score += WEIGHT * here;
        place = n - (k + f) % RAILS;
        place += place < 0 ? RAILS : 0;
      }
      score = (cost ? score << RAIL_BITS : far) + place;
      const Word lowest = least(score);
      if (score == lowest) {
        busy = after;
        if (WEIGHT) same[row] = here;
      }
      kept = lane == j ? (u32)lowest & ((1 << RAIL_BITS) - 1) : kept;
    }
    if (from + lane < items) rail[own.chunk] = WEIGHT ? (kept + k + own.to) % RAILS : kept;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Given given, Made made, Costs costs) {
  Shared& shared = *(Shared*)(room + ROOM_AT);
  const int t = threadIdx.x, b = blockIdx.x;
  const Cuts cuts = cut_and_sort<false>(given, made, shared.sized);
  if (cuts.count == 0) return;
  for (int p = t; p < NODES * RAILS; p += THREADS) {
    const i64 tx = costs.tx[b * RAILS + p % RAILS], rx = costs.rx[p];
    shared.cost[p] = min(tx, rx) > 0 ? max(tx, rx) : 0;
  }
  __syncthreads();
  const u16 *order = shared.sized.order[cuts.now], *rests_before = shared.sized.order[1 - cuts.now];
  const u32 *base = shared.sized.base, full = cuts.count - cuts.rests;
  Item* item = (Item*)(given.wide + (i64)b * 2 * WIDE);
  describe(given, made, base, cuts.count, 0, [&](int i, u32 c, i64 bytes) {
    const u32 to = receiver(i);
    if (bytes == CAP) item[c - rests_before[i]] = {(u32)CAP >> cuts.shift, to, c, 0};
  });
  for (int at = t; at < cuts.rests + 64; at += THREADS) {
    const int i = at < cuts.rests ? order[at] : 0;
    const u32 size = at < cuts.rests ? shared.sized.rest[i] >> cuts.shift : 0;
    item[full + at] = {size, (u32)receiver(i), base[i + 1] - 1, 0};
  }
  __syncthreads();
  if (t >= 32) return;
  const u64 bytes = (u64)full * CAP + rests_sum(shared.sized) + CAP;
  const u64 most = (((bytes >> cuts.shift) + 1) * DEAREST * (1 + WEIGHT) + 1) << RAIL_BITS;
  short* rail = made.rail + (i64)b * CAPACITY;
  if (bytes >> 32 == 0 && most < (u64)1 << 30)
    on_soonest<u32>(shared, item, cuts.count, given.first + b, rail);
  else
    on_soonest<i64>(shared, item, cuts.count, given.first + b, rail);
}
