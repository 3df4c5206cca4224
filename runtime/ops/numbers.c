/*
 * One function checks each operand. It may rely on the operands before it in FA2I_NUMBERS.
 *
 * A page or row that new keys are written to must be mentioned only once. So mentions are sorted by number; among equal
 * numbers the written ones come first. A written mention is not alone if the next one has the same number.
 */
#include "runtime/ops/numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "runtime/ops/forward.h"

bool fa2i_numbers_asked(const fa2_problem *p)
{
#define ASKED(name, field, more) || p->field
    return p->paged FA2I_NUMBERS(ASKED);
#undef ASKED
}

/* limit: what the maximum is, for the message. */
static fa2_status check_range(const char *name, int32_t at, int32_t value, int32_t most, const char *limit)
{
    if (value >= 0 && value <= most)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "%s[%d] is %d; it must be from 0 to %d (%s)", name, (int)at, (int)value, (int)most,
                     limit);
}

/* ---- which keys a sequence has ---- */

/* The number of keys without and with the new keys of the call. */
typedef struct keys {
    int32_t before, all;
} keys;

static int32_t least_of(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t packed_length(const int32_t *bounds, int32_t sequence)
{
    return bounds[sequence + 1] - bounds[sequence];
}

static keys keys_of(const fa2_problem *p, const void *args, const fa2i_numbers *n, int32_t sequence)
{
    const int32_t room = p->varlen ? packed_length(n->cu_seqlens_k, sequence) : p->seq_k;
    const int32_t coming = !p->append  ? 0
                           : p->varlen ? packed_length(n->cu_seqlens_q, sequence)
                                       : ((const fa2_forward_args *)args)->append.seq;
    const int32_t before = p->seqused ? n->seqused_k[sequence] : room - least_of(coming, room);
    return (keys){before, before + least_of(coming, room - before)};
}

/* ---- written pages and rows are mentioned once ---- */

/* A mention of a page, or of a cache row. */
typedef struct mention {
    int32_t number, sequence, column;
    bool is_written;
} mention;

static int compare_mentions(const void *left, const void *right)
{
    const mention *a = left, *b = right;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    if (a->is_written != b->is_written)
        return a->is_written ? -1 : 1;
    if (a->sequence != b->sequence)
        return a->sequence < b->sequence ? -1 : 1;
    return a->column < b->column ? -1 : a->column > b->column;
}

enum { PLACE_CHARS = 64 };

static const char *place_of(const fa2_problem *p, const mention *at, char text[PLACE_CHARS])
{
    if (p->paged)
        snprintf(text, PLACE_CHARS, "block_table[%d][%d]", (int)at->sequence, (int)at->column);
    else
        snprintf(text, PLACE_CHARS, "cache_rows[%d]", (int)at->sequence);
    return text;
}

static fa2_status check_written(const fa2_problem *p, mention *mentions, size_t count)
{
    char one[PLACE_CHARS], other[PLACE_CHARS];
    qsort(mentions, count, sizeof *mentions, compare_mentions);
    for (size_t i = 0; i + 1 < count; i++) {
        if (!mentions[i].is_written || mentions[i].number != mentions[i + 1].number)
            continue;
        return fa2i_fail(FA2_E_INVALID,
                         "%s and %s are both %d; new keys are written into that %s, so it must be named only once",
                         place_of(p, &mentions[i], one), place_of(p, &mentions[i + 1], other), (int)mentions[i].number,
                         p->paged ? "page" : "row");
    }
    return FA2_OK;
}

static fa2_status make_mentions(size_t count, mention **ret_mentions)
{
    *ret_mentions = fa2i_alloc_array(count, sizeof **ret_mentions);
    return *ret_mentions != NULL ? FA2_OK : fa2i_fail(FA2_E_MEMORY, "no memory to check %zu numbers", count);
}

/* ---- operands ---- */

/* Checks the bounds of packed sequences. what[]: the operand, the tensor's rows, the longest sequence. */
static fa2_status check_bounds(const int32_t *bounds, int32_t batch, int32_t total, int32_t most,
                               const char *const what[3])
{
    fa2_status st = FA2_OK;
    for (int64_t i = 0; i <= batch; i++) {
        FA2_TRY(check_range(what[0], (int32_t)i, bounds[i], total, what[1]));
        if (i == 0 || (bounds[i] >= bounds[i - 1] && bounds[i] - bounds[i - 1] <= most))
            continue;
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "%s[%d] is %d; it must be from %d (%s[%d]) to %d (at most %s more)", what[0],
                          (int)i, (int)bounds[i], (int)bounds[i - 1], what[0], (int)i - 1,
                          (int)least_of(total, bounds[i - 1] + most), what[2]));
    }
done:
    return st;
}

static fa2_status check_cu_seqlens_q(const fa2_problem *p, const void *args, const fa2i_numbers *n)
{
    static const char *const what[] = {"cu_seqlens_q", "total_q", "seq_q"};
    (void)args;
    return check_bounds(n->cu_seqlens_q, p->batch, fa2i_forward_total_q(p), p->seq_q, what);
}

static fa2_status check_cu_seqlens_k(const fa2_problem *p, const void *args, const fa2i_numbers *n)
{
    static const char *const what[] = {"cu_seqlens_k", "total_k", "seq_k"};
    (void)args;
    return check_bounds(n->cu_seqlens_k, p->batch, fa2i_forward_total_k(p), p->seq_k, what);
}

static fa2_status check_seqused_k(const fa2_problem *p, const void *args, const fa2i_numbers *n)
{
    fa2_status st = FA2_OK;
    (void)args;
    for (int32_t b = 0; b < p->batch; b++) {
        if (p->varlen)
            FA2_TRY(check_range("seqused_k", b, n->seqused_k[b], packed_length(n->cu_seqlens_k, b),
                                "its keys by cu_seqlens_k"));
        else
            FA2_TRY(check_range("seqused_k", b, n->seqused_k[b], p->seq_k, "seq_k"));
    }
done:
    return st;
}

/* Lengths include the padding. */
static fa2_status check_leftpad(const fa2_problem *p, const void *args, const fa2i_numbers *n)
{
    fa2_status st = FA2_OK;
    for (int32_t b = 0; b < p->batch; b++)
        FA2_TRY(check_range("leftpad", b, n->leftpad[b], keys_of(p, args, n, b).all, "all keys of its sequence"));
done:
    return st;
}

static fa2_status check_cache_rows(const fa2_problem *p, const void *args, const fa2i_numbers *n)
{
    fa2_status st = FA2_OK;
    mention *mentions = NULL;
    const int32_t most = ((const fa2_forward_args *)args)->cache_row_count - 1;
    for (int32_t b = 0; b < p->batch; b++)
        FA2_TRY(check_range("cache_rows", b, n->cache_rows[b], most, "cache_row_count - 1"));
    if (!p->append)
        goto done;
    FA2_TRY(make_mentions((size_t)p->batch, &mentions));
    for (int32_t b = 0; b < p->batch; b++) {
        const keys k = keys_of(p, args, n, b);
        mentions[b] = (mention){n->cache_rows[b], b, 0, k.all > k.before};
    }
    FA2_TRY(check_written(p, mentions, (size_t)p->batch));
done:
    fa2i_free(mentions);
    return st;
}

fa2_status fa2i_numbers_check(const fa2_problem *problem, const void *args, const fa2i_numbers *numbers)
{
    fa2_status st = FA2_OK;
#define CHECK_OPERAND(name, field, more)                                                                               \
    if (problem->field)                                                                                                \
        FA2_TRY(check_##name(problem, args, numbers));
    FA2I_NUMBERS(CHECK_OPERAND)
#undef CHECK_OPERAND
done:
    return st;
}

/* ---- pages ---- */

int32_t fa2i_numbers_pages(const fa2_problem *problem, const void *args, const fa2i_numbers *numbers, int32_t sequence)
{
    const int32_t page = fa2i_forward_page(problem), all = keys_of(problem, args, numbers, sequence).all;
    return all / page + (all % page > 0);
}

/* Returns the first page of a sequence that is read or written. Pages of padding alone may not exist. */
static int32_t first_page(const fa2_problem *p, const void *args, const fa2i_numbers *n, int32_t sequence)
{
    if (!p->leftpad)
        return 0;
    return least_of(n->leftpad[sequence], keys_of(p, args, n, sequence).before) / fa2i_forward_page(p);
}

static fa2_status check_pages(const int32_t *pages, int32_t first, int32_t count, int32_t sequence, int32_t page_count)
{
    for (int32_t i = first; i < count; i++)
        if (pages[i] < 0 || pages[i] >= page_count)
            return fa2i_fail(FA2_E_INVALID, "block_table[%d][%d] is %d; it must be from 0 to %d (page_count - 1)",
                             (int)sequence, (int)i, (int)pages[i], (int)page_count - 1);
    return FA2_OK;
}

static fa2_status check_written_pages(const fa2_problem *p, const void *args, const fa2i_numbers *n, size_t count)
{
    fa2_status st = FA2_OK;
    mention *mentions = NULL;
    const int32_t *table = n->block_table;
    size_t mentioned = 0;
    FA2_TRY(make_mentions(count, &mentions));
    for (int32_t b = 0; b < p->batch; b++) {
        const keys k = keys_of(p, args, n, b);
        const int32_t pages = fa2i_numbers_pages(p, args, n, b), written = k.before / fa2i_forward_page(p);
        for (int32_t i = first_page(p, args, n, b); i < pages; i++)
            mentions[mentioned++] = (mention){table[i], b, i, k.all > k.before && i >= written};
        table += pages;
    }
    FA2_TRY(check_written(p, mentions, mentioned));
done:
    fa2i_free(mentions);
    return st;
}

fa2_status fa2i_numbers_check_table(const fa2_problem *problem, const void *args, const fa2i_numbers *numbers)
{
    fa2_status st = FA2_OK;
    size_t count = 0;
    for (int32_t b = 0; b < problem->batch; b++) {
        const int32_t pages = fa2i_numbers_pages(problem, args, numbers, b);
        FA2_TRY(check_pages(numbers->block_table + count, first_page(problem, args, numbers, b), pages, b,
                            ((const fa2_forward_args *)args)->page_count));
        count += (size_t)pages;
    }
    if (problem->append)
        FA2_TRY(check_written_pages(problem, args, numbers, count));
done:
    return st;
}
