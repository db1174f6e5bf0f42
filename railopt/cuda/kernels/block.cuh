// What the threads of a block do together: sums, a sort, the least of a warp.
//
// A kernel is compiled for one fabric: NODES, GPUS (of a node), RAILS, CAP (bytes of a chunk; without
// it each sender has its own, the first word of `room`), CAPACITY (chunks that a node's columns hold)
// and THREADS (of a block, whole warps) are macros.  All shared memory lies in `room`, as a struct of
// the kernel's own.
#pragma once
#include "words.cuh"

#ifdef CAP
constexpr int ROOM_AT = 0;
constexpr bool VARYING = false;
#else
constexpr int ROOM_AT = 2;
constexpr bool VARYING = true;
#define CAP ((int)room[0])
#endif

constexpr int RANKS = NODES * GPUS, FLOWS = GPUS * RANKS;
constexpr int WARPS = THREADS / 32;
constexpr int EACH = (FLOWS + THREADS - 1) / THREADS;  // flows of a thread

__device__ constexpr int bits_of(u64 value) { return value ? 1 + bits_of(value >> 1) : 0; }

// The sum of `own` of all threads before this one, and of all threads.  Between two calls with the
// same `space` [32] the block meets.
template <class Sum>
__device__ Sum sum_before(Sum own, Sum* space, Sum& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Sum reached = own;
  for (int step = 1; step < 32; step *= 2) {
    Sum other = __shfl_up_sync(ALL, reached, step);
    if (lane >= step) reached += other;
  }
  if (lane == 31) space[warp] = reached;
  __syncthreads();
  Sum warps = lane < WARPS ? space[lane] : 0;
  for (int step = 1; step < 32; step *= 2) {
    Sum other = __shfl_up_sync(ALL, warps, step);
    if (lane >= step) warps += other;
  }
  total = __shfl_sync(ALL, warps, 31);
  Sum before = __shfl_sync(ALL, warps, (warp + 31) % 32);
  return (warp ? before : 0) + reached - own;
}

// The bits that are set in any thread's `own`, added to `all`; the block meets afterwards.
__device__ void add_bits(u32 own, u32* all) {
  u32 of_warp = __reduce_or_sync(ALL, own);
  if (threadIdx.x % 32 == 0 && of_warp) atomicOr(all, of_warp);
}

// The sum of all threads' `own`, added to `all`; the block meets afterwards.
__device__ void add_sum(u32 own, u32* all) {
  const u32 of_warp = __reduce_add_sync(ALL, own);
  if (threadIdx.x % 32 == 0) atomicAdd(all, of_warp);
}

// The rail that a lane stands for: lanes for which there is none do what the last rail's does.
__device__ int own_rail() { return min((int)threadIdx.x % 32, RAILS - 1); }

// The least score of a warp.
__device__ int least(int score) { return __reduce_min_sync(ALL, score); }
__device__ i64 least(i64 score) {
  const int high = __reduce_min_sync(ALL, (int)(score >> 32));
  const u32 low = (int)(score >> 32) == high ? (u32)score : ALL;
  return (i64)high << 32 | __reduce_min_sync(ALL, low);
}

// Puts `word` in the place of the least of sorted words, which stay sorted: all at once, since each
// depends on its old neighbours alone.
template <class Word>
__device__ void replace_least(Word (&sorted)[RAILS], Word word) {
#pragma unroll
  for (int n = 0; n < RAILS; ++n) {
    const Word above = n > 0 ? max(sorted[n], word) : word;
    sorted[n] = n + 1 < RAILS ? min(sorted[n + 1], above) : above;
  }
}

constexpr int DIGIT = 5;  // bits: then a block has as many counters as threads
struct Radix {
  u32 counts[(1 << DIGIT) * (WARPS + 1)];
  u32 space[32];
};

// Sorts the first `items` flows of row 0 of `order` by `key(flow)`, ascending, those of equal keys
// left in their order; says which row holds the result.  `bits`: all that are set in a key.
//
// Least digit first.  A warp ranks its keys by what its lanes say of each bit; counters stand by
// digit and then by warp, so that their sums are places.
template <class Key>
__device__ int sort(u16 (*order)[FLOWS], int items, u32 bits, Radix& radix, Key key) {
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const int each = (items + THREADS - 1) / THREADS, first = warp * each * 32 + lane;
  const u32 below = (1u << lane) - 1;
  int now = 0;
  for (int at = bits ? __ffs(bits) - 1 : 32; at < 32 && bits >> at; at += DIGIT) {
    radix.counts[t + t / WARPS] = 0;
    __syncthreads();
    u16 flow[EACH], digit[EACH], place[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      if (e < each) {
        const int i = first + e * 32;
        const bool is = i < items;
        flow[e] = is ? order[now][i] : 0;
        const u32 d = key(flow[e]) >> at & ((1 << DIGIT) - 1);
        u32 same = __ballot_sync(ALL, is);
        for (int b = 0; b < DIGIT; ++b) {
          const u32 set = __ballot_sync(ALL, d >> b & 1);
          same &= d >> b & 1 ? set : ~set;
        }
        u32& count = radix.counts[d * (WARPS + 1) + warp];
        const u32 before = count, nth = __popc(same & below);
        __syncwarp();
        if (is && nth == 0) count = before + __popc(same);
        __syncwarp();
        digit[e] = d;
        place[e] = before + nth;
      }
    }
    __syncthreads();
    u32 all, &count = radix.counts[t + t / WARPS];
    count = sum_before(count, radix.space, all);
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (e < each && first + e * 32 < items)
        order[1 - now][radix.counts[digit[e] * (WARPS + 1) + warp] + place[e]] = flow[e];
    now = 1 - now;
    __syncthreads();
  }
  return now;
}
