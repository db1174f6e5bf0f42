// A node's chunks that are not of the largest size, largest first.
#pragma once
#include "cut.cuh"

constexpr int AHEAD = 8;  // chunks that are read at once

// What `lpt` and `lpt-local` know of a node.  A flow has at most one chunk that is not of the
// largest size, `unit` bytes; it is the last of its flow, and its `rest` is 0 where there is none.
struct Sized {
  alignas(16) u32 rest[EACH * THREADS + RAILS + AHEAD];  // by flow, and room
  u64 space[32];
  u32 base[FLOWS + 1];           // by flow
  u16 order[2][FLOWS];           // row `now`: flows with a rest, largest first; the other: rests
                                 // before each flow
  u32 bits, largest, sum;        // bits: of `unit - rest`; sum: of all rests, in 2**16 bytes
  u32 squares;                   // sum of all rests' squares, in 2**coarse() bytes
  Radix radix;
};

__device__ int coarse() { return max(0, 24 - __clz(CAP)); }
__device__ u32 coarse_square(u32 size) {
  return ((size >> coarse()) + 1) * ((size >> coarse()) + 1);
}

// At least the root of the sum of all rests' squares and of `more` times that of `unit`.
__device__ u64 squares_root(const Sized& sized, u32 more, u32 unit) {
  const u64 sum = sized.squares + (u64)more * coarse_square(unit);
  u64 root = 0;
  for (u64 step = 1 << 20; step; step /= 2)
    if ((root + step) * (root + step) <= sum) root += step;
  return (root + 1) << coarse();
}

// At least the bytes of all rests.
__device__ u64 rests_sum(const Sized& sized) { return (u64)sized.sum << 16; }

// How many chunks there are, how many of them rests, the largest size, the row of `order`, and by
// how many bits all sizes can be shifted.
struct Cuts {
  int count, rests, unit, now, shift;
};

// The bytes that a flow has beside chunks of the largest size.
__device__ u32 rest_of(i64 flow, int unit) {
  if (unit == CAP) return flow % CAP;
  return flow == unit ? 0 : flow;
}

// `unit` is the cap, or, where `own_largest` and no chunk has as much, what the largest has.
template <bool own_largest>
__device__ Cuts cut_and_sort(const Given& given, const Made& made, Sized& sized) {
  const int t = threadIdx.x;
  i64 flow[EACH];
  u32 before[EACH];
  if (t == 0) sized.bits = sized.largest = sized.sum = sized.squares = 0;
  const int wrong = read_flows(given, flow);
  Cuts cuts = {0, 0, CAP, 0, 0};
  if (own_largest) {
    i64 most = 0;
    for (int e = 0; e < EACH; ++e) most = max(most, flow[e]);
    if (!__syncthreads_or(most >= CAP)) {
      atomicMax(&sized.largest, (u32)most);
      __syncthreads();
      cuts.unit = sized.largest;
    }
  }
  cuts.count = cut(wrong, made, flow, sized.base, sized.space, before, cuts.rests,
                   [&](i64 bytes) { return rest_of(bytes, cuts.unit) > 0; });
  if (cuts.count == 0) return cuts;
  u32 bits = 0, sum = 0, squares = 0;
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = t * EACH + e;
    if (i < FLOWS) {
      const u32 rest = rest_of(flow[e], cuts.unit);
      sized.rest[i] = rest;
      if (rest == 0) continue;
      sized.order[0][before[e]] = i;
      bits |= cuts.unit - rest;
      sum += (rest >> 16) + 1;
      squares += coarse_square(rest);
    }
  }
  add_bits(bits, &sized.bits);
  add_sum(sum, &sized.sum);
  add_sum(squares, &sized.squares);
  __syncthreads();
  cuts.shift = __ffs(sized.bits | cuts.unit) - 1;
  cuts.now = sort(sized.order, cuts.rests, sized.bits, sized.radix,
                  [&](int i) { return cuts.unit - sized.rest[i]; });
#pragma unroll
  for (int e = 0; e < EACH; ++e)
    if (t * EACH + e < FLOWS) sized.order[1 - cuts.now][t * EACH + e] = before[e];
  return cuts;
}
