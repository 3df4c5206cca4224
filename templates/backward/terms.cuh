#pragma once
#include "backward/scores.cuh"
#include "features/alibi.cuh"
#include "features/bias.cuh"

// ---- terms: ALiBi and bias, added to scores that may be capped ------------------------------------------------
//
// They are in the units of Q K^T, that is, divided by the scale. -infinity hides a key.
constexpr bool kTerms = true;

// The terms of one head.
struct Terms {
    float slope;           // of ALiBi
    const BiasElem *bias;  // address for the first query and key

    __device__ __forceinline__ Terms(const Params &p, int batch, int head)
    {
        if constexpr (kAlibi)
            slope = alibi_slope(p, batch, head);
        if constexpr (kBias != BiasKind::kNone)
            bias = reinterpret_cast<const BiasElem *>(p.features.bias) + batch * p.features.bias_batch +
                   head * p.features.bias_head;
    }

    // The term of a query and a key. base: query + seq_k - seq_q - key of the first of several queries or keys; step:
    // distance from there to this one. kBefore: no key is after a query's position. Queries and keys after the tensor's
    // end read the last element; their P is 0.
    template <bool kBefore>
    __device__ __forceinline__ float term(const Params &p, float base, int step, int query, int key) const
    {
        float term = 0.0f;
        if constexpr (kAlibi)
            term += alibi_term<kBefore>(slope, base + p.features.distance_shift, float(step));
        if constexpr (kBias != BiasKind::kNone) {
            const int64 at =
                min(query, p.seq_q - 1) * p.features.bias_query + min(key, p.seq_k - 1) * p.features.bias_key;
            if constexpr (kBias == BiasKind::kBool)
                term += bias_number(__ldg(bias + at));
            else
                term += bias_number(__ldg(bias + at)) * p.features.inverse_scale;
        }
        return term;
    }
};

// Adds the terms to scores. key, query: this lane's first ones.
template <bool kBefore>
__device__ __forceinline__ void add_terms(Scores &s, const Params &p, const Terms &terms, int first_key,
                                          int first_query)
{
    each_of<kKeyTiles, 2>([&](int m, int h) {
        const int key = first_key + m * 16 + h * 8;
        const float base = float(first_query + p.seq_k - p.seq_q - key);
        each_of<kQueryTiles, 2>([&](int n, int e) {
            s[m][n][2 * h + e] += terms.template term<kBefore>(p, base, n * 8 + e, first_query + n * 8 + e, key);
        });
    });
}
