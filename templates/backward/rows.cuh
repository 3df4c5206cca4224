#pragma once
#include "backward/delta.cuh"
#include "lib/cp_async.cuh"

// ---- loads of LSE and delta of a tile's rows into shared memory -------------------------------------------------

// Policy: each block computes them.
struct ComputedRows {
    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int, uint32 smem)
    {
        put_rows<kBr>(p, batch, head, tile * kBr, smem);
    }

    __device__ __forceinline__ void store(uint32) {}
};

// Policy: loaded from the workspace, 16 bytes per thread. The workspace has whole tiles; with packed sequences, rows of
// others follow a sequence's last rows.
constexpr int kRowQuarters = kBr / 4;  // 16-byte loads of LSE; delta has as many
static_assert(2 * kRowQuarters <= kThreads, "a thread copies 16 bytes at most");

// Index of the first row that thread i loads, of LSE or delta of a tile. first: first row of the sequence.
__device__ __forceinline__ int64 prepared_row(const Params &p, int64 batch_head, int tile, int first, int i)
{
    const int64 rows = rows_of_batch_head(p);
    const int64 batch_heads = int64(batches(p)) * p.heads_q;
    return (i < kRowQuarters ? batch_head : batch_heads + batch_head) * rows + first + tile * kBr;
}

// Loaded through registers.
struct StagedRows {
    uint4 staged;

    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int first, uint32)
    {
        const int64 batch_head = int64(batch) * p.heads_q + head;
        const int i = thread_index();
        const int64 from = prepared_row(p, batch_head, tile, first, i);
        if (kVarlen && tile * kBr + i % kRowQuarters * 4 >= p.seq_q)
            staged = no_rows(i < kRowQuarters);
        else if (i < 2 * kRowQuarters)
            staged = __ldg(reinterpret_cast<const uint4 *>(p.rows + from + i % kRowQuarters * 4));
    }

    __device__ __forceinline__ void store(uint32 smem)
    {
        const int i = thread_index();
        if (i < 2 * kRowQuarters)
            store_shared_16(smem + i * 16, staged);
    }
};

// Loaded by cp.async.
struct CopiedRows {
    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int first, uint32 smem)
    {
        const int64 batch_head = int64(batch) * p.heads_q + head;
        const int i = thread_index();
        const int64 from = prepared_row(p, batch_head, tile, first, i);
        if (kVarlen && tile * kBr + i % kRowQuarters * 4 >= p.seq_q) {
            if (i < 2 * kRowQuarters)
                store_shared_16(smem + i * 16, no_rows(i < kRowQuarters));
            return;
        }
        cp_async_16(smem + i * 16, reinterpret_cast<const char *>(p.rows + from + i % kRowQuarters * 4),
                    i < 2 * kRowQuarters);
    }

    __device__ __forceinline__ void store(uint32) {}
};

using RowFill = Either<kPrepared, Either<kTuring, StagedRows, CopiedRows>::Type, ComputedRows>::Type;
