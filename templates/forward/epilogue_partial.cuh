#pragma once
#include "forward/coord.cuh"
#include "forward/merge.cuh"
#include "forward/parts.cuh"
#include "forward/row_ends.cuh"
#include "lib/mma.cuh"

// ---- epilogue of a block that shares the keys of its rows: with its own teams, or with other blocks -----------------
//
// The kernels of fwd.cuh (if kSplit) and hopper/split.cuh call write_rows.
//
// Partial results O_i of one row over disjoint keys, normalised or not, are merged as O = sum(w_i O_i), w_i = exp(m_i -
// max m). First the teams of a block are merged in shared memory. Then, if p.splits > 1, the combining kernel
// (combine.cuh) merges the results of blocks:
//
//     lengths        p.partial                  p.partial_lse
//     all equal      [splits, B, Hq, Sq, D]     [splits, B, Hq, Sq]
//     one each       [Hkv, slots, kBr, D]       [Hkv, slots, kBr]
//     packed         as above; only slots that are combined count (part_slots)

// Teams store O, maxima and sums here in fp32. The pitch is 32 bytes modulo 128: lanes of a quad store 8 bytes each, so
// four quads cover all banks once.
constexpr int kMergePitch = kHeadDimV * 4 + (160 - kHeadDimV * 4 % 128) % 128;
constexpr int kMergeStates = kTeams * kBr * kMergePitch;  // float2 {max, sum} [team][row]
constexpr int kOldLse = kMergeStates + kTeams * kBr * 8;  // with kMerges: LSE in memory [row]
// Lanes that read a row, 16 bytes each. Their number is a multiple of eight, so no group of eight crosses rows: the
// beginning of a row shares banks with the end of others.
constexpr int kMergeLanes = (kHeadDimV / 4 + 7) / 8 * 8;
static_assert(kOldLse + kMerges * kBr * 4 == kMergeBytes, "O, maxima and sums of all teams fill kMergeBytes");
static_assert(kBr <= kThreads, "a thread has a row whose LSE it merges");

// A barrier for all threads that compute.
__device__ __forceinline__ void block_sync()
{
    if constexpr (kWgmma)
        named_barrier(0, kThreads);  // without the producer's threads, which have ended
    else
        __syncthreads();
}

__device__ __forceinline__ void store_team(uint32 smem, const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                           int team, int team_row, int lane)
{
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = team * kBr + team_row + m * 16 + h * 8 + lane / 4;
            const float sum = quad_sum(row.sum[m][h]);
#pragma unroll
            for (int n = 0; n < kOutTiles; n++)
                if (kParts == 1 || kHeadDimV == kHeadDimVPadded || own_chunk(n) < kHeadDimV / 8)
                    store_shared_8(smem + r * kMergePitch + own_chunk(n) * 32 + lane % 4 * 8, o[m][n][2 * h],
                                   o[m][n][2 * h + 1]);
            // Two lanes store one value each, because a store of 8 bytes takes two wavefronts.
            if (lane % 4 < 2 && own_part() == 0)
                store_shared_4(smem + kMergeStates + r * 8 + lane % 4 * 4,
                               __float_as_uint(lane % 4 == 0 ? row.max[m][h] : sum));
        }
    }
}

// One merged row of the block: 4 columns of O, the maximum of the scores and the sum.
struct MergedRow {
    float4 o;
    float max, sum, divisor;

    __device__ __forceinline__ MergedRow(uint32 smem, int r, int column, float scale_log2)
        : o{0.0f, 0.0f, 0.0f, 0.0f}, max(minus_infinity()), sum(0.0f)
    {
        float2 state[kTeams];
#pragma unroll
        for (int team = 0; team < kTeams; team++) {
            state[team] = load_shared_8(smem + kMergeStates + (team * kBr + r) * 8);
            max = fmaxf(max, state[team].x);
        }
#pragma unroll
        for (int team = 0; team < kTeams; team++) {
            if (state[team].x == minus_infinity())
                continue;  // this team saw no key
            const float weight = rescaling(state[team].x, max, scale_log2);
            const float4 x = load_shared_floats(smem + (team * kBr + r) * kMergePitch + column * 4);
            sum += weight * state[team].y;
            o.x += weight * x.x;
            o.y += weight * x.y;
            o.z += weight * x.z;
            o.w += weight * x.w;
        }
        divisor = divisor_of(max, sum, scale_log2);
        multiply(row_inverse(divisor));
    }

    // Adds the sink to a row. Only for a row whose keys all belong to this block.
    __device__ __forceinline__ float add_sink(const Params &p, float sink)
    {
        const SinkEnd end(natural_exponent(max, p), sum, divisor, sink);
        multiply(divisor * end.inverse);
        return end.lse;
    }

    __device__ __forceinline__ void multiply(float factor)
    {
        o.x *= factor;
        o.y *= factor;
        o.z *= factor;
        o.w *= factor;
    }

    __device__ __forceinline__ float lse(const Params &p) const
    {
        return row_lse(natural_exponent(max, p), sum);
    }
};

// Writes columns of a row whose keys all belong to this block, and LSE unless write_merged_lse does it. old: address of
// the row's LSE before.
__device__ __forceinline__ void write_whole(const Params &p, const BlockCoord &coord, MergedRow &merged, int block_row,
                                            int64 index, int column, uint32 old)
{
    float lse;
    if constexpr (kSinks)
        lse = merged.add_sink(p, sink_at(p, coord, block_row));
    else if constexpr (kMerges)
        lse = merged.lse(p);
    char *const row = p.o + coord.offset(p, p.o_stride, block_row) * kOutBytes, *const out = row + column * kOutBytes;
    if constexpr (kMerges) {
        const char *const from =
            old_row(p, row, [&](const Strides &stride) { return coord.offset(p, stride, block_row); });
        const Merge merge(lse, load_shared_4(old));
        merge.put(out, merge.read<float4>(from + column * 4), merged.o);
        return;
    }
    if constexpr (kPartial)
        *reinterpret_cast<float4 *>(out) = merged.o;
    else
        *reinterpret_cast<uint2 *>(out) = uint2{pack2(merged.o.x, merged.o.y), pack2(merged.o.z, merged.o.w)};
    if (p.lse != nullptr && column == 0) {
        if constexpr (!kSinks)
            lse = merged.lse(p);
        p.lse[index] = lse;
    }
}

// LSE of a row that is merged: one thread reads and writes it, and gives the old one to those that have columns of O.
__device__ __forceinline__ void share_old_lse(const Params &p, const BlockCoord &coord, uint32 smem)
{
    const int r = threadIdx.x, block_row = coord.first_row + r;
    if (r < kBr && block_row < coord.rows)
        store_shared_4(smem + kOldLse + r * 4, __float_as_uint(p.lse[coord.index(p, block_row)]));
}

// The row's sum over all teams; max: their maximum.
__device__ __forceinline__ float sum_of_teams(uint32 smem, int r, float scale_log2, float &max)
{
    float sum = 0.0f;
    max = minus_infinity();
#pragma unroll
    for (int team = 0; team < kTeams; team++)
        max = fmaxf(max, load_shared_8(smem + kMergeStates + (team * kBr + r) * 8).x);
#pragma unroll
    for (int team = 0; team < kTeams; team++) {
        const float2 state = load_shared_8(smem + kMergeStates + (team * kBr + r) * 8);
        sum += state.x == minus_infinity() ? 0.0f : rescaling(state.x, max, scale_log2) * state.y;
    }
    return sum;
}

__device__ __forceinline__ void write_merged_lse(const Params &p, const BlockCoord &coord, uint32 smem)
{
    const int r = threadIdx.x, block_row = coord.first_row + r;
    if (r >= kBr || block_row >= coord.rows)
        return;
    float max;
    const float sum = sum_of_teams(smem, r, p.scale_log2, max), exponent = natural_exponent(max, p);
    float lse = row_lse(exponent, sum);
    if constexpr (kSinks)
        lse = SinkEnd(exponent, sum, sum, sink_at(p, coord, block_row)).lse;
    p.lse[coord.index(p, block_row)] = Merge(lse, load_shared_4(smem + kOldLse + r * 4)).lse;
}

// Returns true if no other block has keys of the block's rows.
__device__ __forceinline__ bool has_all_keys(const Params &p, const BlockCoord &coord)
{
    if constexpr (kVarlen)
        return coord.part < 0;
    else
        return coord.splits(p) == 1;
}

// Writes the rows of a block, or its partial results. The layout of rows in shared memory is that of fp32.
template <class>
__device__ __forceinline__ void write_rows(const Params &p, const BlockCoord &coord,
                                           const float (&o)[kRowTiles][kOutTiles][4], const RowState &row, uint32 smem,
                                           int warp_row, int lane)
{
    block_sync();  // every warp has read its last Q, K and V before O comes into their place
    store_team(smem, o, row, threadIdx.x / kTeamThreads, warp_row, lane);
    if constexpr (kMerges)
        if (has_all_keys(p, coord))
            share_old_lse(p, coord, smem);
    block_sync();  // all teams' results are there

    const int64 all_rows = int64(gridDim.x) / (p.q_tiles * p.splits) * p.group * p.seq_q;
    for (int i = threadIdx.x; i < kBr * kMergeLanes; i += kThreads) {
        const int r = i / kMergeLanes, column = i % kMergeLanes * 4;
        const int block_row = coord.first_row + r;
        if (block_row >= coord.rows)
            break;
        if (column >= kHeadDimV)
            continue;
        MergedRow merged(smem, r, column, p.scale_log2);
        if constexpr (kDropout)
            merged.multiply(kept_scale(p));
        const int64 index = coord.index(p, block_row);
        if (has_all_keys(p, coord)) {
            write_whole(p, coord, merged, block_row, index, column, smem + kOldLse + r * 4);
        } else {
            const int64 at = kLengths ? coord.slot() * kBr + r : coord.split * all_rows + index;
            *reinterpret_cast<float4 *>(p.partial + at * kHeadDimV + column) = merged.o;
            if (column == 0)
                p.partial_lse[at] = merged.lse(p);
        }
    }
    if constexpr (kMerges)
        if (has_all_keys(p, coord))
            write_merged_lse(p, coord, smem);
}
