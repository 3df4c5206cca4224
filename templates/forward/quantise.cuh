#pragma once
#include "forward/columns.cuh"
#include "forward/int8_keys.cuh"
#include "lib/early.cuh"
#include "lib/mma.cuh"

// ---- the kernel before the main one: rounds K to 8-bit integers -----------------------------------------------------
//
// int8_keys.cuh has the layout of its results. A block has kQuantTiles tiles of a key head, of any sequences. It
// subtracts the mean of some keys of the sequence, evenly spread, from all keys. That does not change the softmax, and
// keeps columns with a large mean from taking the bits of the others. Each block of a sequence computes the same mean
// in the same order, so no other kernel has to. Tiles that a window hides from all queries are left out.
constexpr int kSampledKeys = 128;
constexpr int kParcels = kKeyBytes / 8;                        // a thread has 8 columns of a row
constexpr int kParcelRows = kQuantThreads / kParcels / 8 * 8;  // rows of all threads: a thread's keys have one scale
constexpr int kParcelPasses = (kBc + kParcelRows - 1) / kParcelRows;  // of a tile
static_assert(kScaleGroups == 1 || kBc / kScaleGroups % kParcelRows == 0, "rows of a pass are of one group");
// If a thread has registers for them, K and V are read together, and on Hopper a tile while the one before is rounded.
constexpr int kReadWords = 4 * kParcelPasses + Values::kWords;
constexpr bool kReadsTogether = kReadWords <= 32, kReadsAhead = kWgmma && kReadsTogether;
constexpr int kSamplesAtOnce = 4;  // sampled keys that a thread reads at a time
static_assert(kKeyBytes <= kQuantThreads && kParcelRows >= 8, "a thread sums a column");

// Memory by which the threads of a block exchange numbers. Rows are padded, so that the threads of a warp access
// different banks.
struct QuantiseMemory {
    float sums[8][kParcelRows * kParcels + kParcels % 32];  // by column of a parcel
    float mean[8 * kParcels];                               // likewise
    // Bits of each thread's largest absolute value, by group of keys.
    uint32 most[kScaleGroups][kParcelRows / 8][8 * kParcels + 2 * kParcels % 32];
    Rounding rounding[kScaleGroups][4];
};

// The sequence of a tile, and this thread's row and columns.
struct KeySequence : SequenceCoord {
    const char *head;  // head pointer of K
    int row, parcel;

    __device__ __forceinline__ KeySequence(const Params &p, int own, int kv_head)
        : row(threadIdx.x / kParcels), parcel(threadIdx.x % kParcels)
    {
        batch = own;
        find_sequence(p, batch);
        find_cache_row(p, batch);
        head = key_head(p.k, p.k_stride, *this, kv_head);
    }

    // Reads this thread's columns of a key; zeros after the tensor's last column.
    __device__ __forceinline__ uint4 read(const Params &p, int key) const
    {
        const char *at = KeyRows(p, *this, key / kBc).at(head, p.k_stride, key % kBc);
        return parcel < kHeadDim / 8 ? __ldg(reinterpret_cast<const uint4 *>(at) + parcel) : uint4{};
    }
};

// Converts columns of a key, and subtracts the mean.
__device__ __forceinline__ void less_mean(const uint4 &bits, const float (&mean)[8], float (&x)[8])
{
    const uint32 words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 pair = unpack2(words[i]);
        x[2 * i] = pair.x - mean[2 * i];
        x[2 * i + 1] = pair.y - mean[2 * i + 1];
    }
}

__device__ __forceinline__ bool is_finite(float x)
{
    return absolute_bits(x) < 0x7f800000u;
}

// Returns the first key of the first tile that some query sees.
template <class Any> __device__ __forceinline__ int first_seen(const Any &p, const SequenceCoord &keys)
{
    if constexpr (kWindow != Window::kNone)
        return max(0, run_begin(p, keys.seq_k(p) - keys.seq_q(p))) / kBc * kBc;
    else
        return 0;
}

// Computes this thread's columns of the mean key of a sequence. Numbers that are not finite count as 0.
__device__ __forceinline__ void find_mean(QuantiseMemory &memory, const Params &p, const KeySequence &keys,
                                          float (&mean)[8])
{
    const int first = first_seen(p, keys), all = keys.seq_k(p) - first, count = min(all, kSampledKeys);
    float sum[8] = {}, x[8];
#pragma unroll
    for (int c = 0; c < 8; c++)
        mean[c] = 0.0f;
    if (keys.row < kParcelRows) {
#pragma unroll 1
        for (int i = keys.row; i < count; i += kSamplesAtOnce * kParcelRows) {
            uint4 bits[kSamplesAtOnce];
#pragma unroll
            for (int j = 0; j < kSamplesAtOnce; j++) {  // these loads are under way together
                const int sample = i + j * kParcelRows;
                bits[j] = sample < count ? keys.read(p, first + sample * (all / count) + sample * (all % count) / count)
                                         : uint4{};
            }
#pragma unroll
            for (int j = 0; j < kSamplesAtOnce; j++) {
                less_mean(bits[j], mean, x);
#pragma unroll
                for (int c = 0; c < 8; c++)
                    sum[c] += is_finite(x[c]) ? x[c] : 0.0f;
            }
        }
#pragma unroll
        for (int c = 0; c < 8; c++)
            memory.sums[c][keys.row * kParcels + keys.parcel] = sum[c];
    }
    __syncthreads();  // the sums of all rows are there
    if (threadIdx.x < 8 * kParcels) {
        float total = 0.0f;
        for (int row = 0; row < kParcelRows; row++)
            total += memory.sums[threadIdx.x / kParcels][row * kParcels + threadIdx.x % kParcels];
        total /= count;
        memory.mean[threadIdx.x] = is_finite(total) ? total : 0.0f;
    }
    __syncthreads();  // the mean is complete before it is read; the sums are read
#pragma unroll
    for (int c = 0; c < 8; c++)
        mean[c] = memory.mean[c * kParcels + keys.parcel];
}

// Writes the mean key that find_mean has left, for the main kernel.
__device__ __forceinline__ void write_mean(const QuantiseMemory &memory, float *out)
{
    if (threadIdx.x < 8 * kParcels)
        out[threadIdx.x % kParcels * 8 + threadIdx.x / kParcels] = memory.mean[threadIdx.x];
}

// Finds the scales of a tile's keys from the largest absolute values of each thread. A warp finds one at a time.
__device__ __forceinline__ void find_scales(QuantiseMemory &memory, const KeySequence &keys,
                                            const uint32 (&values)[kScaleGroups], float *scales)
{
    const int lane = threadIdx.x % 32;
    if (keys.row < kParcelRows)
#pragma unroll
        for (int group = 0; group < kScaleGroups; group++)
            memory.most[group][keys.row / 8][keys.row % 8 * kParcels + keys.parcel] = values[group];
    __syncthreads();  // all values are there; the scales of the tile before are read
    for (int scale = threadIdx.x / 32; scale < kScales; scale += kQuantThreads / 32) {
        const int group = scale / 4, quad_lane = scale % 4;
        uint32 most = 0;
        for (int i = lane; i < kParcelRows / 4 * kParcels; i += 32)
            most = max(most, memory.most[group][i / (2 * kParcels)][quad_lane * 2 * kParcels + i % (2 * kParcels)]);
#pragma unroll
        for (int apart = 16; apart > 0; apart /= 2)
            most = max(most, __shfl_xor_sync(0xffffffffu, most, apart));
        if (lane == 0) {
            memory.rounding[group][quad_lane] = rounding_to(most);
            scales[scale] = memory.rounding[group][quad_lane].scale;
        }
    }
    __syncthreads();  // the scales are complete before they are read; all values are read
}

// Rounds this thread's eight columns of a row, and exchanges half of them with its neighbour, which has the other eight
// of sixteen. Returns this thread's eight of their sixteen bytes, in the order of int8_keys.cuh.
__device__ __forceinline__ uint2 permuted_bytes(const Rounding &rounding, const float (&x)[8])
{
    const bool second = threadIdx.x % 2 == 1;
    const uint32 low = pack_bytes(rounding.byte(x[0]), rounding.byte(x[1]), rounding.byte(x[2]), rounding.byte(x[3]));
    const uint32 high = pack_bytes(rounding.byte(x[4]), rounding.byte(x[5]), rounding.byte(x[6]), rounding.byte(x[7]));
    const uint32 other = __shfl_xor_sync(0xffffffffu, second ? low : high, 1);
    const uint32 first_eight = second ? other : low, second_eight = second ? high : other;
    return {__byte_perm(first_eight, second_eight, 0x5410), __byte_perm(first_eight, second_eight, 0x7632)};
}

// Counts this thread's numbers of a row, and those that become 0.
__device__ __forceinline__ uint32 count_zeros(const Rounding &rounding, const float (&x)[8])
{
    uint32 zeros = 0;
#pragma unroll
    for (int c = 0; c < 8; c++)
        zeros += x[c] != 0.0f && fabsf(x[c]) * rounding.inverse < 0.5f;
    return 8 << 16 | zeros;
}

// Writes the sum of a warp's counts.
__device__ __forceinline__ void put_count(const Params &p, int64 at, uint32 count)
{
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        count += __shfl_xor_sync(0xffffffffu, count, apart);
    if (threadIdx.x % 32 == 0)
        key_counts(p, at)[threadIdx.x / 32] = count;
}

// This thread's columns of some keys of a tile.
struct KeyParcels {
    uint4 bits[kParcelPasses];

    static __device__ __forceinline__ int key_of(int tile, int r)
    {
        return tile * kBc + (kWide ? wide_key(r, kBc) : r);
    }

    static __device__ __forceinline__ bool has_key(const Params &p, const KeySequence &keys, int tile, int r)
    {
        return keys.row < kParcelRows && r < kBc && key_of(tile, r) < keys.seq_k(p);
    }

    // Reads them; zeros after the last key.
    __device__ __forceinline__ void read(const Params &p, const KeySequence &keys, int tile)
    {
#pragma unroll
        for (int pass = 0; pass < kParcelPasses; pass++) {
            const int r = keys.row + pass * kParcelRows;
            bits[pass] = has_key(p, keys, tile, r) ? keys.read(p, key_of(tile, r)) : uint4{};
        }
    }

    // Computes the bits of the largest absolute value in each group of keys.
    __device__ __forceinline__ void measure(const Params &p, const KeySequence &keys, const float (&mean)[8], int tile,
                                            uint32 (&most)[kScaleGroups]) const
    {
        float x[8];
#pragma unroll
        for (int group = 0; group < kScaleGroups; group++)
            most[group] = 0;
#pragma unroll
        for (int pass = 0; pass < kParcelPasses; pass++) {
            uint32 &most_of_group = most[scale_group(pass * kParcelRows)];
            less_mean(bits[pass], mean, x);
            if (has_key(p, keys, tile, keys.row + pass * kParcelRows))
#pragma unroll
                for (int c = 0; c < 8; c++)
                    most_of_group = max(most_of_group, absolute_bits(x[c]));
        }
    }

    // Rounds them. at: the tile's number among all tiles of all heads.
    __device__ __forceinline__ void write(const Params &p, const KeySequence &keys, const float (&mean)[8],
                                          const Rounding (&roundings)[kScaleGroups][4], int tile, int64 at) const
    {
        uint2 *out = reinterpret_cast<uint2 *>(p.partial) + at * (kBc * kParcels);
        float x[8];
        uint32 count = 0;
#pragma unroll
        for (int pass = 0; pass < kParcelPasses; pass++) {
            const int r = keys.row + pass * kParcelRows;
            const bool is_there = has_key(p, keys, tile, r);
            const Rounding &rounding = roundings[scale_group(pass * kParcelRows)][keys.row % 8 / 2];
            less_mean(bits[pass], mean, x);
            const uint2 bytes = permuted_bytes(rounding, x);
            if (keys.row < kParcelRows && r < kBc)
                *key_place(out, r, keys.parcel, kParcels) = is_there ? bytes : uint2{};
            if (is_there && keys.parcel < kHeadDim / 8)
                count += count_zeros(rounding, x);
        }
        put_count(p, at, count);
    }
};

// Returns the sequence of a tile.
template <class Any> __device__ __forceinline__ int sequence_of_tile(const Any &p, int64 tile)
{
    if constexpr (kVarlen)
        return last_sequence(p, tile, [&](int b) { return int(first_key_tile(p, b)); });
    else
        return tile / ((p.seq_k + kBc - 1) / kBc);
}

// The kernel.
template <int kBlockThreads> __device__ __forceinline__ void quantise(const Params &p)
{
    static_assert(kBlockThreads == kQuantThreads, "the workspace has a scale for each of its warps");
    __shared__ __align__(16) QuantiseMemory memory;
    let_next_step_begin();  // the main kernel's blocks are there when all keys are rounded
    const int64 all = all_key_tiles(p);
    const unsigned blocks = (all + kQuantTiles - 1) / kQuantTiles;  // of a key head
    const int kv_head = blockIdx.x / blocks;
    const int64 first = int64(blockIdx.x % blocks) * kQuantTiles, end = min(first + kQuantTiles, all);
    int known = -1;  // the sequence of the mean
    float mean[8] = {};
    KeyParcels parcels;
    Values values;
    uint32 most[kScaleGroups];
    bool is_read = false;  // the parcels of this tile are there
    int turn = 0;          // 0 or 1: which memory Values::measure uses
    for (int64 at = first; at < end; at++) {
        const int batch = sequence_of_tile(p, at);
        const KeySequence keys(p, batch, kv_head);
        const int tile = at - first_key_tile(p, batch), first_key = first_seen(p, keys);
        if (tile * kBc < first_key || tile * kBc >= keys.seq_k(p)) {
            put_count(p, kv_head * all + at, 0);
            is_read = false;
            continue;  // no key is there, or none that is seen
        }
        if (!is_read) {
            parcels.read(p, keys, tile);
            if constexpr (kReadsTogether)
                values.read(p, keys, kv_head, tile);
        }
        if (batch != known)
            find_mean(memory, p, keys, mean);
        known = batch;
        if (tile * kBc == first_key)
            write_mean(memory, mean_key(p, batch, kv_head));
        if constexpr (kReadsTogether)
            values.measure(turn);
        parcels.measure(p, keys, mean, tile, most);
        find_scales(memory, keys, most, key_scales(p, kv_head * all + at));
        const KeyParcels now = parcels;
        const Values values_now = values;
        is_read = kReadsAhead && at + 1 < end && sequence_of_tile(p, at + 1) == batch;
        if (is_read) {
            parcels.read(p, keys, tile + 1);
            values.read(p, keys, kv_head, tile + 1);
        }
        now.write(p, keys, mean, memory.rounding, tile, kv_head * all + at);
        if constexpr (kReadsTogether)
            values_now.write(p, kv_head * all + at);
        else
            values.round(p, keys, kv_head, tile, turn, kv_head * all + at);
        turn ^= 1;
    }
}
