#pragma once
#include "features/params.cuh"

// ---- which rows a block computes ---------------------------------------------------------------------------

// Where work is by a counter, who is free takes the next piece: the thread that loads does, by a counter in the
// workspace that the step before this one set to 0. It tells the others when the piece's Q comes.
struct CountedPiece {
    unsigned piece = blockIdx.x;

    __device__ __forceinline__ void take_over(unsigned next)
    {
        piece = next;
    }
};

struct NoPiece {
    static constexpr unsigned piece = 0;

    __device__ __forceinline__ void take_over(unsigned)
    {
    }
};

// A row tile of a plane, a head of a batch; BlockPlace says what that is.
struct Work : Either<kCounted, CountedPiece, NoPiece>::Type {
    unsigned own_tile, own_plane, round = 0;

    __device__ __forceinline__ explicit Work(const Params &p)
    {
        find(p);
    }

    __device__ __forceinline__ unsigned tile(const Params &) const
    {
        return own_tile;
    }

    __device__ __forceinline__ unsigned plane(const Params &) const
    {
        return own_plane;
    }

    __device__ __forceinline__ unsigned index() const
    {
        if constexpr (kCounted)
            return piece;
        else if constexpr (kStays)  // every other round goes backwards through the blocks, as work gets lighter
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

    // By one thread, for the block: what comes next, by the counter.
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

    // Of this piece among those of the block, as barriers count.
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
            own_plane = index() / p.q_tiles;
        }
        if constexpr (kBiasStaged)
            if (p.features.bias_batch == 0 && p.features.bias_head != 0)  // batches share a bias: one after the other
                own_plane = own_plane % p.batch * p.heads_q + own_plane / p.batch;
    }

private:
    // The heaviest tiles of a section of planes first: as many as have their K and V in L2.
    __device__ __forceinline__ void find_by_weight(const Params &p)
    {
        const unsigned planes = p.heads_q * p.batch;
        int seq_k = p.seq_k;
        if constexpr (kDropout)
            asm volatile("" : "+r"(seq_k));  // the section is found anew each time: no register is left for it
        const unsigned section = min(max(kSectionRows / seq_k, 1) * unsigned(p.group), planes);
        const unsigned before = index() / (section * p.q_tiles) * section, rest = index() - before * p.q_tiles;
        const unsigned here = min(section, planes - before);
        own_tile = rest / here;
        own_plane = before + rest % here;
    }
};
