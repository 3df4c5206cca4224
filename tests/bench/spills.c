/*
 * Do winners spill? For the problems of all presets, each with one feature more, on the card that stands for an SM: the
 * cost model's candidates are compiled in its order until one does not spill. That one is what an untuned call takes
 * and what the tuner begins with; neither it nor `fa2-tune build` lets one win that spills if another does not. No GPU.
 *
 * - A problem fails of which the first FA2I_COMPILE_MOST all spill: an untuned call would be given one that does.
 *   A stack frame is as bad, and so is wgmma that ptxas puts in a row (an outcome `spilled` of 0 bytes).
 * - Told are also problems whose first choice spills: it is compiled for nothing. And how many winners have steps
 *   beside the main one that spill (of a few bytes: compile.c says why they do not count).
 * - A variant is compiled once, whatever problems ask for it. With EVERY, each so many-th class of problems; with
 *   EVERY+FIRST, from that one on.
 *
 * Usage: spills ARCH [EVERY[+FIRST] [FEATURE ...]], as in `spills sm_86 7+3 alibi=1 bias=bool`; "" is no feature. Exit
 * status 1: a problem fails. An hour of a processor for an SM; with FA2_NVRTC_LIBRARY=build/tests/libkept_nvrtc.so and
 * FA2_KEPT_CODE naming a folder, what was compiled once is not compiled again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "runtime/plan/choose.h"
#include "tuner/input/shapes.h"

static const char *const presets[] = {"seeds", "paper", "quick", "llm", "vision", "diffusion"};

static const char *const features[] = {
    "",
    "softcap=1",
    "window=1,Wl=256,Wr=0",
    "window=2,Wl=64,Wr=-1",
    "window=3,Wl=512,Wr=-1",
    "alibi=1",
    "sinks=1",
    "bias=fp16",
    "bias=bf16",
    "bias=fp32",
    "bias=bool",
    "bias=fp16_gradient",
    "bias=fp32_gradient",
    "dropout=1",
    "seqused=1",
    "varlen=1",
    "paged=1,page=16",
    "leftpad=1",
    "cache_rows=1",
    "append=1",
    "append=1,rotary=halves",
    "append=1,rotary=interleaved",
    "deterministic=1",
    "D=192,Dv=128",
    "D=576,Dv=512",
    "D=576,Dv=512,v_in_k=1",
};

enum { FEATURES = sizeof features / sizeof features[0] };

/* What a variant came to. */
typedef struct outcome {
    char text[FA2I_VARIANT_CHARS];
    bool clean;
    int spill_bytes; /* of the main step */
    int beside;      /* bytes that the other steps spill */
    bool told;       /* as the winner of a problem */
} outcome;

typedef struct check {
    fa2i_generator *generator;
    fa2i_card card;
    fa2i_target target;
    size_t every, from;
    outcome *known;
    size_t count, capacity;
    size_t problems, late, failed; /* late: whose first choice spills */
    size_t beside;                 /* winners with other steps that spill */
} check;

static void must(fa2_status st, const char *what)
{
    if (st == FA2_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, fa2_last_message());
    exit(2);
}

/* ---- compiling ---- */

/* Bytes that all functions of a program spill. */
static int bytes_of_log(const char *log)
{
    static const char words[] = "bytes stack frame, ";
    int sum = 0, stores = 0, loads = 0;
    for (const char *at = log; at != NULL && (at = strstr(at, words)) != NULL;) {
        at += sizeof words - 1;
        if (sscanf(at, "%d bytes spill stores, %d bytes spill loads", &stores, &loads) == 2)
            sum += stores + loads;
    }
    return sum;
}

static void compile(const check *c, const fa2i_variant *variant, outcome *ret_outcome)
{
    char *source = NULL;
    fa2i_kernel kernel = {0};
    must(fa2i_generator_source(c->generator, variant->text, &source), variant->text);
    must(fa2i_compile(variant, source, &c->target, fa2i_generator_id(c->generator), &kernel), variant->text);
    *ret_outcome = (outcome){.clean = kernel.outcome == FA2I_OUTCOME_OK,
                             .spill_bytes = kernel.spill_bytes,
                             .beside = bytes_of_log(kernel.log) - kernel.spill_bytes};
    snprintf(ret_outcome->text, sizeof ret_outcome->text, "%s", variant->text);
    if (kernel.outcome == FA2I_OUTCOME_COMPILE_ERROR)
        must(fa2i_fail(FA2_E_COMPILE, "%s", kernel.log == NULL ? "no log" : kernel.log), variant->text);
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
}

static outcome *outcome_of(check *c, const fa2i_variant *variant)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->known[i].text, variant->text) == 0)
            return &c->known[i];
    if (c->count == c->capacity) {
        c->capacity = 2 * c->capacity + 64;
        c->known = fa2i_realloc(c->known, c->capacity * sizeof *c->known);
        must(c->known == NULL ? fa2i_fail(FA2_E_MEMORY, "no memory") : FA2_OK, "outcomes");
    }
    compile(c, variant, &c->known[c->count]);
    return &c->known[c->count++];
}

/* ---- problems ---- */

/* The problem with what a feature's text says in the place of its own. */
static bool add_feature(const fa2_problem *base, const char *feature, fa2_problem *ret_problem)
{
    fa2i_problem_text fields = {0};
    if (feature[0] != '\0')
        must(fa2i_shape_fields(feature, &fields), feature);
    *ret_problem = *base;
    for (int i = 0; i < FA2I_FIELD_COUNT; i++)
        if (fields.given[i])
            fa2i_field_set(ret_problem, i, fa2i_field_get(&fields.problem, i));
    if (ret_problem->rotary != FA2_ROTARY_NONE)
        ret_problem->rotary_dim = ret_problem->head_dim / 16 * 16;
    return fa2i_problem_check(ret_problem) == FA2_OK;
}

/* first: what the first choice came to; tried: candidates, the winner among them, which is NULL if all spill. */
static void report(check *c, const fa2_problem *problem, const outcome *first, size_t tried, outcome *winner)
{
    const bool fails = winner == NULL || tried > FA2I_COMPILE_MOST;
    c->problems++;
    c->late += tried > 1;
    c->failed += fails;
    const bool told = winner != NULL && winner->told;
    if (winner != NULL) {
        c->beside += !told && winner->beside > 0;
        winner->told = true;
    }
    if (tried == 1 || (told && !fails))
        return;
    printf("%s%s, %s: %d bytes are spilled by %s; number %zu: %s\n", fails ? "FAILED " : "", c->target.name,
           fa2i_problem_shape(problem).text, first->spill_bytes, first->text, tried,
           winner == NULL ? "spills, too" : winner->text);
}

static void check_problem(check *c, const fa2_problem *problem)
{
    fa2i_variant *variants = NULL;
    size_t count = 0, tried = 0;
    outcome first = {0}, *winner = NULL;
    const fa2_status st = fa2i_generator_candidates(c->generator, problem, &c->card, &variants, &count);
    if (st == FA2_E_UNSUPPORTED)
        return; /* no family of this SM serves it */
    must(st, "candidates");
    while (winner == NULL && tried < count) {
        outcome *now = outcome_of(c, &variants[tried]);
        if (tried++ == 0)
            first = *now;
        winner = now->clean ? now : NULL;
    }
    report(c, problem, &first, tried, winner);
    fa2i_free(variants);
}

static void print_sum(const check *c, const char *of, const check *before)
{
    printf("%s, %s: %zu problems, %zu variants compiled; the first choice of %zu spills, %zu fail; "
           "steps beside the main one spill in %zu winners\n",
           c->target.name, of, c->problems - before->problems, c->count - before->count, c->late - before->late,
           c->failed - before->failed, c->beside - before->beside);
    fflush(stdout);
}

static void check_feature(check *c, const fa2i_shapes *shapes, const char *feature)
{
    fa2i_shapes classes = {0}; /* a problem of each */
    fa2_problem problem;
    const check before = *c;
    for (size_t i = 0; i < shapes->count; i++) {
        size_t known = 0;
        if (!add_feature(&shapes->items[i], feature, &problem))
            continue;
        while (known < classes.count && !fa2i_problem_same_class(&classes.items[known], &problem))
            known++;
        if (known == classes.count)
            must(fa2i_shapes_add(&classes, &problem, 0), "classes");
        if (known % c->every == c->from)
            check_problem(c, &problem);
    }
    print_sum(c, feature[0] == '\0' ? "no feature" : feature, &before);
    fa2i_shapes_done(&classes);
}

int main(int argc, char **argv)
{
    fa2i_shapes shapes = {0};
    check c = {.every = 1};
    const int arch = argc > 1 && strncmp(argv[1], "sm_", 3) == 0 ? atoi(argv[1] + 3) : 0;
    const bool read = argc <= 2 || sscanf(argv[2], "%zu+%zu", &c.every, &c.from) >= 1;
    if (arch == 0 || !read || c.from >= c.every) {
        fprintf(stderr, "usage: spills sm_86 [EVERY[+FIRST] [FEATURE ...]]\n");
        return 2;
    }
    must(fa2i_generator_create(&c.generator), "the generator");
    must(fa2i_generator_card(c.generator, arch, &c.card), argv[1]);
    must(fa2i_target_for(arch, false, &c.target), argv[1]);
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        must(fa2i_shapes_add_preset(&shapes, presets[i]), presets[i]);
    for (int i = 0; i < (argc > 3 ? argc - 3 : FEATURES); i++)
        check_feature(&c, &shapes, argc > 3 ? argv[i + 3] : features[i]);
    if (argc != 4)
        print_sum(&c, "all", &(check){0});
    fa2i_shapes_done(&shapes);
    fa2i_generator_destroy(c.generator);
    fa2i_free(c.known);
    return c.failed > 0;
}
