#pragma once
#include "forward/coord.cuh"

// ---- sequences: all have the tensors' lengths ----------------------------------------------------------------------
//
// Policy of kernels without lengths of sequences and cache rows; the others have sequences.cuh.

struct SequenceCoord {
    struct {
        int first_q, first_k;
    } static constexpr sequence{};
    int batch;

    static __device__ __forceinline__ void find_sequence(const Params &, int) {}

    static __device__ __forceinline__ void find_cache_row(const Params &, int) {}

    static __device__ __forceinline__ int seq_q(const Params &p)
    {
        return p.seq_q;
    }

    static __device__ __forceinline__ int seq_k(const Params &p)
    {
        return p.seq_k;
    }

    // The batch index into K and V.
    __device__ __forceinline__ int key_batch() const
    {
        return batch;
    }

    static __device__ __forceinline__ int64 slot()
    {
        return 0;
    }

    static __device__ __forceinline__ int padding()
    {
        return 0;
    }
};

__device__ __forceinline__ void clear_unused_rows(const Params &) {}
