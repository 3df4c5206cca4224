#pragma once
#include "backward/packed.cuh"

// ---- block coordinates: kBc key rows of one key head --------------------------------------------------------------

// Packed sequences: the block's sequence.
struct PlaceInSequence {
    PackedTile<kBc, true> own;
    int number;            // number of the tile, counted over all sequences
    int sequence_q_tiles;  // tiles of queries of the sequence
    int first_q_tile;      // number of its first tile of queries
    int first_prepared;    // its first row of LSE and delta

    __device__ __forceinline__ void find(const Params &p, unsigned tile, int &first_key)
    {
        number = tile;
        own = PackedTile<kBc, true>(p, tile);
        first_key = own.tile * kBc;
        sequence_q_tiles = (own.sequence.seq_q + kBr - 1) / kBr;
        first_q_tile = first_tile(p.features.cu_seqlens_q, p.features.total_q, kBr, max(own.index, 0));
        first_prepared = prepared_begin(p, max(own.index, 0));
    }

    __device__ __forceinline__ bool is_empty() const
    {
        return own.index < 0;
    }

    __device__ __forceinline__ int q_tiles(const Params &) const
    {
        return sequence_q_tiles;
    }

    __device__ __forceinline__ Params params(const Params &all) const
    {
        return own.alone(all);
    }
};

struct PlaceInBatch {
    static constexpr int first_q_tile = 0, first_prepared = 0;

    static __device__ __forceinline__ void find(const Params &, unsigned, int &)
    {
    }

    static __device__ __forceinline__ bool is_empty()
    {
        return false;
    }

    static __device__ __forceinline__ int q_tiles(const Params &p)
    {
        return p.q_tiles;
    }

    static __device__ __forceinline__ const Params &params(const Params &all)
    {
        return all;
    }
};

struct BlockPlace : Either<kVarlen, PlaceInSequence, PlaceInBatch>::Type {
    int first_key;
    int kv_head, batch;

    // Heavy tiles of all heads first when causal: the first keys are seen by the most queries. With a window all but
    // the last ones are seen by equally many.
    __device__ __forceinline__ BlockPlace(const Params &p, unsigned block)
    {
        const unsigned kv_heads = p.heads_q / p.group;
        unsigned tile, plane;
        if constexpr (kAllKeys) {  // one block processes all tiles, one after the other
            tile = block % p.k_tiles;
            plane = block / p.k_tiles;
        } else {
            const unsigned planes = kv_heads * batches(p);
            // Blocks that begin together have keys of several heads, because blocks of one head add to the same dQ. Not
            // of all heads, so that what they read stays in the L2 cache.
            const unsigned most = kHeavyFirst ? planes : max(8u, kTogether / p.k_tiles);
            const unsigned first_plane = block / (most * p.k_tiles) * most;
            const unsigned together = min(most, planes - first_plane);
            tile = block % (most * p.k_tiles) / together;
            if constexpr (kLastKeysFirst)
                tile = p.k_tiles - 1 - tile;
            plane = first_plane + block % (most * p.k_tiles) % together;
        }
        first_key = tile * kBc;
        kv_head = plane % kv_heads;
        batch = plane / kv_heads;
        find(p, tile, first_key);
    }

    // The batch number for dropout.
    __device__ __forceinline__ int sequence() const
    {
        return sequence_of(*this);
    }

private:
    template <class Place> static __device__ __forceinline__ int sequence_of(const Place &place)
    {
        if constexpr (kVarlen)
            return place.own.index;
        else
            return place.batch;
    }
};
