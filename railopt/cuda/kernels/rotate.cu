// `rotate` for equal rails: the chunks of each (sender, receiver) in turn, from rail
// (src + dst) mod RAILS on.
#include "cut.cuh"

struct Shared {
  u64 space[32];
  u32 base[FLOWS + 1], before[GPUS * NODES];
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Given given, Made made) {
  Shared& shared = *(Shared*)(room + ROOM_AT);
  u32* base = shared.base;
  const int t = threadIdx.x, b = blockIdx.x, k = given.first + b;
  i64 flow[EACH];
  u32 none[EACH];
  int odds;
  const int wrong = read_flows(given, flow);
  const int count = cut(wrong, made, flow, base, shared.space, none, odds, [](i64) { return 0; });
  if (count == 0) return;
  for (int f = t; f < NODES; f += THREADS) {
    u32 seen = 0;  // chunks for f of the GPUs before g
    for (int g = 0; g < GPUS; ++g) {
      shared.before[g * NODES + f] = seen;
      seen += base[g * RANKS + (f + 1) * GPUS] - base[g * RANKS + f * GPUS];
    }
  }
  __syncthreads();
  describe(given, made, base, count, 0, [&](int i, u32 c, i64) {
    const int f = receiver(i);
    const u32 nth = shared.before[i / RANKS * NODES + f] + c - base[i - i % GPUS];
    made.rail[(i64)b * CAPACITY + c] = (k + f + nth) % RAILS;
  });
}
