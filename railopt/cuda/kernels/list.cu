// Entries by the classes that their choices name, a block for each class: `list` from `base` on (or
// from class * limit on) has the entries in order, or, where ALL_CHOICES, entry * k + choice for every
// choice that names the class.  Where `in_place` an entry's place is its number.  Those from `limit` on are left out and counted in `dropped`.
//
// order     in which entries are looked at, or none
// inverse   [entries, width]: where an entry stands, by class (and choice); the rest is left as it is
// by_choice [entries, k]: where a choice stands, the rest is left as it is
// counts    [classes] with this step: how many each class has, left out ones not counted
// seen      by slot: how many choices name it
// status    gets 1 where a choice is not of -1 to `experts` - 1; experts 0: nothing is asked
#include "lists.cuh"

struct Listed {
  const int* order;
  const i64* base;
  i64 limit;
  int *list, *inverse, *by_choice;
  i64* counts;
  u64 *seen, *dropped, *status;
  int width, counts_step, experts, in_place;
};

struct Shared {
  u32 space[32];
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Entries entries, Listed to) {
  u32* space = ((Shared*)(room + ROOM_AT))->space;
  const int t = threadIdx.x, named = blockIdx.x, k = entries.k;
  const i64 base = to.base ? to.base[named] : named * to.limit;
  u32 reached = 0, all;
  for (int from = 0; from < entries.count; from += THREADS) {
    const int i = from + t, entry = i < entries.count && to.order ? to.order[i] : i;
    const i64* own = entries.of(entry);
    u32 hits = 0;
    if (i < entries.count)
      for (int j = 0; j < k; ++j) {
        if (to.experts && named == 0 && (own[j] < -1 || own[j] >= to.experts))
          atomicOr(to.status, (u64)1);
        if (entries.class_of(own[j]) != named) continue;
        hits += ALL_CHOICES || hits == 0;
        if (to.seen) atomicAdd(to.seen + own[j], (u64)1);
      }
    u32 at = reached + sum_before(hits, space, all);
    reached += all;
    if (to.in_place) at = i;
    __syncthreads();
    if (hits == 0) continue;
    int below = ALL_CHOICES ? 0 : entries.named_below(own, named);
    if (ALL_CHOICES)
      for (int j = 0; j < k; ++j) {
        const int found = entries.class_of(own[j]);
        below += found >= 0 && found < named;
      }
    for (int j = 0; j < k && hits; ++j) {
      if (entries.class_of(own[j]) != named) continue;
      if (at < to.limit) {
        to.list[base + at] = ALL_CHOICES ? entry * k + j : entry;
        if (to.inverse) to.inverse[(i64)entry * to.width + below] = base + at;
        if (to.by_choice) to.by_choice[entry * k + j] = base + at;
      }
      ++at, ++below, --hits;
    }
  }
  if (t) return;
  const i64 kept = to.in_place ? reached : min((i64)reached, to.limit);
  if (to.counts) to.counts[(i64)named * to.counts_step] = kept;
  if (reached > kept) atomicAdd(to.dropped, (u64)(reached - kept));
}
