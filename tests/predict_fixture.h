/*
 * A database with four kernels of one problem, of which the first is the winner. Compares the prediction for a call
 * with what a context then does. check.h counts failures.
 */
#pragma once

#include "planner_fixture.h"
#include "put_measurement.h"
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"
#include "tuner/report/predict.h"

enum { KERNELS = 4 /* the model's first choices, best first */ };
static fa2i_variant variants[KERNELS];
static fa2i_key keys[KERNELS];

/* Finds the model's first candidates for the problem, and their keys on this device. */
static inline void find_variants(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    const fa2i_card card = tuned_card(0);
    const fa2i_target target = {.name = "sm_86"};
    fa2i_generator *generator = NULL;
    fa2i_variant *all = NULL;
    size_t count = 0;
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &all, &count), FA2_OK);
    CHECK(count > KERNELS);
    for (size_t i = 0; i < KERNELS; i++) {
        char *source = NULL;
        variants[i] = all[i];
        CHECK_EQ(fa2i_generator_source(generator, all[i].text, &source), FA2_OK);
        CHECK_EQ(fa2i_compile_key(&all[i], source, &target, &keys[i]), FA2_OK);
        fa2i_free(source);
    }
    fa2i_free(all);
    fa2i_generator_destroy(generator);
}

/* Compiles all of them and stores times on device 0: 10, 12, 14 and 16 us. So the first is the winner. */
static inline void fill(void)
{
    fa2i_cache *cache = NULL;
    const fa2_problem problem = tuned_problem(1, 512);
    const fa2i_card card = tuned_card(0);
    fa2i_session session = {.driver = 13000, .nvrtc = 13000, .generator = "0123456789abcdef", .origin = "tune"};
    const fa2i_winner winner = {.kernel = keys[0], .measured = true, .median_us = 10, .default_us = 10, .model_us = 10};
    int64_t session_id = 0, problem_id = 0;
    CHECK_EQ(fa2i_cache_open(database.path, FA2I_CACHE_WRITE, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_device(cache, &card, true, &session.device), FA2_OK);
    CHECK_EQ(fa2i_cache_problem(cache, &problem, &problem_id), FA2_OK);
    CHECK_EQ(fa2i_cache_session_begin(cache, &session, &session_id), FA2_OK);
    for (size_t i = 0; i < KERNELS; i++) {
        fa2i_kernel kernel = {.key = keys[i],
                              .variant = variants[i],
                              .target = "sm_86",
                              .nvrtc = 13000,
                              .generator = "0123456789abcdef",
                              .registers = 96};
        const double us = 10 + 2 * (double)i;
        const fa2i_measurement timed = {
            .settled = true, .n = 9, .min_us = us, .q1_us = us, .median_us = us, .q3_us = us};
        const fa2i_verification right = {.outcome = FA2I_OUTCOME_OK, .max_error = 0.5};
        char source[32];
        snprintf(source, sizeof source, "tuned, id=%zu", i);
        fake_image(variants[i].recipe.steps[0].entry, "sm_86", source, &kernel.image);
        CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
        fa2i_kernel_done(&kernel);
        CHECK_EQ(fa2i_cache_put_verification(cache, session.device, &keys[i], &right), FA2_OK);
        CHECK_EQ(put_measurement(cache, session_id, session.device, problem_id, &keys[i], &timed), FA2_OK);
    }
    CHECK_EQ(fa2i_cache_put_winner(cache, session_id, session.device, problem_id, &winner), FA2_OK);
    fa2i_cache_close(cache);
}

/* Predicts several problems in turn, with fates. */
static inline void predict_all(const fa2_problem *problems, size_t count, bool here, fa2i_predicted *out)
{
    fa2i_generator *generator = NULL;
    fa2i_cache *cache = NULL;
    fa2i_predictor predictor = {0};
    const fa2i_card card = tuned_card(0);
    const long compiled = fake.compile_count;
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    const fa2_status st = fa2i_cache_open(database.path, FA2I_CACHE_READ, NULL, NULL, &cache);
    CHECK(st == FA2_OK || st == FA2_E_NOT_FOUND);
    CHECK_EQ(fa2i_predictor_init(&predictor, generator, cache, database.path, &card), FA2_OK);
    if (here)
        fa2i_predictor_be_here(&predictor);
    if (never_compile)
        predictor.planner.no_compiler = FA2_E_FORBIDDEN;
    fake_trace_clear();
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(fa2i_predict(&predictor, &problems[i], &out[i]), FA2_OK);
        CHECK_EQ(fa2i_predict_fates(&predictor, &out[i]), FA2_OK);
    }
    CHECK_EQ(fake_traced("module_load_data_ex"), 0); /* predicting loads no kernel */
    CHECK_EQ(fake.compile_count, compiled);
    fa2i_predictor_done(&predictor);
    fa2i_cache_close(cache);
    fa2i_generator_destroy(generator);
}

static inline void predict(const fa2_problem *problem, bool here, fa2i_predicted *out)
{
    predict_all(problem, 1, here, out);
}

/* Returns the fate of a variant, NULL if it is no option. */
static inline const fa2i_fate *fate_of(const fa2i_predicted *f, const char *text)
{
    for (size_t i = 0; i < f->option_count; i++)
        if (strcmp(f->options[i].text, text) == 0)
            return &f->fates[i];
    return NULL;
}

typedef struct damage_case {
    const char *sql;
    bool nvrtc;
    fa2_status status;
    fa2_rule rule;
    int variant;         /* index; -1: another one */
    const char *said;    /* part of the reason or the message */
    bool damaged, other; /* damage the winner's code; the next kernel's code */
} damage_case;

static const char winners_code[] = "UPDATE code SET data = zeroblob(length(data)) WHERE id IN "
                                   "(SELECT code FROM image JOIN winner USING (kernel))";

/* Checks that a context explains and does what was predicted. */
static inline void compare(const fa2_problem *problem, const fa2i_predicted *f, const damage_case *c)
{
    fa2_context *context = create();
    fa2_explanation e = {.struct_bytes = sizeof e};
    const long compiled = fake.compile_count;
    CHECK_EQ(fa2_prepare(context, problem), c->status);
    CHECK_EQ(f->status, c->status);
    if (c->status != FA2_OK) {
        CHECK_STR(f->message, fa2_last_message());
        CHECK_CONTAINS(f->message, c->said);
        fa2_context_destroy(context);
        return;
    }
    CHECK_EQ(fake.compile_count - compiled, f->compiled ? 0 : 1);
    CHECK_EQ(f->lost, strstr(log_of.text, "was compiled again") != NULL);
    CHECK_EQ(fa2_explain(context, problem, &e), FA2_OK);
    CHECK_EQ(e.rule, c->rule);
    CHECK_EQ(f->decision.rule, c->rule);
    CHECK_STR(e.variant, variants[c->variant].text);
    CHECK_STR(f->variant.text, e.variant);
    CHECK_CONTAINS(e.reason, c->said);
    CHECK_STR(f->runner_up.text, e.runner_up);
    CHECK(f->runner_up.us <= e.runner_up_us && f->runner_up.us >= e.runner_up_us);
    CHECK(f->decision.estimate_us <= e.estimate_us && f->decision.estimate_us >= e.estimate_us);
    fa2_context_destroy(context);
}
