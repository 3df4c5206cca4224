/*
 * Forward's parameter block, and the amount of its work.
 *
 * Keys that a query sees: let p be its position among the keys (queries end where keys end). It sees the keys up to p +
 * right, without those up to p - left - 1.
 */
#include "runtime/ops/forward.h"

#include <stddef.h>
#include "runtime/ops/call.h"

_Static_assert(offsetof(fa2i_forward_params, features) == FA2I_EVERY_BYTES + FA2I_SCORE_BYTES &&
                   offsetof(fa2i_forward_params, softcap_rate) == FA2I_EVERY_BYTES &&
                   offsetof(fa2i_forward_params, partial) == 176 && offsetof(fa2i_forward_params, scale) == 136,
               "kernels in databases read their parameters at these places");

/* ---- parameters ---- */

/* Makes the kernel read Q from the workspace, where the step before puts rotated rows. */
static void read_rotated(const fa2i_grid *grid, const fa2_problem *problem, const fa2_forward_args *args,
                         fa2i_forward_params *params)
{
    const int64_t position = (int64_t)problem->heads_q * problem->head_dim;
    params->features.raw_q = params->q;
    fa2i_param_strides(&args->q, params->features.raw_q_stride);
    params->q = (uintptr_t)args->workspace + grid->queries_at;
    params->q_stride[0] = problem->seq_q * position;
    params->q_stride[1] = position;
    params->q_stride[2] = problem->head_dim;
}

void fa2i_forward_fill(const fa2i_grid *grid, const fa2_problem *problem, const void *args,
                       fa2i_forward_params *ret_params)
{
    static const double log2_e = 1.4426950408889634074;
    const fa2_forward_args *a = args;
    const fa2i_scales scales = fa2i_scales_of(problem, a);
    fa2i_forward_params params = {
        .q = (uintptr_t)a->q.data,
        .k = (uintptr_t)a->k.data,
        .v = (uintptr_t)(problem->v_in_k ? a->k : a->v).data,
        .o = (uintptr_t)a->o.data,
        .lse = (uintptr_t)a->lse,
        .seq_q = problem->seq_q,
        .seq_k = problem->seq_k,
        .heads_q = problem->heads_q,
        .group = problem->heads_q / problem->heads_kv,
        .q_tiles = grid->row_tiles,
        .splits = grid->splits,
        .batch = problem->batch,
        .scale = (float)scales.exponent,
        .scale_log2 = (float)(scales.exponent * log2_e),
        .softcap_rate = scales.softcap_rate,
    };
    if (problem->window) {
        params.window_left = fa2i_window_left(problem);
        params.window_right = fa2i_window_right(problem);
    }
    if (grid->workspace_bytes > 0) {
        params.partial = (uintptr_t)a->workspace;
        params.partial_lse = params.partial + grid->partial_bytes;
    }
    if (fa2i_features_asked(problem)) {
        fa2i_features_fill(problem, a, scales.exponent, &params.features);
        params.features.slots = grid->slots;
    }
    fa2i_param_strides(&a->q, params.q_stride);
    fa2i_param_strides(&a->k, params.k_stride);
    fa2i_param_strides(problem->v_in_k ? &a->k : &a->v, params.v_stride);
    fa2i_param_strides(&a->o, params.o_stride);
    if (problem->rotary != FA2_ROTARY_NONE)
        read_rotated(grid, problem, a, &params);
    *ret_params = params;
}

/* ---- work ---- */

static int64_t clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* Returns the sum over i = 0 ... count - 1 of first + i, each clamped to 0 ... most. */
static double clamped_sum(int64_t first, int64_t count, int64_t most)
{
    const int64_t zeros = clamp(-first, 0, count);
    const int64_t rising = clamp(most - first, zeros, count) - zeros; /* numbers below most */
    const int64_t flat = count - zeros - rising;
    return (double)rising * ((double)(first + zeros) + (double)(rising - 1) / 2) + (double)flat * (double)most;
}

/* Counts the pairs of queries at positions 0 ... count - 1 and the keys of their chunks. */
static double chunk_pairs(const fa2_problem *p, int64_t count)
{
    const int64_t chunk = p->window_left, whole = p->seq_k / chunk * chunk; /* keys of whole chunks */
    const int64_t chunks = count / chunk, rest = count % chunk;
    if (p->causal)
        return (double)chunks * ((double)chunk * (double)(chunk + 1) / 2) + (double)rest * (double)(rest + 1) / 2;
    const int64_t last = count - clamp(count, 0, whole); /* queries in the last chunk, which is not whole */
    return (double)(count - last) * (double)chunk + (double)last * (double)(p->seq_k - whole);
}

/* Counts the pairs of a query and a key that it sees, in one head. */
static double visible_pairs(const fa2_problem *p)
{
    const int64_t position = (int64_t)p->seq_k - p->seq_q; /* of query 0 */
    if (p->window == FA2_WINDOW_CHUNK)
        return chunk_pairs(p, p->seq_k) - chunk_pairs(p, clamp(position, 0, p->seq_k));
    if (p->window == FA2_WINDOW_PREFIX) {
        const int64_t prefix = clamp(p->window_left, 0, p->seq_k);
        return (double)p->seq_q * (double)prefix + clamped_sum(position + 1 - prefix, p->seq_q, p->seq_k - prefix);
    }
    const double ahead = clamped_sum(position + fa2i_window_right(p) + 1, p->seq_q, p->seq_k);
    const double behind = clamped_sum(position - fa2i_window_left(p), p->seq_q, p->seq_k);
    return ahead - behind;
}

/* Adds the columns of Q and K, and of V and O. */
static double columns(const fa2_problem *p)
{
    return (double)p->head_dim + fa2i_head_dim_v(p);
}

/* Counts the work for one query and one key in all heads and batches: two products, with a multiplication and an
 * addition for each element. */
static double flop_of_pair(const fa2_problem *p)
{
    return 2.0 * p->batch * p->heads_q * columns(p);
}

int32_t fa2i_forward_total_q(const fa2_problem *problem)
{
    return problem->total_q > 0 ? problem->total_q : problem->batch * problem->seq_q;
}

int32_t fa2i_forward_total_k(const fa2_problem *problem)
{
    return problem->total_k > 0 ? problem->total_k : problem->batch * problem->seq_k;
}

int32_t fa2i_forward_length(const fa2_problem *problem, int32_t rank)
{
    return (int32_t)((int64_t)problem->seq_k * (rank + 1) / problem->batch);
}

int32_t fa2i_forward_packed_length(int32_t batch, int32_t seq, int32_t total, int32_t rank)
{
    const int32_t longest = total < seq ? total : seq;
    if (rank == 0)
        return longest;
    const int32_t mean = (total - longest) / (batch - 1);
    return mean < seq ? mean : seq;
}

int fa2i_forward_parts(const fa2_problem *problem, fa2_problem parts[2])
{
    const int32_t batch = problem->batch;
    parts[0] = *problem;
    if (!problem->varlen) {
        const int64_t mean = (int64_t)problem->seq_k * ((int64_t)batch + 1) / 2 / batch;
        if (problem->seqused)
            parts[0].seq_k = mean > 1 ? (int32_t)mean : 1;
        return 1;
    }
    for (int rank = 0; rank < 2 && rank < batch; rank++) {
        parts[rank] = *problem;
        parts[rank].batch = rank == 0 ? 1 : batch - 1;
        parts[rank].seq_q = fa2i_forward_packed_length(batch, problem->seq_q, fa2i_forward_total_q(problem), rank);
        parts[rank].seq_k = fa2i_forward_packed_length(batch, problem->seq_k, fa2i_forward_total_k(problem), rank);
    }
    return batch > 1 ? 2 : 1;
}

double fa2i_forward_sum(const fa2_problem *problem, double (*of_part)(const fa2_problem *part))
{
    fa2_problem parts[2];
    const int count = fa2i_forward_parts(problem, parts);
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += of_part(&parts[i]);
    return sum;
}

static double flop_unmasked(const fa2_problem *problem)
{
    return flop_of_pair(problem) * problem->seq_q * problem->seq_k;
}

double fa2i_forward_flop_unmasked(const fa2_problem *problem)
{
    return fa2i_forward_sum(problem, flop_unmasked);
}

/* Returns 2 B Hq Sq Sk (D + Dv), and half of it if causal, whatever Sq and Sk are. This is the convention of the
 * FlashAttention papers. With a window it is 2 (D + Dv) for each pair of a query and a key that it sees. */
static double flop(const fa2_problem *problem)
{
    if (problem->window)
        return flop_of_pair(problem) * visible_pairs(problem);
    return problem->causal ? flop_unmasked(problem) / 2 : flop_unmasked(problem);
}

double fa2i_forward_flop(const fa2_problem *problem)
{
    return fa2i_forward_sum(problem, flop);
}

int64_t fa2i_forward_seen_keys(const fa2_problem *problem)
{
    const int64_t position = (int64_t)problem->seq_k - problem->seq_q; /* of query 0 */
    if (problem->window == FA2_WINDOW_PREFIX)
        return problem->seq_k;
    if (problem->window == FA2_WINDOW_CHUNK)
        return problem->seq_k - clamp(position, 0, problem->seq_k) / problem->window_left * problem->window_left;
    return problem->seq_k - clamp(position - fa2i_window_left(problem), 0, problem->seq_k);
}

/* Counts Q, O, and the keys and values that any query sees, with their scales. */
static double bytes(const fa2_problem *p)
{
    const double queries = (double)p->batch * p->heads_q * p->seq_q;
    const double keys = (double)p->batch * p->heads_kv * (double)fa2i_forward_seen_keys(p);
    const double scales = p->kv == FA2_KV_DTYPE ? 0 : 2 * (double)fa2i_scale_bytes(p);
    const double of_query =
        (double)p->head_dim * fa2i_elem_bytes(p->dtype) + fa2i_head_dim_v(p) * (double)fa2i_out_traffic(p);
    return queries * of_query + keys * (fa2i_key_columns(p) * fa2i_key_bytes(p) + scales);
}

double fa2i_forward_bytes(const fa2_problem *problem)
{
    return fa2i_forward_sum(problem, bytes);
}
