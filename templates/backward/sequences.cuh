#pragma once
#include "backward/gradient.cuh"
#include "features/lengths.cuh"

// ---- packed sequences: of different lengths, one after the other ------------------------------------------------
//
// A block works on one sequence as on a batch of one, with the sequence's lengths, and tensors that begin with its
// rows. All blocks share the workspace. Its size follows the rows of the tensors, however many sequences share them:
//
// - LSE and delta of a head: a sequence begins at a multiple of eight rows, a sector;
// - sums of dQ of a head: a sequence begins at its first row (dq_sums.cuh);
// - counters of dQ tiles: the tiles of all sequences by their numbers (features/lengths.cuh).
//
// Policy of kernels with packed sequences; the others have batches.cuh.

// Packed sequences are one batch.
__device__ __forceinline__ int batches(const Params &)
{
    return 1;
}

// Rows of LSE and delta per head in the workspace: whole warps of the preparing kernel.
constexpr int kSectorRows = 8;

__device__ __forceinline__ int prepared_rows(const Params &p)
{
    return ((p.features.total_q / kSectorRows + p.batch) * kSectorRows + 31) / 32 * 32;
}

__device__ __forceinline__ int64 rows_of_batch_head(const Params &p)
{
    return prepared_rows(p);
}

constexpr int kBiasBytes = kBias == BiasKind::kBool ? 1 : kBias == BiasKind::kFp32 ? 4 : 2;

// The sequence and tile that a tile number stands for; tiles have kRows keys, or queries.
template <int kRows, bool kOfKeys> struct PackedTile {
    int index;  // index of the sequence; -1: there is no such tile
    int tile;   // tile within the sequence
    Sequence sequence;

    PackedTile() = default;

    __device__ __forceinline__ PackedTile(const Params &p, int number)
    {
        const int *cu_seqlens = kOfKeys ? p.features.cu_seqlens_k : p.features.cu_seqlens_q;
        const int total = kOfKeys ? p.features.total_k : p.features.total_q;
        auto first = [&](int b) { return first_tile(cu_seqlens, total, kRows, b); };
        index = last_sequence(p, number, first);
        sequence = Sequence(p, index);
        tile = number - first(index);
        const int rows = kOfKeys ? sequence.seq_k : sequence.seq_q;
        if (tile < 0 || tile >= (rows + kRows - 1) / kRows)
            index = -1;
    }

    // Returns the parameters of this sequence alone. all: of all sequences. It is a template because most kernels lack
    // these members.
    template <class AllParams> __device__ __forceinline__ AllParams alone(const AllParams &all) const
    {
        const int64 query = sequence.first_q, key = sequence.first_k;
        AllParams p = all;
        p.q += query * p.q_stride.seq * kElemBytes;
        p.o += query * p.o_stride.seq * kElemBytes;
        p.d_o += query * p.do_stride.seq * kElemBytes;
        p.k += key * p.k_stride.seq * kElemBytes;
        p.v += key * p.v_stride.seq * kElemBytes;
        if (p.dq != nullptr)
            p.dq += query * p.dq_stride.seq * kOutBytes;
        if (p.dk != nullptr)
            p.dk += key * p.dk_stride.seq * kOutBytes;
        if (p.dv != nullptr)
            p.dv += key * p.dv_stride.seq * kOutBytes;
        p.lse += query;
        p.seq_q = sequence.seq_q;
        p.seq_k = sequence.seq_k;
        if constexpr (kAlibi)
            p.features.alibi_slopes += max(index, 0) * p.features.alibi_stride;
        if constexpr (kBias != BiasKind::kNone)
            p.features.bias += max(index, 0) * p.features.bias_batch * int64(kBiasBytes);
        return p;
    }
};

// The first row of LSE and delta of a sequence.
__device__ __forceinline__ int prepared_begin(const Params &p, int sequence)
{
    return first_tile(p.features.cu_seqlens_q, p.features.total_q, kSectorRows, sequence) * kSectorRows;
}

// Returns the packed row of row `at` of LSE and delta of a head; total_q if that belongs to no sequence. Lanes of a
// warp must ask for consecutive rows, lane 0 for the first.
__device__ __forceinline__ int packed_row(const Params &p, int at)
{
    auto first = [&](int b) { return prepared_begin(p, b); };
    int b = last_sequence(p, __shfl_sync(0xffffffffu, at, 0), first);
    while (b + 1 < p.batch && first(b + 1) <= at)
        b++;
    const Sequence sequence(p, b);
    const int row = at - first(b);
    return row >= 0 && row < sequence.seq_q ? sequence.first_q + row : p.features.total_q;
}

// Sets rows first ... end - 1 of dQ that belong to no sequence to 0. p: of all sequences. Called by all kBlock threads.
template <int kBlock>
__device__ __forceinline__ void clear_unused_queries(const Params &p, int head, int64 first, int64 end)
{
    clear_unused<kBlock>(
        p.features.cu_seqlens_q, p.batch, p.features.total_q, first, end, kHeadDim / 8, [&](int row, int chunk) {
            clear_chunk(p.dq + (head * p.dq_stride.head + row * p.dq_stride.seq) * kOutBytes + chunk * kChunkBytes);
        });
}

// A block's parameters: a copy for its sequence.
using OwnParams = const Params;

// The sequence of a block.
struct SequenceCoord {
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

// Sets rows of dK and dV that belong to no sequence to 0. p: of all sequences. Called by all threads of a block.
template <class Coord> __device__ __forceinline__ void clear_unused_keys(const Params &p, const Coord &coord)
{
    constexpr int kKeyChunks = kHeadDim / 8, kValueChunks = kHeadDimV / 8;
    const int64 first = int64(coord.number) * kBc;
    clear_unused<kThreads>(p.features.cu_seqlens_k, p.batch, p.features.total_k, first, first + kBc,
                           kKeyChunks + kValueChunks, [&](int row, int part) {
                               const bool of_key = part < kKeyChunks;
                               char *out = of_key ? p.dk : p.dv;
                               const Strides &stride = of_key ? p.dk_stride : p.dv_stride;
                               const int chunk = of_key ? part : part - kKeyChunks;
                               if (out != nullptr)
                                   clear_chunk(out + (coord.kv_head * stride.head + row * stride.seq) * kOutBytes +
                                               chunk * kChunkBytes);
                           });
}
