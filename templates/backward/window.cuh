#pragma once
#include "backward/coord.cuh"
#include "backward/scores.cuh"
#include "features/window.cuh"

// ---- a window: which tiles of queries a block processes, and which queries of them see a key ------------------------
//
// Policy of kernels with a window; the others have full.cuh.

// Queries [begin, end) that see some of the keys first_key ... last_key, and [begin_of_all, end_of_all) that see each
// of them, if any.
struct WindowQueries {
    int begin, end, begin_of_all, end_of_all;

    __device__ __forceinline__ WindowQueries(const Params &p, int first_key, int last_key)
    {
        const int offset = p.seq_k - p.seq_q;
        end = max(0, min(p.seq_q, last_at(p, last_key) - offset + 1));
        begin = max(0, min(end, first_at(p, first_key) - offset));
        end_of_all = max(0, min(end, last_at(p, first_key) - offset + 1));
        begin_of_all = max(0, first_at(p, last_key) - offset);
    }
};

struct Tiles {
    int first, unmasked;
    int masked;  // tiles from this one on need a mask, too
    int stop;
};

template <class Range>
__device__ __forceinline__ void find_tiles(Range &range, const Params &p, const BlockCoord &coord)
{
    const int last_key = min(coord.first_key + kBc, p.seq_k) - 1;
    const WindowQueries queries(p, coord.first_key, last_key);
    range.first = queries.begin / kBr;
    range.stop = (queries.end + kBr - 1) / kBr;
    range.unmasked = (queries.begin_of_all + kBr - 1) / kBr;
    // Queries after the tensor's end need no mask: their LSE makes P 0.
    range.masked = queries.end_of_all == p.seq_q ? coord.q_tiles(p) : queries.end_of_all / kBr;
    if (last_key != coord.first_key + kBc - 1)  // keys after the end must be masked for every query
        range.unmasked = range.stop;
}

// Sets P^T to 0 if the query is before the first or after the last one that sees the key. Both are relative to this
// lane's first query, because queries are then constants after unrolling.
__device__ __forceinline__ void mask_p(Scores &s, const Params &p, int first_key, int first_query)
{
    each_of<kKeyTiles, 2>([&](int m, int h) {
        const int key = first_key + m * 16 + h * 8;
        const int at = p.seq_k - p.seq_q + first_query;
        const int first = key < p.seq_k ? first_at(p, key) - at : kBr;
        const int last = last_at(p, key) - at;
        each_of<kQueryTiles, 2>([&](int n, int e) {
            if (n * 8 + e < first || n * 8 + e > last)
                s[m][n][2 * h + e] = 0.0f;
        });
    });
}

// Returns how many blocks add to a tile of queries before this one (dq_order.cuh).
__device__ __forceinline__ uint32 blocks_before(const Params &p, const BlockCoord &coord, int query_tile)
{
    const int key_tile = coord.first_key / kBc;
    const int first_key = run_begin(p, query_tile * kBr + p.seq_k - p.seq_q);
    return key_tile - max(first_key, 0) / kBc;
}
