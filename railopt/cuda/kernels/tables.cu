// From the plan of all nodes to what one rank must know: its rows by rail group, and the sizes of its
// exchanges (as railopt/torch/tally.py has them).  A block for each node that sends.
#include "block.cuh"

struct Plan {
  const int *src_gpu, *dst_gpu;
  const i64* size;
  const short* rail;
  const int *count, *status;
  const i64* counts;  // [RANKS, RANKS]
  const int* via;     // [GPUS, GPUS, RAILS]: the rail group of a rail's rows from GPU to GPU
};

// sent, received [RAILS]; staged, gathered [GPUS]; there, here [NODES]; passed, into [GPUS]: sums.
// own [RANKS, GPUS], blocks [GPUS, NODES], arrived [RANKS, GPUS], came [RANKS, GPUS]: pieces.
struct Tables {
  u64 *status, *sent, *received, *staged, *gathered, *there, *here, *passed, *into;
  u64 *own, *blocks, *arrived, *came;
};

extern "C" __device__ const u32 shared_bytes = 16;

// Rows from GPU s to GPU d by rail group c.
__device__ void add(const Tables& to, int rank, int s, int d, int c, u64 rows) {
  const int node = rank / GPUS, local = rank % GPUS;
  if (s == rank) atomicAdd(to.own + d * GPUS + c, rows), atomicAdd(to.staged + c, rows);
  if (c == local && s / GPUS == node) {
    atomicAdd(to.blocks + s % GPUS * NODES + d / GPUS, rows);
    atomicAdd(to.gathered + s % GPUS, rows), atomicAdd(to.there + d / GPUS, rows);
  }
  if (c == local && d / GPUS == node) {
    atomicAdd(to.arrived + s * GPUS + d % GPUS, rows);
    atomicAdd(to.here + s / GPUS, rows), atomicAdd(to.passed + d % GPUS, rows);
  }
  if (d == rank) atomicAdd(to.came + s * GPUS + c, rows), atomicAdd(to.into + c, rows);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Plan given, Tables to, int rank) {
  const int t = threadIdx.x, k = blockIdx.x, node = rank / GPUS;
  if (t == 0 && given.status[k]) atomicOr(to.status, (u64)given.status[k] << 8);
  const i64 first = (i64)k * CAPACITY;
  for (int c = t; c < given.count[k]; c += THREADS) {
    const int s = given.src_gpu[first + c], d = given.dst_gpu[first + c];
    const int n = given.rail[first + c];
    const u64 rows = given.size[first + c];
    if (k == node) atomicAdd(to.sent + n, rows);
    else if (d / GPUS == node) atomicAdd(to.received + n, rows);
    else continue;
    add(to, rank, s, d, given.via[(s % GPUS * GPUS + d % GPUS) * RAILS + n], rows);
  }
  if (k != node) return;
  for (int p = t; p < GPUS * GPUS; p += THREADS) {  // inside the node: by the target's rail group
    const int s = node * GPUS + p / GPUS, d = node * GPUS + p % GPUS;
    const u64 rows = given.counts[(i64)s * RANKS + d];
    if (rows) add(to, rank, s, d, d % GPUS, rows);
  }
}
