/*
 * Building without a GPU, with the test's own NVRTC: compiled kernels, reused kernels, the winner. Also if all kernels
 * spill, nothing compiles, or the user presses Ctrl-C.
 */
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache/internal.h"
#include "check.h"
#include "fake_cuda.h"
#include "runtime/base/alloc.h"
#include "runtime/ops/op.h"
#include "tuner/search/build.h"

enum { ROUND = 12 };

typedef struct setup {
    char folder[64], path[96];
    fa2i_cache *cache;
    fa2i_generator *generator;
    fa2i_shapes shapes;
    fa2i_card card;
    volatile sig_atomic_t stop;
    fa2i_outcome expected; /* of the winners' kernels */
    long spill_first;      /* number of compilations that spill, beginning with the first */
    long spill_less;       /* the compilation that spills less than the others; 0: none */
    long stop_after;       /* number of compilations before the stop flag is set; 0: never */
} setup;

static void on_compile(fake_compilation *compilation, void *user)
{
    setup *s = user;
    if (fake.compile_count <= s->spill_first)
        compilation->spill_stores = fake.compile_count == s->spill_less ? 4 : 8;
    if (s->stop_after > 0 && fake.compile_count >= s->stop_after)
        s->stop = 1;
}

static void begin(setup *s, int arch)
{
    *s = (setup){.folder = "/tmp/fa2_test_build_XXXXXX", .expected = FA2I_OUTCOME_OK};
    CHECK(mkdtemp(s->folder) != NULL);
    snprintf(s->path, sizeof s->path, "%s/fa2.db", s->folder);
    fake_install();
    fake.on_compile = on_compile;
    fake.on_compile_user = s;
    CHECK_EQ(fa2i_cache_open(s->path, FA2I_CACHE_WRITE, NULL, NULL, &s->cache), FA2_OK);
    CHECK_EQ(fa2i_generator_create(&s->generator), FA2_OK);
    CHECK_EQ(fa2i_generator_card(s->generator, arch, &s->card), FA2_OK);
}

static void end(setup *s)
{
    fa2i_generator_destroy(s->generator);
    fa2i_cache_close(s->cache);
    fa2i_shapes_done(&s->shapes);
    unlink(s->path);
    CHECK_EQ(rmdir(s->folder), 0);
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
}

static void add(setup *s, const char *shape)
{
    CHECK_EQ(fa2i_shapes_add_text(&s->shapes, shape), FA2_OK);
}

static fa2i_build work_of(setup *s)
{
    return (fa2i_build){
        .cache = s->cache, .generator = s->generator, .shapes = &s->shapes, .jobs = 2, .stop = &s->stop};
}

static fa2_status build(setup *s, fa2i_build_result *ret_result)
{
    const fa2i_build work = work_of(s);
    return fa2i_build_arch(&work, &s->card, ret_result);
}

/* A dry run reports these numbers, and compiles nothing. */
static void check_predicted(setup *s, size_t compiled, size_t reused)
{
    const fa2i_build work = work_of(s);
    const long before = fake.compile_count;
    fa2i_build_result result = {0};
    size_t threads = 0;
    CHECK_EQ(fa2i_build_predict(&work, &s->card, &result, &threads), FA2_OK);
    CHECK_EQ(result.compiled, compiled);
    CHECK_EQ(result.reused, reused);
    CHECK(compiled == 0 || (threads == 2 && result.seconds > 0));
    CHECK_EQ(fake.compile_count, before);
    fa2i_build_result_done(&result);
}

/* The stored winner is the reported one. It is modelled, with the model's time for its real registers. */
static void check_winner(setup *s, const fa2i_built *built)
{
    int64_t device = 0, problem = 0;
    double us = 0;
    fa2i_winner winner = {0};
    fa2i_kernel kernel = {0};
    CHECK_EQ(fa2i_cache_device(s->cache, &s->card, false, &device), FA2_OK);
    CHECK_EQ(fa2i_cache_problem(s->cache, &built->problem, &problem), FA2_OK);
    CHECK_EQ(fa2i_cache_get_winner(s->cache, device, problem, &winner), FA2_OK);
    CHECK(!winner.measured);
    CHECK_EQ(fa2i_cache_get_kernel(s->cache, &winner.kernel, fa2i_op_abi(&built->problem), true, &kernel), FA2_OK);
    CHECK_STR(kernel.variant.text, built->variant);
    CHECK_EQ(kernel.outcome, s->expected);
    CHECK_EQ(kernel.registers, built->registers);
    CHECK_EQ(kernel.spill_bytes, built->spill_bytes);
    CHECK_EQ(fa2i_generator_cost(s->generator, built->variant, &built->problem, &s->card, built->registers, &us),
             FA2_OK);
    CHECK(us == built->model_us && us > 0);
    fa2i_kernel_done(&kernel);
}

/* Every KIND field that may be 1 makes a class: its problem gets its own kernel, even in one run with the plain
 * problem. */
static void test_classes(void)
{
    setup s;
    fa2i_build_result result = {0};
    size_t classes = 1;
    begin(&s, 86);
    add(&s, "Hq=8,Sq=512,D=64");
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const fa2i_field *f = &fa2i_fields[field];
        char shape[64];
        if (f->role != FA2I_ROLE_KIND || f->type != FA2I_TYPE_INT || f->least != 0 || f->most != 1)
            continue;
        snprintf(shape, sizeof shape, "Hq=8,Sq=512,D=64,%s=1%s", f->key,
                 (f->ops >> FA2_OP_FORWARD & 1u) != 0 ? "" : ",op=backward");
        add(&s, shape);
        classes++;
    }
    CHECK_EQ(build(&s, &result), FA2_OK);
    CHECK_EQ(result.winner_count, classes);
    for (size_t i = 0; i < result.winner_count; i++) {
        fa2i_variant variant = {0};
        char class_key[FA2I_CLASS_CHARS];
        fa2i_problem_class(&result.winners[i].problem, class_key);
        CHECK_EQ(fa2i_generator_variant(s.generator, result.winners[i].variant, &variant), FA2_OK);
        CHECK_STR(variant.class_key, class_key);
    }
    fa2i_build_result_done(&result);
    end(&s);
}

/* Problems that share kernels share compilations; a second run compiles nothing. */
static void test_build_and_reuse(void)
{
    setup s;
    fa2i_build_result first = {0}, second = {0};
    begin(&s, 86);
    add(&s, "Hq=8,Sq=512,D=64");
    add(&s, "B=4,Hq=32,Sq=4096,D=64");
    add(&s, "Hq=8,Sq=512,D=64,causal=1");
    check_predicted(&s, 2 * ROUND, 0);
    CHECK_EQ(build(&s, &first), FA2_OK);
    check_predicted(&s, 0, 2 * ROUND);
    CHECK_EQ(first.compiled, 2 * ROUND);
    CHECK_EQ(first.reused, 0);
    CHECK_EQ(first.winner_count, 3);
    CHECK_STR(first.target, "sm_86");
    for (size_t i = 0; i < first.winner_count; i++)
        check_winner(&s, &first.winners[i]);
    CHECK_EQ(build(&s, &second), FA2_OK);
    CHECK_EQ(second.compiled, 0);
    CHECK_EQ(second.reused, 2 * ROUND);
    CHECK_EQ(second.winner_count, 3);
    for (size_t i = 0; i < second.winner_count && i < first.winner_count; i++)
        CHECK_STR(second.winners[i].variant, first.winners[i].variant);
    fa2i_build_result_done(&first);
    fa2i_build_result_done(&second);
    end(&s);
}

/* The winner is the cheapest compiled kernel by the model, with the registers that the compiler reported. */
static void test_cheapest_wins(void)
{
    setup s;
    fa2i_build_result result = {0};
    fa2i_variant *variants = NULL;
    size_t count = 0;
    begin(&s, 86);
    add(&s, "Hq=8,Sq=512,D=64");
    fake.registers = 200;
    CHECK_EQ(build(&s, &result), FA2_OK);
    CHECK_EQ(result.winner_count, 1);
    CHECK_EQ(fa2i_generator_candidates(s.generator, s.shapes.items, &s.card, &variants, &count), FA2_OK);
    for (size_t i = 0; i < count && i < ROUND && result.winner_count == 1; i++) {
        double us = 0;
        CHECK_EQ(fa2i_generator_cost(s.generator, variants[i].text, s.shapes.items, &s.card, 200, &us), FA2_OK);
        CHECK(result.winners[0].model_us <= us);
    }
    fa2i_free(variants);
    fa2i_build_result_done(&result);
    end(&s);
}

/* A kernel that spills wins only if there is no other candidate. */
static void test_spills(void)
{
    setup s;
    fa2i_build_result result = {0};
    begin(&s, 86);
    add(&s, "Hq=8,Sq=512,D=64");
    s.spill_first = ROUND;
    CHECK_EQ(build(&s, &result), FA2_OK);
    CHECK_EQ(result.compiled, 2 * ROUND);
    CHECK_EQ(result.spilled, ROUND);
    CHECK_EQ(result.winner_count, 1);
    check_winner(&s, &result.winners[0]);
    fa2i_build_result_done(&result);
    end(&s);
}

/* If all kernels spill, the one that spills least wins. Returns the number of compilations. */
static size_t build_spilling(setup *s, fa2i_built *ret_winner)
{
    fa2i_build_result result = {0};
    CHECK_EQ(build(s, &result), FA2_OK);
    CHECK_EQ(result.spilled, result.compiled + result.reused);
    CHECK_EQ(result.without, 0);
    CHECK_EQ(result.winner_count, 1);
    *ret_winner = (fa2i_built){.registers = 0};
    if (result.winner_count == 1) {
        *ret_winner = result.winners[0];
        check_winner(s, ret_winner);
        CHECK_EQ(ret_winner->spill_bytes, 4);
    }
    fa2i_build_result_done(&result);
    return result.compiled;
}

/* The winner's code is stored, even after a run that finds all kernels in the database, or all but that code. */
static void test_all_spill(void)
{
    setup s;
    fa2i_built first, again;
    begin(&s, 86);
    add(&s, "Hq=8,Sq=512,D=64");
    s.expected = FA2I_OUTCOME_SPILLED;
    s.spill_first = LONG_MAX;
    s.spill_less = ROUND + 3;
    CHECK(build_spilling(&s, &first) > 2 * ROUND);
    CHECK_EQ(build_spilling(&s, &again), 0);
    CHECK_STR(again.variant, first.variant);
    CHECK_EQ(fa2i_sql_script(s.cache, "DELETE FROM image WHERE kernel IN "
                                      "(SELECT kernel FROM winner)"),
             FA2_OK);
    s.spill_less = fake.compile_count + 1;
    CHECK_EQ(build_spilling(&s, &again), 1);
    CHECK_STR(again.variant, first.variant);
    end(&s);
}

static void test_compile_errors(void)
{
    setup s;
    fa2i_build_result result = {0};
    begin(&s, 86);
    add(&s, "Hq=8,Sq=512,D=64");
    fake.rejected = "extern"; /* in every kernel */
    CHECK_EQ(build(&s, &result), FA2_OK);
    CHECK(result.failed > ROUND);
    CHECK_EQ(result.failed, result.compiled);
    CHECK_EQ(result.without, 1);
    fa2i_build_result_done(&result);
    end(&s);
}

static void test_unserved(void)
{
    setup s;
    fa2i_build_result result = {0};
    begin(&s, 75);
    add(&s, "Hq=8,Sq=512,D=64,dtype=bf16");
    add(&s, "Hq=8,Sq=512,D=64");
    CHECK_EQ(build(&s, &result), FA2_OK);
    CHECK_EQ(result.unserved, 1);
    CHECK_EQ(result.winner_count, 1);
    fa2i_build_result_done(&result);
    end(&s);
}

/* If NVRTC does not know the SM, it compiles PTX for the newest SM below. PTX reports no registers. */
static void test_ptx(void)
{
    setup s;
    fa2i_build_result result = {0};
    begin(&s, 89);
    fake.archs[2] = 0; /* only 75 and 80 remain */
    add(&s, "Hq=8,Sq=512,D=64");
    CHECK_EQ(build(&s, &result), FA2_OK);
    CHECK_STR(result.target, "compute_80");
    CHECK_EQ(result.winner_count, 1);
    fa2i_build_result_done(&result);
    end(&s);
}

static void test_interrupted(void)
{
    setup s;
    fa2i_build_result result = {0};
    begin(&s, 86);
    add(&s, "Hq=8,Sq=512,D=64");
    s.stop_after = 4;
    CHECK_EQ(build(&s, &result), FA2_OK);
    const size_t done = result.compiled;
    CHECK(done >= 4 && done < ROUND);
    CHECK_EQ(result.winner_count, 0);
    fa2i_build_result_done(&result);
    s.stop = 0;
    s.stop_after = 0;
    CHECK_EQ(build(&s, &result), FA2_OK);
    CHECK_EQ(result.reused, done);
    CHECK_EQ(result.compiled, ROUND - done);
    CHECK_EQ(result.winner_count, 1);
    fa2i_build_result_done(&result);
    end(&s);
}

/* Each allocation fails once. Nothing leaks, and the only error is lack of memory. */
static void test_out_of_memory(void)
{
    fa2_status st = FA2_E_MEMORY;
    for (long nth = 1; st != FA2_OK && nth < 100000; nth += 1 + nth / 8) {
        setup s;
        fa2i_build_result result = {0};
        begin(&s, 86);
        add(&s, "Hq=8,Sq=512,D=64");
        fa2i_alloc_fail_at(nth);
        st = build(&s, &result);
        fa2i_alloc_fail_at(0);
        CHECK(st == FA2_OK || st == FA2_E_MEMORY || st == FA2_E_GENERATOR);
        if (st == FA2_OK)
            fa2i_build_result_done(&result);
        end(&s);
    }
    CHECK_EQ(st, FA2_OK);
}

int main(void)
{
    test_build_and_reuse();
    test_classes();
    test_cheapest_wins();
    test_spills();
    test_all_spill();
    test_compile_errors();
    test_unserved();
    test_ptx();
    test_interrupted();
    test_out_of_memory();
    return check_done();
}
