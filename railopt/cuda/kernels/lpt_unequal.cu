// `lpt` where rails differ: each sender's chunks, largest first, to the rail where they would be
// done first, at the slower end's pace.  One warp, a lane for each rail, chunk after chunk.
#include "sized.cuh"

typedef Sized Shared;
extern "C" __device__ const u32 shared_bytes = sizeof(Shared);

// Time a byte, 0 where a NIC is dead: tx [senders, RAILS], rx [NODES, RAILS].
struct Costs {
  const i64 *tx, *rx;
};

constexpr i64 FAR = (i64)1 << 62;

__device__ void on_soonest(const Sized& sized, const Cuts& cuts, const Costs& costs, short* rail) {
  const int n = own_rail();
  const i64 tx = costs.tx[blockIdx.x * RAILS + n];
  i64 busy = 0;
  auto put = [&](int f, i64 bytes, u32 c) {
    const i64 rx = costs.rx[f * RAILS + n];
    const i64 done = min(tx, rx) > 0 ? busy + bytes * max(tx, rx) : FAR;
    if (__ffs(__ballot_sync(ALL, done == least(done))) == n + 1) {
      busy = done;
      rail[c] = n;
    }
  };
  const u16 *order = sized.order[cuts.now], *rests_before = sized.order[1 - cuts.now];
  for (int i = 0; i < FLOWS; ++i) {
    const int rests = (i + 1 < FLOWS ? rests_before[i + 1] : cuts.rests) - rests_before[i];
    for (u32 c = sized.base[i]; c + rests < sized.base[i + 1]; ++c) put(receiver(i), CAP, c);
  }
  for (int at = 0; at < cuts.rests; ++at)
    put(receiver(order[at]), sized.rest[order[at]], sized.base[order[at] + 1] - 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Given given, Made made, Costs costs) {
  Shared& shared = *(Shared*)room;
  const Cuts cuts = cut_and_sort<false>(given, made, shared);
  if (cuts.count == 0) return;
  __syncthreads();
  if (threadIdx.x < 32)
    on_soonest(shared, cuts, costs, made.rail + (i64)blockIdx.x * CAPACITY);
  describe(given, made, shared.base, cuts.count, 32, [](int, u32, i64) {});
}
