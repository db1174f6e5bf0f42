// A node's flows cut into chunks: where each flow's chunks begin, and their columns.
//
// Flow i of a node goes from its GPU i / RANKS to GPU i % RANKS of the fabric; its chunks stand
// together, in order, all of CAP bytes but the last.  Thread t looks at the flows from t * EACH on.
#pragma once
#include "block.cuh"

enum Status { CAPACITY_WRONG = 1, NEGATIVE = 2, UNJOINED = 3 };  // as railopt/cuda/planner.py says

// What a kernel makes, [senders, CAPACITY] each, `count` and `status` [senders].
struct Made {
  int *src_gpu, *dst_gpu;
  i64 *offset, *size;
  short* rail;
  int *count, *status;
};

// What a kernel is given.  counts: bytes [senders, FLOWS]; joined [senders, NODES]: who can be sent
// to; first: the node of sender 0; wide [senders, WIDE, 2]: room for words of 64 bits.
constexpr int WIDE = (EACH + 1) * THREADS + NODES * RAILS + CAPACITY / 2;
struct Given {
  const i64* counts;
  const u8* joined;
  i64* wide;
  int first;
};

__device__ int receiver(int flow) { return flow % RANKS / GPUS; }

// The bytes of a thread's flows, 0 for its own node; and a status.
__device__ int read_flows(const Given& given, i64 (&flow)[EACH]) {
  const int b = blockIdx.x, k = given.first + b;
  int wrong = 0;
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = threadIdx.x * EACH + e, f = receiver(i);
    flow[e] = i < FLOWS && f != k ? given.counts[(i64)b * FLOWS + i] : 0;
    if (flow[e] > (i64)CAPACITY * CAP) wrong = max(wrong, CAPACITY_WRONG);
    if (flow[e] < 0) wrong = max(wrong, NEGATIVE);
    if (flow[e] > 0 && !given.joined[b * NODES + f]) wrong = max(wrong, UNJOINED);
  }
  return wrong;
}

// Says how many chunks a node's flows are, 0 where none can be planned or one is `wrong`.  `base`
// [FLOWS + 1] becomes the first chunk of each flow, then how many there are; `before` what
// `odd(bytes)` counted before each of the thread's flows, and `odds` in all.
template <class Odd>
__device__ int cut(int wrong, const Made& made, const i64 (&flow)[EACH], u32* base, u64* space,
                   u32 (&before)[EACH], int& odds, Odd odd) {
  const int t = threadIdx.x, b = blockIdx.x;
  if (t == 0) made.status[b] = made.count[b] = 0;
  if (__syncthreads_or(wrong)) {
    if (wrong) atomicMax(&made.status[b], wrong);
    return 0;
  }
  u64 own = 0, all;
  for (int e = 0; e < EACH; ++e) own += (flow[e] + CAP - 1) / CAP | (u64)odd(flow[e]) << 32;
  u64 reached = sum_before(own, space, all);
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    before[e] = reached >> 32;
    if (t * EACH + e < FLOWS) base[t * EACH + e] = (u32)reached;
    reached += (flow[e] + CAP - 1) / CAP | (u64)odd(flow[e]) << 32;
  }
  const u32 count = (u32)all;
  odds = all >> 32;
  if (t == 0) {
    base[FLOWS] = count;
    if (count > CAPACITY) made.status[b] = CAPACITY_WRONG;
    else made.count[b] = count;
  }
  __syncthreads();
  return count > CAPACITY ? 0 : count;
}

// The last flow that begins at chunk `c` or before.
__device__ int flow_of(const u32* base, u32 c) {
  int flow = 0;
  for (int half = 1 << (bits_of(FLOWS - 1) - 1); FLOWS > 1 && half; half /= 2) {
    const int at = flow + half;
    if (at < FLOWS && base[at] <= c) flow = at;
  }
  return flow;
}

// Writes the columns of chunk `c` of flow `i`, its rail left out; says its bytes.
__device__ i64 describe(const Given& given, const Made& made, const u32* base, int i, u32 c) {
  const int b = blockIdx.x;
  const i64 at = (i64)b * CAPACITY + c, offset = (i64)(c - base[i]) * CAP;
  const i64 left = given.counts[(i64)b * FLOWS + i] - offset, size = left < CAP ? left : CAP;
  made.src_gpu[at] = (given.first + b) * GPUS + i / RANKS;
  made.dst_gpu[at] = i % RANKS;
  made.offset[at] = offset;
  made.size[at] = size;
  return size;
}
