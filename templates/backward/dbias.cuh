#pragma once
#include "backward/scores.cuh"

// ---- the gradient of the bias: dS of each query and key, added to where it is ----------------------------------
//
// What is the same for several batches, heads or queries is summed there, in any order.

// Of a head, all of whose numbers are dS in the order of S^T; first_key, first_query: of this lane's first ones. What
// is hidden adds nothing.
__device__ __forceinline__ void add_dbias(const Scores &ds, const Params &p, int64 batch, int head, int first_key,
                                          int first_query)
{
    const auto &f = p.features;
    float *sum = f.dbias + batch * f.dbias_batch + head * f.dbias_head;
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int n = 0; n < kQueryTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = first_key + m * 16 + e / 2 * 8, query = first_query + n * 8 + e % 2;
                const float x = kDropout ? ds[m][n][e] * f.keep_scale : ds[m][n][e];  // delta was divided by it
                if (key < p.seq_k && query < p.seq_q && x != 0.0f)
                    add_global_4(sum + query * f.dbias_query + key * f.dbias_key, x);
            }
}

// Zeros, before the main kernel: a warp for each query of a head, of those that come to one place for the first. The
// step's kernel, of kClearRows warps.
__device__ __forceinline__ void clear_dbias(const Params &p)
{
    const auto &f = p.features;
    const int64 row = int64(blockIdx.x) * kClearRows + threadIdx.x / 32;
    const int64 plane = row / p.seq_q, batch = plane / p.heads_q;
    const int query = row % p.seq_q, head = plane % p.heads_q;
    const bool is_done = (batch >= p.batch) | ((batch > 0) & (f.dbias_batch == 0)) |
                         ((head > 0) & (f.dbias_head == 0)) | ((query > 0) & (f.dbias_query == 0));
    if (is_done)
        return;
    float *sum = f.dbias + batch * f.dbias_batch + head * f.dbias_head + query * f.dbias_query;
    const int keys = f.dbias_key == 0 ? 1 : p.seq_k;
    for (int key = threadIdx.x % 32; key < keys; key += 32)
        sum[key * f.dbias_key] = 0.0f;
}
