// `even-excess`, for any rails.
//
// What stays on a GPU's own rails, and what goes where a rail has room for it, is decided for all
// destinations at once, since those do not touch each other: chunks of the largest size by counting
// how many lie before each that a rail takes, smaller ones in turn, a thread for each destination.
// The few that are left go, in order, through one warp, a lane for each rail.
#include "cut.cuh"

// share [senders, NODES, RAILS] of `whole` [senders, NODES]: what a rail should carry of the bytes
// for a node, 0 where one of its NICs is dead; near_rails, near_first [GPUS + 1]: whose rails are
// whose.
struct Nics {
  const int *share, *whole, *near_rails, *near_first;
};

// A chunk that found no room: its size, then its rail; and `where`: its receiver's row in `over`,
// the rail at which ties begin, and its GPU's rail or RAILS, from low bits to high ones.
struct alignas(8) Item {
  u32 size, where;
};
constexpr int FROM_AT = 16, OWN_AT = 24, AHEAD = 4;

// Of a flow: its bytes; then how many chunks of the largest size don't stay, the bytes of a smaller
// last one if it does not, and whether there is such a one.
union Slot {
  i64 bytes;
  struct {
    u32 many : 31, is_short : 1, rest;
  } left;
};

// Of what does not stay, from some GPUs for one destination: how many chunks of the largest size,
// and how many smaller ones.
struct alignas(8) Excess {
  u32 largest, smaller;
};

constexpr int RAIL_BITS = bits_of(RAILS - 1), ORDER_BITS = bits_of(RAILS);
constexpr int LANES = APART ? GPUS : 1, TOGETHER = GPUS / LANES;
constexpr int LISTED = 1024, TABLED = 8192 / NODES;     // more goes to global memory
constexpr int OWNED = (NODES + THREADS - 1) / THREADS;  // destinations of a thread
constexpr int PAIRS = NODES * RAILS, BESIDE = THREADS > PAIRS ? THREADS / PAIRS : 1;
constexpr int FILLING = NODES <= THREADS / 2 ? (NODES + 31) / 32 * 32 : THREADS / 2;

struct Shared {
  union {
    i64 parts[RANKS];                // [GPUS, NODES]: bytes
    Excess excess[RANKS];            // the same way
    i64 word[PAIRS];                 // [NODES, RAILS]: levels, as `level`
    Item item[LISTED + AHEAD];       // in the end
  };
  Slot slot[FLOWS + RANKS];          // see slot_of
  u64 space[32];
  i64 over[PAIRS];                   // [NODES, RAILS]: bytes beyond what is due
  i64 level[PAIRS];                  // a destination's levels, lowest first: see level_words
  int share[PAIRS], whole[NODES], near_rails[NEARS], near_first[GPUS + 1];  // of Nics
  u32 taken[PAIRS];                  // chunks of the largest size that a rail took
  u32 base[FLOWS + 1], bits, unit;   // unit: the largest size
  u32 nth[FLOWS];                    // of those for its destination, a flow's first that moves
  u32 moving[NODES], placed[NODES];  // chunks of the largest size that move; that found room
  u32 first[NODES];                  // where those begin in `table`
  u16 smaller[FLOWS], smallers[NODES];  // [NODES, GPUS * GPUS]: flows whose last chunk moves; count
  u8 own[FLOWS];                     // a flow's own rail, or RAILS
  bool late[FLOWS];                  // whether its smaller chunk found no room
  u8 table[NODES * TABLED + 1];      // rails of the chunks that found room, by destination
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

// Where a flow's slot stands: threads look at GPUS flows each, and shall not wait for one bank.
__device__ int slot_of(int i) { return i + i / GPUS; }

// The whole part of bytes * share / whole.
__device__ u64 part(u64 bytes, u32 share, u32 whole) {
  if (bytes >> 32) return bytes / whole * share + bytes % whole * share / whole;
  const u64 rest = (u64)((u32)bytes % whole) * share;
  return (u64)((u32)bytes / whole) * share + (rest >> 32 ? rest / whole : (u32)rest / whole);
}

// Copies of tables, in two steps: reading all first, they are waited for once.
template <int length>
struct Copied {
  int value[(length + THREADS - 1) / THREADS];

  __device__ void read(const int* from) {
#pragma unroll
    for (int at = threadIdx.x, e = 0; e * THREADS < length; at += THREADS, ++e)
      value[e] = at < length ? from[at] : 0;
  }
  __device__ void write(int* to) const {
#pragma unroll
    for (int at = threadIdx.x, e = 0; e * THREADS < length; at += THREADS, ++e)
      if (at < length) to[at] = value[e];
  }
};

struct NicsCopied {
  Copied<PAIRS> share;
  Copied<NODES> whole;
  Copied<NEARS> near_rails;
  Copied<GPUS + 1> near_first;

  __device__ void read(const Nics& nics) {
    share.read(nics.share + blockIdx.x * PAIRS);
    whole.read(nics.whole + blockIdx.x * NODES);
    near_rails.read(nics.near_rails);
    near_first.read(nics.near_first);
  }
  __device__ void write(Shared& shared) const {
    share.write(shared.share);
    whole.write(shared.whole);
    near_rails.write(shared.near_rails);
    near_first.write(shared.near_first);
  }
};

// The largest size: the cap, or what the largest flow has.
__device__ u32 find_unit(const i64 (&flow)[EACH], Shared& shared) {
  i64 most = 0;
  for (int e = 0; e < EACH; ++e) most = max(most, flow[e]);
  if (__syncthreads_or(most >= CAP)) return CAP;
  atomicMax(&shared.unit, (u32)most);
  __syncthreads();
  return shared.unit;
}

// `over` becomes minus what is due.
__device__ void find_due(const i64 (&flow)[EACH], Shared& shared) {
  const int t = threadIdx.x;
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
    shared.parts[p] = bytes;
  }
  __syncthreads();
  for (int p = t; p < PAIRS; p += THREADS) {
    const int f = p / RAILS;
    i64 due = 0;
    for (int g = 0; g < GPUS; ++g) due += shared.parts[g * NODES + f];
    shared.over[p] = due ? -(i64)part(due, shared.share[p], shared.whole[f]) : 0;
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
__device__ Excess stay(Shared& shared, int f, int g, u32 unit, short* rail) {
  i64* over = shared.over + f * RAILS;
  int own = emptiest(shared, g, f);
  i64 level = own < RAILS ? over[own] : 1;  // of the own rail; where there is none, nothing stays
  auto look_again = [&] {
    over[own] = level;
    own = emptiest(shared, g, f);
    level = over[own];
  };
  Excess excess = {0, 0};
  const int first = g * RANKS + f * GPUS;
  u64 flow[GPUS];  // read before anything is written
#pragma unroll
  for (int j = 0; j < GPUS; ++j) flow[j] = shared.slot[slot_of(first + j)].bytes;
#pragma unroll
  for (int j = 0; j < GPUS; ++j) {
    const int i = first + j;
    const u64 bytes = flow[j];
    u32 many = unit == CAP ? bytes / CAP : bytes == unit, c = shared.base[i];
    const u32 rest = unit == CAP ? bytes % CAP : many ? 0 : bytes;
    while (many && level + unit / 2 <= 0) {
      const u32 most = ONE && unit == CAP ? (u64)(-level - CAP / 2) / CAP + 1 : 1;
      const u32 stays = min(many, most);
      level += (u64)stays * unit;
      many -= stays;
      if (ONE) break;
      rail[c++] = own;
      look_again();
    }
    const bool stays = rest && level + rest / 2 <= 0;
    shared.own[i] = own;
    shared.slot[slot_of(i)].left = {many, rest > 0, stays ? 0 : rest};
    excess.largest += many;
    excess.smaller += rest && !stays;
    if (stays) level += rest;
    if (stays && !ONE) rail[c + many] = own, look_again();
  }
  if (own < RAILS) over[own] = level;
  return excess;
}

// Orders what moves by destination: fills nth and smaller, from `excess`.
__device__ void order_excess(Shared& shared, int f, int g) {
  const int first = g * RANKS + f * GPUS;
  Slot slot[GPUS];  // read before anything is written
#pragma unroll
  for (int j = 0; j < GPUS; ++j) slot[j] = shared.slot[slot_of(first + j)];
  Excess before = {0, 0};
#pragma unroll
  for (int other = 0; other < GPUS - 1; ++other) {
    const Excess excess = shared.excess[other * NODES + f];
    before.largest += other < g ? excess.largest : 0;
    before.smaller += other < g ? excess.smaller : 0;
  }
#pragma unroll
  for (int j = 0; j < GPUS; ++j) {
    shared.nth[first + j] = before.largest;
    before.largest += slot[j].left.many;
    shared.late[first + j] = false;
    if (slot[j].left.rest) shared.smaller[f * GPUS * GPUS + before.smaller++] = first + j;
  }
}

// Fills moving, smallers and, as if no destination had more than its part of `table`, first; says
// whether one has more.
__device__ bool order_destinations(Shared& shared) {
  bool beyond = false;
  for (int f = threadIdx.x; f < NODES; f += THREADS) {
    Excess sum = {0, 0};
    for (int g = 0; g < GPUS; ++g) {
      sum.largest += shared.excess[g * NODES + f].largest;
      sum.smaller += shared.excess[g * NODES + f].smaller;
    }
    shared.moving[f] = sum.largest;
    shared.placed[f] = 0;
    shared.smallers[f] = sum.smaller;
    shared.first[f] = f * TABLED;
    beyond |= sum.largest > TABLED;
  }
  return beyond;
}

// Fills `first` anew, for a table that has room for all chunks.
__device__ void pack_destinations(Shared& shared) {
  u32 own = 0, all;
  for (int e = 0; e < OWNED; ++e) {
    const int f = threadIdx.x * OWNED + e;
    if (f < NODES) own += shared.moving[f];
  }
  u32 reached = sum_before(own, (u32*)shared.space, all);
  for (int e = 0; e < OWNED; ++e) {
    const int f = threadIdx.x * OWNED + e;
    if (f >= NODES) break;
    shared.first[f] = reached;
    reached += shared.moving[f];
  }
  __syncthreads();
}

// The place of a rail among those that are as far below, for sender k.
__device__ int place_of(int k, int f, int n) { return (n + RAILS - (k + f) % RAILS) % RAILS; }

// The whole part of value / unit, downwards.
__device__ int floor_of(i64 value, u32 unit) {
  const int bits = 31 - __clz(CAP);
  if (unit == CAP && CAP == 1 << bits) return value >> bits;
  const i64 whole = unit == CAP ? value / CAP : value / unit;
  return whole - (value < whole * unit);
}

// Chunks of the largest size that move go to the rail that is furthest below, as long as half of
// one is due there.  The j-th of a rail comes after all those that other rails take at lower
// levels: rail m's first `j + ahead[m]`.  BESIDE threads look at a rail.
__device__ void take_largest(Shared& shared, int k, u32 unit, u8* table) {
  for (int at = threadIdx.x; at < PAIRS * BESIDE; at += THREADS) {
    const int p = at / BESIDE, f = p / RAILS, n = p % RAILS;
    const u32 many = shared.moving[f];
    if (many == 0 || shared.share[p] == 0) continue;
    int ahead[RAILS];
#pragma unroll
    for (int m = 0; m < RAILS; ++m) {
      const bool first = place_of(k, f, m) < place_of(k, f, n);
      const i64 lead = shared.over[p] - shared.over[f * RAILS + m] + first + unit - 1;
      ahead[m] = shared.share[f * RAILS + m] ? floor_of(lead, unit) : -CAPACITY - 1;
    }
    const int due = 1 + floor_of(-shared.over[p] - unit / 2, unit);
    u8* own = table + shared.first[f];
    u32 taken = 0;
    for (int j = at % BESIDE; j < due; j += BESIDE, ++taken) {
      u32 before = 0;
#pragma unroll
      for (int m = 0; m < RAILS; ++m) before += max(0, j + ahead[m]);
      if (before >= many) break;
      own[before] = n;
    }
    if (taken) atomicAdd(&shared.taken[p], taken), atomicAdd(&shared.placed[f], taken);
  }
}

// A rail that is dead is over by so much, more than any other's score can be.
template <class Word>
constexpr Word DEAD = (Word)1 << (8 * sizeof(Word) - 2 - ORDER_BITS);

// Where rails stand after the chunks of the largest size, lowest first for each destination: bytes
// beyond what is due, in 2**shift bytes, with the rail's place in the low bits.
template <class Word>
__device__ void level_words(Shared& shared, int k, u32 unit, int shift) {
  for (int p = threadIdx.x; p < PAIRS; p += THREADS) {
    const Word now = (shared.over[p] + (i64)shared.taken[p] * unit) >> shift;
    const int place = place_of(k, p / RAILS, p % RAILS);
    shared.word[p] = (shared.share[p] ? now : DEAD<Word>) * (1 << RAIL_BITS) + place;
  }
  __syncthreads();
  for (int p = threadIdx.x; p < PAIRS; p += THREADS) {
    const int first = p - p % RAILS;
    const i64 word = shared.word[p];
    int lower = 0;
#pragma unroll
    for (int m = 0; m < RAILS; ++m) lower += shared.word[first + m] < word;
    shared.level[first + lower] = word;
  }
  __syncthreads();
}

// The rail whose level a word is.
__device__ int rail_of(int k, int f, i64 word) {
  return (((int)word & ((1 << RAIL_BITS) - 1)) + k + f) % RAILS;
}

// Brings `over` up to date with `level`.
__device__ void settle_levels(Shared& shared, int k, int shift) {
  for (int p = threadIdx.x; p < PAIRS; p += THREADS) {
    const int f = p / RAILS, at = f * RAILS + rail_of(k, f, shared.level[p]);
    const i64 now = (shared.level[p] >> RAIL_BITS) << shift;
    shared.over[at] = shared.share[at] ? now : DEAD<i64>;
  }
}

// For one thread: the smaller chunks for node `f` that move, each to the rail that is furthest
// below, if half of it is due there.  Says whether any chunk found no room.
template <class Word>
__device__ bool take_smaller(Shared& shared, int k, int f, int shift, short* rail) {
  Word level[RAILS];
#pragma unroll
  for (int at = 0; at < RAILS; ++at) level[at] = shared.level[f * RAILS + at];
  bool late = shared.placed[f] < shared.moving[f];
  const u16* flows = shared.smaller + f * GPUS * GPUS;
  const int count = shared.smallers[f];
  // Sizes are read one ahead, flows two; where there is none, flow 0 stands for it.
  auto flow_at = [&](int at) { return at < count ? flows[at] : 0; };
  auto size_of = [&](int flow) { return shared.slot[slot_of(flow)].left.rest; };
  int flow = flow_at(0), next = flow_at(1);
  u32 size = size_of(flow);
  for (int at = 0; at < count; ++at) {
    const u32 next_size = size_of(next);
    const int later = flow_at(at + 2);
    const Word added = size >> shift;
    if ((level[0] >> RAIL_BITS) + (added >> 1) <= 0) {
      rail[shared.base[flow + 1] - 1] = rail_of(k, f, level[0]);
      replace_least(level, level[0] + added * (1 << RAIL_BITS));
    } else {
      late = shared.late[flow] = true;
    }
    flow = next, size = next_size, next = later;
  }
#pragma unroll
  for (int at = 0; at < RAILS; ++at) shared.level[f * RAILS + at] = level[at];
  return late;
}

// The rail of a chunk of flow `i`, if it stayed on its GPU's only one or is of the largest size and
// found room.
__device__ void write_rail(const Shared& shared, int i, u32 c, const u8* table, short* rail) {
  const auto left = shared.slot[slot_of(i)].left;
  const u32 end = shared.base[i + 1] - left.is_short, first = end - left.many;
  const bool stays = c < end ? c < first : left.rest == 0;
  if (stays && ONE) rail[c] = shared.own[i];
  if (c < first || c >= end) return;
  const int f = receiver(i);
  const u32 nth = shared.nth[i] + c - first;
  if (nth < shared.placed[f]) rail[c] = table[shared.first[f] + nth];
}

// Calls `visit(flow, its first chunk that found no room, how many did not)` for each of a thread's
// flows that has some; where the flow's `late`, the last of them is smaller.
template <class Visit>
__device__ void for_late(const Shared& shared, Visit visit) {
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = threadIdx.x * EACH + e;
    if (i >= FLOWS) return;
    const auto left = shared.slot[slot_of(i)].left;
    const u32 end = shared.nth[i] + left.many, placed = shared.placed[receiver(i)];
    const u32 many = min((u32)left.many, end > placed ? end - placed : 0);
    if (many || shared.late[i])
      visit(i, shared.base[i + 1] - left.is_short - many, many + shared.late[i]);
  }
}

// What found no room, in order, from place `at` on.
__device__ void list(const Shared& shared, Item* item, u32 at, int k, u32 unit) {
  for_late(shared, [&](int i, u32, u32 chunks) {
    const u32 f = receiver(i);
    const u32 where = f * RAILS | (k + f) % RAILS << FROM_AT | shared.own[i] << OWN_AT;
    for (u32 c = 0; c < chunks; ++c) item[at++] = {unit, where};
    if (shared.late[i]) item[at - 1].size = shared.slot[slot_of(i)].left.rest;
  });
}

// For one warp, a lane for each rail: each chunk to the rail that is furthest below what is due to
// its destination, debts elsewhere counted too.  Chunks are read two ahead, and a rail's next score
// is known, if it takes a chunk and if not, before the least is found; everything is chosen, since
// branches would cost more than all the rest.  Lanes read a chunk two steps before one of them
// writes its rail, and meet in between.
__device__ void settle(Item* item, int chunks, i64* over) {
  const int n = own_rail();
  over += n;
  auto row_of = [&](const Item& chunk) { return over + (chunk.where & ((1 << FROM_AT) - 1)); };
  auto place_of = [&](const Item& chunk) {  // among rails that are as far below
    int turn = n - (int)(chunk.where >> FROM_AT & 255);
    turn = (RAILS & (RAILS - 1)) == 0 ? turn & (RAILS - 1) : turn + (turn >> 31 & RAILS);
    return n == (int)(chunk.where >> OWN_AT) ? -1 : turn;
  };
  auto scored = [](i64 here, i64 debt, int place) {
    return (here + (debt >> DEBT)) * (1 << ORDER_BITS) + place;
  };
  i64 debt = 0;
#pragma unroll 8
  for (int f = 0; f < NODES; ++f) {
    const i64 beyond = over[f * RAILS];
    debt += beyond > 0 && beyond < DEAD<i64> ? beyond : 0;
  }
  Item now = item[0], next = item[1];
  i64 *row = row_of(now), *next_row = row_of(next), here = *row, there = *next_row;
  i64 score = scored(here, debt, place_of(now));
  for (int i = 0; i < chunks; ++i) {
    const i64 lowest = least(score);
    const Item later = item[i + 2];
    const i64 after = here + (i64)now.size;
    const i64 owed = debt + (max(after, (i64)0) - max(here, (i64)0));
    const int place = place_of(next);
    const bool same = row == next_row;
    const i64 if_put = scored(same ? after : there, owed, place);
    const i64 if_not = scored(same ? here : there, debt, place);
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
  Shared& shared = *(Shared*)(room + ROOM_AT);
  const int t = threadIdx.x, b = blockIdx.x, k = given.first + b;
  short* rail = made.rail + (i64)b * CAPACITY;
  i64 flow[EACH];
  u32 none[EACH];
  int odds;
  NicsCopied copied;
  copied.read(nics);
  const int wrong = read_flows(given, flow);
  copied.write(shared);
  for (int p = t; p < PAIRS; p += THREADS) shared.taken[p] = 0;
  if (t == 0) shared.bits = shared.unit = 0;
  const int count =
      cut(wrong, made, flow, shared.base, shared.space, none, odds, [](i64) { return 0; });
  if (count == 0) return;
  const u32 unit = find_unit(flow, shared);
  find_due(flow, shared);
  for (int p = t; p < NODES * LANES; p += THREADS) {
    const int f = p % NODES, first = p / NODES * TOGETHER;
    for (int g = first; g < first + TOGETHER; ++g)
      shared.excess[g * NODES + f] = stay(shared, f, g, unit, rail);
  }
  __syncthreads();
  for (int p = t; p < RANKS; p += THREADS) order_excess(shared, p % NODES, p / NODES);
  const bool beyond = order_destinations(shared);
  // Of a smaller chunk half must be whole.
  const int common = __ffs(shared.bits) - 1, even = common > 1 ? common - 1 : 0;
  bool far = CAP >> even >= DEAD<int>;
  for (int p = t; p < PAIRS; p += THREADS) far |= -shared.over[p] >> even >= DEAD<int>;
  u8* table = shared.table;
  if (__syncthreads_or(far || beyond)) {  // hardly ever
    far = __syncthreads_or(far);
    if (__syncthreads_or(beyond)) {
      table = (u8*)(given.wide + (i64)b * 2 * WIDE);
      pack_destinations(shared);
    }
  }
  const int shift = far ? 0 : even;
  take_largest(shared, k, unit, table);
  __syncthreads();
  if (far) level_words<i64>(shared, k, unit, shift);
  else level_words<int>(shared, k, unit, shift);
  bool late = false;
  for (int f = t; t < FILLING && f < NODES; f += FILLING)
    late |= far ? take_smaller<i64>(shared, k, f, shift, rail)
                : take_smaller<int>(shared, k, f, shift, rail);
  describe(given, made, shared.base, count, FILLING,
           [&](int i, u32 c, i64) { write_rail(shared, i, c, table, rail); });
  if (!__syncthreads_or(late)) return;
  settle_levels(shared, k, shift);
  u32 own = 0, chunks;
  for_late(shared, [&](int, u32, u32 many) { own += many; });
  const u32 at = sum_before(own, (u32*)shared.space, chunks);
  auto finish = [&](Item* item) {
    list(shared, item, at, k, unit);
    if (t < AHEAD) item[chunks + t] = {0, 0};
    __syncthreads();
    if (t < 32) settle(item, chunks, shared.over);
    __syncthreads();
    u32 from = at;
    for_late(shared, [&](int, u32 first, u32 many) {
      for (u32 c = 0; c < many; ++c) rail[first + c] = item[from++].size;
    });
  };
  if (chunks <= LISTED) finish(shared.item);
  else finish((Item*)(given.wide + (i64)b * 2 * WIDE));
}
