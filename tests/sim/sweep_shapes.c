/*
 * Lengths around one, two and three tiles, in all layouts, with and without LSE. Some shapes have large logits, some
 * have scores far above the softcap. Scales vary; the smallest makes additions to scores, which are divided by it,
 * exceed 16 bits.
 */
#include "sweep_shapes.h"
#include <string.h>
#include "tests/sim/forward.h"

static fa2i_case case_of(const fa2_problem *class, int index)
{
    fa2i_case c = {.problem = *class,
                   .layout = (fa2i_layout)(index % 3),
                   .want_lse = index % 4 != 3,
                   .pattern = class->op == FA2_OP_BACKWARD ? FA2I_PATTERN_FORWARD : FA2I_PATTERN_NONE,
                   .q_magnitude = index % 5 == 4 ? 8.0f : 1.0f,
                   .factors.softmax_scale = index % 5 == 1   ? 0.3f
                                            : index % 5 == 3 ? 0x1p-17f
                                                             : 0.0f,
                   .factors.softcap = !class->softcap  ? 0.0f
                                      : index % 3 == 0 ? 1.5f
                                                       : 30.0f,
                   .lengths = index % 2 ? FA2I_LENGTHS_WILD : FA2I_LENGTHS_SPREAD,
                   .seed = 1 + (uint64_t)index};
    return c;
}

/* Makes shapes around one, two and three tiles, with fewer and more queries than keys, and several heads per key head.
 * */
static fa2i_case shape_of(const fa2_problem *class, const fa2i_variant *variant, int bc, int index)
{
    const int br = variant->recipe.rows;
    const int lengths[SWEEP_SHAPES][2] = {{1, 1},
                                          {br - 1, bc - 1},
                                          {br, bc},
                                          {br + 1, bc + 1},
                                          {br + 1, 2 * bc - 1},
                                          {2 * br - 1, 2 * bc},
                                          {br - 1, 2 * bc + 1},
                                          {2 * br + 1, 3 * bc - 1},
                                          {br, 3 * bc},
                                          {3, 3 * bc + 1},
                                          {2 * br, bc + 1},
                                          {3 * br + 1, bc - 1}};
    fa2i_case c = case_of(class, index);
    const bool grouped = index == 1 || index == 3 || index == 9;
    c.problem.batch = index == 0 || index == 9 ? 2 : 1;
    c.problem.heads_q = grouped ? 2 : 1;
    c.problem.heads_kv = 1;
    c.problem.seq_q = lengths[index][0];
    c.problem.seq_k = lengths[index][1];
    return c;
}

/* Makes shapes for families that split: one split and several, fewer tiles than teams, packed query heads, a last block
 * with fewer tiles. With `crowd` key heads there are fewer splits than tiles. */
static fa2i_case split_shape_of(const fa2_problem *class, const fa2i_variant *variant, int bc, int crowd, int index)
{
    const int br = variant->recipe.rows, step = variant->recipe.keys;
    const struct {
        int batch, heads_q, heads_kv, seq_q, seq_k;
    } sizes[SWEEP_SHAPES] = {{2, 1, 1, 1, 1},
                             {1, 4, 1, 1, 2 * step + 1},
                             {1, 4, 1, br / 4 + 1, bc - 1},
                             {2, 4, 2, 3, 3 * step - 1},
                             {1, 1, 1, br + 1, step},
                             {1, 8, 1, 5, step + bc + 1},
                             {1, 1, 1, 2 * br - 1, 2 * step},
                             {1, 2, 1, br, 5 * bc + 1},
                             {1, 1, 1, 2 * br + 1, bc + 1},
                             {2, 2, 2, 1, 4 * step},
                             {1, crowd, crowd, 1, 5 * step - 1},
                             {1, 3, 1, br / 2 + 1, step + 1}};
    fa2i_case c = case_of(class, index);
    c.problem.batch = sizes[index].batch;
    c.problem.heads_q = sizes[index].heads_q;
    c.problem.heads_kv = sizes[index].heads_kv;
    c.problem.seq_q = sizes[index].seq_q;
    c.problem.seq_k = sizes[index].seq_k;
    return c;
}

/* For a family whose blocks take rows of several heads: about as many rows as a tile, from as many heads per key head,
 * which divide a row tile or do not, and as many queries. */
static void pack_heads(int index, fa2_problem *problem)
{
    static const int heads[] = {2, 3, 4, 8, 5, 16, 1, 6};
    const int together = heads[(size_t)index % (sizeof heads / sizeof *heads)];
    problem->heads_kv = index % 3 == 0 ? 2 : 1;
    problem->heads_q = problem->heads_kv * together;
    if (index % 4 != 3)
        problem->seq_q = (problem->seq_q + together - 1) / together;
}

/* Makes windows of one key, around the width of a tile, unbounded on a side, or so wide that some tiles need no mask.
 * The last kind has more keys. */
static void put_window(const fa2i_variant *variant, int bc, int index, fa2_problem *problem)
{
    const int br = variant->recipe.rows;
    const int windows[][2] = {{bc, 0}, {br + 2 * bc, 1},      {0, 0}, {bc + 1, bc - 1},
                              {-1, 3}, {br + 3 * bc - 1, bc}, {3, -1}};
    const int *window = windows[(size_t)index % (sizeof windows / sizeof *windows)];
    fa2i_case_window(problem, window[0], window[1]);
    if (window[0] > br)
        problem->seq_k += window[0] + bc;
}

fa2i_case sweep_shape(const fa2_problem *class, const fa2i_variant *variant, int sm_count, int index)
{
    const int bc = forward_tile_keys(variant);
    fa2i_case c = variant->recipe.waves == 0 ? shape_of(class, variant, bc, index)
                                             : split_shape_of(class, variant, bc, sm_count / 3 + 1, index);
    if (variant->recipe.waves == 0 && variant->recipe.pack)
        pack_heads(index, &c.problem);
    if (fa2i_forward_has_lengths(class) || class->cache_rows)
        c.problem.batch = 2 + index * 3 % 7;
    if (class->window)
        put_window(variant, bc, index, &c.problem);
    if (class->paged)
        c.problem.page = 1 << index * 4 % 9;
    if (class->varlen) { /* totals larger or smaller than the sum of the lengths */
        c.problem.total_q = 1 + c.problem.batch * c.problem.seq_q * (2 + index % 3) / 3;
        c.problem.total_k = 1 + c.problem.batch * c.problem.seq_k * (2 + index % 2) / 3;
    }
    return c;
}

bool sweep_same_shape(const fa2i_case *a, const fa2i_case *b)
{
    return memcmp(&a->problem, &b->problem, sizeof a->problem) == 0 && a->layout == b->layout &&
           a->want_lse == b->want_lse && a->factors.softmax_scale == b->factors.softmax_scale &&
           a->lengths == b->lengths && a->seed == b->seed;
}
