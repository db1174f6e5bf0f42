// `own-nic` for GPUs with one NIC each: rails [senders * GPUS, NODES] by source GPU and node.
#include "cut.cuh"

struct Shared {
  u64 space[32];
  u32 base[FLOWS + 1];
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

struct Rails {
  const short* rail;
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Given given, Made made, Rails rails) {
  Shared& shared = *(Shared*)(room + ROOM_AT);
  const int b = blockIdx.x;
  i64 flow[EACH];
  u32 none[EACH];
  int odds;
  const int wrong = read_flows(given, flow);
  const int count =
      cut(wrong, made, flow, shared.base, shared.space, none, odds, [](i64) { return 0; });
  if (count == 0) return;
  describe(given, made, shared.base, count, 0, [&](int i, u32 c, i64) {
    const int g = b * GPUS + i / RANKS;
    made.rail[(i64)b * CAPACITY + c] = rails.rail[g * NODES + receiver(i)];
  });
}
