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
// to; first: the node of sender 0; wide [senders, WIDE, 2]: room for words of 64 bits; caps [senders],
// where CAP is VARYING.
constexpr int WIDE = (EACH + 1) * THREADS + NODES * RAILS + CAPACITY;
struct Given {
  const i64* counts;
  const u8* joined;
  i64* wide;
  const i64* caps;
  int first;
};

__device__ int receiver(int flow) { return flow % RANKS / GPUS; }

// The bytes of a thread's flows, 0 for its own node; and a status.  CAP is known afterwards.
__device__ int read_flows(const Given& given, i64 (&flow)[EACH]) {
  const int b = blockIdx.x, k = given.first + b;
  int wrong = 0;
  if (VARYING) {
    if (threadIdx.x == 0) room[0] = given.caps[b];
    __syncthreads();
  }
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

constexpr int ABREAST = 4;  // chunks that a thread looks up at once

// For each chunk the last flow that begins there or before.
__device__ void find_flows(const u32* base, const u32 (&chunk)[ABREAST], int (&flow)[ABREAST]) {
  for (int j = 0; j < ABREAST; ++j) flow[j] = 0;
#pragma unroll
  for (int half = 1 << (bits_of(FLOWS - 1) - 1); FLOWS > 1 && half; half /= 2)
#pragma unroll
    for (int j = 0; j < ABREAST; ++j) {
      const int at = flow[j] + half;
      if (at < FLOWS && base[at] <= chunk[j]) flow[j] = at;
    }
}

// By threads from number `first` on: writes the columns of all chunks, rails left out, and calls
// `visit(flow, chunk, bytes)` for each.
template <class Visit>
__device__ void describe(const Given& given, const Made& made, const u32* base, int count,
                         int first, Visit visit) {
  const int b = blockIdx.x, step = THREADS - first;
  for (int from = (int)threadIdx.x - first; from >= 0 && from < count; from += ABREAST * step) {
    u32 chunk[ABREAST];
    int flow[ABREAST];
    i64 bytes[ABREAST];
#pragma unroll
    for (int j = 0; j < ABREAST; ++j) chunk[j] = from + j * step;
    find_flows(base, chunk, flow);
#pragma unroll
    for (int j = 0; j < ABREAST; ++j) bytes[j] = given.counts[(i64)b * FLOWS + flow[j]];
#pragma unroll
    for (int j = 0; j < ABREAST; ++j) {
      const int i = flow[j], c = chunk[j];
      if (c >= count) break;
      const i64 at = (i64)b * CAPACITY + c, offset = (i64)(c - base[i]) * CAP;
      const i64 size = min(bytes[j] - offset, (i64)CAP);
      made.src_gpu[at] = (given.first + b) * GPUS + i / RANKS;
      made.dst_gpu[at] = i % RANKS;
      made.offset[at] = offset;
      made.size[at] = size;
      visit(i, c, size);
    }
  }
}
