#pragma once
#include "features/params.cuh"

// ---- windows: which keys a query sees -----------------------------------------------------------------------
//
// Query i is at position p = i + seq_k - seq_q.
//
// Sliding: it sees keys p - window_left ... p + window_right. Unbounded is kUnbounded, and
//          a causal mask is window_right = 0; the host sets both.
// Prefix:  it sees the keys up to p, as with a causal mask, and all keys before window_left.
// Chunks:  it sees keys j with j / window_left = p / window_left.

// Keys [run_begin, run_end) are those that a query at a position sees. Positions first_at ... last_at are those from
// which a key is seen. All four are non-decreasing functions.
__device__ __forceinline__ int run_begin(const Params &p, int at)
{
    if constexpr (kWindow == Window::kPrefix)
        return 0;
    else if constexpr (kWindow == Window::kChunks)
        return at < 0 ? 0 : at / p.window_left * p.window_left;
    else
        return at - p.window_left;
}

__device__ __forceinline__ int run_end(const Params &p, int at)
{
    if constexpr (kWindow == Window::kPrefix)
        return max(at + 1, p.window_left);
    else if constexpr (kWindow == Window::kChunks)
        return at < 0 ? 0 : kCausal ? at + 1 : run_begin(p, at) + p.window_left;
    else
        return at + p.window_right + 1;
}

__device__ __forceinline__ int first_at(const Params &p, int key)
{
    if constexpr (kWindow == Window::kPrefix)
        return key < p.window_left ? -kUnbounded : key;
    else if constexpr (kWindow == Window::kChunks)
        return kCausal ? key : run_begin(p, key);
    else
        return key - p.window_right;
}

__device__ __forceinline__ int last_at(const Params &p, int key)
{
    if constexpr (kWindow == Window::kPrefix)
        return kUnbounded;
    else if constexpr (kWindow == Window::kChunks)
        return run_begin(p, key) + p.window_left - 1;
    else
        return key + p.window_left;
}

// Keys [begin, end) that some query at positions first ... last sees, and [begin_of_all, end_of_all) that each of them
// sees, if any.
struct WindowKeys {
    int begin, end, begin_of_all, end_of_all;

    __device__ __forceinline__ WindowKeys(const Params &p, int seq_k, int first, int last)
    {
        end = max(0, min(seq_k, run_end(p, last)));
        begin = max(0, min(end, run_begin(p, first)));  // before end, unless there are no keys
        end_of_all = max(0, min(end, run_end(p, first)));
        begin_of_all = max(0, run_begin(p, last));
    }
};
