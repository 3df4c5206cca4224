#pragma once
#include "backward/delta.cuh"
#include "lib/cp_async.cuh"

// ---- LSE and delta of a tile's rows, on their way to shared memory -------------------------------------------

// Computed by each block that needs them.
struct ComputedRows {
    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int, uint32 smem)
    {
        put_rows<kBr>(p, batch, head, tile * kBr, smem);
    }

    __device__ __forceinline__ void store(uint32)
    {
    }
};

// Those of the workspace, 16 bytes per thread. It has whole tiles; of packed sequences, rows of others follow after a
// sequence's last ones.
struct PreparedQuarter {
    static constexpr int kQuarters = kBr / 4;
    static_assert(2 * kQuarters <= kThreads, "a thread copies 16 bytes at most");
    int thread;
    int64 row;

    // first: the first row of the sequence.
    __device__ __forceinline__ PreparedQuarter(const Params &p, int batch, int head, int tile, int first)
    {
        const int64 plane = int64(batch) * p.heads_q + head;
        thread = thread_index();
        const int64 rows = plane_rows(p);
        const int64 planes = int64(batches(p)) * p.heads_q;
        row = (thread < kQuarters ? plane : planes + plane) * rows + first + tile * kBr;
    }

    __device__ __forceinline__ const float *from(const Params &p) const
    {
        return p.rows + row + thread % kQuarters * 4;
    }

    __device__ __forceinline__ bool is_wanted() const
    {
        return thread < 2 * kQuarters;
    }

    __device__ __forceinline__ bool is_after_sequence(const Params &p, int tile) const
    {
        return kVarlen && tile * kBr + thread % kQuarters * 4 >= p.seq_q;
    }
};

// Through registers.
struct StagedRows {
    uint4 staged;

    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int first, uint32)
    {
        const PreparedQuarter own(p, batch, head, tile, first);
        if (own.is_after_sequence(p, tile))
            staged = no_rows(own.thread < own.kQuarters);
        else if (own.is_wanted())
            staged = __ldg(reinterpret_cast<const uint4 *>(own.from(p)));
    }

    __device__ __forceinline__ void store(uint32 smem)
    {
        const int i = thread_index();
        if (i < 2 * PreparedQuarter::kQuarters)
            store_shared_16(smem + i * 16, staged);
    }
};

// By cp.async.
struct CopiedRows {
    __device__ __forceinline__ void issue(const Params &p, int batch, int head, int tile, int first, uint32 smem)
    {
        const PreparedQuarter own(p, batch, head, tile, first);
        if (own.is_after_sequence(p, tile)) {
            if (own.is_wanted())
                store_shared_16(smem + own.thread * 16, no_rows(own.thread < own.kQuarters));
            return;
        }
        cp_async_16(smem + own.thread * 16, reinterpret_cast<const char *>(own.from(p)), own.is_wanted());
    }

    __device__ __forceinline__ void store(uint32)
    {
    }
};

using RowFill = Either<kPrepared, Either<kTuring, StagedRows, CopiedRows>::Type, ComputedRows>::Type;
