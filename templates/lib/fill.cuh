#pragma once
#include "lib/cp_async.cuh"
#include "lib/ptx.cuh"
#include "lib/form.cuh"

// ---- loads of a tile from global to shared memory -------------------------------------------------------------
//
// A thread always copies the same chunk column, in rows that are kRowStep apart; neighbouring lanes take neighbouring
// chunks. Chunks beyond the tensor's columns and rows beyond its end become zeros.

// The passes of a load that are issued at once: part `part` of `parts`, if wanted.
struct Share {
    int part, parts;
    bool wanted;
};
constexpr Share kWhole = {0, 1, true};

// The chunks of a [kRows][kColumns] tile that a thread copies; kCount threads share the work. Addresses are computed
// again for each tile, because thread_index() cannot be moved out of the loop. That costs a few instructions, and saves
// registers that the accumulators need.
template <int kRows, int kCount, int kColumns = kHeadDim> struct FillPlan {
    using Form = FormOf<kColumns>;
    static constexpr int kChunks = Form::kChunks, kPitch = Form::kPitch;
    static constexpr int kRowStep = kCount / kChunks;  // rows per pass
    static constexpr int kPasses = (kRows + kRowStep - 1) / kRowStep;
    static constexpr bool kAllThreads = kRowStep * kChunks == kCount;
    static constexpr bool kAllRows = kRows % kRowStep == 0;
    static constexpr bool kAllColumns = kColumns * kElemBytes == kChunks * 16;

    const int first_row, chunk;

    __device__ __forceinline__ FillPlan() : FillPlan(kCount < kThreads ? thread_index() % kCount : thread_index()) {}

    __device__ __forceinline__ explicit FillPlan(int thread) : first_row(thread / kChunks), chunk(thread % kChunks) {}

    static __device__ __forceinline__ constexpr int begin(Share share)
    {
        return share.part * kPasses / share.parts;
    }

    static __device__ __forceinline__ constexpr int end(Share share)
    {
        return (share.part + 1) * kPasses / share.parts;
    }

    __device__ __forceinline__ int row(int pass) const
    {
        return first_row + pass * kRowStep;
    }

    __device__ __forceinline__ bool has_row(int pass) const
    {
        return (kAllThreads || first_row < kRowStep) && (kAllRows || row(pass) < kRows);
    }

    __device__ __forceinline__ bool in_columns() const
    {
        return kAllColumns || chunk < kColumns * kElemBytes / 16;
    }

    // Byte offset in shared memory from the tile's start.
    __device__ __forceinline__ uint32 offset(int pass) const
    {
        if constexpr (kRowStep % 8 == 0)  // the swizzle is the same in every pass
            return Form::chunk_offset(first_row, chunk) + pass * kRowStep * kPitch;
        else
            return Form::chunk_offset(row(pass), chunk);
    }
};

// kStaged: the load goes through registers, for SM 7.5. Global loads are issued early; store() writes the registers to
// shared memory when the tile there is no longer read.
template <int kRows, int kCount, int kColumns = kHeadDim, bool kStaged = kTuring> struct Fill {
    using Plan = FillPlan<kRows, kCount, kColumns>;
    uint4 staged[Plan::kPasses];

    // Starts loading a tile, always all of it, because loads that are spread over a product would keep its registers
    // waiting. address(row): start of a row in global memory. Rows from valid_rows on become zeros. kFull: all rows are
    // valid.
    template <bool kFull, class Address>
    __device__ __forceinline__ void issue(const Plan &plan, Share, uint32, int valid_rows, Address address)
    {
#pragma unroll
        for (int pass = 0; pass < Plan::kPasses; pass++) {
            staged[pass] = uint4{0, 0, 0, 0};
            if (plan.has_row(pass) && plan.in_columns() && (kFull || plan.row(pass) < valid_rows))
                staged[pass] = __ldg(reinterpret_cast<const uint4 *>(address(plan.row(pass)) + plan.chunk * 16));
        }
    }

    __device__ __forceinline__ void store(uint32 smem)
    {
        const Plan plan;
#pragma unroll
        for (int pass = 0; pass < Plan::kPasses; pass++)
            if (plan.has_row(pass))
                store_shared_16(smem + plan.offset(pass), staged[pass]);
    }
};

// The load by cp.async.
template <int kRows, int kCount, int kColumns> struct Fill<kRows, kCount, kColumns, false> {
    using Plan = FillPlan<kRows, kCount, kColumns>;

    // Starts copying a share of a tile to smem. address(row): start of a row in global memory. Rows from valid_rows on
    // become zeros. kFull: all rows are valid.
    template <bool kFull, class Address>
    __device__ __forceinline__ void issue(const Plan &plan, Share share, uint32 smem, int valid_rows, Address address)
    {
#pragma unroll
        for (int pass = plan.begin(share); pass < plan.end(share); pass++) {
            if (!plan.has_row(pass))
                continue;
            const char *src = address(plan.row(pass)) + plan.chunk * 16;
            if (kFull && Plan::kAllColumns)
                cp_async_16(smem + plan.offset(pass), src, share.wanted);
            else
                cp_async_16_or_zero(smem + plan.offset(pass), src, share.wanted,
                                    plan.in_columns() && (kFull || plan.row(pass) < valid_rows));
        }
    }

    // Does nothing: cp.async has written shared memory.
    __device__ __forceinline__ void store(uint32) {}
};

// Loads into registers are ordered by their use, so there is nothing to commit or to wait for.
__device__ __forceinline__ void fill_commit()
{
    if constexpr (!kTuring)
        cp_async_commit();
}

// Waits until at most kPending committed loads of this thread are in flight. A barrier must follow before other
// threads' chunks are read.
template <int kPending> __device__ __forceinline__ void fill_wait()
{
    if constexpr (!kTuring)
        cp_async_wait<kPending>();
}
