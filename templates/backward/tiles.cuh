#pragma once
#include "backward/place.cuh"
#include "features/window.cuh"

// ---- the tiles of queries that a block processes, for each head of its group ----------------------------------

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

struct WindowTiles {
    int first, unmasked;
    int masked;  // tiles from this one on need a mask, too
    int stop;
};

struct SequenceTiles {
    int first, unmasked;
    static constexpr int masked = kUnbounded;
    int stop;
};

struct AllTiles {
    int first, unmasked;
    static constexpr int masked = kUnbounded;
};

// The range of tiles, from `first` to end(p). Those before `unmasked` need a mask.
struct TileRange : Either<kWindow != Window::kNone, WindowTiles, Either<kVarlen, SequenceTiles, AllTiles>::Type>::Type {
    // p: parameters of the block's sequence.
    __device__ __forceinline__ TileRange(const Params &p, const BlockPlace &place)
    {
        if constexpr (kWindow != Window::kNone)
            find_window(*this, p, place);
        else
            find_all(*this, p, place);
    }

    __device__ __forceinline__ int end(const Params &p) const
    {
        return end_of(*this, p);
    }

private:
    template <class Range> static __device__ __forceinline__ int end_of(const Range &range, const Params &p)
    {
        if constexpr (kWindow != Window::kNone || kVarlen)
            return range.stop;
        else
            return p.q_tiles;
    }

    template <class Range>
    static __device__ __forceinline__ void find_window(Range &range, const Params &p, const BlockPlace &place)
    {
        const int last_key = min(place.first_key + kBc, p.seq_k) - 1;
        const WindowQueries queries(p, place.first_key, last_key);
        range.first = queries.begin / kBr;
        range.stop = (queries.end + kBr - 1) / kBr;
        range.unmasked = (queries.begin_of_all + kBr - 1) / kBr;
        // Queries after the tensor's end need no mask: their LSE makes P 0.
        range.masked = queries.end_of_all == p.seq_q ? place.q_tiles(p) : queries.end_of_all / kBr;
        if (last_key != place.first_key + kBc - 1)  // keys after the end must be masked for every query
            range.unmasked = range.stop;
    }

    template <class Range>
    static __device__ __forceinline__ void find_all(Range &range, const Params &p, const BlockPlace &place)
    {
        // The first query that sees some key of the block, and the first that sees all of them.
        int query = 0, query_of_all = 0;
        if (kCausal) {
            const int offset = p.seq_k - p.seq_q;
            query = max(0, place.first_key - offset);
            query_of_all = max(0, place.first_key + kBc - 1 - offset);
        }
        range.first = min(query / kBr, place.q_tiles(p));
        range.unmasked = (query_of_all + kBr - 1) / kBr;
        if (place.first_key + kBc > p.seq_k)  // keys after the tensor's end must be masked for every query
            range.unmasked = place.q_tiles(p);
        if constexpr (kVarlen)
            range.stop = place.q_tiles(p);
    }
};
