// What all ranks told this one of copies, added up (sums [2 * GPUS + SLOTS]), and where each GPU's
// copies and each slot's rows begin (`begins`, the same way).  One block.
#include "block.cuh"

constexpr int WIDTH = 2 * GPUS + SLOTS;
struct Shared {
  u64 sum[WIDTH];
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(const i64* counts, i64* sums,
                                                               i64* begins) {
  u64* sum = ((Shared*)(room + ROOM_AT))->sum;
  const int t = threadIdx.x;
  for (int w = t; w < WIDTH; w += THREADS) sum[w] = 0;
  __syncthreads();
  for (int at = t; at < RANKS * WIDTH; at += THREADS)
    if (counts[at]) atomicAdd(sum + at % WIDTH, (u64)counts[at]);
  __syncthreads();
  for (int w = t; w < WIDTH; w += THREADS) {
    const int first = w < GPUS ? 0 : w < 2 * GPUS ? GPUS : 2 * GPUS;
    u64 begin = 0;
    for (int v = first; v < w; ++v) begin += sum[v];
    sums[w] = sum[w], begins[w] = begin;
  }
}
