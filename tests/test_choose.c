/*
 * The choice of a kernel among hand-made winners and options: which winners are this card's, the order in which options
 * are tried, the explanation; distances and rounding.
 */
#include <math.h>
#include <stdlib.h>
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
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = batch,
                         .heads_q = heads,
                         .heads_kv = heads,
                         .seq_q = seq_q,
                         .seq_k = seq_k,
                         .head_dim = 64,
                         .causal = 1};
}

/* Returns a measured winner of this card for a problem. id distinguishes the choices. */
static fa2i_choice choice_of(uint8_t id, fa2_problem problem)
{
    fa2i_choice choice = {.winner = {.measured = true, .median_us = 10},
                          .problem = problem,
                          .arch = card.arch,
                          .sm_count = card.sm_count,
                          .smem_block_bytes = card.smem_block_bytes,
                          .l2_bytes = card.l2_bytes,
                          .real = true};
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
    q.heads_q = q.heads_kv = 4;
    CHECK(near(fa2i_problem_distance(&p, &q), log(1.5)));
    q = p;
    q.batch = 1;
    q.heads_q = q.heads_kv = 16; /* the same product */
    CHECK(near(fa2i_problem_distance(&p, &q), 0));
    q = p;
    q.heads_kv = 2; /* each for four query heads */
    CHECK(near(fa2i_problem_distance(&p, &q), 0.6 * log(4)));
    q = problem_of(3, 5, 77, 1);
    CHECK(fa2i_problem_distance(&p, &q) == fa2i_problem_distance(&q, &p));
    q = problem_of(INT32_MAX, INT32_MAX, 512, 1024); /* B * Hq does not fit 32 bits */
    CHECK(fa2i_problem_distance(&p, &q) > 0 && isfinite(fa2i_problem_distance(&p, &q)));
}

/* Each size is rounded separately, and never beyond its limit. */
static void test_rounding(void)
{
    fa2_problem problem = problem_of(9, 8, 17, 4097);
    fa2_problem rounded = fa2i_problem_rounded(&problem);
    CHECK_EQ(rounded.batch, 9);
    CHECK_EQ(rounded.seq_q, 18);
    CHECK_EQ(rounded.seq_k, 4352); /* a multiple of 16 keys with five significant bits */
    CHECK_EQ(rounded.heads_q, 8);
    problem.batch = (1 << 29) - 1; /* the most with one head; rounding up would give 2^29 */
    problem.heads_q = problem.heads_kv = problem.seq_q = 1;
    problem.seq_k = (1 << 29) - 1;
    rounded = fa2i_problem_rounded(&problem);
    CHECK(memcmp(&rounded, &problem, sizeof(problem)) == 0);
    problem.batch = 9;
    rounded = fa2i_problem_rounded(&problem);
    CHECK_EQ(rounded.seq_k, 1 << 29);
    problem.heads_kv = 2;
    problem.heads_q = 10; /* groups of 5 */
    problem.batch = 1;
    problem.seq_q = (1 << 30) / 5;
    CHECK_EQ(fa2i_problem_check(&problem), FA2_OK);
    rounded = fa2i_problem_rounded(&problem);
    CHECK(memcmp(&rounded, &problem, sizeof(problem)) == 0);
}

static bool is_exact(fa2i_choice choice, fa2_problem problem)
{
    return fa2i_choose_exact(&choice, 1, &card, &problem) != NULL;
}

/* The same problem on this card. Each property that distinguishes cards makes a winner another card's. */
static void test_exact(void)
{
    const fa2_problem p = problem_of(2, 8, 512, 512);
    fa2_problem grouped = p;
    grouped.heads_kv = 2;
    fa2i_choice all[] = {choice_of(1, grouped), choice_of(2, problem_of(1, 16, 512, 512)), choice_of(3, p)};
    const fa2i_choice *exact = fa2i_choose_exact(all, 3, &card, &p);
    CHECK(exact == &all[2]);
    CHECK(fa2i_choose_exact(all, 2, &card, &p) == NULL); /* distance 0, but another problem */
    CHECK(fa2i_choose_exact(NULL, 0, &card, &p) == NULL);

    fa2i_decision d;
    fa2i_decide_exact(exact, &d);
    CHECK_EQ(d.rule, FA2_RULE_EXACT);
    CHECK(near(d.estimate_us, 10) && near(d.median_us, 10) && near(d.distance, 0));
    CHECK_EQ(d.problem.batch, 2);
    CHECK_STR(d.device, card.name);

    fa2i_choice choice = choice_of(1, p);
    choice.sm_count++;
    CHECK(!is_exact(choice, p));
    choice = choice_of(1, p);
    choice.smem_block_bytes++;
    CHECK(!is_exact(choice, p));
    choice = choice_of(1, p);
    choice.l2_bytes++;
    CHECK(!is_exact(choice, p));
    choice = choice_of(1, p);
    choice.arch = 89;
    CHECK(!is_exact(choice, p));
    choice = choice_of(1, p);
    strcpy(choice.device, "NVIDIA GeForce RTX 3060 Ti");
    CHECK(!is_exact(choice, p));
    CHECK(!is_exact(modelled(choice_of(1, p)), p)); /* the same numbers, but not a real card */
    choice = choice_of(1, p);
    choice.winner.measured = false; /* this card, ranked by the model */
    choice.winner.model_us = 7;
    CHECK(is_exact(choice, p));
    fa2i_decide_exact(&choice, &d);
    CHECK(near(d.estimate_us, 7) && near(d.median_us, 0));
}

/* ---- options ---- */

/* The result of trying an option, given by its text: "-" and "?" cannot be used, and for "?" this is known before. A
 * number is the bytes that it spills. */
static int tries;

static fa2_status try_text(void *user, const fa2i_option *option, fa2i_trial *ret_trial)
{
    CHECK(user == &tries);
    tries++;
    if (strcmp(option->text, "fail") == 0)
        return FA2_E_MEMORY;
    if (option->text[0] == '?')
        ret_trial->predicted = true;
    else if (option->text[0] != '-')
        *ret_trial = (fa2i_trial){.usable = true, .spills = atoi(option->text)};
    return FA2_OK;
}

static fa2i_option option_of(const char *text, bool compile)
{
    fa2i_option option = {.us = 20,
                          .rests = FA2I_RESTS_MODEL,
                          .compile = compile,
                          .kernel = FA2I_NONE,
                          .set = FA2I_NONE,
                          .neighbour = FA2I_NONE};
    snprintf(option.text, sizeof option.text, "%s", text);
    return option;
}

/* Returns the index of the chosen option. All options must be compiled, or none. tries: how many were tried. */
static size_t choose(const char *const *texts, size_t count, bool compile)
{
    fa2i_option options[8];
    size_t chosen = 99, tried = 99;
    for (size_t i = 0; i < count; i++)
        options[i] = option_of(texts[i], compile);
    tries = 0;
    CHECK_EQ(fa2i_choose_option(options, count, try_text, &tries, &chosen, &tried), FA2_OK);
    CHECK_EQ(tried, tries);
    return chosen;
}

static void test_options(void)
{
    CHECK_EQ(choose((const char *[]){"0", "0"}, 2, true), 0);
    CHECK_EQ(tries, 1);
    CHECK_EQ(choose((const char *[]){"-", "0", "0"}, 3, true), 1);
    CHECK_EQ(choose((const char *[]){"8", "4", "-", "0", "0"}, 5, true), 3);
    CHECK_EQ(choose((const char *[]){"8", "4", "6", "12", "0"}, 5, true), 1); /* four compile */
    CHECK_EQ(tries, FA2I_COMPILE_MOST);
    CHECK_EQ(choose((const char *[]){"?", "?", "?", "?", "-", "-", "-", "0"}, 8, true), 7);
    CHECK_EQ(choose((const char *[]){"-", "-", "-", "-", "-", "0"}, 6, false), 5); /* its code exists */
    CHECK_EQ(choose((const char *[]){"-", "-"}, 2, false), 2);
    CHECK_EQ(choose(NULL, 0, false), 0);

    /* options that cannot be compiled do not hide options with code */
    fa2i_option options[6];
    size_t chosen = 99;
    for (size_t i = 0; i < 5; i++)
        options[i] = option_of("-", true);
    options[5] = option_of("0", false);
    CHECK_EQ(fa2i_choose_option(options, 6, try_text, &tries, &chosen, NULL), FA2_OK);
    CHECK_EQ(chosen, 5);
    options[0] = option_of("16", false); /* spills, but was measured as the fastest */
    options[0].rests = FA2I_RESTS_NEARBY;
    CHECK_EQ(fa2i_choose_option(options, 6, try_text, &tries, &chosen, NULL), FA2_OK);
    CHECK_EQ(chosen, 0);
    options[0] = option_of("fail", true);
    CHECK_EQ(fa2i_choose_option(options, 6, try_text, &tries, &chosen, NULL), FA2_E_MEMORY);
}

/* The explanation of an option, depending on its evidence. */
static void test_decision(void)
{
    const fa2_problem asked = problem_of(1, 8, 1024, 1024), p = problem_of(1, 8, 1000, 1000);
    fa2i_known_set set = {.problem = problem_of(1, 8, 512, 512),
                          .card = {.name = "another"},
                          .real = true,
                          .measured = true,
                          .first = 1,
                          .count = 2};
    fa2i_known_time times[] = {{7, 1}, {6, 2}, {7, 3}};
    const fa2i_evidence evidence = {.sets = &set, .times = times, .set_count = 1, .time_count = 3};
    fa2i_option options[] = {option_of("a", false), option_of("b", true)};
    options[0].kernel = 7;
    options[0].set = 0;
    options[0].distance = 1.5;
    options[1].us = 30;
    const fa2_rule rules[] = {FA2_RULE_EXACT, FA2_RULE_NEAREST, FA2_RULE_ARCH, FA2_RULE_DEFAULT};
    for (int rests = FA2I_RESTS_MEASURED; rests <= FA2I_RESTS_MODEL; rests++) {
        fa2i_decision d;
        memset(&d, 0xa5, sizeof d); /* every field must be written */
        options[0].rests = (fa2i_rests)rests;
        fa2i_decide_option(options, 0, &evidence, &asked, &card, &d);
        CHECK_EQ(d.rule, rules[rests]);
        CHECK(near(d.estimate_us, 20) && near(d.median_us, 3) && near(d.distance, 1.5));
        CHECK_EQ(d.problem.seq_q, 512);
        CHECK_STR(d.device, "another");
        CHECK_EQ(d.passed_count, 0);
        fa2i_decide_for_other(&p, &d); /* measured for another problem */
        CHECK_EQ(d.rule, rests == FA2I_RESTS_MEASURED ? FA2_RULE_NEAREST : rules[rests]);
        CHECK(near(d.distance, rests == FA2I_RESTS_MODEL ? 1.5 : 2 * log(1000.0 / 512)));
    }
    fa2i_decision d;
    fa2i_decide_option(options, 1, &evidence, &asked, &card, &d);
    CHECK_EQ(d.rule, FA2_RULE_DEFAULT);
    CHECK_EQ(d.measured, 0);
    CHECK_EQ(d.problem.seq_q, 1024);
    CHECK_STR(d.device, card.name);
}

/* The next usable option after the chosen one. If it seems faster, the explanation says why it was not chosen. */
static void test_runner_up(void)
{
    fa2i_option options[] = {option_of("-damaged", false), option_of("0 chosen", false), option_of("-wrong", false),
                             option_of("0 next", false), option_of("8 spills", true)};
    const fa2i_decision d = {.estimate_us = 20};
    fa2i_runner_up next;
    CHECK_EQ(fa2i_choose_runner_up(options, 5, &d, "0 chosen", try_text, &tries, &next), FA2_OK);
    CHECK_STR(next.text, "0 next");
    CHECK(near(next.us, 20) && next.but == NULL);
    options[3].us = 19.9;
    CHECK_EQ(fa2i_choose_runner_up(options, 5, &d, "0 chosen", try_text, &tries, &next), FA2_OK);
    CHECK_CONTAINS(next.but, "the gain is too small to be sure of");
    options[3].compile = true;
    CHECK_EQ(fa2i_choose_runner_up(options, 5, &d, "0 chosen", try_text, &tries, &next), FA2_OK);
    CHECK_CONTAINS(next.but, "too small for compiling it");
    options[4].us = 19;
    CHECK_EQ(fa2i_choose_runner_up(options, 5, &d, "0 next", try_text, &tries, &next), FA2_OK);
    CHECK_STR(next.text, "8 spills");
    CHECK_CONTAINS(next.but, "it spills");
    CHECK_EQ(fa2i_choose_runner_up(options, 5, &d, "8 spills", try_text, &tries, &next), FA2_OK);
    CHECK_STR(next.text, "");
    /* the winner may be missing among the options */
    CHECK_EQ(fa2i_choose_runner_up(options, 5, &d, "other", try_text, &tries, &next), FA2_OK);
    CHECK_STR(next.text, "0 chosen");
    options[2] = option_of("fail", false);
    CHECK_EQ(fa2i_choose_runner_up(options, 5, &d, "0 chosen", try_text, &tries, &next), FA2_E_MEMORY);
}

/* Rejected kernels: the winner is named first, the others are counted. */
static void test_passed_over(void)
{
    fa2i_decision d = {.passed_count = 0};
    fa2i_decide_passed_over("a", "damaged", &d);
    fa2i_decide_passed_over("b", "wrong", &d);
    CHECK_EQ(d.passed_count, 2);
    CHECK_STR(d.passed_over, "a");
    CHECK_STR(d.why, "damaged");
    CHECK(!d.replaces);
    fa2i_decide_replaces("w", "lost", false, &d);
    CHECK_EQ(d.passed_count, 3);
    CHECK_STR(d.passed_over, "w");
    CHECK_STR(d.why, "lost");
    CHECK(d.replaces);
    fa2i_decide_replaces("b", "wrong", true, &d);
    CHECK_EQ(d.passed_count, 3);
    CHECK_STR(d.passed_over, "b");
}

int main(void)
{
    test_distance();
    test_rounding();
    test_exact();
    test_options();
    test_decision();
    test_runner_up();
    test_passed_over();
    return check_done();
}
