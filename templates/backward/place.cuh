#pragma once
#include "features/params.cuh"

// ---- block coordinates: kBc key rows of one key head --------------------------------------------------------------
//
// Policy: SequencePlace (batches.cuh, sequences.cuh).

struct BlockPlace : SequencePlace {
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
