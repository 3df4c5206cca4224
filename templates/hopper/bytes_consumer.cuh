#pragma once
#include "forward/tiles.cuh"
#include "hopper/bytes_softmax.cuh"
#include "hopper/fwd_group.cuh"

// ---- consumer of 8-bit tiles: a warpgroup that computes 64 rows of O -----------------------------------------------
//
// The accumulator of e4m3 products keeps fewer bits than fp32. So P V of each tile is a sum of its own, which is scaled
// and added to O in fp32. With kOverlaps that product runs during the softmax of the next tile:
//
//     start S(j) | start P(j-1) V(j-1) | wait for S(j) | softmax | wait, add to O | rescale O
//
// Otherwise S and these sums share registers, and other warpgroups keep the tensor cores busy. Parts of kPartColumns
// columns follow each other, two at a time:
//
//     start S(j) | wait | softmax | rescale O | start parts 0 and 1 of P(j) V(j) | wait, add part 0 | start part 2 ...

// Makes the compiler treat sums as written here.
__device__ __forceinline__ void pin_integers(uint32 (&s)[kColTiles][4])
{
#pragma unroll
    for (int n = 0; n < kColTiles; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            asm volatile("" : "+r"(s[n][e])::"memory");
}

// Starts S = Q K^T.
__device__ __forceinline__ void start_integers(uint32 (&s)[kColTiles][4], uint32 q_smem, uint32 k_smem)
{
    const uint64 a = QueryBytes::descriptor(q_smem), b = KeyBytes::descriptor(k_smem);
#pragma unroll
    for (int n = 0; n < kColTiles; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] = __float_as_uint(kStart);
    pin_integers(s);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 32; step++)
        add_integers(s, a + QueryBytes::step(step), b + KeyBytes::step(step));
    wgmma_commit();
}

// The steps of the mainloop. The struct holds references only, as Rows in fwd_consumer.cuh.
struct BytesRows {
    static constexpr int kParts = kHeadDim / kPartColumns, kBuffers = kParts > 1 ? 2 : 1;
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
    float (&part)[kBuffers][1][kPartTiles][4];
    uint32 (&probabilities)[kBc / 32][4];
    int &tile;

    // Waits for K, then starts S.
    __device__ __forceinline__ void start_s()
    {
        barrier_wait(barriers.k_full(group.k.index), group.k.parity);
        group.ping_pong.take();
        start_integers(sums, q_smem, smem + kKArea + group.k.index * kTileBytes);
    }

    // Starts a part of P V.
    __device__ __forceinline__ void start_part(int index)
    {
        const uint64 b = ValueBytes::descriptor(smem + kVArea + group.v.index * kTileBytes) +
                         index * (kPartColumns * ValueBytes::kRowBytes / 16);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kBc / 32; step++)
            multiply_e4m3(part[index % kBuffers], probabilities[step], b + ValueBytes::step(step), step > 0);
        wgmma_commit();
    }

    __device__ __forceinline__ void await_v()
    {
        barrier_wait(barriers.v_full(group.v.index), group.v.parity);
    }

    __device__ __forceinline__ void release_k()
    {
        barrier_arrive_by(group.lane, barriers.k_empty(group.k.index));
        group.k.advance();
    }

    __device__ __forceinline__ void release_v()
    {
        barrier_arrive_by(group.lane, barriers.v_empty(group.v.index));
        group.v.advance();
    }

    // Adds a part of P V to O.
    __device__ __forceinline__ void add_part(int index, float scale)
    {
        pin(part[index % kBuffers]);
#pragma unroll
        for (int n = 0; n < kPartTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float &x = o[0][index * kPartTiles + n][e];
                x = fmaf(part[index % kBuffers][0][n][e], scale, x);
            }
    }

    // Makes P of the sums, which are there; returns how O must be rescaled. Gives K back.
    template <bool kMasked>
    __device__ __forceinline__ Rescale softmax(float (&s)[kRowTiles][kColTiles][4], const KeyScales &keys)
    {
        constexpr bool kUnseen = kMayBeUnseen<kMasked>;
        const ScoreScale scale(q, keys);
        pin_integers(sums);
        release_k();
#pragma unroll
        for (int n = 0; n < kColTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[0][n][e] = __uint_as_float(sums[n][e]);
        if constexpr (kMasked)
            mask_scores(s, p, coord, coord.first_row + group.warp_row, tile, group.lane);
        const Rescale rescale = raise_maxima<kUnseen>(s, scale, row, p.scale_log2);
        make_p<kUnseen>(s, scale, row, p.scale_log2);
        return rescale;
    }

    // kOverlaps: S and P of the tile, and O += P V of the tile before, unless this is the first one.
    template <bool kMasked, bool kFirst> __device__ __forceinline__ void overlapped_step()
    {
        float s[kRowTiles][kColTiles][4];
        const KeyScales keys(key_scales + tile * kScales);
        const float value_scale = kFirst ? 0.0f : __ldg(value_scales + tile + 1);
        start_s();
        if constexpr (!kFirst) {
            await_v();
            start_part(0);
        }
        group.ping_pong.pass();
        wgmma_wait<kFirst ? 0 : 1>();
        const Rescale rescale = softmax<kMasked>(s, keys);
        if constexpr (!kFirst) {
            wgmma_wait<0>();
            add_part(0, value_scale);
            release_v();
            rescale.apply(o);
        }
        pack_p(s, probabilities);
    }

    // O += P V of the last tile.
    __device__ __forceinline__ void end()
    {
        const float value_scale = __ldg(value_scales + tile + 1);
        group.ping_pong.take();
        await_v();
        start_part(0);
        group.ping_pong.pass();
        wgmma_wait<0>();
        add_part(0, value_scale);
        release_v();
    }

    // Else: S, P and O += P V of the tile.
    template <bool kMasked> __device__ __forceinline__ void step()
    {
        float s[kRowTiles][kColTiles][4];
        const KeyScales keys(key_scales + tile * kScales);
        const float value_scale = __ldg(value_scales + tile);
        start_s();
        group.ping_pong.pass();
        wgmma_wait<0>();
        softmax<kMasked>(s, keys).apply(o);
        pack_p(s, probabilities);
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

    template <bool kMasked, bool kFirst> __device__ __forceinline__ void any_step()
    {
        if constexpr (kOverlaps)
            overlapped_step<kMasked, kFirst>();
        else
            step<kMasked>();
    }
};
static_assert(!kOverlaps || kPartColumns == kHeadDim, "P V that runs during a softmax has one part");

// Computes O of 64 rows that see at least one key. O is not yet divided by the row sums.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                             const Barriers &barriers, Group &group,
                                             float (&o)[kRowTiles][kOutTiles][4], RowState &row)
{
    const uint32 smem = barriers.smem, q_smem = smem + kQArea + group.index * kGroupBytes;
    const int64 first = coord.kv_head(p) * all_key_tiles(p) + first_key_tile(p, coord.batch);
    const Queries q = round_queries(p, coord, group.lane, q_smem);
    uint32 sums[kColTiles][4], probabilities[kBc / 32][4];
    float part[BytesRows::kBuffers][1][kPartTiles][4];
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
    rows.any_step<true, true>();
    tile--;
#pragma unroll 1
    for (; tile >= tiles.unmasked; tile--)
        rows.any_step<true, false>();
#pragma unroll 1
    for (; tile >= 0; tile--)
        rows.any_step<false, false>();
    if constexpr (kOwnOPlace)
        group.release_q(barriers);
    if constexpr (kOverlaps)
        rows.end();
    if constexpr (!kOwnOPlace)
        named_barrier(1 + kGroups + group.index, 128);  // Q of this warpgroup is read: O comes into its place
    finish_rows(q, row);
}
