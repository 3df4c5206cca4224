/*
 * Every candidate of the generator, on the software device: numbers, races, initialisation,
 * traffic.
 *
 *     test_sweep CARD[,CARD...] DTYPE [PART/PARTS [STEP [CLASSES]]]
 *
 * For each (D, causal) of the presets with that dtype, candidates of each card for prefill, decode
 * or short prefill: PTX as the runtime compiles it, launched by the runtime on shapes that reach all
 * paths of its tile sizes. Of each family in each class every so manieth candidate is run
 * (sweep_classes.c), one at least, and more until each tile and axis value that candidates have is run; classes
 * with features take theirs from one card, in turn. All candidates of all cards are run where
 * FA2_TEST_ALL is set. PART/PARTS: every PARTS-th class only, to share the work among processes; STEP
 * n: about every nth candidate, where more take too long; CLASSES n: only every nth of the classes, unless
 * FA2_TEST_ALL is set.
 *
 * A variant is compiled once, for the oldest SM among the cards whose candidate it is, and runs on
 * each of them, since most of the time is the compiler's. What that takes for granted is checked on
 * a sample: that the other SMs get the same PTX, but for the line that names the SM. Where the
 * compiler places an instruction elsewhere, that card runs its own; there must be few of those.
 * References are kept per class and shape, as the candidates share them; inputs and outputs are made
 * anew for each launch.
 *
 * Right means, per launch: no error of the device; O and LSE within the bound (tuner/judge/verify.h),
 * nothing outside of them overwritten; no bank conflicts, but where a layout cannot avoid them
 * (forward.c); coalesced fills.
 */
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "tests/check.h"
#include "tests/sim/axes.h"
#include "tests/sim/forward.h"
#include "tests/sim/must.h"
#include "tests/sim/sweep_classes.h"
#include "tests/sim/sweep_shapes.h"

enum { CARDS_MAX = 8, CANDIDATES_MAX = 1024, EXPECTED_MAX = 4096 };
enum { FAILURES_SHOWN = 20, STEP_COMPARE_TARGETS = 6 };

typedef struct sweep_card {
    fa2i_device device;
    long variants, split_variants, team_variants;
    long launches, split_launches, failures;
    long compared, differing; /* PTX made for this SM with that of the oldest */
} sweep_card;

typedef struct candidate {
    fa2i_variant variant;
    unsigned cards; /* a bit for each whose candidate it is */
} candidate;

typedef struct sweep {
    fa2i_generator *generator;
    sweep_card cards[CARDS_MAX];
    int card_count;
    sweep_classes classes;
    candidate candidates[CANDIDATES_MAX]; /* of the present class */
    size_t candidate_count;
    fa2i_expected expected[EXPECTED_MAX]; /* of the present class */
    size_t expected_count;
    axes axes;
    int step;
    bool all;
} sweep;

static sweep the_sweep;

static void must_fit(size_t count, size_t most, const char *what)
{
    if (count < most)
        return;
    fprintf(stderr, "more than %zu %s\n", most, what);
    exit(1);
}

/* ---- candidates ---- */

static void add_candidate(sweep *s, int card, const fa2i_variant *variant)
{
    for (size_t i = 0; i < s->candidate_count; i++)
        if (strcmp(s->candidates[i].variant.text, variant->text) == 0) {
            s->candidates[i].cards |= 1u << card;
            return;
        }
    must_fit(s->candidate_count, CANDIDATES_MAX, "candidates in a class");
    s->candidates[s->candidate_count++] = (candidate){*variant, 1u << card};
}

/* Those of a card for prefill, decode and short prefill; of an SM with instructions that no other has, those
 * that use them: it shares the rest with older ones, which are swept themselves. */
static void gather_from(sweep *s, int card, const sweep_class *class)
{
    static const struct {
        int heads_q, heads_kv, seq_q, seq_k;
    } sizes[] = {{8, 8, 1024, 1024}, {32, 8, 1, 4096}, {16, 2, 24, 8192}, {2, 2, 512, 512}};
    const bool of_own = s->cards[card].device.card.arch == 90;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fa2_problem problem = class->problem;
        fa2i_variant *list = NULL;
        size_t count = 0;
        problem.heads_q = sizes[i].heads_q;
        problem.heads_kv = sizes[i].heads_kv;
        problem.seq_q = sizes[i].seq_q;
        problem.seq_k = sizes[i].seq_k;
        must(fa2i_generator_candidates(s->generator, &problem, &s->cards[card].device.card, &list,
                                       &count),
             "the candidates");
        for (size_t k = 0; k < count; k++)
            if (!of_own || list[k].recipe.suffix[0] != '\0')
                add_candidate(s, card, &list[k]);
        fa2i_free(list);
    }
}

/* ---- references ---- */

static const fa2i_expected *expected_of(sweep *s, const fa2i_case *c)
{
    for (size_t i = 0; i < s->expected_count; i++)
        if (sweep_same_shape(&s->expected[i].c, c))
            return &s->expected[i];
    must_fit(s->expected_count, EXPECTED_MAX, "shapes in a class");
    fa2i_expected *e = &s->expected[s->expected_count++];
    must(fa2i_expected_all(c, 1, e), "the reference");
    return e;
}

static void forget_expected(sweep *s)
{
    while (s->expected_count > 0)
        fa2i_expected_done(&s->expected[--s->expected_count]);
}

/* ---- one candidate ---- */

static void run_shapes(sweep *s, sweep_card *card, const sweep_class *class,
                       const fa2i_loaded *loaded)
{
    char why[FORWARD_WHY_BYTES] = "", problem[FA2I_PROBLEM_CHARS];
    bool shown = check_failures >= FAILURES_SHOWN;
    for (int i = 0; i < SWEEP_SHAPES; i++) {
        const fa2i_case c =
            sweep_shape(&class->problem, &loaded->variant, card->device.card.sm_count, i);
        int32_t splits = 1;
        const bool ok = forward_launch(&card->device, loaded, expected_of(s, &c), why, &splits);
        card->launches++;
        card->split_launches += splits > 1;
        card->failures += !ok;
        check_count++;
        check_failures += !ok;
        fa2i_problem_format(&c.problem, problem, sizeof problem);
        if (!ok && !shown)
            fprintf(stderr, "sm_%d, %s, %s, %d splits: %s\n", card->device.card.arch,
                    loaded->variant.text, problem, (int)splits, why);
        shown = shown || !ok;
    }
}

static void run_on(sweep *s, sweep_card *card, const sweep_class *class, const fa2i_kernel *kernel)
{
    const fa2i_variant *variant = &kernel->variant;
    fa2i_loaded loaded = {0};
    must(fa2i_device_enter(&card->device), "the context");
    must(fa2i_load(&card->device, kernel, &loaded, NULL), variant->text);
    run_shapes(s, card, class, &loaded);
    card->variants++;
    card->split_variants += variant->recipe.waves > 0;
    card->team_variants += variant->recipe.waves > 0 && strstr(variant->text, " teams=1 ") == NULL;
    fa2i_unload(&card->device, &loaded);
    fa2i_device_leave(&card->device);
}

static void compile_for(const fa2i_variant *variant, const char *source, int arch,
                        fa2i_kernel *ret_kernel)
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

/* PTX made for an older SM stands for this one's, unless the compiler gives this one another. */
static void compare_and_run(sweep *s, sweep_card *card, const sweep_class *class,
                            const char *source, const fa2i_kernel *older)
{
    fa2i_kernel own = {0};
    compile_for(&older->variant, source, card->device.card.arch, &own);
    const bool same = same_but_for_target(older->image.data, own.image.data);
    card->compared++;
    card->differing += !same;
    run_on(s, card, class, same ? older : &own);
    fa2i_kernel_done(&own);
}

static int oldest_arch(const sweep *s, const candidate *c)
{
    int oldest = 0;
    for (int i = 0; i < s->card_count; i++) {
        const int arch = s->cards[i].device.card.arch;
        if (c->cards >> i & 1 && (oldest == 0 || arch < oldest))
            oldest = arch;
    }
    return oldest;
}

static void run_candidate(sweep *s, const sweep_class *class, const candidate *c,
                          bool compare_targets)
{
    const int arch = oldest_arch(s, c);
    char *source = NULL;
    fa2i_kernel kernel = {0};
    must(fa2i_generator_source(s->generator, c->variant.text, &source), c->variant.text);
    compile_for(&c->variant, source, arch, &kernel);
    for (int i = 0; i < s->card_count; i++) {
        sweep_card *card = &s->cards[i];
        if (!(c->cards >> i & 1))
            continue;
        if (compare_targets && card->device.card.arch != arch)
            compare_and_run(s, card, class, source, &kernel);
        else
            run_on(s, card, class, &kernel);
    }
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
}

/* ---- all of them ---- */

static bool in_family(const candidate *c, int family)
{
    return (c->variant.recipe.waves > 0) == (family == 1);
}

/* Every step-th of a family, one at least; each class begins elsewhere. */
static void want_of_family(const sweep *s, size_t index, int family, bool wanted[CANDIDATES_MAX])
{
    size_t step = (size_t)s->classes.items[index].step, count = 0, seen = index;
    for (size_t i = 0; i < s->candidate_count; i++)
        count += in_family(&s->candidates[i], family);
    step = step < (size_t)s->step ? (size_t)s->step : step;
    step = s->all ? 1 : step > count ? count : step;
    for (size_t i = 0; i < s->candidate_count; i++)
        if (in_family(&s->candidates[i], family))
            wanted[i] = seen++ % step == 0;
}

static const char *text_of(const void *user, size_t i)
{
    return ((const candidate *)user)[i].variant.text;
}

static void run_class(sweep *s, size_t index)
{
    const sweep_class *class = &s->classes.items[index];
    const bool one_card = class->one_card && !s->all;
    char key[FA2I_CLASS_CHARS];
    bool wanted[CANDIDATES_MAX] = {false};
    size_t ran = 0;
    s->candidate_count = 0;
    for (int card = 0; card < s->card_count; card++)
        if (!one_card || index % (size_t)s->card_count == (size_t)card)
            gather_from(s, card, class);
    for (int family = 0; family < 2; family++)
        want_of_family(s, index, family, wanted);
    if (class->problem.op == FA2_OP_FORWARD) /* backward has a sweep of its own */
        axes_cover(&s->axes, text_of, s->candidates, s->candidate_count, wanted);
    for (size_t i = 0; i < s->candidate_count; i++)
        if (wanted[i])
            run_candidate(s, class, &s->candidates[i], ran++ % STEP_COMPARE_TARGETS == 0);
    forget_expected(s);
    fa2i_problem_class(&class->problem, key);
    printf("%s: %zu of %zu variants\n", key, ran, s->candidate_count);
    fflush(stdout);
}

/* Of a sample of the classes: every so many-th; the first where V lies in K, which families of its own serve; and
 * gradients of chunks, of which the first key that is seen lies within a tile (those before the tile have no memory:
 * forward.h). */
static bool is_sampled(const sweep *s, size_t i, size_t every)
{
    const fa2_problem *p = &s->classes.items[i].problem;
    return i % every == 0 || (p->v_in_k && !s->classes.items[i - 1].problem.v_in_k) ||
           (p->op == FA2_OP_BACKWARD && p->window == FA2_WINDOW_CHUNK);
}

static void open_cards(sweep *s)
{
    int count = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS)
        exit(1); /* the device has said why */
    for (; s->card_count < count; s->card_count++) {
        must_fit((size_t)s->card_count, CARDS_MAX, "cards");
        must(fa2i_device_open(s->card_count + 1, &s->cards[s->card_count].device), "the device");
    }
}

/* Lines that begin with "swept" are added up over the processes by tests/run.sh. */
static void close_card(const sweep *s, sweep_card *card, const char *dtype)
{
    printf(
        "swept sm_%d %s: %ld variants x %d shapes, %ld launches, %ld failed (%ld variants split "
        "the keys, %ld of them among teams; %ld launches with several splits; %ld of %ld compared "
        "had PTX of their own)\n",
        card->device.card.arch, dtype, card->variants, SWEEP_SHAPES, card->launches, card->failures,
        card->split_variants, card->team_variants, card->split_launches, card->differing,
        card->compared);
    CHECK(card->variants > 0);
    CHECK(card->differing * 4 <= card->compared);
    if (s->step == 1 || card->device.card.arch == 90) /* thinner samples may miss a kind */
        CHECK(card->split_variants > 0 && card->variants > card->split_variants);
    if (s->step == 1) {
        CHECK(card->team_variants > 0 && card->split_launches > 0);
    }
    fa2i_device_close(&card->device);
}

int main(int argc, char **argv)
{
    sweep *s = &the_sweep;
    int part = 1, parts = 1;
    s->step = argc > 4 ? atoi(argv[4]) : 1;
    s->all = getenv("FA2_TEST_ALL") != NULL;
    if (argc < 3 || s->step < 1 || (argc > 5 && atoi(argv[5]) < 1) ||
        (argc > 3 && sscanf(argv[3], "%d/%d", &part, &parts) != 2) || part < 1 || part > parts) {
        fprintf(stderr, "usage: test_sweep CARD[,CARD...] DTYPE [PART/PARTS [STEP [CLASSES]]]\n");
        return 2;
    }
    setenv("FA2_SIM_CARD", argv[1], 1);
    must(fa2i_generator_create(&s->generator), "the generator");
    open_cards(s);
    must(
        sweep_classes_find(&s->classes, strcmp(argv[2], "bf16") == 0 ? FA2_BF16 : FA2_FP16, s->all),
        "the classes");
    const size_t every = s->all || argc < 6 ? 1 : (size_t)atoi(argv[5]);
    for (size_t i = (size_t)part - 1; i < s->classes.count; i += (size_t)parts)
        if (is_sampled(s, i, every))
            run_class(s, i);
    for (int i = 0; i < s->card_count; i++)
        close_card(s, &s->cards[i], argv[2]);
    CHECK_EQ(axes_missing(&s->axes), 0);
    CHECK_EQ(fa2_sim_live(), 0);
    fa2i_generator_destroy(s->generator);
    return check_done();
}
