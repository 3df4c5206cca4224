#pragma once
#include "features/params.cuh"

// ---- block coordinates: kBc key rows of one key head --------------------------------------------------------------
//
// Policy: SequenceCoord (batches.cuh, sequences.cuh).

struct BlockCoord : SequenceCoord {
    int first_key;
    int kv_head, batch;
    int split;             // with kHeadBlocks, the number of the block among those that share its keys
    bool last_keys_first;  // with kLastKeysFirst: the order in which blocks add to dQ of this head (dq_order.cuh)

    // Under a causal mask the heavy tiles of all heads come first: most queries see the first keys. With a window,
    // equally many queries see all but the last keys. splits: with kHeadBlocks, blocks that share a tile of keys. They
    // are placed as if each had a key head of its own, so that blocks that begin together read the same queries.
    __device__ __forceinline__ BlockCoord(const Params &p, unsigned block, unsigned splits = 1) : last_keys_first(false)
    {
        const unsigned kv_heads = p.heads_q / p.group;
        unsigned tile, batch_head;
        if constexpr (kDqBlock) {  // one block processes all tiles, one after the other
            tile = block % p.k_tiles;
            batch_head = block / p.k_tiles;
        } else {
            const unsigned batch_heads = kv_heads * batches(p) * splits;
            // Blocks that begin together have keys of several heads, because blocks of one head add to the same dQ.
            // They do not have keys of all heads, so that what they read stays in the L2 cache.
            const unsigned most = kHeavyFirst ? batch_heads : max(kLeastHeads, kTogether / p.k_tiles);
            const unsigned first_batch_head = block / (most * p.k_tiles) * most;
            const unsigned together = min(most, batch_heads - first_batch_head);
            tile = block % (most * p.k_tiles) / together;
            batch_head = first_batch_head + block % (most * p.k_tiles) % together;
            if constexpr (kLastKeysFirst) {  // but the last heads have the first keys first
                last_keys_first = batch_heads - first_batch_head > most;
                tile = last_keys_first ? p.k_tiles - 1 - tile : tile;
            }
        }
        if constexpr (kHeadBlocks) {  // blocks that add to the same keys begin one after the other
            split = batch_head / (kv_heads * batches(p));
            batch_head %= kv_heads * batches(p);
        } else {
            split = 0;
        }
        first_key = tile * kBc;
        kv_head = batch_head % kv_heads;
        batch = batch_head / kv_heads;
        find(p, tile, first_key);
    }

    // The batch number for dropout.
    __device__ __forceinline__ int sequence() const
    {
        return sequence_of(*this);
    }

private:
    template <class Coord> static __device__ __forceinline__ int sequence_of(const Coord &coord)
    {
        if constexpr (kVarlen)
            return coord.own.index;
        else
            return coord.batch;
    }
};
