/*
 * Rounding of sizes: about which problem the model is asked in place of another, on cards of four SMs.
 */
#include <stdlib.h>
#include "check.h"
#include "runtime/base/problem.h"
#include "runtime/ops/steps.h"

enum { T4 = 40, RTX_3060 = 28, L4 = 58, H200 = 132, LENGTHS = 4096, PROBLEMS = 4000 };

static const int sm_counts[] = {T4, RTX_3060, L4, H200};
enum { CARDS = sizeof sm_counts / sizeof sm_counts[0] };

static fa2_problem shape(int32_t batch, int32_t heads_q, int32_t heads_kv, int32_t seq_q, int32_t seq_k)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = batch,
                         .heads_q = heads_q,
                         .heads_kv = heads_kv,
                         .seq_q = seq_q,
                         .seq_k = seq_k,
                         .head_dim = 64,
                         .causal = 1};
}

static bool is_same(const fa2_problem *a, const fa2_problem *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static int below(int limit)
{
    static uint32_t state = 20;
    state = state * 1664525u + 1013904223u;
    return (int)((uint64_t)(state >> 8) * (uint64_t)limit >> 24);
}

/* Returns a random size from 1 to 2^octaves, uniform per octave. */
static int32_t random_size(int octaves)
{
    const int octave = below(octaves);
    return (1 << octave) + below(1 << octave);
}

static fa2_problem random_problem(void)
{
    const int32_t heads_kv = 1 << below(5), seq_q = random_size(13), more = random_size(14);
    fa2_problem problem = shape(random_size(7), heads_kv << below(4), heads_kv, seq_q, seq_q);
    problem.seq_k += below(3) > 0 ? more : 0;
    if (below(3) == 0)
        problem.seq_q = 1;
    problem.op = below(4) == 0 ? FA2_OP_BACKWARD : FA2_OP_FORWARD;
    return problem;
}

/* ---- waves ---- */

/* Counts the waves of blocks with this many rows, of one query head or of all heads that share keys. An SM holds
 * several blocks. */
static int64_t count_waves(const fa2_problem *p, bool together, int rows, int blocks_at_a_time)
{
    const int64_t group = together ? p->heads_q / p->heads_kv : 1;
    const int64_t tiles = (p->seq_q * group + rows - 1) / rows * p->batch * (p->heads_q / group);
    return (tiles + blocks_at_a_time - 1) / blocks_at_a_time;
}

/* Returns true if both problems have as many waves with each tile, as far as one wave more matters. */
static bool has_same_waves(const fa2_problem *a, const fa2_problem *b, int sm_count)
{
    static const int rows[] = {16, 32, 64, 128, 192, 256};
    bool same = true;
    for (int i = 0; i < 6; i++)
        for (int together = 0; together <= 1; together++)
            for (int resident = 1; resident <= 4; resident++) {
                const int64_t of_a = count_waves(a, together, rows[i], resident * sm_count),
                              of_b = count_waves(b, together, rows[i], resident * sm_count);
                same = same && (of_a == of_b || (of_a >= 8 && of_b - of_a <= of_a / 8));
            }
    return same;
}

/* 782 queries of groups of eight heads are two waves of an H200; 832 begin a third. */
static void test_waves(void)
{
    const fa2_problem two = shape(2, 32, 4, 782, 29867), three = shape(2, 32, 4, 832, 29867);
    const fa2_problem asked = fa2i_problem_asked(&two, H200);
    CHECK(!has_same_waves(&two, &three, H200));
    CHECK(has_same_waves(&two, &asked, H200));
    CHECK_EQ(asked.seq_q, 784);
    CHECK_EQ(asked.seq_k, 30720);
    const fa2_problem full = shape(33, 4, 4, 1, 1000), more = fa2i_problem_asked(&full, H200);
    CHECK_EQ(more.batch, 33); /* 34 batches have more heads than SMs */
    const fa2_problem elsewhere = fa2i_problem_asked(&full, T4);
    CHECK_EQ(elsewhere.batch, 36); /* there, 33 is in the fourth wave, too */
}

/* No size gets smaller, none grows by more than an eighth and a tile, and a rounded problem rounds to itself. */
static void test_problems(void)
{
    int wrong = 0, moved = 0;
    for (int i = 0; i < PROBLEMS; i++) {
        const int sm_count = sm_counts[i % CARDS];
        const fa2_problem problem = random_problem(), asked = fa2i_problem_asked(&problem, sm_count),
                          again = fa2i_problem_asked(&asked, sm_count);
        const bool grows = asked.batch >= problem.batch && asked.seq_q >= problem.seq_q && asked.seq_k >= problem.seq_k;
        const bool near = asked.batch <= problem.batch * 9 / 8 + 1 && asked.seq_q <= problem.seq_q * 9 / 8 + 1 &&
                          asked.seq_k <= problem.seq_k * 17 / 16 + 16;
        const bool shaped = (problem.seq_q == problem.seq_k) == (asked.seq_q == asked.seq_k) ||
                            (problem.seq_q < problem.seq_k && asked.seq_q == asked.seq_k);
        wrong += !grows || !near || !shaped || !fa2i_problem_same_class(&problem, &asked);
        wrong += !has_same_waves(&problem, &asked, sm_count);
        wrong += again.seq_q != asked.seq_q || again.batch != asked.batch;
        moved += !is_same(&problem, &asked);
    }
    CHECK_EQ(wrong, 0);
    CHECK(moved > PROBLEMS / 2);
}

/* All problems that round alike get one answer, whichever comes first. */
static void test_steps(void)
{
    int wrong = 0;
    for (int i = 0; i < PROBLEMS; i++) {
        const int sm_count = sm_counts[i % CARDS];
        const fa2_problem problem = random_problem(), asked = fa2i_problem_asked(&problem, sm_count);
        fa2_problem between = problem;
        if (problem.seq_q < problem.seq_k)
            between.seq_q += below(asked.seq_q - problem.seq_q + 1);
        if (between.seq_q >= between.seq_k) /* another shape */
            continue;
        const fa2_problem other = fa2i_problem_asked(&between, sm_count);
        wrong += other.seq_q != asked.seq_q || other.seq_k != asked.seq_k;
    }
    CHECK_EQ(wrong, 0);
}

/* ---- the number of questions ---- */

static int count_steps(fa2_problem problem, bool square, int sm_count)
{
    fa2_problem last = {.struct_bytes = sizeof(fa2_problem), .batch = 0};
    int steps = 0;
    for (int length = 1; length <= LENGTHS; length++) {
        problem.seq_k = length;
        if (square)
            problem.seq_q = length;
        const fa2_problem asked = fa2i_problem_asked(&problem, sm_count);
        steps += !is_same(&asked, &last);
        last = asked;
    }
    return steps;
}

static void test_questions(void)
{
    for (int i = 0; i < CARDS; i++) {
        const int decode = count_steps(shape(4, 32, 8, 1, 1), false, sm_counts[i]),
                  prefill = count_steps(shape(1, 32, 8, 1, 1), true, sm_counts[i]);
        printf("%d SMs: %d lengths of a decode in %d steps, of a prefill in %d\n", sm_counts[i], LENGTHS, decode,
               prefill);
        CHECK_EQ(decode, 81);
        CHECK(prefill <= 400);
    }
}

/* A program that packs about 30000 tokens at a time, in any number of sequences, asks few questions. */
static void test_packed(void)
{
    enum { CALLS = 20000, MOST = 64 };
    fa2_problem asked[MOST];
    int count = 0;
    for (int i = 0; i < CALLS && count < MOST; i++) {
        fa2_problem problem = shape(8 + below(57), 8, 2, 1024 + below(7169), 0);
        problem.varlen = 1;
        problem.seq_k = problem.seq_q;
        problem.total_q = problem.total_k = 28000 + below(4769);
        const fa2_problem step = fa2i_problem_asked(&problem, H200), again = fa2i_problem_asked(&step, H200);
        CHECK(is_same(&step, &again));
        CHECK(2 * abs(step.batch - problem.batch) <= problem.batch);
        CHECK(step.seq_q >= problem.seq_q && step.total_q >= problem.total_q);
        CHECK(step.total_q <= 1.25 * problem.total_q && step.seq_q == step.seq_k);
        int known = 0;
        while (known < count && !is_same(&asked[known], &step))
            known++;
        asked[known] = step;
        count += known == count;
    }
    CHECK(count <= 56);
}

int main(void)
{
    test_waves();
    test_problems();
    test_steps();
    test_questions();
    test_packed();
    return check_done();
}
