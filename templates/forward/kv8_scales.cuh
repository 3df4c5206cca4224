#pragma once
#include "forward/coord.cuh"
#include "forward/tile.cuh"
#include "lib/fill.cuh"
#include "lib/mma.cuh"

// ---- the scales of rows of K and V in 8 bits -----------------------------------------------------------------------
//
// Policy of kernels whose K and V are in 8 bits; the others have no_scales.cuh. The scales of a tile are loaded with
// its rows, and lie after them in shared memory, in the order of the rows there. Neighbouring threads copy the scales
// of neighbouring rows. If page numbers are exchanged, a thread copies the scales of those rows whose pages it has
// looked up (page_numbers.cuh). Such rows of a warp are a power of two apart, so a gap after each 32 scales keeps the
// stores of a warp in different banks.

// Head pointers.
struct ScaleHeads {
    const char *k_scales, *v_scales;

    __device__ __forceinline__ ScaleHeads(const Params &p, const BlockCoord &coord, int kv_head)
        : k_scales(key_head<kRowScaleBytes>(reinterpret_cast<const char *>(p.features.k_scale),
                                            p.features.k_scale_stride, coord, kv_head)),
          v_scales(key_head<kRowScaleBytes>(reinterpret_cast<const char *>(p.features.v_scale),
                                            p.features.v_scale_stride, coord, kv_head))
    {
    }
};

// The most rows of a tile whose scales one thread copies.
template <class Plan>
constexpr int kOwnScales = kPagesExchanged ? (Plan::kPasses + Plan::kChunks - 1) / Plan::kChunks
                                           : (kBc + kTeamThreads - 1) / kTeamThreads;

// Calls copy(i, row) for these rows, the i-th one.
template <class Plan, class Copy> __device__ __forceinline__ void each_scale(const Plan &plan, Copy copy)
{
#pragma unroll
    for (int i = 0; i < kOwnScales<Plan>; i++) {
        if constexpr (kPagesExchanged) {
            const int pass = plan.chunk + i * Plan::kChunks;
            if (pass < Plan::kPasses && plan.has_row(pass))
                copy(i, plan.row(pass));
        } else {
            const int row = plan.first_row * Plan::kChunks + plan.chunk + i * kTeamThreads;
            if (row < kBc)
                copy(i, row);
        }
    }
}

// Where the scale of a row is, from the first one.
__device__ __forceinline__ constexpr int scale_offset(int row)
{
    return (row + row / 32 * kScalesGap) * 4;
}

// Converts a scale in memory.
__device__ __forceinline__ float scale_in_memory(const char *at)
{
    if constexpr (kHalfScales)
        return fp16::unpack(__ldg(reinterpret_cast<const unsigned short *>(at))).x;
    else
        return __ldg(reinterpret_cast<const float *>(at));
}

// The load of the scales of a tile of K or V, as Fill for rows: through registers, for SM 7.5 and for fp16, which
// cp.async cannot copy one by one ...
template <class Plan, bool kStaged = kTuring || kHalfScales> struct ScaleFill {
    float staged[kOwnScales<Plan>];

    template <bool kFull, class Address>
    __device__ __forceinline__ void issue(const Plan &plan, Share share, uint32, int valid_rows, Address address)
    {
        if (share.part > 0 || !share.wanted)
            return;
        each_scale(plan, [&](int i, int row) {
            staged[i] = kFull || row < valid_rows ? scale_in_memory(address(i, row)) : 0.0f;
        });
    }

    __device__ __forceinline__ void store(uint32 smem)
    {
        each_scale(Plan(),
                   [&](int i, int row) { store_shared_4(smem + scale_offset(row), __float_as_uint(staged[i])); });
    }
};

// ... or by cp.async.
template <class Plan> struct ScaleFill<Plan, false> {
    template <bool kFull, class Address>
    __device__ __forceinline__ void issue(const Plan &plan, Share share, uint32 smem, int valid_rows, Address address)
    {
        if (share.part > 0)
            return;
        each_scale(plan, [&](int i, int row) {
            cp_async_4_or_zero(smem + scale_offset(row), address(i, row), share.wanted, kFull || row < valid_rows);
        });
    }

    __device__ __forceinline__ void store(uint32) {}
};

constexpr int kKeyScales = kBc * KeyTile::kPitch, kValueScales = kBc * ValueTile::kPitch;  // where they lie in a stage

// The loads under way.
struct ScaleFills {
    ScaleFill<FillPlan<kBc, kTeamThreads, kKeyColumns>> k_scales;
    ScaleFill<FillPlan<kBc, kTeamThreads, kValueColumns>> v_scales;

    // Start copying the scales of a tile whose rows `rows` finds. smem: its stage. number(r): the key of row r,
    // relative to the tile's first.
    template <bool kFull, class... Args>
    __device__ __forceinline__ void issue_k_scales(const Params &p, const ScaleHeads &from, uint32 smem,
                                                   const Args &...args)
    {
        issue<kFull>(k_scales, from.k_scales, p.features.k_scale_stride, smem + kKeyScales, args...);
    }

    template <bool kFull, class... Args>
    __device__ __forceinline__ void issue_v_scales(const Params &p, const ScaleHeads &from, uint32 smem,
                                                   const Args &...args)
    {
        issue<kFull>(v_scales, from.v_scales, p.features.v_scale_stride, smem + kValueScales, args...);
    }

    __device__ __forceinline__ void store_k_scales(uint32 smem)
    {
        k_scales.store(smem + kKeyScales);
    }

    __device__ __forceinline__ void store_v_scales(uint32 smem)
    {
        v_scales.store(smem + kValueScales);
    }

private:
    template <bool kFull, class Fill, class Plan, class Numbers, class Rows, class Number>
    static __device__ __forceinline__ void issue(Fill &fill, const char *head, const Strides &stride, uint32 smem,
                                                 const Numbers &pages, const Rows &rows, const Plan &plan, Share share,
                                                 int tile, int valid_rows, Number number)
    {
        fill.template issue<kFull>(plan, share, smem, valid_rows, [&](int i, int r) {
            return scale_at(pages, rows, plan, tile, i, number(r), head, stride);
        });
    }
};

// Reads the scales of two neighbouring rows of a tile. at: of the first. An infinite scale becomes NaN, so that a row
// with it cannot seem to be hidden.
__device__ __forceinline__ float2 read_scales(uint32 at)
{
    const float2 scale = load_shared_8(at);
    return {fmaf(scale.x, 0.0f, scale.x), fmaf(scale.y, 0.0f, scale.y)};
}
