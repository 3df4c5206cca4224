#pragma once
#include "backward/coord.cuh"
#include "backward/scores.cuh"

// ---- no window: which tiles of queries a block processes, and which queries of them see a key -----------------------
//
// Policy of kernels without a window; the others have window.cuh.

struct SequenceTiles {
    int first, unmasked;
    static constexpr int masked = kUnbounded;
    int stop;
};

struct AllTiles {
    int first, unmasked;
    static constexpr int masked = kUnbounded;
};

using Tiles = Either<kVarlen, SequenceTiles, AllTiles>::Type;

template <class Range>
__device__ __forceinline__ void find_tiles(Range &range, const Params &p, const BlockCoord &coord)
{
    // The first query that sees some key of the block, and the first that sees all of them.
    int query = 0, query_of_all = 0;
    if (kCausal) {
        const int offset = p.seq_k - p.seq_q;
        query = max(0, coord.first_key - offset);
        query_of_all = max(0, coord.first_key + kBc - 1 - offset);
    }
    range.first = min(query / kBr, coord.q_tiles(p));
    range.unmasked = (query_of_all + kBr - 1) / kBr;
    if (coord.first_key + kBc > p.seq_k)  // keys after the tensor's end must be masked for every query
        range.unmasked = coord.q_tiles(p);
    if constexpr (kVarlen)
        range.stop = coord.q_tiles(p);
}

// Sets P^T to 0 if the query is before the first one that sees the key; there is no last one.
__device__ __forceinline__ void mask_p(Scores &s, const Params &p, int first_key, int first_query)
{
    int first[kKeyTiles][2];
    each_of<kKeyTiles, 2>([&](int m, int h) {
        const int key = first_key + m * 16 + h * 8;
        const int sees = kCausal ? key - (p.seq_k - p.seq_q) : 0;
        first[m][h] = key < p.seq_k ? sees - first_query : kBr;
    });
    each_element(s, [&](float &x, int m, int n, int e) {
        if (n * 8 + e % 2 < first[m][e / 2])
            x = 0.0f;
    });
}

// Returns how many blocks add to a tile of queries before this one (dq_order.cuh).
__device__ __forceinline__ uint32 blocks_before(const Params &p, const BlockCoord &coord, int query_tile)
{
    const int key_tile = coord.first_key / kBc;
    if (coord.last_keys_first) {  // blocks with later keys that some query of the tile sees
        const int last_key = query_tile * kBr + kBr - 1 + p.seq_k - p.seq_q;
        return min((p.seq_k + kBc - 1) / kBc - 1, last_key / kBc) - key_tile;
    }
    return key_tile;
}
