/*
 * Checks that hold on every device. Each field is checked by its line of problem.def. Relations of two fields are
 * checked by functions, because a list of single fields cannot express them.
 */
#include <math.h>
#include <stdio.h>
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

/* Kernels count rows and keys in int, so the rows of all query heads that share a key head must fit. */
enum { GROUP_ROWS_MAX = 1 << 30 };
enum { BACKWARD_HEAD_DIM_MAX = 256 };

/* ---- one field ---- */

/* Returns where another setting is given that people confuse with the field. */
static const char *remark_on(int field)
{
    switch (field) {
#define NOTHING
#define ASKED(field_)                                                                                                  \
    case FA2I_FIELD_##field_:                                                                                          \
        return ": the " #field_ "'s value is given with the call";
#define FA2I_FACTOR(member, needs, ...) needs
#include "runtime/base/factors.def"
#undef ASKED
#undef NOTHING
    case FA2I_FIELD_dropout:
        return ": the probability is given with the call";
    case FA2I_FIELD_window:
        return ": window_left and window_right say how far it reaches";
    default:
        return "";
    }
}

const char *fa2i_field_accepted(int field, char out[FA2I_ACCEPTED_CHARS])
{
    const fa2i_field *f = &fa2i_fields[field];
    const bool named = fa2i_field_is_named(field);
    const char *kind = named ? "one of " : f->least == 0 && f->most == 1 ? "0 or 1" : "a whole number";
    size_t used = (size_t)snprintf(out, FA2I_ACCEPTED_CHARS, "%s", kind);
    for (int32_t i = f->least; named && i <= f->most && used < FA2I_ACCEPTED_CHARS; i++)
        used += (size_t)snprintf(out + used, FA2I_ACCEPTED_CHARS - used, "%s%d (%s)", i == f->least ? "" : ", ", (int)i,
                                 fa2i_field_name(field, i));
    if (used < FA2I_ACCEPTED_CHARS)
        snprintf(out + used, FA2I_ACCEPTED_CHARS - used, "%s", remark_on(field));
    return out;
}

fa2_status fa2i_field_check(int field, int32_t value)
{
    const fa2i_field *f = &fa2i_fields[field];
    const bool is_listed = fa2i_field_is_named(field) || (f->least == 0 && f->most == 1);
    char accepted[FA2I_ACCEPTED_CHARS];
    if (is_listed && (value < f->least || value > f->most))
        return fa2i_fail(FA2_E_INVALID, "%s is %d; it must be %s", f->name, (int)value,
                         fa2i_field_accepted(field, accepted));
    if (f->step > 1 && (value < f->least || value > f->most || value % f->step != 0))
        return fa2i_fail(FA2_E_INVALID, "%s is %d; it must be a multiple of %d from %d to %d", f->name, (int)value,
                         (int)f->step, (int)f->least, (int)f->most);
    if (value < f->least)
        return fa2i_fail(FA2_E_INVALID, "%s is %d; it must be at least %d", f->name, (int)value, (int)f->least);
    if (value > f->most)
        return fa2i_fail(FA2_E_INVALID, "%s is %d; it must be at most %d", f->name, (int)value, (int)f->most);
    return FA2_OK;
}

enum { VALUE_CHARS = 16 };

/* Writes a value as people give it: by its name, if it has one. */
static const char *value_text(int field, int32_t value, char out[VALUE_CHARS])
{
    const fa2i_field *f = &fa2i_fields[field];
    if (fa2i_field_is_named(field) && value >= f->least && value <= f->most)
        return fa2i_field_name(field, value);
    snprintf(out, VALUE_CHARS, "%d", (int)value);
    return out;
}

/* Fails because the field is set, but the field that it needs is 0. */
static fa2_status refuse_unasked(const fa2_problem *problem, int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    char value[VALUE_CHARS], none[VALUE_CHARS], unasked[VALUE_CHARS];
    return fa2i_fail(FA2_E_INVALID, "%s is %s; it must be %s where %s is %s", f->name,
                     value_text(field, fa2i_field_get(problem, field), value), value_text(field, 0, none),
                     fa2i_fields[f->needs].name, value_text(f->needs, 0, unasked));
}

/* Returns an alternative for an operation that lacks the field. */
static const char *instead_of(int field)
{
    return field == FA2I_FIELD_seqused ? "; it has varlen: sequences of any lengths, packed" : "";
}

fa2_status fa2i_field_check_of(const fa2_problem *problem, int field)
{
    const fa2i_field *f = &fa2i_fields[field];
    const int32_t value = fa2i_field_get(problem, field);
    char text[VALUE_CHARS];
    if (f->needs >= 0 && fa2i_field_get(problem, f->needs) == 0)
        return value == 0 ? FA2_OK : refuse_unasked(problem, field);
    if ((f->ops >> (int)problem->op & 1u) == 0)
        return value == 0 ? FA2_OK
                          : fa2i_fail(FA2_E_UNSUPPORTED, "%s is %s; the operation %s has no %s%s", f->name,
                                      value_text(field, value, text),
                                      fa2i_field_word(FA2I_FIELD_op, (int32_t)problem->op), f->name, instead_of(field));
    return fa2i_field_check(field, value);
}

/* ---- relations of fields ---- */

static fa2_status check_heads(const fa2_problem *problem, int *field)
{
    *field = FA2I_FIELD_heads_q;
    if (problem->heads_q % problem->heads_kv != 0)
        return fa2i_fail(FA2_E_INVALID, "heads_q is %d; it must be a multiple of heads_kv (%d)", (int)problem->heads_q,
                         (int)problem->heads_kv);
    const int64_t group_rows = (int64_t)problem->seq_q * (problem->heads_q / problem->heads_kv);
    *field = FA2I_FIELD_seq_q;
    if (group_rows > GROUP_ROWS_MAX)
        return fa2i_fail(FA2_E_INVALID, "seq_q times heads_q / heads_kv is %lld; it must be at most %d",
                         (long long)group_rows, (int)GROUP_ROWS_MAX);
    return FA2_OK;
}

/* Each meaning has one spelling, so that it has one class. */
static fa2_status check_columns(const fa2_problem *problem, int *field)
{
    *field = FA2I_FIELD_head_dim;
    if (problem->op == FA2_OP_BACKWARD && problem->head_dim > BACKWARD_HEAD_DIM_MAX)
        return fa2i_fail(FA2_E_UNSUPPORTED, "head_dim is %d; backward takes up to %d", (int)problem->head_dim,
                         BACKWARD_HEAD_DIM_MAX);
    *field = FA2I_FIELD_head_dim_v;
    if (problem->head_dim_v > 0 && problem->head_dim_v == problem->head_dim)
        return fa2i_fail(FA2_E_INVALID, "head_dim_v is %d, which is head_dim; it must be 0 then",
                         (int)problem->head_dim_v);
    if (problem->head_dim_v > problem->head_dim)
        return fa2i_fail(FA2_E_UNSUPPORTED, "head_dim_v is %d; it must be below head_dim (%d), or 0",
                         (int)problem->head_dim_v, (int)problem->head_dim);
    return FA2_OK;
}

enum { KV_COLUMNS = 16, KV_HEAD_DIM_MAX = 256 };

/* Rows of K and V in 8 bits are whole chunks of 16 bytes, and one warp has a whole row. */
static fa2_status check_kv(const fa2_problem *p, int *field)
{
    const int columns[] = {FA2I_FIELD_head_dim, FA2I_FIELD_head_dim_v};
    const char *name = fa2i_field_name(FA2I_FIELD_kv, (int32_t)p->kv);
    if (p->kv == FA2_KV_DTYPE)
        return FA2_OK;
    *field = FA2I_FIELD_v_in_k;
    if (p->v_in_k)
        return fa2i_fail(FA2_E_UNSUPPORTED, "v_in_k is 1; it must be 0 where kv is %s", name);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        *field = columns[i];
        const int32_t count = fa2i_field_get(p, columns[i]);
        if (count % KV_COLUMNS != 0 || count > KV_HEAD_DIM_MAX)
            return fa2i_fail(FA2_E_UNSUPPORTED, "%s is %d; it must be a multiple of %d, at most %d, where kv is %s",
                             fa2i_fields[columns[i]].name, (int)count, KV_COLUMNS, KV_HEAD_DIM_MAX, name);
    }
    return FA2_OK;
}

/* Refuses what kernels of fp32 do not have. */
static fa2_status check_fp32(const fa2_problem *p, int *field)
{
    char value[VALUE_CHARS], none[VALUE_CHARS];
    if (p->dtype != FA2_FP32)
        return FA2_OK;
    *field = FA2I_FIELD_op;
    if (p->op == FA2_OP_MERGE)
        return fa2i_fail(FA2_E_UNSUPPORTED, "op is %s; it must be forward or backward where dtype is fp32",
                         fa2i_field_name(FA2I_FIELD_op, (int32_t)p->op));
    for (*field = 0; *field < FA2I_FIELD_COUNT; ++*field) {
        if ((fa2i_fields[*field].ops & FA2I_NOT_FP32) != 0 && fa2i_field_get(p, *field) != 0)
            return fa2i_fail(FA2_E_UNSUPPORTED, "%s is %s; it must be %s where dtype is fp32", fa2i_fields[*field].name,
                             value_text(*field, fa2i_field_get(p, *field), value), value_text(*field, 0, none));
    }
    *field = FA2I_FIELD_head_dim;
    if (p->head_dim > FA2I_FP32_HEAD_DIM_MAX)
        return fa2i_fail(FA2_E_UNSUPPORTED, "head_dim is %d; it must be at most %d where dtype is fp32",
                         (int)p->head_dim, FA2I_FP32_HEAD_DIM_MAX);
    return FA2_OK;
}

/* A result that is carried on is fp32, and O is not. */
static fa2_status check_carry(const fa2_problem *p, int *field)
{
    *field = FA2I_FIELD_carry;
    if (!p->carry || p->partial == FA2_PARTIAL_NONE)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "carry is 1; it must be 0 where partial is %d, because O is fp32 then",
                     (int)p->partial);
}

/* A merge has no keys: each head has its own partial results, and O is written. */
static fa2_status check_merge(const fa2_problem *p, int *field)
{
    if (p->op != FA2_OP_MERGE)
        return FA2_OK;
    *field = FA2I_FIELD_heads_kv;
    if (p->heads_kv != p->heads_q)
        return fa2i_fail(FA2_E_INVALID, "heads_kv is %d; where op is merge it must be heads_q (%d)", (int)p->heads_kv,
                         (int)p->heads_q);
    *field = FA2I_FIELD_partial;
    if (p->partial == FA2_PARTIAL_MERGE)
        return fa2i_fail(FA2_E_INVALID, "partial is 2; where op is merge it must be 0, or 1 for O in fp32");
    return FA2_OK;
}

/* The first keys of a prefix, or a chunk, have one length. */
static fa2_status check_window(const fa2_problem *p, int *field)
{
    const int32_t least = p->window == FA2_WINDOW_CHUNK;
    const char *name = fa2i_field_name(FA2I_FIELD_window, p->window);
    *field = FA2I_FIELD_window;
    if (p->window <= FA2_WINDOW_SLIDING)
        return FA2_OK;
    if (p->window == FA2_WINDOW_PREFIX && !p->causal)
        return fa2i_fail(FA2_E_INVALID, "window is %s; causal must be 1 with it", name);
    *field = FA2I_FIELD_window_left;
    if (p->window_left < least)
        return fa2i_fail(FA2_E_INVALID, "window_left is %d; it must be at least %d where window is %s",
                         (int)p->window_left, (int)least, name);
    *field = FA2I_FIELD_window_right;
    if (p->window_right != -1)
        return fa2i_fail(FA2_E_INVALID, "window_right is %d; it must be -1 where window is %s", (int)p->window_right,
                         name);
    return FA2_OK;
}

enum { TOTAL_MAX = 1 << 29 };

/* Kernels count packed rows in int. */
static fa2_status check_total(const char *name, int32_t batch, int32_t seq, int32_t total)
{
    if (total > 0 || (int64_t)batch * seq <= TOTAL_MAX)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "total_%s is 0, which means batch times seq_%s: %lld; it must be at most %d", name,
                     name, (long long)batch * seq, TOTAL_MAX);
}

/* Packed sequences have no padding. They say where the rows of a sequence are, and so does a table of pages. */
static fa2_status check_cache(const fa2_problem *p, int *field)
{
    const bool is_told = p->varlen || p->paged;
    *field = p->leftpad && p->varlen ? FA2I_FIELD_leftpad : FA2I_FIELD_cache_rows;
    if ((p->varlen && p->leftpad) || (is_told && p->cache_rows))
        return fa2i_fail(FA2_E_UNSUPPORTED, "%s is 1; it must be 0 where %s is 1", fa2i_fields[*field].name,
                         p->varlen ? "varlen" : "paged");
    *field = FA2I_FIELD_rotary_dim;
    if (p->rotary_dim > p->head_dim)
        return fa2i_fail(FA2_E_INVALID, "rotary_dim is %d; it must be at most head_dim (%d)", (int)p->rotary_dim,
                         (int)p->head_dim);
    return FA2_OK;
}

/* Forward computes no gradient of the bias. */
static fa2_status check_bias(const fa2_problem *p, int *field)
{
    *field = FA2I_FIELD_bias;
    if (p->op == FA2_OP_BACKWARD || !fa2i_bias_has_gradient(p->bias))
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "bias is %s, which is for backward; forward's must be %s",
                     fa2i_field_word(FA2I_FIELD_bias, (int32_t)p->bias),
                     fa2i_field_word(FA2I_FIELD_bias, (int32_t)fa2i_bias_type(p->bias)));
}

/* Checks the features that say where rows lie: what they need, and what they exclude. */
static fa2_status check_rows(const fa2_problem *problem, int *field)
{
    const fa2_problem *p = problem;
    fa2_status st = check_cache(p, field);
    if (st == FA2_OK)
        st = check_bias(p, field);
    if (st != FA2_OK || (!p->varlen && !p->paged))
        return st;
    *field = FA2I_FIELD_total_q;
    if (p->varlen)
        st = check_total("q", p->batch, p->seq_q, p->total_q);
    if (st != FA2_OK)
        return st;
    *field = FA2I_FIELD_total_k;
    if (p->varlen)
        st = check_total("k", p->batch, p->seq_k, p->total_k);
    if (st != FA2_OK)
        return st;
    *field = FA2I_FIELD_page;
    if ((p->page & (p->page - 1)) != 0)
        return fa2i_fail(FA2_E_INVALID, "page is %d; it must be a power of two", (int)p->page);
    return FA2_OK;
}

/* Blocks of a launch, and tiles within kernels, are counted in 31 bits. The steps that take the fewest rows at a time
 * take 4 in forward and 8 in backward. So every kernel can be launched for this many rows. */
static const double rows_max = 0x1p33 - 1;

/* Limits the rows of Q or K in all heads, with each sequence in whole tiles. Computes in double, because a product may
 * exceed 64 bits. */
static fa2_status check_launch(const fa2_problem *p, int heads, int seq, int total, int *field)
{
    const double tile = p->op == FA2_OP_BACKWARD ? FA2I_BACKWARD_TILE_ROWS : FA2I_FORWARD_TILE_ROWS;
    const double all_heads = fa2i_field_get(p, heads), rows = fa2i_field_get(p, seq);
    const double given = fa2i_field_get(p, total), packed = given > 0 ? given : p->batch * rows;
    const double padded = all_heads * p->batch * ceil(rows / tile) * tile;
    const double together = all_heads * (packed + p->batch * tile);
    *field = p->varlen ? heads : FA2I_FIELD_batch;
    if (p->varlen && together > rows_max)
        return fa2i_fail(FA2_E_INVALID,
                         "%s times the sum of %s and %.0f times batch is %.0f; a launch takes at most %.0f rows",
                         fa2i_fields[heads].name, fa2i_fields[total].name, tile, together, rows_max);
    if ((!p->varlen || fa2i_bias_has_gradient(p->bias)) && padded > rows_max)
        return fa2i_fail(FA2_E_INVALID,
                         "batch times %s times %s, rounded up to a multiple of %.0f, is %.0f; a launch takes at most "
                         "%.0f rows",
                         fa2i_fields[heads].name, fa2i_fields[seq].name, tile, padded, rows_max);
    return FA2_OK;
}

/* Refuses sizes for which some kernel cannot be launched. Backward also has blocks of keys. */
static fa2_status check_sizes(const fa2_problem *p, int *field)
{
    const fa2_status st = check_launch(p, FA2I_FIELD_heads_q, FA2I_FIELD_seq_q, FA2I_FIELD_total_q, field);
    if (st != FA2_OK || p->op != FA2_OP_BACKWARD)
        return st;
    return check_launch(p, FA2I_FIELD_heads_kv, FA2I_FIELD_seq_k, FA2I_FIELD_total_k, field);
}

static fa2_status check_reserved(const fa2_problem *problem)
{
    const size_t reserved = sizeof problem->reserved / sizeof *problem->reserved;
    for (size_t i = 0; i < reserved; i++) {
        if (problem->reserved[i] != 0)
            return fa2i_fail(FA2_E_INVALID, "reserved[%zu] is %d; it must be 0: zero-initialise fa2_problem", i,
                             (int)problem->reserved[i]);
    }
    return FA2_OK;
}

/* ---- the whole problem ---- */

fa2_status fa2i_problem_find_fault(const fa2_problem *problem, int *ret_field)
{
    static fa2_status (*const relations[])(const fa2_problem *, int *) = {check_heads, check_columns, check_rows,
                                                                          check_kv,    check_fp32,    check_carry,
                                                                          check_merge, check_window,  check_sizes};
    int field = FA2I_FIELD_op;
    fa2_status st = fa2i_field_check(field, (int32_t)problem->op);
    for (int i = 0; st == FA2_OK && i < FA2I_FIELD_COUNT; i++)
        st = fa2i_field_check_of(problem, field = i);
    for (size_t i = 0; st == FA2_OK && i < sizeof relations / sizeof *relations; i++)
        st = relations[i](problem, &field);
    if (st == FA2_OK) {
        field = -1;
        st = check_reserved(problem);
    }
    *ret_field = field;
    return st;
}

fa2_status fa2i_problem_check(const fa2_problem *problem)
{
    int field = -1;
    return problem == NULL ? fa2i_fail(FA2_E_INVALID, "problem is NULL") : fa2i_problem_find_fault(problem, &field);
}
