#pragma once
#include "features/params.cuh"

// ---- work tiles: which rows a block computes --------------------------------------------------------------------

// Dynamic work: a block that is free takes the next work tile from a counter in the workspace. The kernel before has
// set it to 0. The producer thread takes the number, and tells the others when the Q of that work tile comes.
struct CountedWork {
    unsigned number = blockIdx.x;

    __device__ __forceinline__ void take_over(unsigned next)
    {
        number = next;
    }
};

struct FixedWork {
    static constexpr unsigned number = 0;

    __device__ __forceinline__ void take_over(unsigned) {}
};

// A work tile: a row tile of one head of a batch (see BlockCoord). batch_head: b * heads + h.
struct Work : Either<kCounted, CountedWork, FixedWork>::Type {
    unsigned own_tile, own_batch_head, round = 0;

    __device__ __forceinline__ explicit Work(const Params &p)
    {
        find(p);
    }

    __device__ __forceinline__ unsigned tile(const Params &) const
    {
        return own_tile;
    }

    __device__ __forceinline__ unsigned batch_head(const Params &) const
    {
        return own_batch_head;
    }

    __device__ __forceinline__ unsigned index() const
    {
        if constexpr (kCounted)
            return number;
        else if constexpr (kStays)  // odd rounds go through the blocks backwards, because work gets lighter
            return round * gridDim.x + (round % 2 == 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
        else
            return blockIdx.x;
    }

    __device__ __forceinline__ bool is_left(const Params &p) const
    {
        if constexpr (kStays)
            return index() < unsigned(p.q_tiles) * p.heads_q * p.batch;
        else
            return round == 0;
    }

    // Takes the next work tile from the counter. Called by one thread for the block.
    __device__ __forceinline__ unsigned take(const Params &p) const
    {
        return gridDim.x + atomicAdd(reinterpret_cast<unsigned *>(p.partial), 1u);
    }

    __device__ __forceinline__ void advance(const Params &p)
    {
        round++;
        find(p);
    }

    __device__ __forceinline__ void advance(const Params &p, unsigned next)
    {
        this->take_over(next);
        advance(p);
    }

    // The parity of this work tile's barriers: its number within the block, modulo 2.
    __device__ __forceinline__ uint32 parity() const
    {
        return round % 2;
    }

    __device__ __forceinline__ void find(const Params &p)
    {
        if constexpr (kByWeight) {
            find_by_weight(p);
        } else {
            own_tile = index() % p.q_tiles;
            own_batch_head = index() / p.q_tiles;
        }
        if constexpr (kBiasStaged)
            if (p.features.bias_batch == 0 && p.features.bias_head != 0)  // batches share a bias, so batch varies first
                own_batch_head = own_batch_head % p.batch * p.heads_q + own_batch_head / p.batch;
    }

private:
    // Order by weight: the heaviest row tiles come first, within a section of as many heads as have their K and V in
    // L2.
    __device__ __forceinline__ void find_by_weight(const Params &p)
    {
        const unsigned batch_heads = p.heads_q * p.batch;
        int seq_k = p.seq_k;
        if constexpr (kDropout)
            asm volatile("" : "+r"(seq_k));  // computed again each time, because no register is left for it
        const unsigned section = min(max(kSectionRows / seq_k, 1) * unsigned(p.group), batch_heads);
        const unsigned before = index() / (section * p.q_tiles) * section, rest = index() - before * p.q_tiles;
        const unsigned here = min(section, batch_heads - before);
        own_tile = rest / here;
        own_batch_head = before + rest % here;
    }
};
