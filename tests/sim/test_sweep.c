/*
 * Every candidate of the generator, on the software device: numbers, races, initialisation,
 * traffic.
 *
 *     test_sweep CARD DTYPE [STEP]
 *
 * For each (D, causal) of the presets with that dtype (and a few beyond them), each candidate for
 * prefill, decode or short prefill: PTX as the runtime compiles it, launched by the runtime on
 * shapes that reach all paths of its tile sizes. STEP n: every nth candidate only, where all take
 * too long, but all of the class D = 64, causal, and always some of each family; the default is
 * all, as it is where FA2_SIM_ALL is set. References are kept per class and shape, as the
 * candidates share them; inputs and outputs are made anew for each launch.
 *
 * Right means, per launch: no error of the device; O and LSE within the bound (tuner/verify.h),
 * nothing outside of them overwritten; no bank conflicts in a layout that claims none; coalesced
 * fills.
 */
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"
#include "runtime/compile.h"
#include "runtime/generator.h"
#include "runtime/launch.h"
#include "tests/check.h"
#include "tests/sim/forward.h"
#include "tuner/shapes.h"

enum { SHAPES = 12, CLASSES_MAX = 64, CANDIDATES_MAX = 512, EXPECTED_MAX = 4096 };
enum { FAILURES_SHOWN = 20, STEP_WHOLE_CLASS = 4 }; /* one class is run whole up to this step */

typedef struct sweep {
    fa2i_generator *generator;
    fa2i_device device;
    fa2_problem classes[CLASSES_MAX];
    size_t class_count;
    fa2i_expected *expected; /* of the present class */
    size_t expected_count;
    int step;
    long variants, split_variants, team_variants;
    long launches, split_launches;
} sweep;

static void must(fa2_status status, const char *what)
{
    if (status == FA2_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, fa2_last_message());
    exit(1);
}

/* ---- classes ---- */

static void add_class(sweep *s, fa2_dtype dtype, int head_dim, int causal)
{
    for (size_t i = 0; i < s->class_count; i++)
        if (s->classes[i].head_dim == head_dim && s->classes[i].causal == causal)
            return;
    s->classes[s->class_count++] = (fa2_problem){.op = FA2_OP_FORWARD,
                                                 .dtype = dtype,
                                                 .batch = 1,
                                                 .heads_q = 8,
                                                 .heads_kv = 8,
                                                 .seq_q = 1024,
                                                 .seq_k = 1024,
                                                 .head_dim = head_dim,
                                                 .causal = causal};
}

static void find_classes(sweep *s, fa2_dtype dtype)
{
    static const char *const presets[] = {"seeds", "paper", "quick"};
    fa2i_shapes shapes = {0};
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        must(fa2i_shapes_add_preset(&shapes, presets[i]), "the presets");
    for (size_t i = 0; i < shapes.count; i++)
        if (shapes.items[i].dtype == dtype)
            add_class(s, dtype, shapes.items[i].head_dim, shapes.items[i].causal);
    fa2i_shapes_done(&shapes);
    add_class(s, dtype, 64, 1);
    add_class(s, dtype, 128, 0);
    add_class(s, dtype, 40, 1); /* not a multiple of 16: padding in D */
}

/* ---- shapes ---- */

static fa2i_case case_of(const fa2_problem *class, int index)
{
    fa2i_case c = {.problem = *class,
                   .layout = (fa2i_layout)(index % 3),
                   .want_lse = index % 4 != 3,
                   .q_magnitude = index % 5 == 4 ? 8.0f : 1.0f,
                   .seed = 1 + (uint64_t)index};
    return c;
}

/* Around one, two and three tiles; fewer and more queries than keys; several heads per key head. */
static fa2i_case shape_of(const fa2_problem *class, const fa2i_variant *variant, int bc, int index)
{
    const int br = variant->block_rows;
    const int lengths[SHAPES][2] = {{1, 1},
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

/* Those for families that split: one split and several, fewer tiles than teams, packed query heads,
 * a last block with fewer tiles; with `crowd` key heads there are fewer splits than tiles. */
static fa2i_case split_shape_of(const fa2_problem *class, const fa2i_variant *variant, int bc,
                                int crowd, int index)
{
    const int br = variant->block_rows, step = variant->key_step;
    const struct {
        int batch, heads_q, heads_kv, seq_q, seq_k;
    } sizes[SHAPES] = {{2, 1, 1, 1, 1},
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

static bool same_case(const fa2i_case *a, const fa2i_case *b)
{
    return a->problem.seq_q == b->problem.seq_q && a->problem.seq_k == b->problem.seq_k &&
           a->problem.heads_q == b->problem.heads_q && a->problem.heads_kv == b->problem.heads_kv &&
           a->problem.batch == b->problem.batch && a->layout == b->layout &&
           a->want_lse == b->want_lse && a->seed == b->seed;
}

static const fa2i_expected *expected_of(sweep *s, const fa2i_case *c)
{
    for (size_t i = 0; i < s->expected_count; i++)
        if (same_case(&s->expected[i].c, c))
            return &s->expected[i];
    if (s->expected_count == EXPECTED_MAX) {
        fprintf(stderr, "more than %d shapes in a class\n", EXPECTED_MAX);
        exit(1);
    }
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

static int bc_of(const fa2i_variant *variant)
{
    const char *at = strstr(variant->text, " bc=");
    return at == NULL ? 64 : atoi(at + 4);
}

static fa2i_case case_for(const sweep *s, const fa2_problem *class, const fa2i_variant *v,
                          int index)
{
    return v->waves == 0
               ? shape_of(class, v, bc_of(v), index)
               : split_shape_of(class, v, bc_of(v), s->device.card.sm_count / 3 + 1, index);
}

static void run_shapes(sweep *s, const fa2_problem *class, const fa2i_loaded *loaded)
{
    char why[FORWARD_WHY_BYTES] = "";
    for (int i = 0; i < SHAPES; i++) {
        const fa2i_case c = case_for(s, class, &loaded->variant, i);
        const fa2_problem *p = &c.problem;
        int32_t splits = 1;
        const bool ok = forward_launch(&s->device, loaded, expected_of(s, &c), why, &splits);
        s->launches++;
        s->split_launches += splits > 1;
        check_count++;
        check_failures += !ok;
        if (!ok && check_failures <= FAILURES_SHOWN)
            fprintf(stderr, "%s, B=%d Hq=%d Hkv=%d Sq=%d Sk=%d, %d splits: %s\n",
                    loaded->variant.text, (int)p->batch, (int)p->heads_q, (int)p->heads_kv,
                    (int)p->seq_q, (int)p->seq_k, (int)splits, why);
    }
}

static void run_candidate(sweep *s, const fa2_problem *class, const fa2i_variant *variant)
{
    fa2i_target target;
    char *source = NULL;
    fa2i_kernel kernel = {0};
    fa2i_loaded loaded = {0};
    must(fa2i_generator_source(s->generator, variant->text, &source), variant->text);
    must(fa2i_target_for(s->device.card.arch, true, &target), "the target");
    must(fa2i_compile(variant, source, &target, "sweep", &kernel), variant->text);
    must(fa2i_load(&s->device, &kernel, &loaded, NULL), variant->text);
    run_shapes(s, class, &loaded);
    s->variants++;
    s->split_variants += variant->waves > 0;
    s->team_variants += variant->waves > 0 && strstr(variant->text, " teams=1 ") == NULL;
    fa2i_unload(&s->device, &loaded);
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
}

/* The candidates of a class for prefill, decode and short prefill, each once. */
static size_t gather(sweep *s, const fa2_problem *class, fa2i_variant *out)
{
    static const struct {
        int heads_q, heads_kv, seq_q, seq_k;
    } sizes[] = {{8, 8, 1024, 1024}, {32, 8, 1, 4096}, {8, 2, 8, 8192}, {2, 2, 512, 512}};
    size_t gathered = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fa2_problem problem = *class;
        fa2i_variant *list = NULL;
        size_t count = 0;
        problem.heads_q = sizes[i].heads_q;
        problem.heads_kv = sizes[i].heads_kv;
        problem.seq_q = sizes[i].seq_q;
        problem.seq_k = sizes[i].seq_k;
        must(fa2i_generator_candidates(s->generator, &problem, &s->device.card, &list, &count),
             "the candidates");
        for (size_t l = 0; l < count; l++) {
            bool known = false;
            for (size_t k = 0; k < gathered; k++)
                known = known || strcmp(out[k].text, list[l].text) == 0;
            if (!known && gathered == CANDIDATES_MAX) {
                fprintf(stderr, "more than %d candidates in a class\n", CANDIDATES_MAX);
                exit(1);
            }
            if (!known)
                out[gathered++] = list[l];
        }
        fa2i_free(list);
    }
    return gathered;
}

static bool runs_whole(const sweep *s, const fa2_problem *class)
{
    return s->step == 1 ||
           (s->step <= STEP_WHOLE_CLASS && class->head_dim == 64 && class->causal == 1);
}

/* Each family is stepped through on its own, and each class begins elsewhere. */
static void run_class(sweep *s, size_t index)
{
    static fa2i_variant list[CANDIDATES_MAX];
    const fa2_problem *class = &s->classes[index];
    const long variants = s->variants, split = s->split_variants, launches = s->launches;
    const size_t count = gather(s, class, list);
    size_t seen[2] = {index, index};
    for (size_t i = 0; i < count; i++) {
        const size_t turn = seen[list[i].waves > 0]++;
        if (runs_whole(s, class) || turn % (size_t)s->step == 0)
            run_candidate(s, class, &list[i]);
    }
    forget_expected(s);
    printf("sm_%d D=%d causal=%d: %ld of %zu variants (%ld split), %ld launches\n",
           s->device.card.arch, (int)class->head_dim, (int)class->causal, s->variants - variants,
           count, s->split_variants - split, s->launches - launches);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    sweep s = {.step = argc > 3 ? atoi(argv[3]) : 1};
    if (argc < 3 || s.step < 1) {
        fprintf(stderr, "usage: test_sweep CARD DTYPE [STEP]\n");
        return 2;
    }
    if (getenv("FA2_SIM_ALL") != NULL)
        s.step = 1;
    setenv("FA2_SIM_CARD", argv[1], 1);
    s.expected = fa2i_alloc_array(EXPECTED_MAX, sizeof *s.expected);
    if (s.expected == NULL)
        return 1;
    must(fa2i_generator_create(&s.generator), "the generator");
    must(fa2i_device_open(1, &s.device), "the device");
    must(fa2i_device_enter(&s.device), "the context");
    find_classes(&s, strcmp(argv[2], "bf16") == 0 ? FA2_BF16 : FA2_FP16);
    for (size_t i = 0; i < s.class_count; i++)
        run_class(&s, i);
    printf("sm_%d (%s) %s: %ld variants (%ld split, %ld of them with teams) on %d shapes each, "
           "%ld launches (%ld with several splits), %d failed\n",
           s.device.card.arch, argv[1], argv[2], s.variants, s.split_variants, s.team_variants,
           SHAPES, s.launches, s.split_launches, check_failures);
    fa2i_device_leave(&s.device);
    fa2i_device_close(&s.device);
    CHECK_EQ(fa2_sim_live(), 0);
    fa2i_generator_destroy(s.generator);
    fa2i_free(s.expected);
    return check_done();
}
