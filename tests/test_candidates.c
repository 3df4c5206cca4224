/*
 * Compiles candidates of the presets to machine code for every SM. It compares registers and spills with candidates.csv
 * in the working folder. NVRTC needs no GPU. Variants may spill, because the tuner drops them. But each class of
 * problems must have a variant that does not on SMs 7.5, 8.0 and 9.0, and on one of 8.6, 8.7 and 8.9, whose register
 * files and shared memory are alike: the classes take turns. Each SM must have its share of the classes.
 *
 * Compiling all takes a quarter of an hour of processor time. The software device checks that the code is right
 * (sim/test_sweep.c); this test is about machine code. So it takes for each problem on its SMs the model's first
 * choice, which runs untuned, every SAMPLE-th of forward's other candidates, and every SAMPLE_SPECIFIC-th of families
 * for one SM alone (sm_90a). With FA2_TEST_ALL it takes all on all SMs. For backward it uses preset quick, which has
 * the head dimensions of most models. The model's next choice is compiled only if those before it spill.
 *
 * Classes are (op, head_dim, dtype, causal). Problems of one class share most candidates, so each variant is compiled
 * once per SM.
 */
#include <stdlib.h>
#include "generator_fixture.h"
#include "runtime/base/alloc.h"
#include "tuner/search/compile_all.h"
#include "tuner/input/shapes.h"

static const int archs[] = {75, 80, 86, 87, 89, 90};
enum { ARCH_COUNT = sizeof archs / sizeof archs[0], MAX_JOBS = 8192, SAMPLE = 128, SAMPLE_SPECIFIC = 3 };
enum { FIRST_ALIKE = 2, ALIKE = 3 }; /* sm_86, 87, 89 */

/* Backward kernels spill more easily, and not always where the model expects it. */
enum { ROUNDS = 4 };

typedef struct candidate {
    int arch;
    fa2_problem problem; /* the first one with this candidate */
    size_t rank;         /* its best rank by the model for any problem */
    bool clean;          /* compiled, without spills */
} candidate;

typedef struct sweep {
    fa2i_generator *generator;
    fa2i_compile_job jobs[MAX_JOBS];
    candidate candidates[MAX_JOBS];
    size_t count, spilled;
    size_t specific, specific_spilled; /* numbers of compiled ones */
    size_t round[MAX_JOBS];            /* jobs that are being compiled */
    FILE *record;
} sweep;

static sweep all;

static bool same_class(const fa2_problem *a, const fa2_problem *b)
{
    return a->op == b->op && a->head_dim == b->head_dim && a->dtype == b->dtype && a->causal == b->causal;
}

static bool takes_all(void)
{
    return getenv("FA2_TEST_ALL") != NULL;
}

/* Is it the first problem of its class? */
static bool is_first(const fa2i_shapes *shapes, size_t problem)
{
    for (size_t i = 0; i < problem; i++)
        if (same_class(&shapes->items[i], &shapes->items[problem]))
            return false;
    return true;
}

/* Returns the number of the problem's class, in the order of the problems. */
static size_t class_number(const fa2i_shapes *shapes, size_t problem)
{
    size_t number = 0;
    for (size_t i = 0; !same_class(&shapes->items[i], &shapes->items[problem]); i++)
        number += is_first(shapes, i);
    return number;
}

/* Is the problem's class looked at on this SM? */
static bool is_asked(const fa2i_shapes *shapes, size_t problem, int arch)
{
    const bool is_alike = arch >= FIRST_ALIKE && arch < FIRST_ALIKE + ALIKE;
    return takes_all() || !is_alike || class_number(shapes, problem) % ALIKE == (size_t)(arch - FIRST_ALIKE);
}

static candidate *find_candidate(int arch, const char *text)
{
    for (size_t i = 0; i < all.count; i++)
        if (all.candidates[i].arch == arch && strcmp(all.jobs[i].variant.text, text) == 0)
            return &all.candidates[i];
    return NULL;
}

/* is_asked: the problem's class is looked at on this SM; else its candidates count for the sample alone. */
static void add_candidates(int arch, const fa2_problem *problem, bool is_asked)
{
    fa2i_card card = {0};
    fa2i_variant *variants = NULL;
    size_t count = 0;
    CHECK_EQ(fa2i_generator_card(all.generator, arch, &card), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(all.generator, problem, &card, &variants, &count), FA2_OK);
    for (size_t i = 0; i < count && all.count < MAX_JOBS; i++) {
        candidate *known = find_candidate(arch, variants[i].text);
        if (known == NULL) {
            known = &all.candidates[all.count];
            *known = (candidate){.arch = arch, .problem = *problem, .rank = SIZE_MAX};
            all.jobs[all.count++].variant = variants[i];
        }
        known->rank = is_asked && i < known->rank ? i : known->rank;
    }
    CHECK(all.count < MAX_JOBS);
    fa2i_free(variants);
}

/* Returns true if the variant uses instructions of one SM alone. */
static bool is_specific(const fa2i_variant *variant)
{
    return variant->recipe.suffix[0] != '\0';
}

/* Keeps only the sample. */
static void take_sample(void)
{
    size_t kept = 0, specific = 0;
    for (size_t i = 0; i < all.count; i++) {
        candidate c = all.candidates[i];
        if (is_specific(&all.jobs[i].variant) ? specific++ % SAMPLE_SPECIFIC == 0
                                              : c.problem.op == FA2_OP_FORWARD && i % SAMPLE == 0)
            c.rank = 0;
        if (c.rank >= ROUNDS)
            continue;
        all.candidates[kept] = c;
        all.jobs[kept++] = all.jobs[i];
    }
    all.count = kept;
}

static void find_jobs(const fa2i_shapes *shapes)
{
    for (int a = 0; a < ARCH_COUNT; a++)
        for (size_t p = 0; p < shapes->count; p++)
            add_candidates(archs[a], &shapes->items[p], is_asked(shapes, p, a));
    const size_t found = all.count;
    if (!takes_all())
        take_sample();
    for (size_t i = 0; i < all.count && takes_all(); i++)
        all.candidates[i].rank = 0;
    printf("at most %zu of %zu candidates on %d SMs\n", all.count, found, ARCH_COUNT);
    fflush(stdout);
    for (size_t i = 0; i < all.count; i++) {
        fa2i_compile_job *job = &all.jobs[i];
        CHECK_EQ(fa2i_target_for(all.candidates[i].arch, false, &job->target), FA2_OK);
        CHECK_EQ(fa2i_generator_source(all.generator, job->variant.text, &job->source), FA2_OK);
    }
}

static fa2_status compiled(void *user, size_t index, const fa2i_kernel *kernel, bool found)
{
    (void)found;
    (void)user;
    candidate *c = &all.candidates[all.round[index]];
    c->clean = kernel->outcome == FA2I_OUTCOME_OK;
    all.spilled += kernel->outcome == FA2I_OUTCOME_SPILLED;
    if (is_specific(&kernel->variant)) {
        all.specific++;
        all.specific_spilled += kernel->outcome == FA2I_OUTCOME_SPILLED;
        CHECK(kernel->outcome != FA2I_OUTCOME_OK || kernel->spill_bytes == 0);
    }
    fprintf(all.record, "%s,%s,%s,%d,%d,%d,%.0f\n", kernel->target, kernel->variant.text,
            fa2i_outcome_string(kernel->outcome), kernel->registers, kernel->spill_bytes,
            fa2i_recipe_main(&kernel->variant.recipe)->smem_bytes, kernel->compile_ms);
    CHECK(kernel->outcome != FA2I_OUTCOME_COMPILE_ERROR);
    if (kernel->outcome == FA2I_OUTCOME_COMPILE_ERROR)
        fprintf(stderr, "%s %s: %s\n", kernel->target, kernel->variant.text, kernel->log);
    return FA2_OK;
}

/* Returns true if some kernel of this class does not spill on this SM. */
static bool has_clean(int arch, const fa2_problem *problem)
{
    for (size_t i = 0; i < all.count; i++)
        if (all.candidates[i].arch == arch && same_class(&all.candidates[i].problem, problem) &&
            all.candidates[i].clean)
            return true;
    return false;
}

/* Compiles the candidates of this rank, except for classes that already have a kernel without spills. */
static void compile_round(size_t rank)
{
    static fa2i_compile_job jobs[MAX_JOBS];
    size_t count = 0;
    for (size_t i = 0; i < all.count; i++) {
        const candidate *c = &all.candidates[i];
        if (c->rank != rank || (rank > 0 && has_clean(c->arch, &c->problem)))
            continue;
        all.round[count] = i;
        jobs[count++] = all.jobs[i];
    }
    printf("%zu of rank %zu\n", count, rank);
    fflush(stdout);
    CHECK_EQ(fa2i_compile_all(jobs, count, NULL, 0, fa2i_generator_id(all.generator), NULL, compiled, NULL), FA2_OK);
}

/* Checks that the classes looked at on an SM have a kernel that does not spill, and that they are at least a quarter of
 * all classes. */
static void check_classes(const fa2i_shapes *shapes, int arch)
{
    size_t asked = 0, classes = 0;
    for (size_t p = 0; p < shapes->count; p++) {
        const bool is_here = is_asked(shapes, p, arch);
        classes += is_first(shapes, p);
        asked += is_first(shapes, p) && is_here;
        CHECK(!is_here || has_clean(archs[arch], &shapes->items[p]));
    }
    CHECK(4 * asked >= classes);
}

int main(void)
{
    fa2i_shapes shapes = {0};
    fa2i_target target;

    if (fa2i_target_for(90, false, &target) != FA2_OK) {
        fprintf(stderr, "skipped: %s\n", fa2_last_message());
        return CHECK_SKIP;
    }
    all.generator = open_generator();
    all.record = fopen("candidates.csv", "w");
    if (all.record == NULL) {
        perror("candidates.csv");
        return 1;
    }
    fputs("target,variant,outcome,registers,spill_bytes,smem_bytes,compile_ms\n", all.record);
    shapes.ops = 1u << FA2_OP_FORWARD;
    CHECK_EQ(fa2i_shapes_add_preset(&shapes, "seeds"), FA2_OK);
    CHECK_EQ(fa2i_shapes_add_preset(&shapes, "paper"), FA2_OK);
    shapes.ops = 0;
    CHECK_EQ(fa2i_shapes_add_preset(&shapes, "quick"), FA2_OK);

    find_jobs(&shapes);
    for (size_t rank = 0; rank < ROUNDS; rank++)
        compile_round(rank);
    for (int a = 0; a < ARCH_COUNT; a++)
        check_classes(&shapes, a);

    printf("%zu of them spill; for one SM's instructions %zu of %zu\n", all.spilled, all.specific_spilled,
           all.specific);
    CHECK(all.specific > 0 && all.specific_spilled * 10 < all.specific); /* the model avoids spills */
    for (size_t i = 0; i < all.count; i++)
        fa2i_free(all.jobs[i].source);
    fclose(all.record);
    fa2i_shapes_done(&shapes);
    fa2i_generator_destroy(all.generator);
    return check_done();
}
