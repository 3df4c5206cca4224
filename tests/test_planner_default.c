/*
 * The default rule: which of the cost model's choices is used if some spill, do not compile, are refused by the driver
 * or are known to be wrong; and for which target they are compiled.
 */
#include "fa2.h"
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "tuned_database.h"

static tuned_log log_of;

static fa2_context *create(fa2_config config)
{
    fa2_context *context = NULL;
    if (config.database == NULL)
        config.database = "";
    config.log = tuned_log_add;
    config.log_user = &log_of;
    log_of = (tuned_log){.count = 0};
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    return context;
}

static void end(fa2_context *context)
{
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
}

static fa2_explanation explain_problem(fa2_context *context, fa2_problem problem)
{
    fa2_explanation e = {.struct_bytes = sizeof e, .rule = (fa2_rule)99};
    CHECK_EQ(fa2_explain(context, &problem, &e), FA2_OK);
    CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
    return e;
}

static fa2_explanation explain(fa2_context *context)
{
    return explain_problem(context, tuned_problem(1, 512));
}

/* Returns the model's nth choice for the problem on device 0, from 0, and the key of its text's artifact. */
static fa2i_variant choice_of_model(size_t n, fa2i_key *ret_key)
{
    const fa2_problem problem = tuned_problem(1, 512);
    const fa2i_card card = tuned_card(0);
    const fa2i_target target = {.name = "sm_86"};
    fa2i_generator *generator = NULL;
    fa2i_variant *variants = NULL;
    fa2i_variant variant = {.text = ""};
    size_t count = 0;
    char *source = NULL;

    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    CHECK_EQ(fa2i_generator_candidates(generator, &problem, &card, &variants, &count), FA2_OK);
    CHECK(count >= 4);
    if (n < count) {
        variant = variants[n];
        CHECK_EQ(fa2i_generator_source(generator, variant.text, &source), FA2_OK);
        CHECK_EQ(fa2i_compile_key(&variant, source, &target, ret_key), FA2_OK);
    }
    fa2i_free(source);
    fa2i_free(variants);
    fa2i_generator_destroy(generator);
    return variant;
}

/* The result of each compilation, in order. */
typedef struct script {
    int spills[8]; /* bytes stored, and as many loaded; -1: does not compile */
    int next;
} script;

static void follow(fake_compilation *compilation, void *user)
{
    script *s = user;
    const int spills = s->spills[s->next++];
    if (spills < 0) {
        compilation->result = NVRTC_ERROR_COMPILATION;
        compilation->log = "error: too clever by half";
        return;
    }
    compilation->spill_stores = compilation->spill_loads = spills;
}

static void play(script *s)
{
    fake_install();
    fake.on_compile = follow;
    fake.on_compile_user = s;
}

static void test_spilling_ones_are_skipped(void)
{
    script s = {.spills = {8, -1, 0}};
    fa2i_key key;
    play(&s);
    const fa2i_variant third = choice_of_model(2, &key);
    fa2_context *context = create((fa2_config){.struct_bytes = sizeof(fa2_config)});
    const fa2_explanation e = explain(context);
    CHECK_STR(e.variant, third.text);
    CHECK_EQ(e.spill_bytes, 0);
    CHECK_CONTAINS(e.reason, "choice 3 of the cost model");
    CHECK_CONTAINS(log_of.text, "too clever by half");
    CHECK_EQ(s.next, 3);
    end(context);
}

static void test_least_spilling(void)
{
    script s = {.spills = {80, 8, 40, 24, 0}};
    fa2i_key key;
    play(&s);
    const fa2i_variant second = choice_of_model(1, &key);
    fa2_context *context = create((fa2_config){.struct_bytes = sizeof(fa2_config)});
    const fa2_explanation e = explain(context);
    CHECK_STR(e.variant, second.text);
    CHECK_EQ(e.spill_bytes, 16);
    CHECK_CONTAINS(e.reason, "least spilling");
    CHECK_EQ(s.next, 4); /* there is no fifth try */
    end(context);
}

static void test_none_compiles(void)
{
    script s = {.spills = {-1, -1, -1, -1}};
    const fa2_problem problem = tuned_problem(1, 512);
    char said[FA2I_MESSAGE_BYTES];
    play(&s);
    fa2_context *context = create((fa2_config){.struct_bytes = sizeof(fa2_config)});
    CHECK_EQ(fa2_prepare(context, &problem), FA2_E_COMPILE);
    snprintf(said, sizeof said, "%s", fa2_last_message());
    CHECK_CONTAINS(said, "too clever by half");
    CHECK_CONTAINS(said, "B=1");
    CHECK_EQ(s.next, 4);
    fake.on_compile = NULL; /* they are not compiled again */
    CHECK_EQ(fa2_prepare(context, &problem), FA2_E_COMPILE);
    CHECK_STR(fa2_last_message(), said);
    fa2_problem other = problem;
    other.causal = 0; /* the context can be used after an error */
    explain_problem(context, other);
    end(context);
}

/* Other problems choose the kernel that does not compile, too. It is neither compiled nor reported again: a second try
 * would succeed. */
static void test_compile_error_is_remembered(void)
{
    script s = {.spills = {-1}};
    int passed_over = 0;
    play(&s);
    fa2_context *context = create((fa2_config){.struct_bytes = sizeof(fa2_config)});
    for (int seq = 512; seq <= 896; seq += 128) { /* each asks the model anew */
        const fa2_explanation e = explain_problem(context, tuned_problem(1, seq));
        const bool is_second = strstr(e.reason, "choice 2") != NULL;
        passed_over += is_second;
        CHECK(!is_second || strstr(e.reason, "too clever by half") != NULL);
    }
    CHECK(passed_over >= 2);
    const char *told = strstr(log_of.text, "too clever by half");
    CHECK(told != NULL && strstr(told, "a variant is passed over") == NULL);
    end(context);
}

/* Makes a kernel slow without spills. It is rejected like kernels that spill, and used only after all of them. */
static void slow_some(fake_compilation *compilation, void *user)
{
    script *s = user;
    const int spills = s->spills[s->next++];
    compilation->spill_stores = compilation->spill_loads = spills < 0 ? 0 : spills;
    if (spills < 0)
        compilation->log = "    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";
}

static void test_slowed_ones_are_skipped(void)
{
    static const struct {
        script script;
        size_t chosen;
        const char *reason;
    } cases[] = {{{.spills = {-1, 0}}, 1, "choice 2 of the cost model"},
                 {{.spills = {-1, -1, 8, -1}}, 2, "least spilling"},
                 {{.spills = {-1, -1, -1, -1}}, 0, "slowed by a stack frame"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        script s = cases[i].script;
        fa2i_key key;
        play(&s);
        fake.on_compile = slow_some;
        const fa2i_variant chosen = choice_of_model(cases[i].chosen, &key);
        fa2_context *context = create((fa2_config){.struct_bytes = sizeof(fa2_config)});
        const fa2_explanation e = explain(context);
        CHECK_STR(e.variant, chosen.text);
        CHECK_EQ(e.spill_bytes, i == 1 ? 16 : 0);
        CHECK_CONTAINS(e.reason, cases[i].reason);
        end(context);
    }
}

/* fa2-tune stores the model's first choice, and finds that it is wrong on this card. */
static void find_first_wrong(const tuned_database *database)
{
    fa2i_cache *cache = NULL;
    int64_t device = 0;
    const fa2i_verification wrong = {.outcome = FA2I_OUTCOME_WRONG, .max_error = 9};
    const fa2i_card card = tuned_card(0);
    fa2i_kernel kernel = {.target = "sm_86", .nvrtc = 13000};

    kernel.variant = choice_of_model(0, &kernel.key);
    fake_image("fwd_sm80", "sm_86", "wrong", &kernel.image);
    CHECK_EQ(fa2i_cache_open(database->path, FA2I_CACHE_WRITE, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_device(cache, &card, true, &device), FA2_OK);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    CHECK_EQ(fa2i_cache_put_verification(cache, device, &kernel.key, &wrong), FA2_OK);
    fa2i_kernel_done(&kernel);
    fa2i_cache_close(cache);
}

/* The finding comes before the context is created, or after it has loaded and used the kernel. */
static void test_known_wrong(void)
{
    tuned_database database;
    fa2i_key key;

    fake_install();
    tuned_begin(&database);
    const fa2i_variant first = choice_of_model(0, &key), second = choice_of_model(1, &key);
    fa2_context *running = create((fa2_config){.struct_bytes = sizeof(fa2_config), .database = database.path});
    CHECK_STR(explain(running).variant, first.text);
    find_first_wrong(&database);
    tuned_wait();
    CHECK_STR(explain_problem(running, tuned_problem(1, 511)).variant, second.text);
    CHECK_CONTAINS(log_of.text, "failed its verification (wrong)");
    fa2_context_destroy(running);

    fa2_context *context = create((fa2_config){.struct_bytes = sizeof(fa2_config), .database = database.path});
    CHECK_STR(explain(context).variant, second.text); /* stored by now */
    end(context);
    tuned_end(&database);
}

/* Nothing is tuned, and nothing may be compiled. */
static void test_never_compile(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2_explanation e = {.struct_bytes = sizeof e};
    fake_install();
    fa2_context *context = create((fa2_config){.struct_bytes = sizeof(fa2_config), .never_compile = 1});
    (void)fake_fail_nvrtc(0, NVRTC_SUCCESS);
    for (int again = 0; again < 2; again++) {
        CHECK_EQ(fa2_explain(context, &problem, &e), FA2_E_FORBIDDEN);
        CHECK_CONTAINS(fa2_last_message(), "no database is used, and no kernel for B=1 ");
        CHECK_CONTAINS(fa2_last_message(), "can be compiled: the context's config forbids compiling");
    }
    CHECK_EQ(fake_fail_nvrtc(0, NVRTC_SUCCESS), 0); /* calls since */
    CHECK_EQ(fake.compile_count, 0);
    end(context);
}

/* config.arch: a kernel of another SM, as PTX. */
static void test_arch_override(void)
{
    fake_install();
    fa2_context *context = create((fa2_config){.struct_bytes = sizeof(fa2_config), .arch = 75});
    fa2_explanation e = explain(context);
    CHECK_CONTAINS(e.variant, "fwd_sm75");
    CHECK_STR(e.target, "compute_75");
    CHECK_CONTAINS(e.reason, "sm_75 are asked for");
    CHECK_CONTAINS(e.reason, "PTX");
    end(context);
}

/* config.arch: results that were tuned for the card itself are not used. */
static void test_arch_override_ignores_winners(void)
{
    tuned_database database;
    fake_install();
    tuned_begin(&database);
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    fa2_context *context =
        create((fa2_config){.struct_bytes = sizeof(fa2_config), .database = database.path, .arch = 75});
    CHECK_STR(explain(context).target, "compute_75");
    end(context);
    tuned_end(&database);
}

static void test_unknown_sm_gets_ptx(void)
{
    fake_install();
    memset(fake.archs, 0, sizeof(fake.archs));
    fake.archs[0] = 75;
    fake.archs[1] = 80; /* an old NVRTC */
    fa2_context *context = create((fa2_config){.struct_bytes = sizeof(fa2_config)});
    const fa2_explanation e = explain(context);
    CHECK_STR(e.target, "compute_80");
    CHECK_CONTAINS(e.reason, "PTX");
    CHECK_CONTAINS(log_of.text, "does not know sm_86");
    end(context);
}

/* An NVRTC that knows sm_90 but not sm_90a: the family that needs it is skipped, which is logged once. */
static void test_old_nvrtc(void)
{
    fa2_problem problem = tuned_problem(4, 4096);
    for (int version = 11080; version <= 12000; version += 920) {
        fake_install();
        fake.nvrtc_version = version;
        fake_become_h200();
        fa2_context *context = create((fa2_config){.struct_bytes = sizeof(fa2_config)});
        for (problem.causal = 0; problem.causal < 2; problem.causal++) {
            const fa2_explanation e = explain_problem(context, problem);
            CHECK_CONTAINS(e.variant, version < 12000 ? "fwd_sm80 " : "fwd_sm90 ");
        }
        const char *said = strstr(log_of.text, "fwd_sm90 is passed over: NVRTC 11.8 compiles ");
        CHECK((said != NULL) == (version < 12000));
        CHECK(said == NULL || strstr(said + 1, "fwd_sm90 is passed over") == NULL);
        end(context);
    }
}

/* Makes the first module load of a prepare fail. */
static fa2_context *create_and_fail_load(CUresult error)
{
    fake_install();
    fa2_context *context = create((fa2_config){.struct_bytes = sizeof(fa2_config)});
    fake_trace_clear();
    explain(context);
    const long load = fake_traced("module_load_data_ex");
    CHECK(load > 0);
    fa2_context_destroy(context);

    context = create((fa2_config){.struct_bytes = sizeof(fa2_config)});
    fake_fail_driver(load, error);
    return context;
}

static void test_no_binary_gets_ptx(void)
{
    fa2_context *context = create_and_fail_load(CUDA_ERROR_NO_BINARY_FOR_GPU);
    const fa2_explanation e = explain(context);
    CHECK_STR(e.target, "compute_86");
    CHECK_CONTAINS(log_of.text, "loads no sm_86 code");
    fa2_problem other = tuned_problem(1, 512);
    fa2_explanation second = {.struct_bytes = sizeof second};
    other.causal = 0;
    CHECK_EQ(fa2_explain(context, &other, &second), FA2_OK); /* PTX from here on */
    CHECK_STR(second.target, "compute_86");
    end(context);
}

static void test_refused_and_broken(void)
{
    fa2_context *context = create_and_fail_load(CUDA_ERROR_INVALID_IMAGE);
    CHECK_CONTAINS(explain(context).reason, "choice 2 of the cost model");
    CHECK_CONTAINS(log_of.text, "CUDA_ERROR_INVALID_IMAGE");
    end(context);

    const fa2_problem problem = tuned_problem(1, 512);
    context = create_and_fail_load(CUDA_ERROR_OUT_OF_MEMORY); /* not the kernel's fault */
    CHECK_EQ(fa2_prepare(context, &problem), FA2_E_CUDA);
    CHECK_CONTAINS(fa2_last_message(), "CUDA_ERROR_OUT_OF_MEMORY");
    CHECK_CONTAINS(explain(context).reason, "first choice"); /* so it is not rejected */
    end(context);
}

static void test_unsupported(void)
{
    fake_install();
    fa2_problem bf16 = tuned_problem(1, 512);
    bf16.dtype = FA2_BF16;
    fa2_context *context =
        create((fa2_config){.struct_bytes = sizeof(fa2_config), .device_plus_one = 2}); /* Turing has no bf16 */
    CHECK_EQ(fa2_prepare(context, &bf16), FA2_E_UNSUPPORTED);
    CHECK_EQ(fake.compile_count, 0);
    end(context);
}

int main(void)
{
    test_spilling_ones_are_skipped();
    test_least_spilling();
    test_none_compiles();
    test_compile_error_is_remembered();
    test_slowed_ones_are_skipped();
    test_known_wrong();
    test_never_compile();
    test_arch_override();
    test_arch_override_ignores_winners();
    test_unknown_sm_gets_ptx();
    test_old_nvrtc();
    test_no_binary_gets_ptx();
    test_refused_and_broken();
    test_unsupported();
    return check_done();
}
