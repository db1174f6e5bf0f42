// `lpt` for equal rails: each sender's chunks, largest first, to its least loaded rail.
//
// Chunks of CAP bytes need no sorting: they take the rails in turn.  What remains of each flow is
// sorted by all threads and put on rails by one that keeps `load | rail` of all rails, sorted, in
// registers, while the others write the chunks' columns.
#include "sized.cuh"

constexpr int RAIL_BITS = bits_of(RAILS - 1);

typedef Sized Shared;
extern "C" __device__ const u32 shared_bytes = sizeof(Shared);

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
// in its low bits, is left in the size's place.  The first `more` rails have carried `unit` more.
template <class Word>
__device__ void on_least(Ahead<Word>* words, int items, int more, Word unit) {
  Word load[RAILS];
#pragma unroll
  for (int at = 0; at < RAILS; ++at) {
    const int n = (at + more) % RAILS;
    load[at] = (n < more ? unit : 0) | n;
  }
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
      Word moving = load[0] + added.word[j];
#pragma unroll
      for (int n = 1; n < RAILS; ++n) {
        load[n - 1] = min(load[n], moving);
        moving = max(load[n], moving);
      }
      load[RAILS - 1] = moving;
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
#pragma unroll
  for (int e = 0; e < EACH; ++e) words[t + e * THREADS] = (Word)rest[e] << RAIL_BITS;
  __syncthreads();
  short* rail = made.rail + (i64)b * CAPACITY;
  if (t == 0) {
    const int more = (cuts.count - cuts.rests) % RAILS;
    on_least((Ahead<Word>*)words, cuts.rests, more, (Word)(CAP >> cuts.shift) << RAIL_BITS);
  } else if (t >= 32) {
    for (int c = t - 32; c < cuts.count; c += THREADS - 32) {
      const int i = flow_of(sized.base, c);
      if (describe(given, made, sized.base, i, c) == CAP) rail[c] = (c - rests_before[i]) % RAILS;
    }
  }
  __syncthreads();
  for (int at = t; at < cuts.rests; at += THREADS)
    rail[sized.base[order[at] + 1] - 1] = words[at] & ((1 << RAIL_BITS) - 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Given given, Made made) {
  Shared& shared = *(Shared*)room;
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
