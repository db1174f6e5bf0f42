// `even-excess`, for any rails.
//
// What stays on a GPU's own rails is decided for all destinations at once, since those do not touch
// each other; what is left goes, in order, through one warp, a lane for each rail, while the others
// write the chunks' columns.
#include "cut.cuh"

// share [senders, NODES, RAILS] of `whole` [senders, NODES]: what a rail should carry of the bytes
// for a node, 0 where one of its NICs is dead; near_rails, near_first [GPUS + 1]: whose rails are
// whose.
struct Nics {
  const int *share, *whole, *near_rails, *near_first;
};

// A chunk that does not stay: its size, then its rail; and `where`: its receiver's row in `over`,
// the rail at which ties begin, and its GPU's rail or RAILS, from low bits to high ones.
struct alignas(8) Item {
  u32 size, where;
};
constexpr int FROM_AT = 16, OWN_AT = 24, AHEAD = 4, LISTED = FLOWS + 1024;

// Of a flow: its bytes; then how many chunks of CAP bytes don't stay, the bytes of a shorter last
// one if it does not, and whether there is such a one.
union Slot {
  i64 bytes;
  struct {
    u32 many : 31, is_short : 1, rest;
  } left;
};

struct Shared {
  Item item[LISTED + AHEAD];
  Slot slot[FLOWS + RANKS];          // see slot_of
  u64 space[32];
  i64 over[NODES * RAILS];           // bytes beyond what is due
  int narrow[NODES * RAILS];         // the same, in fewer bits
  int share[NODES * RAILS], near_rails[GPUS * RAILS], near_first[GPUS + 1];  // of Nics
  u32 base[FLOWS + 1], bits, sum;    // sum: of the excess, in 2**16 bytes
  u8 own[FLOWS];                     // a flow's own rail, or RAILS
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared);

// Where a flow's slot stands: threads look at GPUS flows each, and shall not wait for one bank.
__device__ int slot_of(int i) { return i + i / GPUS; }

constexpr int ORDER_BITS = bits_of(RAILS), LANES = APART ? GPUS : 1, TOGETHER = GPUS / LANES;

// The whole part of bytes * share / whole.
__device__ u64 part(u64 bytes, u32 share, u32 whole) {
  if (bytes >> 32) return bytes / whole * share + bytes % whole * share / whole;
  const u64 rest = (u64)((u32)bytes % whole) * share;
  return (u64)((u32)bytes / whole) * share + (rest >> 32 ? rest / whole : (u32)rest / whole);
}

__device__ void read_nics(const Nics& nics, Shared& shared) {
  const int t = threadIdx.x;
  for (int p = t; p < NODES * RAILS; p += THREADS)
    shared.share[p] = nics.share[blockIdx.x * NODES * RAILS + p];
  for (int g = t; g <= GPUS; g += THREADS) shared.near_first[g] = nics.near_first[g];
  const int nears = nics.near_first[GPUS];
  for (int at = t; at < nears; at += THREADS) shared.near_rails[at] = nics.near_rails[at];
  if (t == 0) shared.bits = shared.sum = 0;
}

// `over` becomes minus what is due.
__device__ void find_due(const i64 (&flow)[EACH], const Nics& nics, Shared& shared) {
  const int t = threadIdx.x;
  i64* parts = (i64*)shared.item;  // [GPUS, NODES], where nothing stands yet
  u32 bits = CAP;
  for (int e = 0; e < EACH; ++e)
    if (t * EACH + e < FLOWS) {
      shared.slot[slot_of(t * EACH + e)].bytes = flow[e];
      bits |= (u32)flow[e];
    }
  __syncthreads();
  for (int p = t; p < RANKS; p += THREADS) {
    const int f = p % NODES, g = p / NODES;
    i64 bytes = 0;
    for (int j = 0; j < GPUS; ++j) bytes += shared.slot[slot_of(g * RANKS + f * GPUS + j)].bytes;
    parts[p] = bytes;
  }
  __syncthreads();
  for (int p = t; p < NODES * RAILS; p += THREADS) {
    const int f = p / RAILS;
    i64 due = 0;
    for (int g = 0; g < GPUS; ++g) due += parts[g * NODES + f];
    shared.over[p] = due ? -(i64)part(due, shared.share[p], nics.whole[blockIdx.x * NODES + f]) : 0;
    bits |= (u32)shared.over[p];
  }
  add_bits(bits, &shared.bits);
  __syncthreads();
}

// A GPU's emptiest rail that leads to a node, or RAILS.
__device__ int emptiest(const Shared& shared, int g, int f) {
  const i64* over = shared.over + f * RAILS;
  int own = RAILS;
  for (int at = shared.near_first[g]; at < shared.near_first[g + 1]; ++at) {
    const int n = shared.near_rails[at];
    if (shared.share[f * RAILS + n] && (own == RAILS || over[n] < over[own])) own = n;
  }
  return own;
}

// The chunks of a GPU for node `f` stay on its emptiest own rail as long as half of one is due
// there; those that don't are noted.  Where every GPU has ONE rail, no chunk's rail is written yet.
__device__ void stay(Shared& shared, int f, int g, short* rail) {
  i64* over = shared.over + f * RAILS;
  int own = emptiest(shared, g, f);
  i64 level = own < RAILS ? over[own] : 1;  // of the own rail; where there is none, nothing stays
  auto look_again = [&] {
    over[own] = level;
    own = emptiest(shared, g, f);
    level = over[own];
  };
  for (int i = g * RANKS + f * GPUS; i < g * RANKS + (f + 1) * GPUS; ++i) {
    Slot& slot = shared.slot[slot_of(i)];
    const u64 bytes = slot.bytes;
    const u32 rest = bytes % CAP;
    u32 many = bytes / CAP, c = shared.base[i];
    while (many && level + CAP / 2 <= 0) {
      const u32 stays = ONE ? (u32)min((u64)many, (u64)(-level - CAP / 2) / CAP + 1) : 1;
      level += (u64)stays * CAP;
      many -= stays;
      if (ONE) break;
      rail[c++] = own;
      look_again();
    }
    const bool stays = rest && level + rest / 2 <= 0;
    shared.own[i] = own;
    slot.left = {many, rest > 0, stays ? 0 : rest};
    if (stays) level += rest;
    if (stays && !ONE) rail[c + many] = own, look_again();
  }
  if (own < RAILS) over[own] = level;
}

// The rail of a chunk of flow `i` if it stayed on its GPU's only one.
__device__ void write_staying(const Shared& shared, int i, u32 c, short* rail) {
  const auto left = shared.slot[slot_of(i)].left;
  const u32 end = shared.base[i + 1] - left.is_short;
  const bool stays = c < end ? c + left.many < end : left.rest == 0;
  if (ONE && stays) rail[c] = shared.own[i];
}

// Calls `visit(flow, its first chunk that does not stay, how many don't, the last one's bytes)` for
// each of a thread's flows that has some.
template <class Visit>
__device__ void for_excess(const Shared& shared, Visit visit) {
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = threadIdx.x * EACH + e;
    if (i >= FLOWS) return;
    const auto left = shared.slot[slot_of(i)].left;
    const u32 chunks = left.many + (left.rest > 0);
    const u32 first = shared.base[i + 1] - left.is_short - left.many;
    if (chunks) visit(i, first, chunks, left.rest ? left.rest : (u32)CAP);
  }
}

// What does not stay, in order, from place `at` on; sizes in 2**shift bytes.
__device__ void list(const Shared& shared, Item* item, u32 at, int k, int shift) {
  for_excess(shared, [&](int i, u32, u32 chunks, u32 last) {
    const u32 f = receiver(i);
    const u32 where = f * RAILS | (k + f) % RAILS << FROM_AT | shared.own[i] << OWN_AT;
    for (u32 c = 1; c < chunks; ++c) item[at++] = {(u32)CAP >> shift, where};
    item[at++] = {last >> shift, where};
  });
}

// A rail that is dead is over by so much, more than any other's score can be.
template <class Word>
constexpr Word DEAD = (Word)1 << (8 * sizeof(Word) - 2 - ORDER_BITS);

// For one warp, a lane for each rail: each chunk to the rail that is furthest below what is due to
// its destination, debts elsewhere counted too.  Chunks are read two ahead, and a rail's next score
// is known, if it takes a chunk and if not, before the least is found; everything is chosen, since
// branches would cost more than all the rest.  Lanes read a chunk two steps before one of them
// writes its rail, and meet in between.
template <class Word>
__device__ void settle(Item* item, int chunks, Word* over) {
  const int n = own_rail();
  over += n;
  auto row_of = [&](const Item& chunk) { return over + (chunk.where & ((1 << FROM_AT) - 1)); };
  auto place_of = [&](const Item& chunk) {  // among rails that are as far below
    int turn = n - (int)(chunk.where >> FROM_AT & 255);
    turn = (RAILS & (RAILS - 1)) == 0 ? turn & (RAILS - 1) : turn + (turn >> 31 & RAILS);
    return n == (int)(chunk.where >> OWN_AT) ? -1 : turn;
  };
  auto scored = [](Word here, Word debt, int place) {
    return (here + (debt >> DEBT)) * (1 << ORDER_BITS) + place;
  };
  Word debt = 0;
#pragma unroll 8
  for (int f = 0; f < NODES; ++f) {
    const Word beyond = over[f * RAILS];
    debt += beyond > 0 && beyond < DEAD<Word> ? beyond : 0;
  }
  Item now = item[0], next = item[1];
  Word *row = row_of(now), *next_row = row_of(next), here = *row, there = *next_row;
  Word score = scored(here, debt, place_of(now));
#pragma unroll 8
  for (int i = 0; i < chunks; ++i) {
    const Word lowest = least(score);
    const Item later = item[i + 2];
    const Word after = here + (Word)now.size;
    const Word owed = debt + (max(after, (Word)0) - max(here, (Word)0));
    const int place = place_of(next);
    const bool same = row == next_row;
    const Word if_put = scored(same ? after : there, owed, place);
    const Word if_not = scored(same ? here : there, debt, place);
    const bool put = score == lowest;
    score = put ? if_put : if_not;
    here = put ? after : here;
    debt = put ? owed : debt;
    *row = here;
    if (put) item[i].size = n;
    here = same ? here : there;
    row = next_row, next_row = row_of(later), there = *next_row;
    now = next, next = later;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Given given, Made made, Nics nics) {
  Shared& shared = *(Shared*)room;
  const int t = threadIdx.x, b = blockIdx.x, k = given.first + b;
  short* rail = made.rail + (i64)b * CAPACITY;
  read_nics(nics, shared);
  i64 flow[EACH];
  u32 none[EACH];
  int odds;
  const int wrong = read_flows(given, flow);
  const int count =
      cut(wrong, made, flow, shared.base, shared.space, none, odds, [](i64) { return 0; });
  if (count == 0) return;
  find_due(flow, nics, shared);
  for (int p = t; p < NODES * LANES; p += THREADS) {
    const int f = p % NODES, first = p / NODES * TOGETHER;
    for (int g = first; g < first + TOGETHER; ++g) stay(shared, f, g, rail);
  }
  __syncthreads();
  // Debts are divided by 2**DEBT, so that many bits stay.
  const int common = __ffs(shared.bits) - 1, bits = common > DEBT ? common - DEBT : 0;
  bool far = false;
  for (int p = t; p < NODES * RAILS; p += THREADS) {
    if (shared.share[p] == 0) shared.over[p] = DEAD<i64>;
    const i64 over = shared.over[p];
    shared.narrow[p] = over == DEAD<i64> ? DEAD<int> : over >> bits;
    far |= -over >> bits >= DEAD<int>;
  }
  far = __syncthreads_or(far);
  u32 own = 0, units = 0, chunks;
  for_excess(shared, [&](int, u32, u32 many, u32 last) {
    own += many;
    units += (((u64)(many - 1) * CAP + last) >> 16) + 1;
  });
  add_sum(units, &shared.sum);
  const u32 at = sum_before(own, (u32*)shared.space, chunks);
  // A rail is over by half a chunk at most, for each node; the excess adds to that, and to debts.
  const u64 sum = ((u64)shared.sum << 16) + CAP;
  far |= (sum + ((sum + (u64)NODES * CAP) >> DEBT)) >> bits >= DEAD<int>;
  auto finish = [&](Item* item) {
    list(shared, item, at, k, far ? 0 : bits);
    if (t < AHEAD) item[chunks + t] = {0, 0};
    __syncthreads();
    if (t >= 32) {
      for (int c = t - 32; c < count; c += THREADS - 32) {
        const int i = flow_of(shared.base, c);
        describe(given, made, shared.base, i, c);
        write_staying(shared, i, c, rail);
      }
    } else if (far) {
      settle(item, chunks, shared.over);
    } else {
      settle(item, chunks, shared.narrow);
    }
    __syncthreads();
    u32 from = at;
    for_excess(shared, [&](int, u32 first, u32 many, u32) {
      for (u32 c = 0; c < many; ++c) rail[first + c] = item[from++].size;
    });
  };
  if (chunks <= LISTED) finish(shared.item);
  else finish((Item*)given.wide + (i64)b * 2 * WIDE);
}
