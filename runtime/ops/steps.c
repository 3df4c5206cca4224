/*
 * A step ends at the size that fa2i_problem_rounded gives, or earlier, where blocks begin another wave. There kernels
 * with other tiles become faster, by half at two waves.
 *
 * - No property of kernels is used. Waves are counted for tiles of all possible rows, with the rows of a head alone and
 *   with the rows of all heads that share keys. Only the number of blocks per SM counts, because the number of its
 *   blocks that run at the same time follows from it.
 * - Kernels without blocks of keys make no waves of keys. So a growing decode pays nothing for all this.
 * - Large numbers of waves are compared by their leading bits, because one more wave does not matter then.
 * - The answer is the end of the step, whatever was asked before: a size grows as long as it makes no other wave. So
 *   the sizes are treated one after the other, each by bisection.
 * - If there are as many queries as keys, that stays so.
 * - Packed sequences have coarse steps without waves. The model knows only their mean length, and a program that packs
 *   what it has brings another batch, longest sequence and total with each call.
 */
#include "runtime/ops/steps.h"

#include <math.h>
#include <string.h>
#include "runtime/base/problem.h"
#include "runtime/ops/op.h"

static const int tile_rows[] = {16, 32, 64, 128, 192, 256};

enum {
    TILES = sizeof tile_rows / sizeof tile_rows[0],
    FORMS = 4,     /* rows of a head, rows of a group; the same for keys if they have blocks */
    MOST_WAVES = 4 /* the largest number for which any kernel divides keys */
};

/* For each tile: blocks per SM, and among how many blocks the keys of a row tile can be divided. */
typedef struct waves {
    int64_t blocks[FORMS][TILES], splits[FORMS][TILES];
} waves;

/* Keeps five significant bits. */
static int64_t leading_bits(double number)
{
    int64_t bits = number < 1e15 ? (int64_t)number : (int64_t)1e15;
    int shift = 0;
    while (bits >> shift >= 32)
        shift++;
    return bits >> shift << shift;
}

static void count_form(double planes, double rows, int sm_count, int form, waves *out)
{
    for (int i = 0; i < TILES; i++) {
        const double blocks = planes * ceil(rows / tile_rows[i]);
        out->blocks[form][i] = leading_bits(ceil(blocks / sm_count));
        out->splits[form][i] = leading_bits(MOST_WAVES * (double)sm_count / blocks);
    }
}

static waves count_waves(const fa2_problem *p, int sm_count)
{
    const double group = (double)p->heads_q / p->heads_kv, batch = p->varlen ? 1 : p->batch;
    const double rows = p->varlen && p->total_q > 0 ? p->total_q : p->seq_q;
    const double keys = p->varlen && p->total_k > 0 ? p->total_k : p->seq_k;
    waves out = {.blocks = {{0}}};
    count_form(batch * p->heads_q, rows, sm_count, 0, &out);
    count_form(batch * p->heads_kv, rows * group, sm_count, 1, &out);
    if (fa2i_op_of(p)->keys_have_blocks) {
        count_form(batch * p->heads_q, keys, sm_count, 2, &out);
        count_form(batch * p->heads_kv, keys, sm_count, 3, &out);
    }
    return out;
}

static fa2_problem with_size(const fa2_problem *problem, int field, int32_t size)
{
    fa2_problem out = *problem;
    fa2i_field_set(&out, field, size);
    if (field == FA2I_FIELD_seq_q && problem->seq_q == problem->seq_k)
        out.seq_k = size;
    return out;
}

static bool makes_waves(const fa2_problem *problem, int field)
{
    return fa2i_fields[field].rounding == FA2I_ROUNDING_UP || fa2i_op_of(problem)->keys_have_blocks;
}

/* Returns the problem with the largest size, up to a limit, that has the same waves. */
static fa2_problem grow(const fa2_problem *problem, int field, int32_t limit, int sm_count)
{
    if (!makes_waves(problem, field))
        return with_size(problem, field, limit);
    const waves before = count_waves(problem, sm_count);
    fa2_problem grown = *problem;
    int32_t most = limit;
    for (int32_t size = limit; size > fa2i_field_get(&grown, field);
         size = fa2i_field_get(&grown, field) + (most - fa2i_field_get(&grown, field)) / 2) {
        const fa2_problem larger = with_size(problem, field, size);
        const waves after = count_waves(&larger, sm_count);
        if (memcmp(&after, &before, sizeof after) == 0)
            grown = larger;
        else
            most = size;
    }
    return grown;
}

/* Rounds to the nearest of 2 and 3 times a power of two. The model chooses by the mean length, which this changes
 * little. */
static int32_t round_batch(int32_t batch)
{
    int32_t step = 1;
    while (batch / step >> 2 != 0)
        step *= 2;
    return (int32_t)(((int64_t)batch + step / 2) / step * step);
}

/* limits: the rounded problem. */
static fa2_problem packed_asked(const fa2_problem *problem, const fa2_problem *limits)
{
    fa2_problem asked = *limits;
    asked.batch = round_batch(problem->batch);
    asked.seq_q = fa2i_round_up(problem->seq_q, 1, 1);
    asked.seq_k = fa2i_round_up(problem->seq_k, 1, 1);
    asked.total_q = fa2i_round_up(problem->total_q, 1, 3);
    asked.total_k = fa2i_round_up(problem->total_k, 1, 3);
    return fa2i_problem_check(&asked) == FA2_OK ? asked : *limits;
}

fa2_problem fa2i_problem_asked(const fa2_problem *problem, int sm_count)
{
    const fa2_problem limits = fa2i_problem_rounded(problem);
    if (problem->varlen)
        return packed_asked(problem, &limits);
    const bool square = problem->seq_q == problem->seq_k;
    fa2_problem asked = *problem;
    if (memcmp(&limits, problem, sizeof limits) == 0)
        return *problem;
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        int32_t limit = fa2i_field_get(&limits, field);
        if (field == FA2I_FIELD_seq_q && problem->seq_q <= problem->seq_k && limit > limits.seq_k)
            limit = limits.seq_k;
        if (limit > fa2i_field_get(&asked, field) && !(square && field == FA2I_FIELD_seq_k))
            asked = grow(&asked, field, limit, sm_count);
    }
    return fa2i_problem_check(&asked) == FA2_OK ? asked : *problem;
}
