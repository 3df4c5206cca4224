#pragma once
#include "forward/coord.cuh"
#include "forward/merge.cuh"
#include "forward/row_ends.cuh"
#include "lib/early.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"

// ---- the kernel after the main one: combines the splits of a row --------------------------------------------
//
// The entry points are in entry.cu.in and hopper/fwd_splitkv_sm90.cu.in.
//
// One warp per row of O. Lanes divide the splits to compute their weights, and then the columns. The time of this
// kernel is latency: of its loads, so the first parts are loaded while the weights are computed; and of instruction
// fetch, so the code is short.

constexpr int kPartsAhead = 16;  // parts of a row that are loaded at once
static_assert(kMaxSplits % kPartsAhead == 0, "there are weights for whole steps");

// The partial results of a row of O. All row tiles have the same number of them; if sequences have their own lengths, a
// row has one per share of its row tile.
struct RowParts {
    int splits;
    int64 first, step;  // index of the first part, and distance to the next

    template <class AnyParams>
    __device__ __forceinline__ RowParts(const AnyParams &p, int64 row, int64 rows, int batch, int head, int query)
        : splits(p.splits), first(row), step(rows)
    {
        if constexpr (kLengths) {
            const auto slots = slots_of(p, batch);
            const int r = query * p.group + head % p.group, all_slots = kVarlen ? part_slots(p) : p.features.slots;
            const int slot = (kVarlen ? slots.first_part : slots.first) + r / kBr * slots.shares;
            // If cu_seqlens decreases (invalid), there would be more slots than memory: such rows are skipped.
            splits = slot + slots.shares <= all_slots ? slots.shares : 1;
            first = (int64(head / p.group) * all_slots + slot) * kBr + r % kBr;
            step = kBr;
        }
    }
};

// Returns the first element of a row. row: among all packed rows, or of its batch.
__device__ __forceinline__ int64 offset_of(const Strides &stride, int batch, int head, int row)
{
    if constexpr (kVarlen)
        return head * stride.head + row * stride.seq;
    else
        return batch * stride.batch + head * stride.head + row * stride.seq;
}

// Writes this lane's columns of O, if it has any. from: those before. Returns LSE to be written.
__device__ __forceinline__ float put_partial(char *to, const char *from, int own_splits, const float4 &x, float inverse,
                                             const Merge &merge)
{
    if (own_splits > 0)
        merge.put(to, merge.read<float4>(from), float4{x.x * inverse, x.y * inverse, x.z * inverse, x.w * inverse});
    return merge.lse;
}

// The kernel.
template <int kBlockThreads, class AnyParams> __device__ __forceinline__ void combine(const AnyParams &p)
{
    constexpr int kBlockWarps = kBlockThreads / 32;
    __shared__ __align__(16) float weights[kBlockWarps][kMaxSplits];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64 rows = kVarlen ? int64(p.heads_q) * p.features.total_q : int64(p.batch) * p.heads_q * p.seq_q;
    const int64 row = int64(blockIdx.x) * kBlockWarps + warp;
    int head, query, batch, packed;
    if constexpr (kVarlen) {
        head = row / p.features.total_q;
        packed = row % p.features.total_q;
    } else {
        query = row % p.seq_q;
        const int64 batch_head = row / p.seq_q;
        head = batch_head % p.heads_q;
        batch = batch_head / p.heads_q;
    }
    await_step_before();
    if (row >= rows)
        return;
    if constexpr (kVarlen) {
        batch = sequence_of_row(p, packed);
        const auto sequence = sequence_of(p, batch);
        query = packed - sequence.first_q;
        if (query < 0 || query >= sequence.seq_q)
            return;  // the row belongs to no sequence
    }
    auto offset = [&](const Strides &stride) { return offset_of(stride, batch, head, kVarlen ? packed : query); };
    char *const o = p.o + offset(p.o_stride) * kOutBytes;
    const char *const old_o = old_row(p, o, offset);
    const RowParts row_parts(p, row, rows, batch, head, query);
    if (kLengths && row_parts.splits == 1)
        return;  // its only block has written it
    const int splits = row_parts.splits;
    const float *const lse_parts = p.partial_lse + row_parts.first;
    const int64 step = row_parts.step;
    const float own_lse = kMerges && lane == 0 ? p.lse[row] : minus_infinity();  // lane 0 also writes it
    const float old_lse = kMerges ? __shfl_sync(0xffffffffu, own_lse, 0) : own_lse;

    float most = lane < splits ? lse_parts[lane * step] : minus_infinity();  // used after the loads of parts are issued
    float sum = 0.0f;
    auto find_weights = [&] {
#pragma unroll 1
        for (int split = lane + 32; split < splits; split += 32)
            most = fmaxf(most, lse_parts[split * step]);
        most = warp_max(most);
#pragma unroll 1
        for (int split = lane; split < (splits + kPartsAhead - 1) / kPartsAhead * kPartsAhead; split += 32) {
            const bool any = split < splits && most != minus_infinity();
            const float weight = any ? expf(lse_parts[split * step] - most) : 0.0f;
            weights[warp][split] = weight;
            sum += weight;
        }
        sum = warp_sum(sum);
        __syncwarp();  // the weights are this warp's own: its stores before its loads
    };
#pragma unroll 1
    for (int begin = 0; begin < kHeadDimV; begin += 128) {
        const int column = begin + lane * 4;
        const int own_splits = column < kHeadDimV ? splits : 0;
        const float *at = p.partial + row_parts.first * kHeadDimV + column;
        float4 x{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
        for (int first = 0; first < splits; first += kPartsAhead) {
            float4 part[kPartsAhead];
#pragma unroll
            for (int i = 0; i < kPartsAhead; i++) {
                part[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
                if (first + i < own_splits)
                    part[i] = *reinterpret_cast<const float4 *>(at);
                at += step * kHeadDimV;
            }
            if (begin + first == 0)
                find_weights();
#pragma unroll
            for (int i = 0; i < kPartsAhead; i++) {
                const float weight = weights[warp][first + i];
                x.x += weight * part[i].x;
                x.y += weight * part[i].y;
                x.z += weight * part[i].z;
                x.w += weight * part[i].w;
            }
        }
        float inverse = row_inverse(sum), lse = row_lse(most, sum);
        if constexpr (kSinks) {
            const SinkEnd end(most, sum, sum, sink_of_head(p, head));
            inverse = end.inverse;
            lse = end.lse;
        }
        if constexpr (kPartial || kCarry)
            lse = put_partial(o + column * kOutBytes, old_o + column * 4, own_splits, x, inverse, Merge(lse, old_lse));
        else if (own_splits > 0)
            *reinterpret_cast<uint2 *>(o + column * kElemBytes) =
                uint2{pack2(x.x * inverse, x.y * inverse), pack2(x.z * inverse, x.w * inverse)};
        if (p.lse != nullptr && begin + lane == 0)
            p.lse[row] = lse;
    }
}
