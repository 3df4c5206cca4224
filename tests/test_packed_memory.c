/*
 * The workspace of packed sequences depends on the tensors' rows, not on the number of sequences or the longest length.
 * This holds for every candidate of one card for each SM with its own families.
 */
#include "generator_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/ops/op.h"

enum { D = 64, HEADS = 2, TOTAL = 65536 };
static const double tensor_bytes = 2.0 * TOTAL * HEADS * D; /* Q, or any other */

/* TOTAL rows in several sequences, and the longest length. */
static const struct packing {
    int32_t batch, longest;
} packings[] = {
    {1, 65536}, {64, 1024}, {64, 32768}, {1024, 64}, {1024, 32768}, {32769, 32768}, {65536, 1},
};
enum { PACKINGS = sizeof packings / sizeof packings[0] };

static fa2_problem packed(const fa2_problem *class, const struct packing *p)
{
    fa2_problem problem = *class;
    problem.batch = p->batch;
    problem.seq_q = problem.seq_k = p->longest;
    problem.varlen = 1;
    problem.total_q = problem.total_k = TOTAL;
    return problem;
}

static fa2i_grid grid_of(const fa2i_card *card, const fa2i_variant *v, const fa2_problem *problem)
{
    fa2i_grid grid = {0};
    CHECK_EQ(fa2i_op_of(problem)->grid(card, &v->recipe, problem, &grid), FA2_OK);
    return grid;
}

/* Backward: fp32 sums of dQ take as much as two tensors, if columns are not padded. LSE, delta and counters take less
 * than one. */
static void check_backward(const fa2i_card *card, const fa2i_variant *v, const fa2_problem *problem)
{
    const fa2i_grid grid = grid_of(card, v, problem);
    const double tensors = (double)grid.workspace_bytes / tensor_bytes;
    CHECK(tensors <= 2.0 * v->recipe.columns / D + 0.7);
}

/* Forward: partial results of at most twice the blocks that share the keys. The SMs limit their number. */
static void check_forward(const fa2i_card *card, const fa2i_variant *v, const fa2_problem *problem)
{
    const fa2i_grid grid = grid_of(card, v, problem);
    const size_t blocks = 2 * (size_t)v->recipe.waves * (size_t)card->sm_count;
    CHECK(grid.workspace_bytes <= blocks * (size_t)v->recipe.rows * (D + 1) * sizeof(float));
    CHECK((double)grid.workspace_bytes <= 5 * tensor_bytes);
}

static void check_class(fa2i_generator *generator, const fa2i_card *card, const fa2_problem *class)
{
    for (int i = 1; i < PACKINGS; i += 4) {
        const fa2_problem listed = packed(class, &packings[i]);
        fa2i_variant *variants = NULL;
        size_t count = 0;
        CHECK_EQ(fa2i_generator_candidates(generator, &listed, card, &variants, &count), FA2_OK);
        CHECK(count > 0);
        for (size_t k = 0; k < count; k++)
            for (int j = 0; j < PACKINGS; j++) {
                const fa2_problem problem = packed(class, &packings[j]);
                if (class->op == FA2_OP_BACKWARD)
                    check_backward(card, &variants[k], &problem);
                else
                    check_forward(card, &variants[k], &problem);
            }
        fa2i_free(variants);
        if (class->op == FA2_OP_BACKWARD)
            CHECK((double)fa2i_backward_unmapped_bytes(&listed) <= 3 * tensor_bytes);
    }
}

int main(void)
{
    static const int archs[] = {75, 80, 90};
    const fa2_problem classes[] = {
        {.op = FA2_OP_FORWARD},
        {.op = FA2_OP_FORWARD, .causal = 1},
        {.op = FA2_OP_BACKWARD},
        {.op = FA2_OP_BACKWARD, .causal = 1, .deterministic = 1},
        {.op = FA2_OP_BACKWARD, .sinks = 1},
    };
    fa2i_generator *generator = open_generator();
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        fa2i_card card;
        CHECK_EQ(fa2i_generator_card(generator, archs[i], &card), FA2_OK);
        for (size_t k = 0; k < sizeof classes / sizeof classes[0]; k++) {
            fa2_problem class = classes[k];
            class.heads_q = class.heads_kv = HEADS;
            class.head_dim = D;
            check_class(generator, &card, &class);
        }
    }
    fa2i_generator_destroy(generator);
    return check_done();
}
