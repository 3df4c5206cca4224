#pragma once
#include "features/hidden.cuh"
#include "lib/ptx.cuh"

// ---- LSE and delta of rows --------------------------------------------------------------------------------------

// Rows of a head: of p, or of all packed sequences if kOfAll.
template <bool kOfAll> __device__ __forceinline__ int head_rows(const Params &p)
{
    return kOfAll && kVarlen ? p.features.total_q : p.seq_q;
}

// Returns LSE in log2 units; +infinity for rows that saw no key and for rows after the tensor's end, so that their P is
// 0.
template <bool kOfAll = false> __device__ __forceinline__ float row_lse(const Params &p, int64 batch_head, int row)
{
    const float lse =
        row < head_rows<kOfAll>(p) ? __ldg(p.lse + batch_head * head_rows<true>(p) + row) : minus_infinity();
    bool none;
    if constexpr (kBiasNumbers)
        none = lse < kLeastScore - 128.0f;  // lower only if no key was visible, or if the sink is that low
    else
        none = lse == minus_infinity();
    return none ? -minus_infinity() : lse * 1.4426950408889634f;
}

// LSE or delta of four rows beyond the end.
__device__ __forceinline__ uint4 no_rows(bool lse)
{
    const uint32 x = lse ? __float_as_uint(-minus_infinity()) : 0;
    return {x, x, x, x};
}

// kRowLanes neighbouring lanes share a row, 8 elements each.
constexpr int kRowChunks = kHeadDimV / 8;
constexpr int kRowLanes = kRowChunks > 16  ? 32
                          : kRowChunks > 8 ? 16
                          : kRowChunks > 4 ? 8
                          : kRowChunks > 2 ? 4
                                           : kRowChunks;

// Returns delta = rowsum(dO * O), in all lanes of the row; 0 after the tensor's end. All lanes of the warp must call
// it.
template <bool kOfAll = false>
__device__ __forceinline__ float row_delta(const Params &p, int64 batch, int head, int row, int lane)
{
    float delta = 0.0f;
    if (row < head_rows<kOfAll>(p) && lane < kRowChunks) {
        const char *o = p.o + (batch * p.o_stride.batch + head * p.o_stride.head + row * p.o_stride.seq) * kElemBytes;
        const char *d_o =
            p.d_o + (batch * p.do_stride.batch + head * p.do_stride.head + row * p.do_stride.seq) * kElemBytes;
        delta = dot_8(o, d_o, lane);
    }
#pragma unroll
    for (int lanes = kRowLanes / 2; lanes > 0; lanes /= 2)
        delta += __shfl_xor_sync(0xffffffffu, delta, lanes);
    // dP is not multiplied by keep_scale (dQ and dK are, at the end), so delta is divided by it.
    return kDropout ? delta / p.features.keep_scale : delta;
}

// Writes LSE and delta of rows first_row ... first_row + kRows - 1 to shared memory, contiguously. One pass of all
// threads of a block.
constexpr int kRowsAtOnce = kThreads / kRowLanes;

template <int kRows>
__device__ __forceinline__ void put_some_rows(const Params &p, int batch, int head, int first_row, uint32 smem,
                                              int pass, int64 batch_head, int thread)
{
    const int r = pass * kRowsAtOnce + thread / kRowLanes;
    const int row = r < kRows ? first_row + r : p.seq_q;
    const float delta = row_delta(p, batch, head, row, thread % kRowLanes);
    if (r < kRows && thread % kRowLanes == 0) {
        store_shared_4(smem + r * 4, __float_as_uint(row_lse(p, batch_head, row)));
        store_shared_4(smem + (kRows + r) * 4, __float_as_uint(delta));
    }
}

// All passes of the block.
template <int kRows>
__device__ __forceinline__ void put_rows(const Params &p, int batch, int head, int first_row, uint32 smem)
{
    constexpr int kPasses = (kRows + kRowsAtOnce - 1) / kRowsAtOnce;
    const int64 batch_head = int64(batch) * p.heads_q + head;
    const int thread = thread_index();
    if constexpr (kDqBlock) {
#pragma unroll 2  // no deeper unrolling: the sums of dK and dV hold registers meanwhile
        for (int pass = 0; pass < kPasses; pass++)
            put_some_rows<kRows>(p, batch, head, first_row, smem, pass, batch_head, thread);
    } else {
#pragma unroll
        for (int pass = 0; pass < kPasses; pass++)
            put_some_rows<kRows>(p, batch, head, first_row, smem, pass, batch_head, thread);
    }
}
