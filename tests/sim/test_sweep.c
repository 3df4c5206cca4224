/*
 * Candidates of the generator on the software device: numbers, races, initialisation, traffic. sweep.h says when a
 * launch is right, and what is compiled.
 *
 *     test_sweep CARD[,CARD...] DTYPE all|plain|pairs [PART/PARTS [STEP [CLASSES [VALUES]]]]
 *
 * plain: for each (D, causal) of the presets with that dtype, and some others, candidates of each card for prefill,
 * decode or short prefill. The runtime launches them on shapes that reach all paths of their tile sizes. Of each family
 * in each class every n-th candidate is run (sweep_classes.c), at least one, and more until each of their tile and axis
 * values is run. The cards take turns, because the code is the same for all cards with the candidate.
 *
 * pairs: sets of features that cover every pair of them (pairs.h). One or two kernels of each set are run on each card,
 * others in each turn, on a few of the shapes. More are run until each tile and axis value is run that no candidate of
 * the plain classes has.
 *
 * FA2_TEST_ALL in the environment: all candidates on all cards and all shapes. PART/PARTS: only every PARTS-th class,
 * to divide the work among processes. STEP n: about every nth candidate, for cards on which more take too long. CLASSES
 * n: only every nth plain class, unless FA2_TEST_ALL is set. VALUES n: fails if fewer tile and axis values were run.
 */
#include <stdlib.h>
#include "tests/check.h"
#include "tests/pairs.h"
#include "tests/sim/must.h"
#include "tests/sim/sim.h"
#include "tests/sim/sweep_choice.h"
#include "tests/sim/sweep_classes.h"

enum { STEP_COMPARE_TARGETS = 6, STEP_COMPARE_SETS = 16 };

typedef struct plan {
    sweep_classes classes;
    int step;
    size_t every;      /* run each every-th plain class */
    size_t values;     /* the least number of tile and axis values */
    bool plain, pairs; /* classes to run */
    bool all;
} plan;

static sweep the_sweep;
static plan the_plan;

/* Shapes for a set of features. Each group has tails, heads that share keys, fewer and more queries than keys, and very
 * different sequence lengths. */
enum { FEWS = 3 };
static const unsigned few_shapes[FEWS] = {1u << 1 | 1u << 6 | 1u << 11, 1u << 3 | 1u << 8 | 1u << 10,
                                          1u << 5 | 1u << 7 | 1u << 9};

/* Returns true if a class takes candidates from a card. */
static bool is_from(const sweep *s, const plan *p, size_t index, int card)
{
    const sweep_class *class = &p->classes.items[index];
    if (class->sample == SWEEP_ONE_CARD && !p->all)
        return index % (size_t)s->card_count == (size_t)card;
    return !class->own_only || sweep_has_own(s, card);
}

/* Gathers candidates. An SM with its own instructions gives only candidates that use them, because older cards, which
 * are swept, too, have the others. For sets of features it gives a sample of all. */
static void gather(sweep *s, const plan *p, size_t index)
{
    const sweep_class *class = &p->classes.items[index];
    sweep_begin(s);
    for (int card = 0; card < s->card_count; card++) {
        const bool own_only = sweep_has_own(s, card) && (class->own_only || class->sample != SWEEP_EACH_CARD);
        if (is_from(s, p, index, card))
            must(sweep_gather(s, card, &class->problem, own_only), "the candidates");
    }
    sweep_prefer_own(s);
    sweep_prefer_permitted(s);
}

/* Checks that a set of features has a candidate on each card. */
static void check_served(const sweep *s, const plan *p, size_t index, const char *key)
{
    unsigned served = 0;
    for (size_t i = 0; i < s->candidate_count; i++)
        served |= s->candidates[i].cards;
    for (int card = 0; card < s->card_count; card++) {
        const bool ok = !is_from(s, p, index, card) || served >> card & 1;
        if (!ok)
            fprintf(stderr, "%s has no variant on sm_%d\n", key, s->cards[card].device.card.arch);
        CHECK(ok);
    }
}

static void want(sweep *s, const plan *p, size_t index, sweep_wanted wanted)
{
    const sweep_class *class = &p->classes.items[index];
    const bool each = class->sample == SWEEP_EACH_CARD && !p->all;
    const int step = p->all ? 1 : class->step < p->step ? p->step : class->step;
    memset(wanted, 0, sizeof(sweep_wanted));
    if (each)
        sweep_want_each(s, class->problem.op, class->turn, class->problem.dtype == FA2_FP16, wanted);
    else
        sweep_want_some(s, (size_t)step, index, wanted);
    if (class->problem.op == FA2_OP_FORWARD) /* backward has its own sweep */
        sweep_want_axes(s, each, wanted);
}

/* Shapes of a plain class: one half in this turn, the other half in the next. */
static const unsigned half_shapes[2] = {0x555, 0xaaa};

static unsigned one_of(unsigned cards, size_t turn)
{
    for (size_t left = turn % (size_t)pairs_ones(cards); left > 0; left--)
        cards &= cards - 1;
    return cards & (0u - cards);
}

/* Returns the oldest card, whose code is compared with another one's, and one other. */
static unsigned two_of(unsigned cards, size_t turn)
{
    const unsigned oldest = cards & (0u - cards), others = cards & (cards - 1);
    return others == 0 ? oldest : oldest | one_of(others, turn);
}

/* Chooses how to run the ran-th candidate of a class, which is wanted on these cards. */
static sweep_run choose_run(const sweep *s, const plan *p, size_t index, size_t ran, unsigned cards)
{
    const bool each = p->classes.items[index].sample == SWEEP_EACH_CARD;
    sweep_run run = {.cards = cards,
                     .compare = ran % STEP_COMPARE_TARGETS == 0 && (p->all || !each || index % STEP_COMPARE_SETS == 0)};
    if (!p->all && !each)
        run.cards = run.compare ? two_of(cards, index + ran) : one_of(cards, index + ran);
    for (int card = 0; card < s->card_count; card++)
        run.shapes[card] = p->all ? SWEEP_ALL_SHAPES
                           : each ? few_shapes[(index + ran + (size_t)card) % FEWS]
                                  : half_shapes[ran % 2];
    return run;
}

/* Sets how much the compiler optimises: fully, as for kernels that ship, for plain classes and for one set of features
 * in four. With less optimisation a kernel is compiled in a third of the time, and computes the same. */
static void choose_optimisation(const plan *p, size_t index)
{
    enum { FULL_SETS = 4 };
    const bool is_set = p->classes.items[index].sample == SWEEP_EACH_CARD;
    setenv("FA2_TEST_FAST_COMPILE", is_set && !p->all && index % FULL_SETS != 0 ? "mid" : "", 1);
}

static void run_class(sweep *s, const plan *p, size_t index)
{
    static sweep_wanted wanted;
    const sweep_class *class = &p->classes.items[index];
    char key[FA2I_CLASS_CHARS];
    size_t ran = 0;
    fa2i_problem_class(&class->problem, key);
    gather(s, p, index);
    if (class->sample == SWEEP_EACH_CARD)
        check_served(s, p, index, key);
    want(s, p, index, wanted);
    choose_optimisation(p, index);
    for (size_t i = 0; i < s->candidate_count; i++) {
        if (wanted[i] == 0)
            continue;
        const sweep_run run = choose_run(s, p, index, ran, wanted[i]);
        sweep_run_candidate(s, &class->problem, &s->candidates[i], &run);
        ran++;
    }
    printf("%s: %zu of %zu variants\n", key, ran, s->candidate_count);
    fflush(stdout);
}

/* Returns true for sampled plain classes: each every-th, and the first with V in K, which has its own families. */
static bool is_plain_sampled(const plan *p, size_t i)
{
    const sweep_class *classes = p->classes.items;
    return i % p->every == 0 || (classes[i].problem.v_in_k && !classes[i - 1].problem.v_in_k);
}

/* Returns true for all sets of features that some card is asked for. */
static bool is_sampled(const sweep *s, const plan *p, size_t i)
{
    bool is_asked = false;
    if (p->classes.items[i].sample != SWEEP_EACH_CARD)
        return p->plain && is_plain_sampled(p, i);
    for (int card = 0; card < s->card_count; card++)
        is_asked |= is_from(s, p, i, card);
    return p->pairs && is_asked;
}

/* Records tile and axis values that another process runs with plain classes. It asks only for the first few classes,
 * because asking for all takes longer than it saves. */
static void note_plain(sweep *s, const plan *p)
{
    enum { NOTED = 4 };
    size_t noted = 0;
    for (size_t i = 0; i < p->classes.count && noted < NOTED; i++) {
        if (p->classes.items[i].sample != SWEEP_STEP)
            continue;
        gather(s, p, i);
        for (size_t k = 0; k < s->candidate_count; k++)
            axes_note(&s->axes, s->candidates[k].variant.text, true);
        noted++;
    }
}

static void check_card(const sweep *s, const plan *p, const sweep_card *card)
{
    enum { FEW = 8 };
    CHECK(card->variants > 0);
    if (card->compared >= FEW) /* fewer say nothing about the share */
        CHECK(card->differing * 4 <= card->compared);
    if (p->step == 1 || card->device.card.arch == 90) /* a thinner sample may miss a kind */
        CHECK(card->split_variants > 0 && card->variants > card->split_variants);
    if (p->step == 1)
        CHECK(card->team_variants > 0 && card->split_launches > 0);
    CHECK_EQ(s->failures, 0);
}

static bool read_arguments(plan *p, int argc, char **argv, int *ret_part, int *ret_parts)
{
    if (argc < 4)
        return false;
    const bool all = strcmp(argv[3], "all") == 0;
    p->plain = all || strcmp(argv[3], "plain") == 0;
    p->pairs = all || strcmp(argv[3], "pairs") == 0;
    p->all = getenv("FA2_TEST_ALL") != NULL;
    p->step = argc > 5 ? atoi(argv[5]) : 1;
    p->every = argc > 6 ? (size_t)atoi(argv[6]) : 1;
    p->values = argc > 7 ? (size_t)atoi(argv[7]) : 0;
    const bool ok = (p->plain || p->pairs) && p->step >= 1 && p->every >= 1 &&
                    (argc < 5 || sscanf(argv[4], "%d/%d", ret_part, ret_parts) == 2) && *ret_part >= 1 &&
                    *ret_part <= *ret_parts;
    p->every = p->all ? 1 : p->every;
    return ok;
}

int main(int argc, char **argv)
{
    sweep *s = &the_sweep;
    plan *p = &the_plan;
    int part = 1, parts = 1;
    if (!read_arguments(p, argc, argv, &part, &parts)) {
        fprintf(stderr, "usage: test_sweep CARD[,CARD...] DTYPE all|plain|pairs [PART/PARTS [STEP "
                        "[CLASSES [VALUES]]]]\n");
        return 2;
    }
    sweep_open(s, argv[1]);
    must(sweep_classes_find(&p->classes, strcmp(argv[2], "bf16") == 0 ? FA2_BF16 : FA2_FP16, p->all), "the classes");
    if (!p->plain)
        note_plain(s, p);
    for (size_t i = (size_t)part - 1; i < p->classes.count; i += (size_t)parts)
        if (is_sampled(s, p, i))
            run_class(s, p, i);
    for (int i = 0; i < s->card_count; i++)
        check_card(s, p, &s->cards[i]);
    CHECK_EQ(axes_missing(&s->axes), 0);
    printf("%zu tile and axis values were run\n", s->axes.count);
    CHECK(s->axes.count >= p->values);
    sweep_close(s, argv[2]);
    CHECK_EQ(fa2_sim_live(), 0);
    return check_done();
}
