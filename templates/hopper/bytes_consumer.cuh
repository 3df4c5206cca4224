#pragma once
#include "forward/quantise.cuh"
#include "forward/tiles.cuh"
#include "hopper/bytes_softmax.cuh"
#include "hopper/fwd_group.cuh"
#include "hopper/wgmma_bytes.cuh"

// ---- consumer of 8-bit tiles: a warpgroup that computes 64 rows of O -----------------------------------------------
//
// The accumulator of e4m3 products keeps fewer bits than fp32. So P V of each tile is a sum of its own, which is scaled
// and added to O in fp32. S and these sums share registers; while a warpgroup is in its softmax, others keep the tensor
// cores busy. At most two parts of P V, of kPartColumns columns, are under way. The last one has the row sums, too:
//
//     start S(j) | wait | softmax | rescale O | start parts 0 and 1 of P(j) V(j) | wait, add part 0 | start part 2 ...

constexpr int kPartColumns = kHeadDim <= 128 ? kHeadDim : 64, kPartTiles = kPartColumns / 8;

// Makes the compiler treat sums as written here.
__device__ __forceinline__ void pin_integers(uint32 (&s)[kColTiles][4])
{
    each_of<kColTiles, 4>([&](int n, int e) { asm volatile("" : "+r"(s[n][e])::"memory"); });
}

// Starts S = Q K^T; s has kStart.
__device__ __forceinline__ void start_integers(uint32 (&s)[kColTiles][4], uint32 q_smem, uint32 k_smem)
{
    const uint64 a = QueryBytes::descriptor(q_smem), b = KeyBytes::descriptor(k_smem);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 32; step++)
        WgmmaS8<kBc>::add(s, a + QueryBytes::step(step), b + KeyBytes::step(step));
    wgmma_commit();
}

// The steps of the mainloop. The struct holds references only, as Rows in fwd_consumer.cuh.
struct BytesRows {
    static constexpr int kParts = kHeadDim / kPartColumns, kBuffers = kParts > 1 ? 2 : 1;
    static constexpr int kSumTiles = kPartTiles + kSumColumns / 8;
    const Params &p;
    const BlockCoord &coord;
    const Barriers &barriers;
    Group &group;
    const uint32 smem, q_smem;
    const float *key_scales, *value_scales;  // of the first tile; key_scales: of this lane
    const Queries &q;
    float (&o)[kRowTiles][kOutTiles][4];
    RowState &row;
    uint32 (&sums)[kColTiles][4];
    float (&part)[kBuffers][1][kSumTiles][4];
    uint32 (&probabilities)[kBc / 32][4];
    int &tile;

    // Waits for K, then starts S.
    __device__ __forceinline__ void start_s()
    {
        each_of<kColTiles, 4>([&](int n, int e) { sums[n][e] = __float_as_uint(kStart); });
        pin_integers(sums);
        barrier_wait(barriers.k(group.k.index).full, group.k.parity);
        start_integers(sums, q_smem, smem + kKArea + group.k.index * kTileBytes);
    }

    // Loads the scales of the lane's keys.
    __device__ __forceinline__ void load_scales(float (&scales)[kScaleGroups]) const
    {
#pragma unroll
        for (int group = 0; group < kScaleGroups; group++)
            scales[group] = __ldg(key_scales + tile * kScales + 4 * group);
    }

    // Starts a part of P V.
    __device__ __forceinline__ void start_part(int index)
    {
        const uint64 b = ValueBytes::descriptor(smem + kVArea + group.v.index * kVTileBytes) +
                         index * (kPartColumns * ValueBytes::kRowBytes / 16);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kBc / 32; step++)
            if (kParts > 1 && index < kParts - 1)
                WgmmaE4m3<kParts == 1 ? 8 * kSumTiles : kPartColumns>::multiply(
                    part[index % kBuffers], probabilities[step], b + ValueBytes::step(step), step > 0);
            else
                WgmmaE4m3<8 * kSumTiles>::multiply(part[index % kBuffers], probabilities[step],
                                                   b + ValueBytes::step(step), step > 0);
        wgmma_commit();
    }

    __device__ __forceinline__ void await_v()
    {
        barrier_wait(barriers.v(group.v.index).full, group.v.parity);
    }

    __device__ __forceinline__ void release_k()
    {
        barrier_arrive_by(group.lane, barriers.k(group.k.index).empty);
        group.k.advance();
    }

    __device__ __forceinline__ void release_v()
    {
        barrier_arrive_by(group.lane, barriers.v(group.v.index).empty);
        group.v.advance();
    }

    // Adds a part of P V to O, and the last part's row sums.
    __device__ __forceinline__ void add_part(int index, float scale)
    {
        const float(&sum)[kSumTiles][4] = part[index % kBuffers][0];
        pin(part[index % kBuffers]);
        each_of<kPartTiles, 4>([&](int n, int e) {
            float &x = o[0][index * kPartTiles + n][e];
            x = fmaf(sum[n][e], scale, x);
        });
        if (index == kParts - 1)
#pragma unroll
            for (int h = 0; h < 2; h++)
                row.sum[0][h] += sum[kPartTiles][2 * h];
    }

    // Makes P of the sums, which are there; returns how O and the row sums must be rescaled. Gives K back.
    template <bool kMasked> __device__ __forceinline__ Rescale softmax(PBits &bits, const float (&scales)[kScaleGroups])
    {
        constexpr bool kUnseen = kMayBeUnseen<kMasked>;
        float s[kRowTiles][kColTiles][4];
        Factors factors;
        each_of<kScaleGroups, 2>([&](int i, int h) { factors[i][h] = q.scale[h] * scales[i]; });
        pin_integers(sums);
        release_k();
        each_of<kColTiles, 4>([&](int n, int e) { s[0][n][e] = __uint_as_float(sums[n][e]); });
        if constexpr (kMasked)
            mask_scores(s, p, coord, coord.first_row + group.warp_row, tile, group.lane);
        const Rescale rescale = raise_maxima<kUnseen>(s, factors, row);
        make_p<kUnseen>(s, bits, factors, row);
        return rescale;
    }

    __device__ __forceinline__ void rescale_rows(const Rescale &rescale)
    {
        rescale.apply(o);
        if (rescale.wanted)
#pragma unroll
            for (int h = 0; h < 2; h++)
                row.sum[0][h] *= rescale.by[0][h];
    }

    // One step: S, P and O += P V of the tile.
    template <bool kMasked> __device__ __forceinline__ void step()
    {
        PBits bits;
        float scales[kScaleGroups];
        load_scales(scales);
        const float value_scale = __ldg(value_scales + tile);
        start_s();
        wgmma_wait<0>();  // S is there
        rescale_rows(softmax<kMasked>(bits, scales));
        pack_p(bits, probabilities);
        await_v();
        start_part(0);
#pragma unroll
        for (int i = 0; i < kParts; i++) {
            if (i + 1 < kParts) {
                start_part(i + 1);
                wgmma_wait<1>();
            } else {
                wgmma_wait<0>();
            }
            add_part(i, value_scale);
        }
        release_v();
    }
};

// Computes O of 64 rows, of which some see a key. O is not yet divided by the row sums.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                             const Barriers &barriers, Group &group,
                                             float (&o)[kRowTiles][kOutTiles][4], RowState &row)
{
    const uint32 smem = barriers.smem, q_smem = smem + kQArea + group.index * kGroupBytes;
    const int64 first = number_of_tile(p, coord.batch, coord.kv_head(p), 0);
    const Queries q = round_queries(p, coord, group.lane, q_smem);
    uint32 sums[kColTiles][4], probabilities[kBc / 32][4];
    float part[BytesRows::kBuffers][1][BytesRows::kSumTiles][4];
    int tile = tiles.count - 1;
    fence_products();
    named_barrier(1 + kGroups + group.index, 128);  // all rows of the warpgroup are rounded before a product reads them
    BytesRows rows{p,
                   coord,
                   barriers,
                   group,
                   smem,
                   q_smem,
                   key_scales(p, first) + group.lane % 4,
                   value_scale(p, first),
                   q,
                   o,
                   row,
                   sums,
                   part,
                   probabilities,
                   tile};
    rows.step<true>();
    tile--;
#pragma unroll 1
    for (; tile >= tiles.unmasked; tile--)
        rows.step<true>();
#pragma unroll 1
    for (; tile >= 0; tile--)
        rows.step<false>();
    if constexpr (kOwnOPlace)
        group.release_q(barriers);
    else
        named_barrier(1 + kGroups + group.index, 128);  // Q of this warpgroup is read: O comes into its place
    finish_rows(q, row, p.scale_log2);
}
