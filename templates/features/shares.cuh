#pragma once
#include "features/lengths.cuh"
#include "lib/ptx.cuh"

// ---- work partition: blocks divide the keys of sequences of different lengths --------------------------------
//
// The unit is a step: the keys that the teams of a block process at a time. The steps of all row tiles of a key head
// are divided by p.splits; no share has more steps. So long sequences have many shares and short ones have one. A block
// has one share. Its number is its slot; slots are numbered by sequence, row tile and share. Every warp computes this
// by itself, 32 sequences at a time, so nothing has to be prepared and nothing is left after a launch.

constexpr int kStepKeys = kBc * kTeams;

__device__ __forceinline__ int ceil_div(int a, int b)
{
    return a / b + (a % b > 0);
}

// Row tiles of a sequence, and steps of each.
struct SequenceWork {
    int row_tiles, steps;

    __device__ __forceinline__ SequenceWork(const Params &p, int batch)
    {
        const Sequence sequence(p, batch);
        int keys = sequence.seq_k;
        row_tiles = ceil_div((kVarlen ? sequence.seq_q : p.seq_q) * p.group, kBr);
        if constexpr (kWindow == Window::kSliding || kWindow == Window::kChunks) {
            // The most keys that the rows of a tile can see.
            const int64 seen = int64(p.window_left) + p.window_right + kBr + kStepKeys;
            keys = min(int64(keys), seen);
        }
        steps = ceil_div(keys, kStepKeys);
    }
};

class Shares
{
    int most;  // most steps of a share

public:
    __device__ __forceinline__ explicit Shares(const Params &p) : most(0x7fffffff)
    {
        if (p.splits == 1)
            return;
        int64 sum = 0;
        for (int b = threadIdx.x % 32; b < p.batch; b += 32) {
            const SequenceWork work(p, b);
            sum += int64(work.row_tiles) * work.steps;
        }
        sum = warp_sum(sum);
        most = min(max((sum + p.splits - 1) / p.splits, int64(1)), int64(0x7fffffff));
    }

    // Returns the number of shares of a row tile: at least one, and no more than the combining kernel has room for.
    __device__ __forceinline__ int count(const SequenceWork &work) const
    {
        const int share = max(most, ceil_div(work.steps, kMaxSplits));
        return max(1, ceil_div(work.steps, share));
    }
};

// The limit of slots per key head whose results are combined. Their row tiles have more than `most` steps each, and all
// row tiles together have at most p.splits * most. So there are fewer than p.splits such tiles, and fewer than 2 *
// p.splits such slots.
__device__ __forceinline__ int part_slots(const Params &p)
{
    return min(p.features.slots, 2 * p.splits);
}

// The slots of one sequence.
struct Slots {
    int batch;       // -1: no sequence was found
    int first;       // the sequence's first slot
    int shares;      // shares of each of its row tiles
    int first_part;  // packed sequences: its first slot, counting only slots whose results are combined

    // Finds the first sequence for which stop(batch, end) is true. end: one past its last slot.
    template <class Stop> __device__ __forceinline__ Slots(const Params &p, Stop stop) : batch(-1)
    {
        const Shares all(p);
        const int lane = threadIdx.x % 32;
        first = 0;
        for (int begin = 0; begin < p.batch; begin += 32) {
            const int b = begin + lane;
            int own = 0, of_tile = 0, end = 0;
            if (b < p.batch) {
                const SequenceWork work(p, b);
                of_tile = all.count(work);
                own = work.row_tiles * of_tile;
            }
            end = own;
            for (int lanes = 1; lanes < 32; lanes *= 2) {
                const int before = __shfl_up_sync(0xffffffffu, end, lanes);
                end += lane >= lanes ? before : 0;
            }
            const uint32 found = __ballot_sync(0xffffffffu, b < p.batch && stop(b, first + end));
            if (found != 0) {
                const int at = 31 - __clz(found & -found);  // the first lane
                batch = begin + at;
                first += __shfl_sync(0xffffffffu, end - own, at);
                shares = __shfl_sync(0xffffffffu, of_tile, at);
                if constexpr (kVarlen)
                    first_part = shares > 1 ? parts_before(p, all) : 0;
                return;
            }
            first += __shfl_sync(0xffffffffu, end, 31);
        }
    }

private:
    __device__ __forceinline__ int parts_before(const Params &p, const Shares &all) const
    {
        int parts = 0;
        for (int b = threadIdx.x % 32; b < batch; b += 32) {
            const SequenceWork work(p, b);
            const int of_tile = all.count(work);
            parts += of_tile > 1 ? work.row_tiles * of_tile : 0;
        }
        return warp_sum(parts);
    }
};

// The slots of sequence `batch`.
__device__ __forceinline__ Slots slots_of(const Params &p, int batch)
{
    return Slots(p, [=](int b, int) { return b == batch; });
}
