/*
 * Finds out if two arguments share a byte.
 *
 * - The ranges from first to last byte are nearly always apart. The strides of a tensor nearly always nest (each is at
 *   least what all smaller ones span), and then its rows are apart. Slices of one packed tensor are recognised by their
 *   common step.
 * - Otherwise integers decide. Row of A minus row of B is d + sum of step * x, where each x has its range. The rows
 *   meet if that lies between minus A's row and B's row. The largest step is tried first: what the others can still add
 *   bounds its x, for nested strides to two or three values. Equal steps of A and B become one x. A count of steps ends
 *   searches that do not narrow.
 * - The kind of a fault is worked out only after a fault was found.
 */
#include "runtime/ops/memory.h"

#include <stdio.h>
#include "runtime/base/status.h"

enum {
    ROW_ALIGN_BYTES = 16,
    DIMENSIONS = 3,
    PLACES_DIMENSIONS = 4,
    PATIENCE = 10000 /* steps of a search; nested strides need about ten */
};

static const char *const dimension_names[DIMENSIONS] = {"batch", "seq", "head"};

/* ---- rows that meet ---- */

/* x * step with low <= x <= high. */
typedef struct term {
    int64_t step, low, high;
} term;

typedef struct search {
    term terms[2 * DIMENSIONS]; /* largest step first */
    int count;
    int64_t below, above; /* the sum must be more than -below and less than above */
    bool moved;           /* and some x must not be 0 */
    int patience;
} search;

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static void add_term(search *s, term added, bool merge)
{
    int at = s->count;
    if (added.step == 0 || added.low == added.high)
        return;
    while (at > 0 && s->terms[at - 1].step < added.step)
        at--;
    if (merge && at > 0 && s->terms[at - 1].step == added.step) {
        s->terms[at - 1].low += added.low;
        s->terms[at - 1].high += added.high;
        return;
    }
    for (int i = s->count++; i > at; i--)
        s->terms[i] = s->terms[i - 1];
    s->terms[at] = added;
}

/* Returns whether the terms from `at` on can complete sum, the total of the terms before them. */
static bool can_meet(search *s, int at, int64_t sum, bool moved)
{
    int64_t rest_low = 0, rest_high = 0;
    if (at == s->count)
        return sum > -s->below && sum < s->above && (moved || !s->moved);
    for (int i = at + 1; i < s->count; i++) {
        rest_low += s->terms[i].step * s->terms[i].low;
        rest_high += s->terms[i].step * s->terms[i].high;
    }
    const term *t = &s->terms[at];
    const int64_t least = floor_div(-s->below - sum - rest_high, t->step) + 1;
    const int64_t most = floor_div(s->above - sum - rest_low - 1, t->step);
    const int64_t low = least > t->low ? least : t->low, high = most < t->high ? most : t->high;
    for (int64_t x = low; x <= high && s->patience > 0; x++) {
        s->patience--;
        if (can_meet(s, at + 1, sum + t->step * x, moved || x != 0))
            return true;
    }
    return false;
}

/* Places of so many bytes each, at strides in some dimensions. */
typedef struct places {
    const int64_t *strides; /* bytes */
    const int32_t *extents;
    int dimensions; /* at most PLACES_DIMENSIONS */
    int64_t bytes;
} places;

/* Returns whether two different places meet. Differences go both ways. */
static bool places_meet(const places *p)
{
    search s = {.below = p->bytes, .above = p->bytes, .moved = true, .patience = PATIENCE};
    for (int i = 0; i < p->dimensions; i++) {
        const int64_t last = p->extents[i] - 1;
        add_term(&s, (term){p->strides[i], -last, last}, false);
    }
    return can_meet(&s, 0, 0, false);
}

/* Returns whether each stride is at least what all smaller ones span. Then the places are apart. All places along a
 * stride of 0 are one place. */
static bool strides_nest(const places *p)
{
    int64_t step[PLACES_DIMENSIONS], count[PLACES_DIMENSIONS], spanned = p->bytes;
    for (int i = 0; i < p->dimensions; i++) { /* insertion sort */
        int at = i;
        for (; at > 0 && step[at - 1] > p->strides[i]; at--) {
            step[at] = step[at - 1];
            count[at] = count[at - 1];
        }
        step[at] = p->strides[i];
        count[at] = p->extents[i] - 1;
    }
    for (int i = 0; i < p->dimensions; i++) {
        if (step[i] != 0 && count[i] > 0 && step[i] < spanned)
            return false;
        spanned += step[i] * count[i];
    }
    return true;
}

static bool share_memory(const places *p)
{
    return !strides_nest(p) && places_meet(p);
}

/* Returns the bytes from the first to the last byte of all heads of a position. */
static int64_t bytes_of_position(const fa2i_memory *m)
{
    return m->strides[2] * (m->extents[2] - 1) + m->row_bytes;
}

/* Returns whether positions of both tensors repeat with one step, and each tensor has its own part of the step. */
static bool are_slices(const fa2i_memory *a, const fa2i_memory *b)
{
    const int64_t step = a->strides[1];
    if (step == 0 || b->strides[1] != step || a->strides[0] % step != 0 || b->strides[0] % step != 0)
        return false;
    const int64_t ahead = a->begin - b->begin - step * floor_div(a->begin - b->begin, step);
    return ahead >= bytes_of_position(b) && ahead + bytes_of_position(a) <= step;
}

static bool memories_meet(const fa2i_memory *a, const fa2i_memory *b)
{
    search s = {.below = a->row_bytes, .above = b->row_bytes, .patience = PATIENCE};
    for (int i = 0; i < DIMENSIONS; i++) {
        add_term(&s, (term){a->strides[i], 0, a->extents[i] - 1}, true);
        add_term(&s, (term){b->strides[i], 1 - b->extents[i], 0}, true);
    }
    return can_meet(&s, 0, a->begin - b->begin, false);
}

fa2_status fa2i_memory_check_apart(const fa2i_memory *output, const fa2i_memory *other)
{
    if (output->begin >= other->end || other->begin >= output->end || are_slices(output, other) ||
        !memories_meet(output, other))
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID,
                     "%s shares memory with %s: their bytes are 0x%llx to 0x%llx and 0x%llx to "
                     "0x%llx; what is written needs memory of its own",
                     output->name, other->name, (long long)output->begin, (long long)output->end,
                     (long long)other->begin, (long long)other->end);
}

/* ---- one argument ---- */

/* Says which dimension of a tensor is wrong. One is, or the tensor's end. least: of each stride; for batches and heads
 * 0, or more if the tensor is written. */
static fa2_status explain_strides(const fa2i_memory *m, const int64_t strides[DIMENSIONS],
                                  const int64_t least[DIMENSIONS], int32_t align_elems, const char *writer)
{
    int farthest = 0;
    for (int i = 0; i < DIMENSIONS; i++) {
        if (m->extents[i] == 1)
            continue;
        if (strides[i] % align_elems != 0)
            return fa2i_fail(FA2_E_INVALID, "%s.stride_%s is %lld; it must be a multiple of %d elements", m->name,
                             dimension_names[i], (long long)strides[i], (int)align_elems);
        if (strides[i] < least[i]) {
            const bool is_of_writer = writer != NULL && i != 1;
            return fa2i_fail(FA2_E_INVALID, "%s.stride_%s is %lld; it must be at least %lld%s%s", m->name,
                             dimension_names[i], (long long)strides[i], (long long)least[i],
                             is_of_writer ? ", because it is written by " : "", is_of_writer ? writer : "");
        }
        if ((double)strides[i] * (m->extents[i] - 1) > (double)strides[farthest] * (m->extents[farthest] - 1))
            farthest = i;
    }
    return fa2i_fail(FA2_E_INVALID,
                     "%s.stride_%s is %lld; with an extent of %d the tensor would end at 2^60 bytes or beyond", m->name,
                     dimension_names[farthest], (long long)strides[farthest], (int)m->extents[farthest]);
}

static fa2_status explain_pointer(const char *name, const void *data, size_t align)
{
    if ((uintptr_t)data % align != 0)
        return fa2i_fail(FA2_E_INVALID, "%s is %p; it must be a multiple of %zu bytes", name, data, align);
    return fa2i_fail(FA2_E_INVALID, "%s is %p; its data would end at 2^60 bytes or beyond", name, data);
}

static fa2_status explain_tensor(const fa2i_memory *m, const fa2_tensor *tensor, const int64_t strides[DIMENSIONS],
                                 const int64_t least[DIMENSIONS], int32_t align_elems, const char *writer)
{
    char member[32];
    snprintf(member, sizeof member, "%s.data", m->name);
    if (tensor->data == NULL)
        return fa2i_fail(FA2_E_INVALID, "%s is NULL", member);
    if ((uintptr_t)tensor->data % ROW_ALIGN_BYTES != 0 || (uintptr_t)tensor->data >= (uintptr_t)FA2I_ADDRESS_END)
        return explain_pointer(member, tensor->data, ROW_ALIGN_BYTES);
    return explain_strides(m, strides, least, align_elems, writer);
}

fa2_status fa2i_memory_of_rows(const char *name, const fa2_tensor *tensor, const int32_t extents[3], int32_t head_dim,
                               int32_t elem_bytes, const char *writer, fa2i_memory *ret_memory)
{
    const int32_t align_elems = ROW_ALIGN_BYTES / elem_bytes;
    const int64_t strides[] = {tensor->stride_batch, tensor->stride_seq, tensor->stride_head};
    const int64_t repeat = writer != NULL ? head_dim : 0, least[] = {repeat, head_dim, repeat};
    const uintptr_t begin = (uintptr_t)tensor->data;
    fa2i_memory *m = ret_memory;
    int64_t end = (int64_t)head_dim * elem_bytes;
    bool wrong = begin == 0 || begin % ROW_ALIGN_BYTES != 0 || begin >= (uintptr_t)FA2I_ADDRESS_END;
    m->name = name;
    m->begin = (int64_t)begin;
    m->row_bytes = (int64_t)head_dim * elem_bytes;
    for (int i = 0; i < DIMENSIONS; i++) {
        int64_t reach = 0;
        m->extents[i] = extents[i];
        m->strides[i] = 0;
        if (extents[i] == 1)
            continue;
        wrong |= strides[i] % align_elems != 0 || strides[i] < least[i];
        wrong |= __builtin_mul_overflow(strides[i], (extents[i] - 1) * (int64_t)elem_bytes, &reach);
        wrong |= __builtin_add_overflow(end, reach, &end);
        m->strides[i] = (int64_t)((uint64_t)strides[i] * (uint64_t)elem_bytes);
    }
    wrong |= __builtin_add_overflow(end, m->begin, &end) || end > FA2I_ADDRESS_END;
    m->end = end;
    if (wrong)
        return explain_tensor(m, tensor, strides, least, align_elems, writer);
    if (writer != NULL && share_memory(&(places){m->strides, m->extents, DIMENSIONS, m->row_bytes}))
        return fa2i_fail(FA2_E_INVALID,
                         "%s.stride_batch, %s.stride_seq and %s.stride_head are %lld, %lld and "
                         "%lld; some of its %d x %d x %d rows of %d elements would share memory, "
                         "and it is written by %s",
                         name, name, name, (long long)strides[0], (long long)strides[1], (long long)strides[2],
                         (int)extents[0], (int)extents[1], (int)extents[2], (int)head_dim, writer);
    return FA2_OK;
}

fa2_status fa2i_memory_of_array(const char *name, const void *data, size_t bytes, size_t align, fa2i_memory *ret_memory)
{
    const uintptr_t begin = (uintptr_t)data;
    *ret_memory = (fa2i_memory){.name = name,
                                .begin = (int64_t)begin,
                                .end = (int64_t)(begin + bytes),
                                .row_bytes = (int64_t)bytes,
                                .extents = {1, 1, 1}};
    if (begin % align != 0 || begin >= (uintptr_t)FA2I_ADDRESS_END || bytes > (uintptr_t)FA2I_ADDRESS_END - begin)
        return explain_pointer(name, data, align);
    return FA2_OK;
}

bool fa2i_memory_elements_meet(const int64_t strides[4], const int32_t extents[4], int64_t elem_bytes)
{
    return share_memory(&(places){strides, extents, PLACES_DIMENSIONS, elem_bytes});
}
