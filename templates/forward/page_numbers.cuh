#pragma once
#include "forward/coord.cuh"
#include "lib/fill.cuh"

constexpr bool kPagesExchanged = true;

// ---- page numbers exchanged between lanes (kPagesExchanged) -------------------------------------------------------
//
// The lanes that copy a row copy the same rows in all passes of a load. So each lane looks up the pages of some passes,
// computes where their rows begin, and passes these offsets to the other lanes by shuffles.

// The pages of the tiles that are copied next.
template <class Plan> struct PageNumbers {
    static constexpr int kChunks = Plan::kChunks;
    static constexpr int kOwn = (Plan::kPasses + kChunks - 1) / kChunks;  // passes that a lane looks up
    static constexpr int kTiles = kJoint ? kKStages - 1 : 2;              // V of a tile after K, and K of the next tile
    static_assert(32 % kChunks == 0 && Plan::kAllThreads && kBc % Plan::kRowStep * kChunks % 32 == 0,
                  "a warp copies whole rows, and all of it takes part in a pass or none");

    const Params &p;
    const int *table;
    const int first_key;  // after the padding
    const int last_key;   // of the sequence
    uint32 own[kTiles][kOwn];

    __device__ __forceinline__ PageNumbers(const Params &p, const BlockCoord &coord)
        : p(p), table(p.features.block_table + coord.batch * p.features.table_stride), first_key(coord.padding()),
          last_key(coord.padding() + coord.seq_k(p) - 1)
    {
    }

    // The key of the row of this lane's pass i. For a row beyond the sequence's end or a tile that will not be read:
    // any key whose table entry exists.
    __device__ __forceinline__ int key(const Plan &plan, int tile, int i) const
    {
        return max(0, min(first_key + tile * kBc + plan.row(plan.chunk + i * kChunks), last_key));
    }

    // Looks up the pages of the tile that is `ahead` tiles after the next one, long before they are needed.
    __device__ __forceinline__ void find(int ahead, int tile)
    {
        const Plan plan;
#pragma unroll
        for (int i = 0; i < kOwn; i++)
            own[ahead][i] = __ldg(table + (key(plan, tile, i) >> p.features.page_shift));
    }

    // In the prologue: looks up the tile and those that are copied right after it.
    __device__ __forceinline__ void find_first(int tile)
    {
        find(0, tile);
        if constexpr (kJoint)
#pragma unroll
            for (int ahead = 1; ahead < kKStages - 1; ahead++)
                find(ahead, tile - ahead * kTeams);
    }

    // While S of a tile is computed: looks up the tile to be copied after the next ones.
    __device__ __forceinline__ void find_next(int tile)
    {
        if constexpr (kJoint)
            find(0, tile - (kKStages - 1) * kTeams);
        else
            find(1, tile - kTeams);
    }

    // Advances to the next tile to be copied.
    __device__ __forceinline__ void pass()
    {
#pragma unroll
        for (int ahead = 1; ahead < kTiles; ahead++)
#pragma unroll
            for (int i = 0; i < kOwn; i++)
                own[ahead - 1][i] = own[ahead][i];
    }
};

// Offsets of the rows of the next tile in K or V: 32 bits, which one instruction turns into an address.
template <class Plan> struct ExchangedRows {
    using Numbers = PageNumbers<Plan>;
    static constexpr int kChunks = Plan::kChunks;
    const int first_row;  // of this lane's rows
    const uint32 bytes;   // of a step
    uint32 own[Numbers::kOwn];

    __device__ __forceinline__ ExchangedRows(const Numbers &numbers, const Plan &plan, int tile, const PageSteps &steps)
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

    __device__ __forceinline__ const char *at(const char *batch_head, const Strides &, int r) const
    {
        const int pass = (r - first_row) / Plan::kRowStep;  // a constant after unrolling
        return batch_head + int64(__shfl_sync(0xffffffffu, own[pass / kChunks], pass % kChunks, kChunks)) * bytes;
    }
};

// The scale of a row of the tile that is copied next: the i-th of those whose pages this lane has looked up.
template <class Plan>
__device__ __forceinline__ const char *scale_at(const PageNumbers<Plan> &numbers, const ExchangedRows<Plan> &,
                                                const Plan &plan, int tile, int i, int, const char *batch_head,
                                                const Strides &stride)
{
    const auto &features = numbers.p.features;
    const uint32 page = min(numbers.own[0][i], features.pages - 1u);
    const int in_page = numbers.key(plan, tile, i) & ((1 << features.page_shift) - 1);
    return batch_head + (page * stride.batch + in_page * stride.seq) * kRowScaleBytes;
}

// Returns the rows of the tile that is copied next.
template <class Plan>
__device__ __forceinline__ ExchangedRows<Plan> rows_of(const PageNumbers<Plan> &numbers, const Plan &plan, int tile,
                                                       const PageSteps &steps)
{
    return ExchangedRows<Plan>(numbers, plan, tile, steps);
}

template <class Plan> using PageNumbersOf = PageNumbers<Plan>;
