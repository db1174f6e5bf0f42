// `lpt-local` for equal rails: as `lpt`, and each receiver's share spread over the rails too.
//
// Whole rounds of largest chunks for a receiver go one to each rail.  What is left goes, largest
// first, to the rail with the fewest bytes, those for the same receiver counted WEIGHT times more:
// one warp, a lane for each pair of rails, keeps the differences of their scores, and the lanes'
// votes name the least in a few steps.
#include "sized.cuh"

constexpr int MOST = FLOWS + NODES * RAILS + AHEAD;  // chunks that whole rounds leave
constexpr int PAIRS = RAILS * (RAILS - 1) / 2, PER_LANE = PAIRS > 32 ? (PAIRS + 31) / 32 : 1;
constexpr int OWNED = (NODES + THREADS - 1) / THREADS;  // receivers of a thread

// A chunk: its size, and its receiver, which becomes its rail.
template <class Word>
struct alignas(2 * sizeof(Word)) Item {
  Word size, to;
};

struct Shared {
  Sized sized;
  i64 gap[NODES * 32 * PER_LANE];
  Item<int> item[MOST];
  u32 slot[NODES * RAILS];              // largest chunks that rounds leave
  u32 before[GPUS * NODES];             // largest chunks for a receiver from the GPUs before one
  u32 begun[NODES], left[NODES + 1];    // largest chunks in whole rounds; before a receiver: left
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

// Fills before, begun and left; says how many are left.
__device__ int leave_rounds(Shared& shared, const Cuts& cuts) {
  const u32* base = shared.sized.base;
  const u16* rests_before = shared.sized.order[1 - cuts.now];
  auto largest_before = [&](int i) { return base[i] - (i < FLOWS ? rests_before[i] : cuts.rests); };
  u32 own = 0, all;
  for (int e = 0; e < OWNED; ++e) {
    const int f = threadIdx.x * OWNED + e;
    if (f >= NODES) break;
    u32 seen = 0;
    for (int g = 0; g < GPUS; ++g) {
      const int i = g * RANKS + f * GPUS;
      shared.before[g * NODES + f] = seen;
      seen += largest_before(i + GPUS) - largest_before(i);
    }
    shared.begun[f] = seen - seen % RAILS;
    shared.left[f] = seen % RAILS;
    own += seen % RAILS;
  }
  u32 reached = sum_before(own, shared.sized.radix.space, all);
  for (int e = 0; e < OWNED; ++e) {
    const int f = threadIdx.x * OWNED + e;
    if (f >= NODES) break;
    const u32 left = shared.left[f];
    shared.left[f] = reached;
    reached += left;
  }
  if (threadIdx.x == 0) shared.left[NODES] = all;
  __syncthreads();
  return all;
}

// The pairs of rails, a < b, that a lane compares, -1 where there is one rail: lanes for which there
// is no pair do what the last pair's does.
struct Pair {
  int a, b;
};

__device__ void pair_up(Pair (&pair)[PER_LANE]) {
  for (int j = 0; j < PER_LANE; ++j) pair[j] = {-1, -1};
  int nth = 0;
  for (int a = 0; a < RAILS; ++a)
    for (int b = a + 1; b < RAILS; ++b, ++nth)
      for (int j = 0; j < PER_LANE; ++j)
        if (nth == min(32 * j + (int)threadIdx.x % 32, PAIRS - 1)) pair[j] = {a, b};
}

// How the lanes that compare a rail (`in`) vote where it is the least of all (`least`).
struct Votes {
  u32 in[PER_LANE], least[PER_LANE];

  __device__ void expect(int rail, const Pair (&pair)[PER_LANE]) {
    for (int w = 0; w < PER_LANE; ++w) {
      in[w] = least[w] = 0;
      for (int n = 0; n < RAILS; ++n) {
        const u32 lower = __ballot_sync(ALL, pair[w].a == n);
        const u32 upper = __ballot_sync(ALL, pair[w].b == n);
        if (n == rail) in[w] = lower | upper, least[w] = lower;
      }
    }
  }

  __device__ u32 differ(const u32 (&votes)[PER_LANE]) const {
    u32 all = 0;
#pragma unroll
    for (int w = 0; w < PER_LANE; ++w) all |= (votes[w] ^ least[w]) & in[w];
    return all;
  }
};

// For one warp: each chunk to the least rail for its receiver.  gap [NODES, PER_LANE, 32]: a pair's
// difference of WEIGHT times the bytes for a receiver.  Chunks are read three ahead, gaps two; what
// a pair's scores will differ by for the next chunk is known, for each answer, before the votes are
// in.  Everything is chosen and nothing branches: that would cost more than all the rest.  Lanes
// read a chunk three steps before one of them writes its rail, and meet in between.
template <class Word>
__device__ void spread(Item<Word>* item, int items, Word* gap) {
  const int rail = own_rail();
  Pair pair[PER_LANE];
  Votes for_a[PER_LANE], for_b[PER_LANE], for_rail;
  pair_up(pair);
  for_rail.expect(rail, pair);
#pragma unroll
  for (int j = 0; j < PER_LANE; ++j) {
    for_a[j].expect(pair[j].a, pair);
    for_b[j].expect(pair[j].b, pair);
  }
  gap += threadIdx.x % 32;
  auto row_of = [&](const Item<Word>& chunk) { return gap + 32 * PER_LANE * (int)chunk.to; };
  Word size = item[0].size, next_size = item[1].size, out[PER_LANE], here[PER_LANE], next[PER_LANE];
  Word difference[PER_LANE];
  Word *row = row_of(item[0]), *next_row = row_of(item[1]);
  Item<Word> after = item[2];
#pragma unroll
  for (int j = 0; j < PER_LANE; ++j) {
    out[j] = 0;
    here[j] = difference[j] = row[32 * j];
    next[j] = next_row[32 * j];
  }
#pragma unroll 8
  for (int i = 0; i < items; ++i) {
    u32 votes[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) votes[j] = __ballot_sync(ALL, difference[j] < 0);
    const Item<Word> later = item[i + 3];
    Word* after_row = row_of(after);
    const bool again = next_row == row, soon = after_row == row;
    const Word more = again ? (1 + WEIGHT) * size : size;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
      const Word score = out[j] + next[j], beyond = after_row[32 * j];
      const bool a_is = !for_a[j].differ(votes), b_is = !for_b[j].differ(votes);
      difference[j] = a_is ? score + more : b_is ? score - more : score;
      const Word added = a_is ? size : b_is ? -size : 0;
      out[j] += added;
      here[j] += WEIGHT * added;
      row[32 * j] = here[j];
      const Word upcoming = again ? here[j] : next[j];
      next[j] = soon ? here[j] : beyond;
      here[j] = upcoming;
    }
    if (!for_rail.differ(votes)) item[i].to = rail;
    row = next_row, next_row = after_row;
    size = next_size, next_size = after.size;
    after = later;
  }
}

// The chunks that rounds leave, then the rests, sizes doubled; and no gaps but one for the order in
// which rails are looked at, from (src + dst) mod RAILS on.
template <class Word>
__device__ void list(Shared& shared, const Cuts& cuts, int k, int left, Item<Word>* item,
                     Word* gap) {
  const u16* order = shared.sized.order[cuts.now];
  for (int f = threadIdx.x; f < NODES; f += THREADS)
    for (u32 at = shared.left[f]; at < shared.left[f + 1]; ++at)
      item[at] = {(Word)(cuts.unit >> cuts.shift) * 2, f};
  for (int at = threadIdx.x; at < cuts.rests + AHEAD; at += THREADS) {
    const int i = at < cuts.rests ? order[at] : 0;
    item[left + at] = {(Word)(shared.sized.rest[i] >> cuts.shift) * 2, receiver(i)};
  }
  Pair pair[PER_LANE];
  pair_up(pair);
  for (int f = threadIdx.x / 32; f < NODES; f += WARPS)
    for (int j = 0; j < PER_LANE; ++j) {
      const int from = RAILS - (k + f) % RAILS;
      const bool a_first = (pair[j].a + from) % RAILS < (pair[j].b + from) % RAILS;
      gap[(f * PER_LANE + j) * 32 + threadIdx.x % 32] = a_first ? -1 : 1;
    }
  __syncthreads();
}

template <class Word>
__device__ void plan_with(const Given& given, const Made& made, Shared& shared, const Cuts& cuts,
                          int left, Item<Word>* item) {
  const int t = threadIdx.x, b = blockIdx.x;
  const u32* base = shared.sized.base;
  const u16 *order = shared.sized.order[cuts.now], *rests_before = shared.sized.order[1 - cuts.now];
  short* rail = made.rail + (i64)b * CAPACITY;
  list(shared, cuts, given.first + b, left, item, (Word*)shared.gap);
  if (t < 32) spread(item, left + cuts.rests, (Word*)shared.gap);
  describe(given, made, base, cuts.count, 32, [&](int i, u32 c, i64 bytes) {
    if (bytes != cuts.unit) return;
    const int f = receiver(i), first = i - i % GPUS;
    const u32 nth = shared.before[i / RANKS * NODES + f] + (c - rests_before[i]) -
                    (base[first] - rests_before[first]);
    if (nth < shared.begun[f]) rail[c] = nth % RAILS;
    else shared.slot[shared.left[f] + nth - shared.begun[f]] = c;
  });
  __syncthreads();
  for (int at = t; at < left + cuts.rests; at += THREADS)
    rail[at < left ? shared.slot[at] : base[order[at - left] + 1] - 1] = item[at].to;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Given given, Made made) {
  Shared& shared = *(Shared*)(room + ROOM_AT);
  const Cuts cuts = cut_and_sort<true>(given, made, shared.sized);
  if (cuts.count == 0) return;
  __syncthreads();
  const int left = leave_rounds(shared, cuts);
  // Of two rails, let x be the difference of their bytes and y that of those for a receiver.  A chunk
  // of s bytes goes where the score x + WEIGHT * y is not greater, so it adds at most (1 + WEIGHT) s^2
  // to x^2 + WEIGHT * (the sum of all y^2): scores differ by at most (1 + WEIGHT) sqrt(sum of s^2).
  const u64 root = squares_root(shared.sized, left, cuts.unit);
  const u64 most = (1 + WEIGHT) * (root + cuts.unit) >> cuts.shift;
  if (2 * most + 1 <= ALL / 2)
    plan_with(given, made, shared, cuts, left, shared.item);
  else
    plan_with(given, made, shared, cuts, left, (Item<i64>*)given.wide + blockIdx.x * (i64)WIDE);
}
