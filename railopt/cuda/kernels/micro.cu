// Copies and split of a micro-batch: full GPUs give, the emptiest take.  The same plan as
// railopt/moe/micro/greedy.py, whose words these are; one block a micro-batch.
//
// Compiled for one layer: EXPERTS, RANKS (GPUs), NODE (GPUs per node), PARTS, SLOTS, SLACK and
// HALVINGS are macros.  A block's first warp makes the trials; all threads begin and copy them.
#include "words.cuh"

constexpr int ALL_PARTS = PARTS + SLOTS, NODES = RANKS / NODE;

// What stands where an expert has no part on a GPU: that a slot may take one; more where none may.
constexpr u16 MAY = 0xfffe;

// Parts by expert and GPU, in whole words of 16 bytes.
constexpr int AT = (EXPERTS * RANKS + 7) / 8 * 8;
struct alignas(16) Word {
  u64 low, high;
};

// The layer: expert, rank [PARTS]; holders, node [EXPERTS]; spare [RANKS]; at [AT]: parts, MAY or
// more.  And counts, int64 [micro-batches, EXPERTS].
struct Given {
  const i64* counts;
  const int *expert, *rank, *holders, *node, *spare;
  const u16* at;
};

// [micro-batches, ALL_PARTS] each, [micro-batches, RANKS], [micro-batches]
struct Made {
  int *expert, *rank;
  i64 *tokens, *load;
  int *used, *status;
};

enum Status { NEGATIVE = 1, TOO_MANY = 2 };  // as railopt/moe/micro/device.py says

struct Parts {
  int tokens[ALL_PARTS], load[RANKS], used;
  u16 expert[ALL_PARTS], rank[ALL_PARTS];
};

struct Shared {
  u64 sum[32];
  alignas(16) u16 at[AT];
  Parts start, trial, best;
  int spare[RANKS], inside[NODES], count[EXPERTS];
  u8 stuck[PARTS];
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared);

__device__ int lane() { return threadIdx.x % 32; }

// For one warp.
__device__ int largest(const int* load) {
  int most = 0;
  for (int r = lane(); r < RANKS; r += 32) most = max(most, load[r]);
  return __reduce_max_sync(ALL, most);
}

// For one warp: the lowest index of the most, -1 where the most is 0.
__device__ int lowest_of_most(u32 most, int index) {
  const u32 all = __reduce_max_sync(ALL, most);
  return all == 0 ? -1 : __reduce_min_sync(ALL, most == all ? index : 0x7fffffff);
}

__device__ void copy(const Parts& source, Parts& target) {
  const int t = threadIdx.x, used = source.used;
  for (int p = t; p < used; p += THREADS) {
    target.expert[p] = source.expert[p];
    target.rank[p] = source.rank[p];
    target.tokens[p] = source.tokens[p];
  }
  for (int r = t; r < RANKS; r += THREADS) target.load[r] = source.load[r];
  if (t == 0) target.used = used;
}

__device__ void read_places(const Given& given, Shared& shared) {
#pragma unroll 8
  for (int i = threadIdx.x; i < AT / 8; i += THREADS)
    ((Word*)shared.at)[i] = ((const Word*)given.at)[i];
}

// For one warp: pours the tokens of an expert on its holders, the emptiest first, up to one level.
__device__ void fill(Shared& shared, int e) {
  int count = shared.count[e];
  i64 low = 0, high = (i64)largest(shared.start.load) + count;
  while (low < high) {  // the least level that takes them all
    const i64 level = (low + high) / 2;
    u64 taken = 0;
    for (int r = lane(); r < RANKS; r += 32)
      if (shared.at[e * RANKS + r] < MAY) taken += max((i64)0, level - shared.start.load[r]);
    for (int step = 16; step; step /= 2) taken += __shfl_xor_sync(ALL, taken, step);
    if (taken >= count) high = level;
    else low = level + 1;
  }
  __syncwarp();
  for (int r = 0; r < RANKS && threadIdx.x == 0; ++r) {
    const u16 p = shared.at[e * RANKS + r];
    if (p >= MAY) continue;
    const i64 free = max((i64)0, low - shared.start.load[r]);
    const int poured = (int)min((i64)count, free);
    shared.start.tokens[p] = poured;
    shared.start.load[r] += poured;
    count -= poured;
  }
  __syncwarp();
}

// No copies: experts held once first, then the others.
__device__ void begin(const Given& given, Shared& shared) {
  const int t = threadIdx.x;
  for (int p = t; p < PARTS; p += THREADS) {
    const int e = given.expert[p], r = given.rank[p];
    shared.start.expert[p] = e;
    shared.start.rank[p] = r;
    shared.start.tokens[p] = 0;
    if (given.holders[e] == 1) {
      shared.start.tokens[p] = shared.count[e];
      atomicAdd(&shared.start.load[r], shared.count[e]);
    }
  }
  if (t == 0) shared.start.used = PARTS;
  __syncthreads();
  if (t < 32 && PARTS > EXPERTS)
    for (int e = 0; e < EXPERTS; ++e)
      if (given.holders[e] > 1) fill(shared, e);
  __syncthreads();
}

__device__ void begin_trial(const Given& given, Shared& shared) {
  copy(shared.start, shared.trial);
  read_places(given, shared);
  for (int r = threadIdx.x; r < RANKS; r += THREADS) shared.spare[r] = given.spare[r];
  for (int p = threadIdx.x; p < PARTS; p += THREADS) shared.stuck[p] = 0;
  __syncthreads();
}

// For one warp: the part that can give most, -1 if none can.  Nothing branches, which would cost
// more than all the rest.
__device__ int giver(const Shared& shared, int goal, bool bold) {
  const Parts& trial = shared.trial;
  int most = 0, best = 0;
#pragma unroll 8
  for (int p = lane(); p < PARTS; p += 32) {
    const int over = trial.load[trial.rank[p]] - goal, tokens = trial.tokens[p];
    const int gives = (over > 0) & (shared.stuck[p] == 0), most_of_it = min(tokens, over);
    const int spared = gives * (bold ? tokens : most_of_it);
    best = spared > most ? p : best;
    most = max(most, spared);
  }
  return lowest_of_most(most, best);
}

// For one warp: the emptiest GPU below the goal that holds expert `e`, else that may take a copy;
// -1 if there is none.
__device__ int taker(const Shared& shared, int goal, int e) {
  u32 most = 0;
  int best = 0;
#pragma unroll 2
  for (int r = lane(); r < RANKS; r += 32) {
    const int free = goal - shared.trial.load[r];
    const u16 at = shared.at[e * RANKS + r];
    const u32 has = at < MAY, may = (at == MAY) & (shared.spare[r] > 0);
    const u32 can = (free > 0) & (has | may);
    const u32 room = can * ((u32)free | has << 31);  // one that holds it comes first
    best = room > most ? r : best;
    most = max(most, room);
  }
  return lowest_of_most(most, best);
}

// For one warp: moves tokens of part `p` to a GPU, into its part of that expert, which is made if
// need be.  What changes lies in five places, a lane's each.
__device__ void hand_over(Shared& shared, int p, int target, int amount) {
  Parts& trial = shared.trial;
  const int e = trial.expert[p], source = trial.rank[p];
  const u16 at = shared.at[e * RANKS + target];
  const bool is_new = at == MAY;
  const int q = is_new ? trial.used : at;
  __syncwarp();
  const int l = lane();
  int* tokens = &trial.tokens[l == 0 ? p : q];
  int* changed = l < 2 ? tokens : &trial.load[l == 2 ? source : target];
  const int before = *changed, kept = (l == 1) & is_new ? 0 : before;
  if (l < 4) *changed = kept + (l % 2 ? amount : -amount);
  if ((l == 4) & is_new) {
    shared.at[e * RANKS + target] = q;
    trial.expert[q] = e;
    trial.rank[q] = target;
    shared.spare[target] -= 1;
    trial.used = q + 1;
  }
}

// For one warp: a trial for this goal.
__device__ void attempt(Shared& shared, int goal, bool bold) {
  const Parts& trial = shared.trial;
  while (true) {
    const int p = giver(shared, goal, bold);
    if (p < 0) return;
    const int source = trial.rank[p], tokens = trial.tokens[p], over = trial.load[source] - goal;
    const int target = taker(shared, goal, trial.expert[p]);
    if (target < 0) {
      if (lane() == 0) shared.stuck[p] = 1;
      __syncwarp();
      continue;
    }
    const int spared = bold ? tokens : min(tokens, over);
    const int amount = min(spared, goal - trial.load[target]);
    hand_over(shared, p, target, amount);
    if (over < amount)  // there is room again
      for (int q = lane(); q < PARTS; q += 32) shared.stuck[q] = 0;
    __syncwarp();
  }
}

// A load that the fullest GPU has whatever the copies.
__device__ int least(const Shared& shared, u64 total) {
  int low = (total + RANKS - 1) / RANKS;
  for (int i = 0; i < NODES; ++i) low = max(low, (shared.inside[i] + NODE - 1) / NODE);
  return low;
}

// Reads a micro-batch's counts; says how many there are, or none where something is wrong.
__device__ bool read(const Given& given, const Made& made, Shared& shared, u64& total) {
  const int t = threadIdx.x, b = blockIdx.x;
  for (int r = t; r < RANKS; r += THREADS) shared.start.load[r] = 0;
  for (int i = t; i < NODES; i += THREADS) shared.inside[i] = 0;
  if (PARTS > EXPERTS) read_places(given, shared);
  __syncthreads();
  u64 own = 0;
  int wrong = 0;
  for (int e = t; e < EXPERTS; e += THREADS) {
    const i64 count = given.counts[(i64)b * EXPERTS + e];
    if (count < 0) wrong |= NEGATIVE;
    if (count >> 31) wrong |= TOO_MANY;
    else own += count;
    shared.count[e] = (int)count;
    if (given.node[e] >= 0) atomicAdd(&shared.inside[given.node[e]], (int)count);
  }
  for (int step = 16; step; step /= 2) own += __shfl_xor_sync(ALL, own, step);
  if (t % 32 == 0) shared.sum[t / 32] = own;
  const bool negative = __syncthreads_or(wrong & NEGATIVE), large = __syncthreads_or(wrong);
  total = 0;
  for (int w = 0; w < THREADS / 32; ++w) total += shared.sum[w];
  const int status = negative ? NEGATIVE : large || total >> 31 ? TOO_MANY : 0;
  if (t == 0) made.status[b] = status, made.used[b] = 0;
  return status == 0;
}

__device__ void write(const Made& made, const Parts& best) {
  const int t = threadIdx.x, b = blockIdx.x;
  for (int p = t; p < best.used; p += THREADS) {
    made.expert[b * ALL_PARTS + p] = best.expert[p];
    made.rank[b * ALL_PARTS + p] = best.rank[p];
    made.tokens[b * ALL_PARTS + p] = best.tokens[p];
  }
  for (int r = t; r < RANKS; r += THREADS) made.load[b * RANKS + r] = best.load[r];
  if (t == 0) made.used[b] = best.used;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Given given, Made made) {
  Shared& shared = *(Shared*)room;
  u64 total;
  if (!read(given, made, shared, total)) return;
  begin(given, shared);
  copy(shared.start, shared.best);
  int high = largest(shared.start.load), low = least(shared, total);
  int goal = low + (i64)low * SLACK / 1024;
  const bool fixed = SLOTS == 0 && PARTS == EXPERTS;  // nowhere to go
  for (int tries = 0; tries <= HALVINGS && high > goal && !fixed; ++tries) {
    for (int second = 0; second < 2; ++second) {
      const bool bold = (SLACK == 0) != second;  // careful first where there is slack
      __syncthreads();
      begin_trial(given, shared);
      if (threadIdx.x < 32) attempt(shared, goal, bold);
      __syncthreads();
      const int reached = largest(shared.trial.load);
      if (reached < high) {
        high = reached;
        copy(shared.trial, shared.best);
      }
      if (reached <= goal) break;
    }
    low = goal;
    goal = low + (high - low) / 2;
    if (goal == low) break;
  }
  __syncthreads();
  write(made, shared.best);
}
