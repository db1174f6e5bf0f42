// `lpt` for equal rails: each sender's chunks, largest first, to its least loaded rail.
//
// Chunks of CAP bytes need no sorting: they take the rails in turn.  Those of the last round, if it
// is not whole, and what remains of each flow, which all threads sort, are put on rails by one that
// keeps `load | rail` of all rails, sorted, in registers, while the others write the columns.
#include "sized.cuh"

constexpr int RAIL_BITS = bits_of(RAILS - 1);

typedef Sized Shared;
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

template <class Word>
__device__ void exchange(Word& low, Word& high) {
  const Word less = min(low, high);
  high = max(low, high);
  low = less;
}

// Batcher's network.
template <class Word>
__device__ void sort_loads(Word (&load)[8]) {
  constexpr int low[] = {0, 1, 2, 3, 0, 1, 4, 5, 2, 3, 0, 2, 4, 6, 1, 3, 1, 3, 5};
  constexpr int high[] = {4, 5, 6, 7, 2, 3, 6, 7, 4, 5, 1, 3, 5, 7, 4, 6, 2, 4, 6};
#pragma unroll
  for (int i = 0; i < 19; ++i) exchange(load[low[i]], load[high[i]]);
}

template <class Word>
struct alignas(16) Ahead {
  Word word[AHEAD];
};

// For one thread: sorted sizes, each to the least loaded rail; the word of its load, with the rail
// in its low bits, is left in the size's place.
template <class Word>
__device__ void on_least(Ahead<Word>* words, int items) {
  Word load[RAILS];
#pragma unroll
  for (int n = 0; n < RAILS; ++n) load[n] = n;
  for (int i = 0; i < items; i += AHEAD) {
    const Ahead<Word> added = words[i / AHEAD];
    Ahead<Word> put;
    if constexpr (RAILS == AHEAD) {
      if (load[0] + added.word[AHEAD - 1] > load[RAILS - 1]) {
        // each of these chunks lifts its rail above all: they take the rails in order
#pragma unroll
        for (int n = 0; n < RAILS; ++n) {
          put.word[n] = load[n];
          load[n] += added.word[n];
        }
        words[i / AHEAD] = put;
        sort_loads(load);
        continue;
      }
    }
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) {
      put.word[j] = load[0];
      replace_least(load, load[0] + added.word[j]);
    }
    words[i / AHEAD] = put;
  }
}

template <class Word>
__device__ void spread(const Given& given, const Made& made, Sized& sized, const Cuts& cuts,
                       Word* words) {
  const int t = threadIdx.x, b = blockIdx.x;
  const u16 *order = sized.order[cuts.now], *rests_before = sized.order[1 - cuts.now];
  u32 rest[EACH];  // read before words are written, which may stand in the same place
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int at = t + e * THREADS;
    rest[e] = at < cuts.rests ? sized.rest[order[at]] >> cuts.shift : 0;
  }
  __syncthreads();
  const int more = (cuts.count - cuts.rests) % RAILS;  // chunks of CAP bytes in the last round
  if (t < more) words[t] = (Word)(CAP >> cuts.shift) << RAIL_BITS;
#pragma unroll
  for (int e = 0; e < EACH; ++e) words[more + t + e * THREADS] = (Word)rest[e] << RAIL_BITS;
  if (t < AHEAD) words[more + EACH * THREADS + t] = 0;
  __syncthreads();
  short* rail = made.rail + (i64)b * CAPACITY;
  if (t == 0) on_least((Ahead<Word>*)words, more + cuts.rests);
  describe(given, made, sized.base, cuts.count, 32, [&](int i, u32 c, i64 bytes) {
    if (bytes == CAP) rail[c] = (c - rests_before[i]) % RAILS;
  });
  __syncthreads();
  for (int at = t; at < cuts.rests; at += THREADS)
    rail[sized.base[order[at] + 1] - 1] = words[more + at] & ((1 << RAIL_BITS) - 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Given given, Made made) {
  Shared& shared = *(Shared*)(room + ROOM_AT);
  const Cuts cuts = cut_and_sort<false>(given, made, shared);
  if (cuts.count == 0) return;
  // The least loaded rail has at most the mean, so none ever has more than the mean and a chunk;
  // two for those that the rails took in turn.
  const u64 most = (rests_sum(shared) / RAILS + 2 * (u64)CAP) >> cuts.shift;
  if ((most + 1) << RAIL_BITS <= ALL)
    spread(given, made, shared, cuts, shared.rest);
  else
    spread(given, made, shared, cuts, (u64*)given.wide + 2 * blockIdx.x * (u64)WIDE);
}
