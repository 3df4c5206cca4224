#include "tests/sim/sweep.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"
#include "tests/sim/forward.h"
#include "tests/sim/must.h"

enum { FAILURES_SHOWN = 20 };

static void must_fit(size_t count, size_t most, const char *what)
{
    if (count < most)
        return;
    fprintf(stderr, "more than %zu %s\n", most, what);
    exit(1);
}

/* ---- candidates ---- */

bool sweep_has_own(const sweep *s, int card)
{
    return s->cards[card].device.card.arch == 90;
}

bool sweep_is_own(const sweep_candidate *c)
{
    return c->variant.recipe.suffix[0] != '\0';
}

static void add_candidate(sweep *s, int card, const fa2i_variant *variant)
{
    for (size_t i = 0; i < s->candidate_count; i++)
        if (strcmp(s->candidates[i].variant.text, variant->text) == 0) {
            s->candidates[i].cards |= 1u << card;
            return;
        }
    must_fit(s->candidate_count, SWEEP_CANDIDATES_MAX, "candidates in a class");
    s->candidates[s->candidate_count++] = (sweep_candidate){*variant, 1u << card};
}

fa2_status sweep_gather(sweep *s, int card, const fa2_problem *class, bool own_only)
{
    static const struct {
        int heads_q, heads_kv, seq_q, seq_k;
    } sizes[] = {{8, 8, 1024, 1024}, {32, 8, 1, 4096}, {16, 2, 24, 8192}, {2, 2, 512, 512}};
    fa2_status st = FA2_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && st == FA2_OK; i++) {
        fa2_problem problem = *class;
        fa2i_variant *list = NULL;
        size_t count = 0;
        problem.heads_q = sizes[i].heads_q;
        problem.heads_kv = sizes[i].heads_kv;
        problem.seq_q = sizes[i].seq_q;
        problem.seq_k = sizes[i].seq_k;
        st = fa2i_generator_candidates(s->generator, &problem, &s->cards[card].device.card, &list, &count);
        for (size_t k = 0; k < count; k++)
            if (!own_only || list[k].recipe.suffix[0] != '\0')
                add_candidate(s, card, &list[k]);
        fa2i_free(list);
    }
    return st;
}

/* ---- references ---- */

static const fa2i_expected *expected_of(sweep *s, const fa2i_case *c)
{
    for (size_t i = 0; i < s->expected_count; i++)
        if (sweep_same_shape(&s->expected[i].c, c))
            return &s->expected[i];
    must_fit(s->expected_count, SWEEP_EXPECTED_MAX, "shapes in a class");
    fa2i_expected *e = &s->expected[s->expected_count++];
    must(fa2i_expected_all(c, 1, e), "the reference");
    return e;
}

static void forget_expected(sweep *s)
{
    while (s->expected_count > 0)
        fa2i_expected_done(&s->expected[--s->expected_count]);
}

void sweep_begin(sweep *s)
{
    s->candidate_count = 0;
    forget_expected(s);
}

/* ---- one candidate ---- */

static void run_shapes(sweep *s, sweep_card *card, const fa2_problem *class, const fa2i_loaded *loaded, unsigned shapes)
{
    char why[FORWARD_WHY_BYTES] = "";
    bool shown = s->failures >= FAILURES_SHOWN;
    for (int i = 0; i < SWEEP_SHAPES; i++) {
        if (!(shapes >> i & 1))
            continue;
        const fa2i_case c = sweep_shape(class, &loaded->variant, card->device.card.sm_count, i);
        int32_t splits = 1;
        const bool ok = forward_launch(&card->device, loaded, expected_of(s, &c), why, &splits);
        card->launches++;
        card->split_launches += splits > 1;
        card->failures += !ok;
        s->failures += !ok;
        if (!ok && !shown)
            fprintf(stderr, "sm_%d, %s, %s, %d splits: %s\n", card->device.card.arch, loaded->variant.text,
                    fa2i_problem_shape(&c.problem).text, (int)splits, why);
        shown = shown || !ok;
    }
}

static void run_on(sweep *s, int index, const fa2_problem *class, const fa2i_kernel *kernel, unsigned shapes)
{
    const fa2i_variant *variant = &kernel->variant;
    sweep_card *card = &s->cards[index];
    fa2i_loaded loaded = {0};
    must(fa2i_device_enter(&card->device), "the context");
    must(fa2i_load(&card->device, kernel, &loaded, NULL), variant->text);
    run_shapes(s, card, class, &loaded, shapes);
    card->variants++;
    card->split_variants += variant->recipe.waves > 0;
    card->team_variants += variant->recipe.waves > 0 && strstr(variant->text, " teams=1 ") == NULL;
    fa2i_unload(&card->device, &loaded);
    fa2i_device_leave(&card->device);
}

static void compile_for(const fa2i_variant *variant, const char *source, int arch, fa2i_kernel *ret_kernel)
{
    fa2i_target target;
    must(fa2i_target_for(arch, true, &target), "the target");
    must(fa2i_compile(variant, source, &target, "sweep", ret_kernel), variant->text);
}

static bool same_but_for_target(const char *a, const char *b)
{
    const char *target_a = strstr(a, "\n.target "), *target_b = strstr(b, "\n.target ");
    if (target_a == NULL || target_b == NULL || target_a - a != target_b - b)
        return false;
    return memcmp(a, b, (size_t)(target_a - a)) == 0 &&
           strcmp(strchr(target_a + 1, '\n'), strchr(target_b + 1, '\n')) == 0;
}

/* Uses the PTX of an older SM if the compiler makes the same for this one. Otherwise runs this SM's own PTX. */
static void compare_and_run(sweep *s, int index, const fa2_problem *class, const char *source, const fa2i_kernel *older,
                            unsigned shapes)
{
    sweep_card *card = &s->cards[index];
    fa2i_kernel own = {0};
    compile_for(&older->variant, source, card->device.card.arch, &own);
    const bool same = same_but_for_target(older->image.data, own.image.data);
    card->compared++;
    card->differing += !same;
    run_on(s, index, class, same ? older : &own, shapes);
    fa2i_kernel_done(&own);
}

static int oldest_arch(const sweep *s, unsigned cards)
{
    int oldest = 0;
    for (int i = 0; i < s->card_count; i++) {
        const int arch = s->cards[i].device.card.arch;
        if (cards >> i & 1 && (oldest == 0 || arch < oldest))
            oldest = arch;
    }
    return oldest;
}

void sweep_run_candidate(sweep *s, const fa2_problem *class, const sweep_candidate *c, const sweep_run *run)
{
    const unsigned cards = c->cards & run->cards;
    const int arch = oldest_arch(s, cards);
    char *source = NULL;
    fa2i_kernel kernel = {0};
    must(fa2i_generator_source(s->generator, c->variant.text, &source), c->variant.text);
    compile_for(&c->variant, source, arch, &kernel);
    for (int i = 0; i < s->card_count; i++) {
        if (!(cards >> i & 1))
            continue;
        if (run->compare && s->cards[i].device.card.arch != arch)
            compare_and_run(s, i, class, source, &kernel, run->shapes[i]);
        else
            run_on(s, i, class, &kernel, run->shapes[i]);
    }
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
}

/* ---- all of them ---- */

void sweep_open(sweep *s, const char *cards)
{
    int count = 0;
    setenv("FA2_SIM_CARD", cards, 1);
    must(fa2i_generator_create(&s->generator), "the generator");
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS)
        exit(1); /* the device has printed why */
    for (; s->card_count < count; s->card_count++) {
        must_fit((size_t)s->card_count, SWEEP_CARDS_MAX, "cards");
        must(fa2i_device_open(s->card_count + 1, &s->cards[s->card_count].device), "the device");
    }
}

void sweep_close(sweep *s, const char *dtype)
{
    forget_expected(s);
    for (int i = 0; i < s->card_count; i++) {
        sweep_card *card = &s->cards[i];
        printf("swept sm_%d %s: %ld variants, %ld launches, %ld failed (%ld variants split the "
               "keys, %ld of them among teams; %ld launches with several splits; %ld of %ld "
               "compared had PTX of their own)\n",
               card->device.card.arch, dtype, card->variants, card->launches, card->failures, card->split_variants,
               card->team_variants, card->split_launches, card->differing, card->compared);
        fa2i_device_close(&card->device);
    }
    fa2i_generator_destroy(s->generator);
}
