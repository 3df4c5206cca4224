/*
 * The meaning of attention, apart from the sums: which keys a query sees, and how a score changes before the softmax.
 * Masks and caps are those that fa2.h defines. All references and all host tests use these functions. Pure;
 * thread-safe.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include "runtime/ops/forward.h"

/* Host copies of the integers that describe sequences on the device. NULL: the problem has none. Borrowed. */
typedef struct fa2i_said {
    const int32_t *seqused_k;                   /* [batch] */
    const int32_t *cu_seqlens_q, *cu_seqlens_k; /* [batch + 1] */
    const int32_t *block_table;                 /* [batch, columns], contiguous */
    int32_t columns, pages;
    const int32_t *leftpad;    /* [batch] */
    const int32_t *cache_rows; /* [batch] */
    int32_t cache_row_count;
    int32_t new_keys; /* per sequence; ignored for packed sequences, which have as many new keys as queries */
} fa2i_said;

/* One sequence as a problem of its own: its lengths, and where its rows begin in the tensors. */
typedef struct fa2i_sequence {
    fa2_problem problem;
    int32_t index; /* in the batch */
    /* Indexes into the tensors. Packed sequences are all in batch 0, and K and V may use another row of a cache. */
    int32_t batch, first_q, first_k;
    /* The row of K where new keys begin, counted from K's first row; INT32_MAX: none are written. */
    int32_t first_new;
    int32_t before; /* its keys without the new ones, padding included */
} fa2i_sequence;

static inline int32_t fa2i_between(int32_t least, int32_t x, int32_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* The length of a packed sequence with these bounds. */
static inline int32_t fa2i_packed_length(int32_t begin, int32_t end, int32_t total, int32_t most)
{
    end = end < total ? end : total;
    return end <= begin ? 0 : end - begin < most ? end - begin : most;
}

static inline fa2i_sequence fa2i_sequence_of(const fa2_problem *problem, const fa2i_said *said, int32_t batch)
{
    fa2i_sequence s = {.problem = *problem, .index = batch, .batch = batch, .first_new = INT32_MAX};
    if (problem->varlen) {
        const int32_t *q = said->cu_seqlens_q + batch, *k = said->cu_seqlens_k + batch;
        const int32_t total_q = fa2i_forward_total_q(problem);
        const int32_t total_k = fa2i_forward_total_k(problem);
        s.batch = 0;
        s.first_q = fa2i_between(0, q[0], total_q);
        s.first_k = fa2i_between(0, k[0], total_k);
        s.problem.seq_q = fa2i_packed_length(s.first_q, q[1], total_q, problem->seq_q);
        s.problem.seq_k = fa2i_packed_length(s.first_k, k[1], total_k, problem->seq_k);
        s.first_k = problem->paged ? 0 : s.first_k; /* a table says where its pages are */
    }
    const int32_t room = s.problem.seq_k;
    if (problem->seqused)
        s.problem.seq_k = fa2i_between(0, said->seqused_k[batch], room);
    s.before = s.problem.seq_k;
    if (problem->append) {
        const int32_t new_keys = problem->varlen ? s.problem.seq_q : said->new_keys;
        if (!problem->seqused)
            s.before = room > new_keys ? room - new_keys : 0;
        s.first_new = s.first_k + s.before;
        s.problem.seq_k = s.before < room - new_keys ? s.before + new_keys : room;
    }
    if (problem->leftpad) {
        s.first_k = fa2i_between(0, said->leftpad[batch], problem->seq_k);
        s.problem.seq_k = s.problem.seq_k > s.first_k ? s.problem.seq_k - s.first_k : 0;
    }
    if (problem->cache_rows) {
        const int32_t row = said->cache_rows[batch];
        const bool is_there = row >= 0 && row < said->cache_row_count;
        s.batch = is_there ? row : said->cache_row_count - 1;
        s.first_new = is_there ? s.first_new : INT32_MAX;
    }
    return s;
}

/* The table's entry for a key of a sequence. */
static inline int32_t fa2i_page_said(const fa2_problem *problem, const fa2i_said *said, int32_t batch, int32_t key)
{
    return said->block_table[(int64_t)batch * said->columns + key / fa2i_forward_page(problem)];
}

static inline bool fa2i_page_is_there(const fa2i_said *said, int32_t page)
{
    return page >= 0 && page < said->pages;
}

/* The page that holds a key of a sequence. An invalid entry counts as the last page. */
static inline int32_t fa2i_page_of(const fa2_problem *problem, const fa2i_said *said, int32_t batch, int32_t key)
{
    const int32_t page = fa2i_page_said(problem, said, batch, key);
    return fa2i_page_is_there(said, page) ? page : said->pages - 1;
}

/* Says whether a row of a sequence's K and V is a new one. */
static inline bool fa2i_key_is_new(const fa2_problem *problem, const fa2i_said *said, const fa2i_sequence *s,
                                   int32_t row)
{
    return row >= s->first_new &&
           (!problem->paged || fa2i_page_is_there(said, fa2i_page_said(problem, said, s->index, row)));
}

/* The position by which a query is rotated, if new keys begin at first_new. */
static inline int32_t fa2i_query_position(const fa2_problem *problem, int32_t first_new, int32_t query)
{
    return problem->causal || problem->window ? first_new + query : first_new;
}

/* Says whether a row of packed queries (or keys) lies before the first bound, or at or after the last one. Kernels
 * write 0 into such a row, and -infinity into its LSE. */
static inline bool fa2i_row_is_unused(const fa2_problem *problem, const fa2i_said *said, int32_t row, bool of_keys)
{
    const int32_t *bounds = of_keys ? said->cu_seqlens_k : said->cu_seqlens_q;
    return problem->varlen && (row < bounds[0] || row >= bounds[problem->batch]);
}

/* The sequence that a row of the query tensors (or the key tensors) belongs to. first_q is -1 if the row is in no
 * sequence. */
static inline fa2i_sequence fa2i_sequence_at(const fa2_problem *problem, const fa2i_said *said, int32_t batch,
                                             int32_t row, bool of_keys)
{
    if (!problem->varlen)
        return fa2i_sequence_of(problem, said, batch);
    for (int32_t b = 0; b < problem->batch; b++) {
        const fa2i_sequence s = fa2i_sequence_of(problem, said, b);
        const int32_t own = row - (of_keys ? s.first_k : s.first_q);
        if (own >= 0 && own < (of_keys ? s.problem.seq_k : s.problem.seq_q))
            return s;
    }
    return (fa2i_sequence){.problem = *problem, .first_q = -1};
}

/* Keys first ... end - 1. If first == end there are none. */
typedef struct fa2i_keys {
    int32_t first, end;
} fa2i_keys;

/* The keys that a query sees. */
static inline fa2i_keys fa2i_keys_seen(const fa2_problem *problem, int32_t query)
{
    const int64_t place = (int64_t)query + problem->seq_k - problem->seq_q;
    int64_t first = 0, end = problem->seq_k;
    if (problem->causal && place + 1 < end)
        end = place + 1;
    if (problem->window == FA2_WINDOW_PREFIX)
        end = place + 1 > problem->window_left        ? end
              : problem->window_left < problem->seq_k ? problem->window_left
                                                      : problem->seq_k;
    if (problem->window == FA2_WINDOW_CHUNK && place < 0)
        end = 0;
    if (problem->window == FA2_WINDOW_CHUNK && place >= 0) {
        first = place / problem->window_left * problem->window_left;
        end = end < first + problem->window_left ? end : first + problem->window_left;
    }
    if (problem->window == FA2_WINDOW_SLIDING && problem->window_left >= 0 && place - problem->window_left > first)
        first = place - problem->window_left;
    if (problem->window == FA2_WINDOW_SLIDING && problem->window_right >= 0 && place + problem->window_right + 1 < end)
        end = place + problem->window_right + 1;
    if (end <= first)
        return (fa2i_keys){0, 0};
    return (fa2i_keys){(int32_t)first, (int32_t)end};
}

static inline bool fa2i_key_is_seen(const fa2_problem *problem, int32_t query, int32_t key)
{
    const fa2i_keys keys = fa2i_keys_seen(problem, query);
    return key >= keys.first && key < keys.end;
}
