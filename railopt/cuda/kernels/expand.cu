// Pieces [rows, columns] that lie row by row, put column by column: for every row of the result the
// row that it is (`index`), and the way back (`inverse`).  BLOCKS blocks for each table.
#include "block.cuh"

struct Pieces {
  const i64* size;
  int rows, columns, row_step, column_step;
  int *index, *inverse;
};
struct Every {
  Pieces of[4];
};

constexpr int MOST = RANKS * GPUS;
struct Shared {
  u32 space[32], by_row[MOST], by_column[MOST];
};
extern "C" __device__ const u32 shared_bytes = sizeof(Shared) + 8 * ROOM_AT;

extern "C" __global__ void __launch_bounds__(THREADS, 1) plan(Every every) {
  const Pieces& given = every.of[blockIdx.x / BLOCKS];
  Shared& shared = *(Shared*)(room + ROOM_AT);
  const int t = threadIdx.x, rows = given.rows, columns = given.columns, many = rows * columns;
  auto size_of = [&](int a, int b) {
    return (u32)given.size[(i64)a * given.row_step + (i64)b * given.column_step];
  };
  u32 before = 0, before_columns = 0, all;
  for (int from = 0; from < many; from += THREADS) {
    const int p = from + t;
    const u32 own = p < many ? size_of(p / columns, p % columns) : 0;
    const u32 reached = before + sum_before(own, shared.space, all);
    if (p < many) shared.by_row[p] = reached;
    before += all;
    __syncthreads();
    const u32 turned = p < many ? size_of(p % rows, p / rows) : 0;
    const u32 reached_columns = before_columns + sum_before(turned, shared.space, all);
    if (p < many) shared.by_column[p % rows * columns + p / rows] = reached_columns;
    before_columns += all;
    __syncthreads();
  }
  const int warp = t / 32, lane = t % 32;
  for (int p = blockIdx.x % BLOCKS * WARPS + warp; p < many; p += BLOCKS * WARPS) {
    const u32 size = size_of(p / columns, p % columns);
    const u32 at = shared.by_row[p], to = shared.by_column[p];
    for (u32 i = lane; i < size; i += 32) given.index[to + i] = at + i, given.inverse[at + i] = to + i;
  }
}
