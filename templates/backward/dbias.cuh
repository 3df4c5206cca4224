#pragma once
#include "backward/scores.cuh"

constexpr bool kBiasGradient = true;

// ---- the gradient of the bias: the sum of dS over what shares an element of the bias ----------------------------
//
// If batches, heads or queries share a bias, their dS is summed by atomics, in any order.

// Adds dS of one head to the gradient. ds is in the layout of S^T; first_key, first_query: this lane's first ones.
// Hidden elements add nothing.
__device__ __forceinline__ void add_dbias(const Scores &ds, const Params &p, int64 batch, int head, int first_key,
                                          int first_query)
{
    const auto &f = p.features;
    float *sum = f.dbias + batch * f.dbias_batch + head * f.dbias_head;
    each_element(ds, [&](float own, int m, int n, int e) {
        const int key = first_key + m * 16 + e / 2 * 8, query = first_query + n * 8 + e % 2;
        const float x = kDropout ? own * f.keep_scale : own;  // delta was divided by it
        if (key < p.seq_k && query < p.seq_q && x != 0.0f)
            add_global_4(sum + query * f.dbias_query + key * f.dbias_key, x);
    });
}

// The kernel before the main one: sets the gradient to zero. One warp per query of a head; if several queries share an
// element, the first one clears it.
template <int kBlockThreads> __device__ __forceinline__ void clear(const Params &p)
{
    const auto &f = p.features;
    const int64 row = int64(blockIdx.x) * (kBlockThreads / 32) + threadIdx.x / 32;
    const int64 batch_head = row / p.seq_q, batch = batch_head / p.heads_q;
    const int query = row % p.seq_q, head = batch_head % p.heads_q;
    const bool is_done = (batch >= p.batch) | ((batch > 0) & (f.dbias_batch == 0)) |
                         ((head > 0) & (f.dbias_head == 0)) | ((query > 0) & (f.dbias_query == 0));
    if (is_done)
        return;
    float *sum = f.dbias + batch * f.dbias_batch + head * f.dbias_head + query * f.dbias_query;
    const int keys = f.dbias_key == 0 ? 1 : p.seq_k;
    for (int key = threadIdx.x % 32; key < keys; key += 32)
        sum[key * f.dbias_key] = 0.0f;
}
