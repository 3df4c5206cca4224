/*
 * Which kernel for a problem: rules, distances, ties and what is passed over, among hand-made
 * choices.
 */
#include <math.h>
#include "check.h"
#include "runtime/plan/choose.h"

static const fa2i_card card = {.name = "NVIDIA GeForce RTX 3060",
                               .arch = 86,
                               .sm_count = 28,
                               .smem_block_bytes = 101376,
                               .smem_sm_bytes = 102400,
                               .l2_bytes = 2359296};

static fa2_problem problem_of(int32_t batch, int32_t heads, int32_t seq_q, int32_t seq_k)
{
    return (fa2_problem){.batch = batch,
                         .heads_q = heads,
                         .heads_kv = heads,
                         .seq_q = seq_q,
                         .seq_k = seq_k,
                         .head_dim = 64,
                         .causal = 1};
}

/* A measured winner of this card for a problem. id tells the choices apart. */
static fa2i_choice choice_of(uint8_t id, fa2_problem problem)
{
    fa2i_choice choice = {.winner = {.measured = true, .median_us = 10},
                          .problem = problem,
                          .arch = card.arch,
                          .sm_count = card.sm_count,
                          .smem_block_bytes = card.smem_block_bytes,
                          .l2_bytes = card.l2_bytes,
                          .real = true,
                          .smem_bytes = 49152};
    choice.winner.kernel.bytes[0] = id;
    memcpy(choice.device, card.name, sizeof(card.name));
    return choice;
}

static fa2i_choice modelled(fa2i_choice choice)
{
    choice.winner.measured = false;
    choice.winner.median_us = 0;
    choice.real = false;
    return choice;
}

static fa2i_choice of_other_card(fa2i_choice choice)
{
    strcpy(choice.device, "NVIDIA GeForce RTX 3090");
    choice.sm_count = 82;
    return choice;
}

static fa2i_decision decide(const fa2i_choice *choices, size_t count, fa2_problem problem)
{
    fa2i_decision decision;
    memset(&decision, 0xa5, sizeof(decision)); /* everything must be written */
    fa2i_choose_among(choices, count, &card, &problem, &decision);
    return decision;
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-12;
}

static void test_distance(void)
{
    const fa2_problem p = problem_of(2, 8, 512, 1024);
    fa2_problem q = p;

    CHECK(near(fa2i_problem_distance(&p, &p), 0));
    q.seq_q = 1024;
    CHECK(near(fa2i_problem_distance(&p, &q), log(2)));
    q.seq_k = 512;
    CHECK(near(fa2i_problem_distance(&p, &q), 2 * log(2)));
    q = p;
    q.batch = 6;
    q.heads_q = 4;
    CHECK(near(fa2i_problem_distance(&p, &q), log(1.5)));
    q = p;
    q.batch = 1;
    q.heads_q = 16; /* the same product */
    CHECK(near(fa2i_problem_distance(&p, &q), 0));
    q = problem_of(3, 5, 77, 1);
    CHECK(fa2i_problem_distance(&p, &q) == fa2i_problem_distance(&q, &p));
    q = problem_of(INT32_MAX, INT32_MAX, 512, 1024); /* B * Hq does not fit 32 bits */
    CHECK(fa2i_problem_distance(&p, &q) > 0 && isfinite(fa2i_problem_distance(&p, &q)));
}

/* Each size is rounded by itself, and never beyond what is valid. */
static void test_rounding(void)
{
    fa2_problem problem = problem_of(9, 8, 17, 4097);
    fa2_problem rounded = fa2i_problem_rounded(&problem);
    CHECK_EQ(rounded.batch, 10);
    CHECK_EQ(rounded.seq_q, 20);
    CHECK_EQ(rounded.seq_k, 5120);
    CHECK_EQ(rounded.heads_q, 8);
    problem.batch = INT32_MAX;
    problem.seq_k = (1 << 29) - 1;
    rounded = fa2i_problem_rounded(&problem);
    CHECK_EQ(rounded.batch, INT32_MAX);
    CHECK_EQ(rounded.seq_k, 1 << 29);
    problem.heads_kv = 2;
    problem.heads_q = 10; /* groups of 5 */
    problem.seq_q = (1 << 30) / 5;
    CHECK_EQ(fa2i_problem_check(&problem), FA2_OK);
    rounded = fa2i_problem_rounded(&problem);
    CHECK(memcmp(&rounded, &problem, sizeof(problem)) == 0);
}

static void test_nothing(void)
{
    fa2i_decision d = decide(NULL, 0, problem_of(1, 8, 512, 512));
    CHECK_EQ(d.rule, FA2_RULE_DEFAULT);
    CHECK(near(d.distance, 0));
    CHECK_EQ(d.choice.winner.measured, 0);

    const fa2_problem p = problem_of(1, 8, 512, 512);
    memset(&d, 0xa5, sizeof(d));
    CHECK_EQ(fa2i_choose(NULL, &card, &p, &d), FA2_OK);
    CHECK_EQ(d.rule, FA2_RULE_DEFAULT);
}

static void test_rules_in_order(void)
{
    const fa2_problem p = problem_of(1, 8, 512, 512);
    const fa2i_choice exact = choice_of(1, p);
    const fa2i_choice nearest = choice_of(2, problem_of(1, 8, 4096, 4096));
    const fa2i_choice arch = of_other_card(choice_of(3, p));
    const fa2i_choice all[] = {arch, nearest, exact};

    fa2i_decision d = decide(all, 3, p);
    CHECK_EQ(d.rule, FA2_RULE_EXACT);
    CHECK_EQ(d.choice.winner.kernel.bytes[0], 1);
    CHECK(near(d.distance, 0));
    d = decide(all, 2, p); /* far away on this device goes before the very problem elsewhere */
    CHECK_EQ(d.rule, FA2_RULE_NEAREST);
    CHECK_EQ(d.choice.winner.kernel.bytes[0], 2);
    CHECK(near(d.distance, 2 * log(8)));
    d = decide(all, 1, p);
    CHECK_EQ(d.rule, FA2_RULE_ARCH);
    CHECK_EQ(d.choice.winner.kernel.bytes[0], 3);
    CHECK_EQ(d.choice.problem.seq_q, 512);
}

static void test_nearest_by_distance(void)
{
    const fa2i_choice all[] = {
        choice_of(1, problem_of(1, 8, 256, 256)),   /* from 600: 2 ln(600/256) */
        choice_of(2, problem_of(1, 8, 512, 512)),   /* 2 ln(600/512): the nearest */
        choice_of(3, problem_of(1, 8, 1024, 1024)), /* 2 ln(1024/600) */
        choice_of(4, problem_of(4, 8, 600, 600)),   /* ln 4 */
    };
    fa2i_decision d = decide(all, 4, problem_of(1, 8, 600, 600));
    CHECK_EQ(d.rule, FA2_RULE_NEAREST);
    CHECK_EQ(d.choice.winner.kernel.bytes[0], 2);
    CHECK(near(d.distance, 2 * log(600.0 / 512)));
    d = decide(all, 4, problem_of(3, 8, 600, 600));
    CHECK_EQ(d.choice.winner.kernel.bytes[0], 4);
}

/* The same B * Hq is distance 0, but another problem all the same: so is another heads_kv. */
static void test_distance_zero_is_not_exact(void)
{
    const fa2_problem p = problem_of(2, 8, 512, 512);
    fa2_problem grouped = p;
    grouped.heads_kv = 2;
    const fa2i_choice all[] = {choice_of(1, grouped), choice_of(2, problem_of(1, 16, 512, 512))};

    fa2i_decision d = decide(all, 2, p);
    CHECK_EQ(d.rule, FA2_RULE_NEAREST);
    CHECK(near(d.distance, 0));
    CHECK_EQ(d.choice.winner.kernel.bytes[0], 1);
}

static void test_ties(void)
{
    const fa2_problem p = problem_of(1, 8, 900, 900);
    const fa2i_choice half = choice_of(1, problem_of(1, 8, 300, 900));
    const fa2i_choice twice = choice_of(2, problem_of(1, 8, 2700, 900));
    const fa2i_choice half_first[] = {half, twice}, twice_first[] = {twice, half};

    CHECK_EQ(decide(half_first, 2, p).choice.winner.kernel.bytes[0], 1);
    CHECK_EQ(decide(twice_first, 2, p).choice.winner.kernel.bytes[0], 2);

    /* measured goes first at equal distance, wherever it stands, but not before a nearer one */
    const fa2i_choice offline = modelled(choice_of(3, p));
    const fa2i_choice other = of_other_card(choice_of(4, p));
    const fa2i_choice other_far = of_other_card(choice_of(5, problem_of(1, 8, 950, 900)));
    const fa2i_choice a[] = {offline, other}, b[] = {other, offline}, c[] = {other_far, offline};
    CHECK_EQ(decide(a, 2, p).choice.winner.kernel.bytes[0], 4);
    CHECK_EQ(decide(b, 2, p).choice.winner.kernel.bytes[0], 4);
    CHECK_EQ(decide(c, 2, p).choice.winner.kernel.bytes[0], 3);
}

/* Each property that tells two cards apart makes a choice another card's. */
static void test_this_device(void)
{
    const fa2_problem p = problem_of(1, 8, 512, 512);
    fa2i_choice choice = choice_of(1, p);
    CHECK_EQ(decide(&choice, 1, p).rule, FA2_RULE_EXACT);

    choice.sm_count++;
    CHECK_EQ(decide(&choice, 1, p).rule, FA2_RULE_ARCH);
    choice = choice_of(1, p);
    choice.smem_block_bytes++;
    CHECK_EQ(decide(&choice, 1, p).rule, FA2_RULE_ARCH);
    choice = choice_of(1, p);
    choice.l2_bytes++;
    CHECK_EQ(decide(&choice, 1, p).rule, FA2_RULE_ARCH);
    choice = choice_of(1, p);
    strcpy(choice.device, "NVIDIA GeForce RTX 3060 Ti");
    CHECK_EQ(decide(&choice, 1, p).rule, FA2_RULE_ARCH);
    choice = modelled(choice_of(1, p)); /* the same numbers, but no card */
    CHECK_EQ(decide(&choice, 1, p).rule, FA2_RULE_ARCH);
    choice = choice_of(1, p);
    choice.winner.measured = false; /* this card, ranked by the model */
    CHECK_EQ(decide(&choice, 1, p).rule, FA2_RULE_EXACT);
}

static void test_passed_over(void)
{
    const fa2_problem p = problem_of(1, 8, 512, 512);
    fa2i_choice all[] = {choice_of(1, p), choice_of(2, problem_of(1, 8, 2048, 2048))};

    all[0].smem_bytes = card.smem_block_bytes; /* just fits */
    CHECK_EQ(decide(all, 2, p).choice.winner.kernel.bytes[0], 1);
    all[0].smem_bytes++;
    CHECK_EQ(decide(all, 2, p).rule, FA2_RULE_NEAREST);
    CHECK_EQ(decide(all, 2, p).choice.winner.kernel.bytes[0], 2);
    all[1].arch = 80;
    CHECK_EQ(decide(all, 2, p).rule, FA2_RULE_DEFAULT);
}

int main(void)
{
    test_distance();
    test_rounding();
    test_nothing();
    test_rules_in_order();
    test_nearest_by_distance();
    test_distance_zero_is_not_exact();
    test_ties();
    test_this_device();
    test_passed_over();
    return check_done();
}
