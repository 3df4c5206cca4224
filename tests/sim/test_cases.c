/*
 * The tuner's verification on the software device, as the worker does it. Are its cases sufficient?
 *
 *     test_cases CARD right            a sample of candidates passes every case, and the cases reach everything; it
 *                                      prints lines of the templates that no case reaches
 *     test_cases CARD packed           packed sequences: a kernel of each kind, forward and backward, passes the cases
 *                                      with rows outside all sequences; a kernel that leaves them alone is found
 *     test_cases CARD families         the cheapest kernel of each family on the card passes the first cases
 *     test_cases CARD bugs [STEP]      bugs that need a certain case, planted in all candidates of a class (every
 *                                      STEP-th), are found in each
 *
 * With FA2_TEST_ALL all candidates are used.
 *
 * A line of the templates is reached if some of its instructions was executed, and some of its branches was taken, in
 * some kernel on some case. Kernels are compiled with line information. NVRTC omits code that a variant cannot reach,
 * so every line that is present must be reached.
 */
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "runtime/lua/generator.h"
#include "tests/check.h"
#include "tests/sim/must.h"
#include "tests/sim/sim.h"
#include "tuner/judge/verify.h"
#include "tuner/worker/bench_gpu.h"

enum { KERNELS_MAX = 256, LINES_MAX = 4096, SAMPLE = 32 };

typedef struct bench {
    fa2i_generator *generator;
    fa2i_bench device;
    fa2i_variant variants[KERNELS_MAX]; /* of the current class */
    size_t count;
} bench;

/* ---- kernels ---- */

/* Compiles PTX with line information. */
static void compile(const char *source, int arch, const char *suffix, fa2i_blob *ret_ptx)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    nvrtcProgram program = NULL;
    char architecture[48];
    const char *const options[] = {architecture, "--std=c++17", "-default-device", "--generate-line-info"};
    must(fa2i_nvrtc_get(&nvrtc), "NVRTC");
    snprintf(architecture, sizeof architecture, "--gpu-architecture=compute_%d%s", arch, suffix);
    if (nvrtc->create_program(&program, source, "case.cu", 0, NULL, NULL) != NVRTC_SUCCESS ||
        nvrtc->compile_program(program, 4, options) != NVRTC_SUCCESS ||
        nvrtc->get_ptx_size(program, &ret_ptx->bytes) != NVRTC_SUCCESS ||
        (ret_ptx->data = fa2i_alloc(ret_ptx->bytes)) == NULL ||
        nvrtc->get_ptx(program, ret_ptx->data) != NVRTC_SUCCESS) {
        fprintf(stderr, "a kernel does not compile\n");
        exit(1);
    }
    (void)nvrtc->destroy_program(&program);
}

/* Returns the text with its first `from` replaced. The caller frees it. */
static char *planted(const char *source, const char *from, const char *to)
{
    const char *at = strstr(source, from);
    char *text = malloc(strlen(source) + strlen(to) + 1);
    if (at == NULL || text == NULL) {
        fprintf(stderr, "the source has no '%s'\n", from);
        exit(1);
    }
    sprintf(text, "%.*s%s%s", (int)(at - source), source, to, at + strlen(from));
    return text;
}

/* Compiles and loads the variant with this index. from == NULL: unchanged. */
static void load(bench *b, size_t index, const char *from, const char *to)
{
    fa2i_kernel kernel = {.variant = b->variants[index]};
    char *source = NULL;
    must(fa2i_generator_source(b->generator, kernel.variant.text, &source), "the source");
    char *text = from != NULL ? planted(source, from, to) : NULL;
    compile(text != NULL ? text : source, b->device.device.card.arch, kernel.variant.recipe.suffix, &kernel.image);
    must(fa2i_bench_load(&b->device, (uint32_t)index, &kernel), kernel.variant.text);
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
    free(text);
}

static void add_variant(bench *b, const fa2i_variant *variant)
{
    for (size_t i = 0; i < b->count; i++)
        if (strcmp(b->variants[i].text, variant->text) == 0)
            return;
    if (b->count == KERNELS_MAX) {
        fprintf(stderr, "more than %d candidates\n", (int)KERNELS_MAX);
        exit(1);
    }
    if (variant->recipe.op == FA2_OP_BACKWARD)
        CHECK(variant->recipe.rows <= FA2I_BACKWARD_TILE_ROWS && variant->recipe.keys >= 16);
    else
        CHECK(variant->recipe.rows >= FA2I_FORWARD_TILE_ROWS);
    b->variants[b->count++] = *variant;
}

/* Gathers the candidates for prefill and decode: every step-th of those that divide the keys, and of the others. */
static void gather(bench *b, const fa2_problem *class, size_t step)
{
    static const int32_t sizes[][4] = {{8, 8, 1024, 1024}, {32, 8, 1, 4096}};
    size_t seen[2] = {0, 0};
    b->count = 0;
    for (size_t i = 0; i < 2; i++) {
        fa2_problem problem = *class;
        fa2i_variant *list = NULL;
        size_t count = 0;
        problem.batch = 1;
        problem.heads_q = sizes[i][0];
        problem.heads_kv = sizes[i][1];
        problem.seq_q = sizes[i][2];
        problem.seq_k = sizes[i][3];
        must(fa2i_generator_candidates(b->generator, &problem, &b->device.device.card, &list, &count),
             "the candidates");
        for (size_t k = 0; k < count; k++)
            if (seen[list[k].recipe.waves > 0]++ % step == 0)
                add_variant(b, &list[k]);
        fa2i_free(list);
    }
}

/* ---- cases ---- */

/* Returns the verification of a loaded kernel on the current case. */
static fa2i_verification verify(bench *b, const fa2i_expected *expected, const char *name, size_t index)
{
    fa2i_verification verdict = {.outcome = FA2I_OUTCOME_FAULT};
    uint32_t overwritten = 0;
    void *output = fa2i_alloc(expected->output_bytes);
    fa2_status st = fa2i_bench_launch(&b->device, (uint32_t)index, &overwritten);
    if (st == FA2_OK)
        st = fa2i_bench_output(&b->device, NULL, 0, output);
    if (st == FA2_OK)
        fa2i_expected_judge(expected, name, output, overwritten, &verdict);
    else
        snprintf(verdict.detail, sizeof verdict.detail, "%.500s", fa2_last_message());
    fa2i_free(output);
    return verdict;
}

static size_t cases_of(const bench *b, const fa2_problem *class, fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX])
{
    return fa2i_judge_of(class->op)->cases(class, b->device.device.card.sm_count, cases);
}

static bool is_for(const fa2i_verify_case *c, const fa2i_variant *variant)
{
    return !c->divided || variant->recipe.waves > 0;
}

/* Runs the gathered candidates on at most `most` first cases of the class. */
static void run_cases(bench *b, const fa2_problem *class, size_t most)
{
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    char text[FA2I_CLASS_CHARS];
    size_t case_count = cases_of(b, class, cases);
    case_count = case_count < most ? case_count : most;
    fa2i_problem_class(class, text);
    for (size_t i = 0; i < b->count; i++)
        load(b, i, NULL, NULL);
    for (size_t i = 0; i < case_count; i++) {
        fa2i_expected expected = {0};
        must(fa2i_expected_all(&cases[i].c, 1, &expected), cases[i].name);
        must(fa2i_bench_case(&b->device, &cases[i].c), cases[i].name);
        for (size_t k = 0; k < b->count; k++) {
            if (!is_for(&cases[i], &b->variants[k]))
                continue;
            const fa2i_verification v = verify(b, &expected, cases[i].name, k);
            if (v.outcome != FA2I_OUTCOME_OK)
                fprintf(stderr, "%s: %s\n", b->variants[k].text, v.detail);
            CHECK_EQ(v.outcome, FA2I_OUTCOME_OK);
        }
        fa2i_expected_done(&expected);
    }
    printf("%s: %zu variants, %zu cases\n", text, b->count, case_count);
    fflush(stdout);
}

static void run_class(bench *b, const fa2_problem *class)
{
    gather(b, class, getenv("FA2_TEST_ALL") != NULL ? 1 : SAMPLE);
    run_cases(b, class, FA2I_VERIFY_CASES_MAX);
}

/* ---- families ---- */

enum { FAMILIES_MAX = 16, FAMILY_CHARS = 32 };

typedef struct families {
    char names[FAMILIES_MAX][FAMILY_CHARS];
    size_t count;
} families;

/* Adds the variant's family. Returns true if it was new. */
static bool add_family(families *f, const fa2i_variant *variant)
{
    char name[FAMILY_CHARS];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(variant->text, " "), variant->text);
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->names[i], name) == 0)
            return false;
    memcpy(f->names[f->count++], name, sizeof name);
    return true;
}

/* Gathers the cheapest candidate of each new family. */
static void gather_families(bench *b, const fa2_problem *class, families *f)
{
    size_t kept = 0;
    gather(b, class, 1);
    for (size_t i = 0; i < b->count; i++)
        if (add_family(f, &b->variants[i]))
            b->variants[kept++] = b->variants[i];
    b->count = kept;
}

static void run_families(bench *b)
{
    enum { CASES = 2 };
    static const struct {
        int arch;
        size_t families;
    } wanted[] = {{75, 4}, {80, 4}, {90, 7}};
    const fa2_problem classes[] = {{.head_dim = 64, .causal = 1},
                                   {.dtype = FA2_FP32, .head_dim = 64, .causal = 1},
                                   {.op = FA2_OP_BACKWARD, .head_dim = 64, .causal = 1},
                                   {.head_dim = 320, .head_dim_v = 256, .v_in_k = 1}};
    families all = {.count = 0};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        gather_families(b, &classes[i], &all);
        if (b->count > 0)
            run_cases(b, &classes[i], CASES);
    }
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (wanted[i].arch == b->device.device.card.arch)
            CHECK_EQ(all.count, wanted[i].families);
}

/* ---- packed sequences ---- */

/* Compares kinds of kernels: family, how dQ is summed, and how rows are prepared. */
static bool same_kind(const fa2i_variant *a, const fa2i_variant *b)
{
    static const char *const words[] = {"fwd_sm90",  "fwd_splitkv", "bwd_sm90",
                                        "dq=atomic", "dq=separate", "rows=prepared"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((strstr(a->text, words[i]) != NULL) != (strstr(b->text, words[i]) != NULL))
            return false;
    return true;
}

/* Gathers one candidate of each kind. */
static void gather_kinds(bench *b, const fa2_problem *class)
{
    size_t kept = 0;
    gather(b, class, 1);
    for (size_t i = 0; i < b->count; i++) {
        bool is_new = true;
        for (size_t k = 0; k < kept && is_new; k++)
            is_new = !same_kind(&b->variants[k], &b->variants[i]);
        if (is_new)
            b->variants[kept++] = b->variants[i];
    }
    b->count = kept;
}

/* Kernels that leave rows outside all sequences alone must be found. */
static void run_packed_case(bench *b, const fa2i_verify_case *c, bool planted_too)
{
    fa2i_expected expected = {0};
    must(fa2i_expected_all(&c->c, 1, &expected), c->name);
    must(fa2i_bench_case(&b->device, &c->c), c->name);
    for (size_t k = 0; k < b->count; k++) {
        const fa2i_verification v = verify(b, &expected, c->name, k);
        if (v.outcome != FA2I_OUTCOME_OK)
            fprintf(stderr, "%s: %s\n", b->variants[k].text, v.detail);
        CHECK_EQ(v.outcome, FA2I_OUTCOME_OK);
        if (!planted_too)
            continue;
        load(b, k, "row < used_from || row >= used_to", "row < used_from");
        CHECK_EQ(verify(b, &expected, c->name, k).outcome, FA2I_OUTCOME_WRONG);
    }
    fa2i_expected_done(&expected);
}

static void run_packed_class(bench *b, const fa2_problem *class)
{
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    const size_t case_count = cases_of(b, class, cases);
    gather_kinds(b, class);
    CHECK(b->count > 0);
    for (size_t k = 0; k < b->count; k++) {
        load(b, k, NULL, NULL);
        printf("%s\n", b->variants[k].text);
    }
    fflush(stdout);
    for (size_t i = 0; i < case_count; i++)
        if (cases[i].c.lengths == FA2I_LENGTHS_WILD)
            run_packed_case(b, &cases[i], false);
    for (size_t i = 0; i < case_count; i++)
        if (cases[i].c.lengths == FA2I_LENGTHS_AMID)
            run_packed_case(b, &cases[i], true);
}

static void run_packed(bench *b)
{
    const fa2_problem classes[] = {
        {.head_dim = 64, .causal = 1, .sinks = 1},
        {.op = FA2_OP_BACKWARD, .head_dim = 64, .causal = 1},
        {.op = FA2_OP_BACKWARD, .head_dim = 40, .causal = 1, .sinks = 1, .deterministic = 1},
        {.op = FA2_OP_BACKWARD, .head_dim = 64, .bias = FA2_BIAS_FP16_GRADIENT, .dropout = 1},
        {.op = FA2_OP_BACKWARD, .head_dim = 32, .softcap = 1, .window = 1}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        fa2_problem class = classes[i];
        class.varlen = 1;
        run_packed_class(b, &class);
    }
}

/* ---- coverage ---- */

/* Reads a line of a template, without the white space around it. */
static void line_of(const char *file, int line, char *out, size_t bytes)
{
    char path[1024];
    out[0] = '\0';
    snprintf(path, sizeof path, "%s/templates/%s", getenv("FA2_SOURCE_DIR"), file);
    FILE *in = fopen(path, "r");
    for (int i = 0; in != NULL && i < line && fgets(out, (int)bytes, in) != NULL; i++) {
    }
    if (in != NULL)
        fclose(in);
    const size_t indent = strspn(out, " ");
    memmove(out, out + indent, strlen(out + indent) + 1);
    out[strcspn(out, "\n")] = '\0';
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the report as sorted lines. The caller owns it. */
static char *take_report(char *lines[LINES_MAX], size_t *ret_count)
{
    static char nothing[1];
    size_t bytes = fa2_sim_coverage(nothing, 1), count = 0; /* this call counts all loaded kernels */
    char *report = malloc(bytes);
    fa2_sim_coverage(report, bytes);
    for (char *line = strtok(report, "\n"); line != NULL && count < LINES_MAX; line = strtok(NULL, "\n"))
        lines[count++] = line;
    qsort(lines, count, sizeof *lines, compare_lines);
    *ret_count = count;
    return report;
}

static void check_coverage(void)
{
    static char *lines[LINES_MAX];
    size_t count = 0, lines_seen = 0, missed = 0;
    char *report = take_report(lines, &count);
    CHECK(count > 100 && count < LINES_MAX);
    for (size_t i = 0; i < count; i++) {
        char path[512], text[256];
        int line, example = 0;
        size_t executed, instructions, taken, branches;
        if (sscanf(lines[i], "%511[^:]:%d %zu/%zu %zu/%zu %n", path, &line, &executed, &instructions, &taken, &branches,
                   &example) < 6 ||
            line == 0) /* code that the compiler adds */
            continue;
        const char *file = strstr(path, "templates/");
        file = file != NULL ? file + strlen("templates/") : path;
        line_of(file, line, text, sizeof text);
        lines_seen++;
        if ((executed > 0 || instructions == 0) && (taken > 0 || branches == 0))
            continue;
        missed++;
        fprintf(stderr,
                "%s:%d: %s\n    no case reaches it: %zu of %zu instructions, %zu of %zu branches, "
                "as %s\n",
                file, line, text, executed, instructions, taken, branches, lines[i] + example);
    }
    CHECK_EQ(missed, 0);
    printf("%zu lines of the templates in kernels, %zu of them not reached\n", lines_seen, missed);
    free(report);
}

static void run_right(bench *b)
{
    const bool has_bf16 = b->device.device.card.arch >= 80;
    const fa2_problem classes[] = {
        {.dtype = FA2_FP16, .head_dim = 64},
        {.dtype = FA2_FP16, .head_dim = 128, .causal = 1, .softcap = 1, .window = 1},
        {.dtype = FA2_FP16, .head_dim = 40, .causal = 1},
        {.dtype = FA2_FP16, .head_dim = 64, .window = 1},
        {.dtype = FA2_FP16, .head_dim = 256},
        {.dtype = FA2_FP16, .head_dim = 64, .causal = 1, .alibi = 1, .sinks = 1},
        {.dtype = FA2_FP16, .head_dim = 64, .softcap = 1, .alibi = 1},
        {.dtype = FA2_FP16, .head_dim = 64, .bias = FA2_BIAS_BOOL},
        {.dtype = FA2_FP16, .head_dim = 64, .dropout = 1},
        {.dtype = FA2_FP16, .head_dim = 64, .causal = 1, .alibi = 1, .bias = FA2_BIAS_FP32},
        {.dtype = FA2_FP16, .head_dim = 64, .causal = 1, .seqused = 1},
        {.dtype = FA2_FP16, .head_dim = 64, .window = 1, .seqused = 1},
        {.dtype = FA2_FP16, .head_dim = 64, .varlen = 1},
        {.dtype = FA2_FP16, .head_dim = 64, .causal = 1, .paged = 1, .page = 16, .seqused = 1},
        {.dtype = FA2_FP16, .head_dim = 64, .causal = 1, .varlen = 1, .seqused = 1},
        {.dtype = FA2_FP16, .head_dim = 64, .seqused = 1, .leftpad = 1, .cache_rows = 1},
        {.dtype = FA2_FP16,
         .head_dim = 64,
         .seqused = 1,
         .cache_rows = 1,
         .append = 1,
         .rotary = FA2_ROTARY_HALVES,
         .rotary_dim = 32},
        {.dtype = FA2_FP16,
         .head_dim = 64,
         .causal = 1,
         .paged = 1,
         .page = 16,
         .append = 1,
         .rotary = FA2_ROTARY_INTERLEAVED,
         .rotary_dim = 64},
        {.dtype = FA2_BF16, .head_dim = 64, .causal = 1, .softcap = 1}};
    fa2_sim_cover(1);
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].dtype == FA2_FP16 || has_bf16)
            run_class(b, &classes[i]);
    check_coverage();
}

/* ---- bugs ---- */

static const struct bug {
    const char *name;
    bool divided; /* only in kernels that divide the keys */
    const char *from, *to;
} bugs[] = {
    {"P grows to what is no fp16 number before it is rescaled", false, "constexpr float kLazyRescale = 8;",
     "constexpr float kLazyRescale = 16.5f;"},
    {"the maximum leaves out splits 33 to 64", true, "most = fmaxf(most, lse_parts[split * step]);",
     "if (split >= 64) most = fmaxf(most, lse_parts[split * step]);"},
    {"weights beyond the 32nd are 0", true, "weights[warp][split] = weight;",
     "weights[warp][split] = split < 32 ? weight : 0.0f;"},
    {"only 128 columns are combined", true, "begin < kHeadDimV; begin += 128",
     "begin < kHeadDimV && begin < 128; begin += 128"},
};

/* Returns the name of the first case that finds the bug, or NULL. */
static const char *found_by(bench *b, const fa2_problem *class, size_t index)
{
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    const char *found = NULL;
    const size_t count = cases_of(b, class, cases);
    for (size_t i = count; i-- > 0 && found == NULL;) { /* backwards, because special cases come last */
        fa2i_expected expected = {0};
        if (!is_for(&cases[i], &b->variants[index]))
            continue;
        must(fa2i_expected_all(&cases[i].c, 1, &expected), cases[i].name);
        must(fa2i_bench_case(&b->device, &cases[i].c), cases[i].name);
        if (verify(b, &expected, cases[i].name, index).outcome != FA2I_OUTCOME_OK)
            found = cases[i].name;
        fa2i_expected_done(&expected);
    }
    return found;
}

/* Returns into how many parts this card may divide the keys of a row. */
static int most_splits(const bench *b, const fa2i_variant *variant)
{
    const fa2i_recipe *recipe = &variant->recipe;
    const int wanted = recipe->waves * b->device.device.card.sm_count;
    return wanted < recipe->max_splits ? wanted : recipe->max_splits;
}

static void run_bugs(bench *b, size_t step)
{
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++) {
        /* Only more than 128 columns need this many. */
        const fa2_problem class = {
            .struct_bytes = sizeof(fa2_problem), .dtype = FA2_FP16, .head_dim = i == 3 ? 256 : 64};
        size_t tried = 0, found = 0;
        gather(b, &class, step);
        for (size_t k = 0; k < b->count; k++) {
            if (bugs[i].divided && most_splits(b, &b->variants[k]) < 40)
                continue;
            load(b, k, bugs[i].from, bugs[i].to);
            const char *name = found_by(b, &class, k);
            if (name == NULL)
                fprintf(stderr, "%s: not found in %s\n", bugs[i].name, b->variants[k].text);
            CHECK(name != NULL);
            tried++;
            found += name != NULL;
        }
        CHECK(tried > 0);
        printf("%s: found in %zu of %zu\n", bugs[i].name, found, tried);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static bench b;
    const int step = argc > 3 && getenv("FA2_TEST_ALL") == NULL ? atoi(argv[3]) : 1;
    if (argc < 3 || step < 1 ||
        (strcmp(argv[2], "right") != 0 && strcmp(argv[2], "packed") != 0 && strcmp(argv[2], "families") != 0 &&
         strcmp(argv[2], "bugs") != 0)) {
        fprintf(stderr, "usage: test_cases CARD right|packed|families|bugs [STEP]\n");
        return 2;
    }
    setenv("FA2_SIM_CARD", argv[1], 1);
    must(fa2i_generator_create(&b.generator), "the generator");
    must(fa2i_bench_open(&b.device, 0), "the device");
    if (argv[2][0] == 'r')
        run_right(&b);
    else if (argv[2][0] == 'p')
        run_packed(&b);
    else if (argv[2][0] == 'f')
        run_families(&b);
    else
        run_bugs(&b, (size_t)step);
    fa2i_bench_done(&b.device);
    fa2i_generator_destroy(b.generator);
    return check_done();
}
