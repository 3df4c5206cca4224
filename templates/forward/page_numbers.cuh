#pragma once
#include "forward/keys.cuh"
#include "lib/fill.cuh"

// ---- pages whose numbers lanes tell each other (kPagesTold) -----------------------------------------------------
//
// The lanes that copy a row copy the same rows in all passes of a fill: each looks up the pages of some passes, works
// out where these rows begin, and tells the others.

// The pages of the tiles that are copied next.
template <class Plan> struct PageNumbers {
    static constexpr int kOwn = (Plan::kPasses + kChunks - 1) / kChunks;  // passes of a lane
    static constexpr int kTiles = kJoint ? kKStages - 1 : 2;              // V of a tile after K, K of the next with it
    static_assert(32 % kChunks == 0 && Plan::kAllThreads && kBc % Plan::kRowStep * kChunks % 32 == 0,
                  "a warp copies whole rows, and all of it takes part in a pass or none");

    const Params &p;
    const int *table;
    const int first_key;  // after the padding
    const int last_key;   // of the sequence
    uint32 own[kTiles][kOwn];

    __device__ __forceinline__ PageNumbers(const Params &p, const BlockPlace &place)
        : p(p), table(p.features.block_table + place.batch * p.features.table_stride), first_key(place.padding()),
          last_key(place.padding() + place.seq_k(p) - 1)
    {
    }

    // Of this lane's pass; where a tile is that will not be read, or a row beyond the sequence's end, some key of its
    // row of the table.
    __device__ __forceinline__ int key(const Plan &plan, int tile, int i) const
    {
        return max(0, min(first_key + tile * kBc + plan.row(plan.chunk + i * kChunks), last_key));
    }

    // Look up those of the tile that is `ahead` tiles after the next one, long before they are wanted.
    __device__ __forceinline__ void find(int ahead, int tile)
    {
        const Plan plan;
#pragma unroll
        for (int i = 0; i < kOwn; i++)
            own[ahead][i] = __ldg(table + (key(plan, tile, i) >> p.features.page_shift));
    }

    // At first: the tile, and those that are copied right after it.
    __device__ __forceinline__ void find_first(int tile)
    {
        find(0, tile);
        if constexpr (kJoint)
#pragma unroll
            for (int ahead = 1; ahead < kKStages - 1; ahead++)
                find(ahead, tile - ahead * kTeams);
    }

    // While S of a tile is computed: those of the tile that is copied after the next ones.
    __device__ __forceinline__ void find_next(int tile)
    {
        if constexpr (kJoint)
            find(0, tile - (kKStages - 1) * kTeams);
        else
            find(1, tile - kTeams);
    }

    // The next tile is copied.
    __device__ __forceinline__ void pass()
    {
#pragma unroll
        for (int ahead = 1; ahead < kTiles; ahead++)
#pragma unroll
            for (int i = 0; i < kOwn; i++)
                own[ahead - 1][i] = own[ahead][i];
    }
};

// The same where no page is told.
struct NoPageNumbers {
    const Params &p;
    const BlockPlace &place;

    __device__ __forceinline__ NoPageNumbers(const Params &p, const BlockPlace &place) : p(p), place(place)
    {
    }

    __device__ __forceinline__ void find_first(int)
    {
    }

    __device__ __forceinline__ void find_next(int)
    {
    }

    __device__ __forceinline__ void pass()
    {
    }
};

// Where the rows of the next tile begin, in K or V: 32 bits, that one instruction makes an address of.
template <class Plan> struct ToldRows {
    using Numbers = PageNumbers<Plan>;
    const int first_row;  // of this lane's rows
    const uint32 bytes;   // of a step
    uint32 own[Numbers::kOwn];

    __device__ __forceinline__ ToldRows(const Numbers &numbers, const Plan &plan, int tile, const PageSteps &steps)
        : first_row(plan.first_row), bytes(steps.bytes)
    {
        const auto &features = numbers.p.features;
#pragma unroll
        for (int i = 0; i < Numbers::kOwn; i++) {
            const uint32 page = min(numbers.own[0][i], features.pages - 1u);
            const int in_page = numbers.key(plan, tile, i) & ((1 << features.page_shift) - 1);
            own[i] = page * steps.page + in_page * steps.row;
        }
    }

    __device__ __forceinline__ const char *at(const char *plane, const Strides &, int r) const
    {
        const int pass = (r - first_row) / Plan::kRowStep;  // a constant after unrolling
        return plane + int64(__shfl_sync(0xffffffffu, own[pass / kChunks], pass % kChunks, kChunks)) * bytes;
    }
};

// The rows of the tile that is copied next.
template <class Plan>
__device__ __forceinline__ ToldRows<Plan> rows_of(const PageNumbers<Plan> &numbers, const Plan &plan, int tile,
                                                  const PageSteps &steps)
{
    return ToldRows<Plan>(numbers, plan, tile, steps);
}

template <class Plan>
__device__ __forceinline__ KeyRows rows_of(const NoPageNumbers &numbers, const Plan &, int tile, const PageSteps &)
{
    return KeyRows(numbers.p, numbers.place, tile);
}
