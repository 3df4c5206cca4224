#pragma once
#include "lib/elements.cuh"
#include "merge/params.cuh"

// ---- merging: O and LSE over all keys from those over parts of them ----------------------------------------------
//
//     max = max of lse_i    w_i = exp(lse_i - max)    O = sum of w_i O_i / sum of w_i    LSE = max + ln(sum of w_i)
//
// A part whose LSE is -infinity saw no key: its O does not count, whatever it holds. The work is loads and stores. A
// group of lanes has a row, and each lane has four neighbouring columns of it at a time. kAhead parts are loaded before
// any of them is used. A step with more parts than that goes on from the sums of the step before.

// Returns the largest power of two up to at_most, from `power` on.
constexpr int largest_power_of_two(int power, int at_most)
{
    return 2 * power > at_most ? power : largest_power_of_two(2 * power, at_most);
}

constexpr int kQuads = kHeadDim / 4;                                        // groups of four columns
constexpr int kLanes = largest_power_of_two(1, kQuads < 32 ? kQuads : 32);  // of a row
constexpr int kBlockRows = kThreads / kLanes;                               // rows of a block, one per group of lanes

// Where a row is. Rows are counted in the order of LSE: batch, head, row of the sequence.
struct RowCoord {
    int64 row;
    int batch, head, seq;

    // first: the block's first row, at row `begin` of the sequence of head `begin_head`, counted over all batches.
    __device__ __forceinline__ RowCoord(const Params &p, int64 first, int64 begin_head, uint32 begin, int in_block)
        : row(first + in_block)
    {
        const uint32 at = begin + in_block, heads_after = at / uint32(p.seq);
        const uint32 batch_head = uint32(begin_head) + heads_after;
        seq = int(at - heads_after * uint32(p.seq));
        batch = int(batch_head / uint32(p.heads));
        head = int(batch_head - uint32(batch) * uint32(p.heads));
    }
};

// The running sum of a row over its parts, of four columns.
struct RowSum {
    float max, sum;
    float4 o;

    // Adds kAhead parts. An empty one has lse = -infinity. A NaN does not count in the maximum; its weight is NaN.
    __device__ __forceinline__ void add(const float (&lse)[kAhead], const float4 (&x)[kAhead])
    {
        float most = max;
        bool is_empty = max == minus_infinity();
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            most = fmaxf(most, lse[i]);
            is_empty = is_empty && lse[i] == minus_infinity();
        }
        if (is_empty)
            return;  // no key so far
        const float old = expf(max - most);
        sum *= old;
        o = float4{o.x * old, o.y * old, o.z * old, o.w * old};
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            if (lse[i] == minus_infinity())
                continue;
            const float weight = expf(lse[i] - most);
            sum += weight;
            o.x = fmaf(weight, x[i].x, o.x);
            o.y = fmaf(weight, x[i].y, o.y);
            o.z = fmaf(weight, x[i].z, o.z);
            o.w = fmaf(weight, x[i].w, o.w);
        }
        max = most;
    }
};

// Writes four columns of O.
__device__ __forceinline__ void put(char *o, int64 at, const RowSum &row)
{
    const float inverse = row.sum == 0.0f ? 0.0f : 1.0f / row.sum;
    const float4 x{row.o.x * inverse, row.o.y * inverse, row.o.z * inverse, row.o.w * inverse};
    if constexpr (kFp32)
        *reinterpret_cast<float4 *>(o + at * 4) = x;
    else
        *reinterpret_cast<uint2 *>(o + at * Elem::kBytes) = uint2{Elem::pack(x.x, x.y), Elem::pack(x.z, x.w)};
}

// Merges this lane's columns of the row at these coordinates, four neighbours. exists: whether there is such a row.
__device__ __forceinline__ void merge_columns(const Params &p, const RowCoord &at, bool exists, int column, RowSum &row)
{
    row = RowSum{minus_infinity(), 0.0f, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll 1
    for (int first = 0; first < p.count; first += kAhead) {
        float lse[kAhead];
        float4 x[kAhead];
        const int64 offset = at.batch * p.part_stride.batch + at.head * p.part_stride.head +
                             at.seq * p.part_stride.seq + first * p.part_step + column;
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            lse[i] = minus_infinity();
            x[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
            if (!exists || first + i >= p.count)
                continue;
            lse[i] = p.part_lse[(first + i) * p.part_lse_step + at.row];
            x[i] = *reinterpret_cast<const float4 *>(p.parts + offset + i * p.part_step);
        }
        row.add(lse, x);
    }
}

// The kernel; kThreads threads per block.
__device__ __forceinline__ void merge(const Params &p)
{
    const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
    const int64 first = int64(blockIdx.x) * kBlockRows, all = int64(p.batch) * p.heads * p.seq;
    const int64 begin_head = first / p.seq;
    const uint32 begin = uint32(first - begin_head * p.seq);
    const RowCoord at(p, first, begin_head, begin, group);
    const bool exists = at.row < all;
#pragma unroll 1
    for (int column = lane * 4; column < kHeadDim; column += kLanes * 4) {
        RowSum row;
        merge_columns(p, at, exists, column, row);
        if (!exists)
            continue;
        put(p.o, at.batch * p.o_stride.batch + at.head * p.o_stride.head + at.seq * p.o_stride.seq + column, row);
        if (p.lse != nullptr && column == 0)
            p.lse[at.row] = row.sum == 0.0f ? minus_infinity() : row.max + logf(row.sum);
    }
}
