#pragma once
#include "backward/bwd.cuh"
#include "backward/gradient.cuh"
#include "features/window.cuh"

// ---- separate blocks for dQ (kDqSeparate) -------------------------------------------------------------------------
//
// One block computes kDqRows rows of dQ over all keys that they see; it computes S and dP again. That is two products
// more than if the blocks of dK and dV sum dQ, but needs no workspace and no atomics, and the order of sums is fixed.
// Queries are rows here, so dS is the A fragment of dQ += dS K where it was computed. A warp owns 16 rows. Tiles of
// keys are processed from the last to the first, so those with a mask come first.
//
// Timeline of the step of tile t (`step`), with two stages of K and V:
//
//   wait, barrier | S = Q K^T | dP = dO V^T | dS | dQ += dS K | store t - 1
//                 | copy K, V (t - 1) ..........................

// Keys [begin, end) that some row of a block sees, and [begin_of_all, end_of_all) that every row sees.
struct KeysInWindow : WindowKeys {
    __device__ __forceinline__ KeysInWindow(const Params &p, int first_row)
        : KeysInWindow(p, first_row, p.seq_k - p.seq_q)
    {
    }

private:
    __device__ __forceinline__ KeysInWindow(const Params &p, int first_row, int offset)
        : WindowKeys(p, p.seq_k, first_row + offset, min(first_row + kDqRows, p.seq_q) - 1 + offset)
    {
    }
};

struct KeysFromFirst {
    static constexpr int begin = 0, begin_of_all = 0;
    int end, end_of_all;

    __device__ __forceinline__ KeysFromFirst(const Params &p, int first_row) : end(p.seq_k), end_of_all(p.seq_k)
    {
        if (kCausal) {
            const int offset = p.seq_k - p.seq_q;
            end = max(0, min(end, min(first_row + kDqRows, p.seq_q) + offset));
            end_of_all = max(0, min(end, first_row + 1 + offset));
        }
    }
};

using SeenKeys = Either<kWindow != Window::kNone, KeysInWindow, KeysFromFirst>::Type;

// First and last column of a tile that row r of the block sees, relative to this lane's first column.
struct VisibleColumns {
    int first, last;

    __device__ __forceinline__ VisibleColumns(const Params &p, int first_row, int r, int tile, int lane) : first(0)
    {
        const int seen = p.seq_k - 1 - tile * kDqBc - lane % 4 * 2;
        if constexpr (kWindow != Window::kNone) {
            const int at = first_row + r + p.seq_k - p.seq_q;
            const int lane_key = tile * kDqBc + lane % 4 * 2;
            last = min(seen, run_end(p, at) - 1 - lane_key);
            first = run_begin(p, at) - lane_key;
        } else {
            last = kCausal ? min(seen, seen + first_row + r + 1 - p.seq_q) : seen;
        }
    }
};

// The load plan of rows of V or dO. It is a separate one if they have fewer columns than K and Q.
template <int kRows>
__device__ __forceinline__ FillPlan<kRows, kThreads, kHeadDimV> value_plan(const FillPlan<kRows, kThreads> &plan)
{
    if constexpr (kHeadDimV == kHeadDim)
        return plan;
    else
        return FillPlan<kRows, kThreads, kHeadDimV>();
}

constexpr int kDqColTiles = kDqBc / 8;  // n8 tiles of keys
using RowScores = float[1][kDqColTiles][4];

// Turns dP into dS = P * (dP - delta); s holds S. stats: LSE and delta of the block's rows.
template <bool kMasked>
__device__ __forceinline__ void make_ds(const RowScores &s, RowScores &dp, const Params &p, const Terms &terms,
                                        const DroppedRows &dropped, int first_row, int tile, uint32 stats, int warp,
                                        int lane)
{
    constexpr bool kBefore = kCausal && !kMasked;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = warp * 16 + h * 8 + lane / 4;
        const uint32 stat = stats + r * 4;
        const float lse = load_shared_4(stat), delta = load_shared_4(stat + kDqRows * 4);
        const float base = float(first_row + r + p.seq_k - p.seq_q - tile * kDqBc - lane % 4 * 2);
        const VisibleColumns seen(p, first_row, r, tile, lane);
#pragma unroll
        for (int n = 0; n < kDqColTiles; n++) {
            const float2 kept = dropped.factors(h, n);
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++) {
                float score = s[0][n][e];
                if constexpr (kTerms)
                    score += terms.template term<kBefore>(p, base, -(n * 8 + e % 2), first_row + r,
                                                          tile * kDqBc + lane % 4 * 2 + n * 8 + e % 2);
                float x = exp2_approx(fmaf(score, p.scale_log2, -lse));
                if (kMasked && n * 8 + e % 2 > seen.last)
                    x = 0.0f;
                if (kMasked && kWindow != Window::kNone && n * 8 + e % 2 < seen.first)
                    x = 0.0f;
                if constexpr (kModified)
                    x *= modifier_derivative(s[0][n][e]);
                if constexpr (kDropout)
                    dp[0][n][e] *= e % 2 ? kept.y : kept.x;
                dp[0][n][e] = x * (dp[0][n][e] - delta);
            }
        }
    }
}

// Scales a warp's rows of dQ and writes them through its rows of Q, which no other warp reads.
__device__ __forceinline__ void write_query_rows(const Params &p, const RowCoord &coord,
                                                 const float (&dq)[1][2 * kDepth][4], uint32 q_smem, int warp, int lane)
{
    if constexpr (kPartial) {
        put_fp32_tile<kHeadDim>(p.dq, coord.batch * p.dq_stride.batch + coord.head * p.dq_stride.head, p.dq_stride,
                                coord.first_row + warp * 16, p.seq_q, dq[0], p.scale, lane, [](int n) { return n; });
        return;
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; n++)
            store_shared_4(q_smem + chunk_offset(h * 8 + lane / 4, n) + lane % 4 * 4,
                           pack2(dq[0][n][2 * h] * p.scale, dq[0][n][2 * h + 1] * p.scale));
    __syncwarp();  // its stores before its loads
    char *out = p.dq + (coord.batch * p.dq_stride.batch + coord.head * p.dq_stride.head) * kElemBytes;
    for (int i = lane; i < 16 * kChunks; i += 32) {
        const int row = coord.first_row + warp * 16 + i / kChunks, chunk = i % kChunks;
        if (chunk < kHeadDim / 8 && row < p.seq_q)
            *reinterpret_cast<uint4 *>(out + row * p.dq_stride.seq * kElemBytes + chunk * 16) =
                load_shared_16(q_smem + chunk_offset(i / kChunks, chunk));
    }
}

// Loads the block's rows of Q and dO.
__device__ __forceinline__ void load_own_rows(const Params &p, const RowCoord &coord, uint32 smem)
{
    Fill<kDqRows, kThreads> q_fill;
    Fill<kDqRows, kThreads, kHeadDimV> do_fill;
    const FillPlan<kDqRows, kThreads> plan;
    const char *q_tile =
        p.q +
        (coord.batch * p.q_stride.batch + coord.head * p.q_stride.head + coord.first_row * p.q_stride.seq) * kElemBytes;
    const char *do_tile =
        p.d_o + (coord.batch * p.do_stride.batch + coord.head * p.do_stride.head + coord.first_row * p.do_stride.seq) *
                    kElemBytes;
    q_fill.template issue<false>(plan, kWhole, smem, p.seq_q - coord.first_row,
                                 [&](int r) { return q_tile + r * p.q_stride.seq * kElemBytes; });
    do_fill.template issue<false>(value_plan<kDqRows>(plan), kWhole, smem + kDqDoArea, p.seq_q - coord.first_row,
                                  [&](int r) { return do_tile + r * p.do_stride.seq * kElemBytes; });
    q_fill.store(smem);
    do_fill.store(smem + kDqDoArea);
}

__device__ __forceinline__ void query_block(const Params &all, uint32 smem, unsigned block)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned blocks = RowCoord::blocks(all);  // blocks of a head
    const unsigned batch_heads = batches(all) * all.heads_q;
    const unsigned index = kCausal ? blocks - 1 - block / batch_heads : block % blocks;  // heavy blocks first
    const unsigned batch_head = kCausal ? block % batch_heads : block / blocks;
    if (kVarlen && all.dq == nullptr)
        return;
    const RowCoord coord(all, batch_head, index);
    if (!coord.has_work(all))
        return;
    OwnParams p = coord.params(all);
    const int first_row = coord.first_row, head = coord.head, batch = coord.batch;

    const SeenKeys keys(p, first_row);
    const int first = keys.begin / kDqBc, tiles = (keys.end + kDqBc - 1) / kDqBc;
    const int unmasked = keys.end_of_all / kDqBc;
    const int plain = (keys.begin_of_all + kDqBc - 1) / kDqBc;  // tiles before this one need a mask, too

    const LaneOffsets offsets(lane);
    const uint32 q_smem = smem + warp * 16 * kPitch;
    const uint32 do_smem = smem + kDqDoArea + warp * 16 * ValueTile::kPitch;
    float dq[1][2 * kDepth][4] = {};

    if (tiles > first) {
        Fill<kDqBc, kThreads> k_fill;
        Fill<kDqBc, kThreads, kHeadDimV> v_fill;
        const char *k_head = p.k + (batch * p.k_stride.batch + head / p.group * p.k_stride.head) * kElemBytes;
        const char *v_head = p.v + (batch * p.v_stride.batch + head / p.group * p.v_stride.head) * kElemBytes;
        auto issue = [&](int tile) {
            const FillPlan<kDqBc, kThreads> plan;
            const int64 row = int64(tile) * kDqBc;
            k_fill.template issue<false>(plan, kWhole, smem + kDqKArea + tile % 2 * kDqKBytes, p.seq_k - tile * kDqBc,
                                         [&](int r) { return k_head + (row + r) * p.k_stride.seq * kElemBytes; });
            v_fill.template issue<false>(value_plan<kDqBc>(plan), kWhole, smem + kDqVArea + tile % 2 * kDqVBytes,
                                         p.seq_k - tile * kDqBc,
                                         [&](int r) { return v_head + (row + r) * p.v_stride.seq * kElemBytes; });
        };
        auto store = [&](int tile) {
            k_fill.store(smem + kDqKArea + tile % 2 * kDqKBytes);
            v_fill.store(smem + kDqVArea + tile % 2 * kDqVBytes);
        };
        load_own_rows(p, coord, smem);
        const Terms terms(p, batch, head);
        DroppedRows dropped(p, coord.sequence(), head, first_row + warp * 16, lane);
        int tile = tiles - 1;
        issue(tile);
        fill_commit();
        store(tile);
        put_rows<kDqRows>(p, batch, head, first_row, smem + kDqStatArea);

        auto step = [&](auto masked) {
            constexpr bool kMasked = decltype(masked)::value;
            const uint32 k_smem = smem + kDqKArea + tile % 2 * kDqKBytes;
            const uint32 v_smem = smem + kDqVArea + tile % 2 * kDqVBytes;
            fill_wait<0>();
            __syncthreads();  // K and V are complete (Q, dO and rows too); those before are read
            if (tile > first)
                issue(tile - 1);
            fill_commit();

            RowScores s, dp;
            clear(s);
            product_of_rows(
                s, [&](int step, uint32(&a)[1][4]) { load_rows(a, q_smem, offsets.rows, step); }, k_smem, offsets.cols);
            modify_scores(s, p);
            dropped.begin(p, tile, lane);
            clear(dp);
            product_of_rows<ValueTile>(
                dp, [&](int step, uint32(&a)[1][4]) { load_rows<ValueTile>(a, do_smem, offsets.value_rows, step); },
                v_smem, offsets.value_cols);
            make_ds<kMasked>(s, dp, p, terms, dropped, first_row, tile, smem + kDqStatArea, warp, lane);
            product_of_columns<1, kDqBc / 16>(
                dq, [&](int step, uint32(&a)[1][4]) { pack_fragment(a[0], dp[0][2 * step], dp[0][2 * step + 1]); },
                k_smem, offsets.rows);
            if (tile > first)
                store(tile - 1);
            tile--;
        };
        if constexpr (kWindow != Window::kNone) {
#pragma unroll 1
            while (tile >= first)
                if (tile >= unmasked || tile < plain)
                    step(Bool<true>{});
                else
                    step(Bool<false>{});
        } else {
#pragma unroll 1
            while (tile >= max(unmasked, 0))
                step(Bool<true>{});
#pragma unroll 1
            while (tile >= 0)
                step(Bool<false>{});
        }
    }

    write_query_rows(p, coord, dq, q_smem, warp, lane);
}

// The kernel; kThreads threads. In the grid, the blocks of dK and dV come first, then the separate blocks of dQ.
__device__ __forceinline__ void backward_separate(const Params &p)
{
    extern __shared__ __align__(128) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const unsigned key_blocks = p.k_tiles * batches(p) * (p.heads_q / p.group) * (kSplit ? p.splits : 1);
    if (blockIdx.x < key_blocks) {
        if (kBiasGradient || p.dk != nullptr || p.dv != nullptr)
            key_block(p, smem, blockIdx.x);
    } else {
        query_block(p, smem, blockIdx.x - key_blocks);
    }
}
