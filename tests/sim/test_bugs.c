/*
 * Deliberate bugs in the real kernels: each must be found by the right check and at the right place.
 *
 * A bug is a replacement in the generated CUDA text. The kernel is compiled with line information and run on one shape.
 * The test prints for each bug its name, the change, and the finding. Such kernels never ship, so kept_nvrtc.c compiles
 * them with less optimisation, in half of the time.
 *
 *     test_bugs [NAME | PART/PARTS [STEP]]
 *
 * NAME: only bugs whose name contains it. PART/PARTS: only every PARTS-th bug, and of these only every STEP-th. With
 * FA2_TEST_ALL, STEP is ignored.
 */
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "runtime/lua/generator.h"
#include "tests/check.h"
#include "tests/sim/bugs.h"
#include "tests/sim/forward.h"
#include "tests/sim/must.h"
#include "tuner/input/shapes.h"

enum { PLACE_BYTES = 64, BUGS_LEAST = 265 };
static const float softcap = 2.0f; /* for shapes with a softcap */

typedef struct bench {
    fa2i_generator *generator;
    fa2i_device device;
} bench;

/* Returns the pattern that a prefix of the bug's shape names. *ret_shape: the shape without it. */
static fa2i_pattern pattern_of(const bug *b, const char **ret_shape)
{
    const bool is_late = strncmp(b->shape, LATE, sizeof LATE - 1) == 0;
    const bool is_grown = strncmp(b->shape, GROWN, sizeof GROWN - 1) == 0;
    *ret_shape = b->shape + (is_late ? sizeof LATE - 1 : is_grown ? sizeof GROWN - 1 : 0);
    return is_late ? FA2I_PATTERN_LATE : is_grown ? FA2I_PATTERN_GROWN : FA2I_PATTERN_NONE;
}

static fa2_problem problem_of(const bug *b)
{
    const char *shape;
    char text[128];
    (void)pattern_of(b, &shape);
    fa2i_shapes shapes = {0};
    const char *columns = strstr(shape, ",D=") != NULL ? "" : "D=64,";
    const char *heads = strstr(shape, "Hq=") != NULL ? "" : "Hq=2,Hkv=1,";
    snprintf(text, sizeof text, "%s%s%s", heads, columns, shape);
    must(fa2i_shapes_add_text(&shapes, text), b->name);
    const fa2_problem problem = shapes.items[0];
    fa2i_shapes_done(&shapes);
    return problem;
}

/* Returns whether a bug's candidates share a group's query heads among blocks. */
static bool divides_group(const bug *b)
{
    return b->needles[1] != NULL && strncmp(b->needles[1], "split=2", 7) == 0;
}

static fa2i_variant find_variant(const bench *t, const bug *b)
{
    fa2_problem class = problem_of(b);
    fa2i_variant *list = NULL, found = {0};
    size_t count = 0;
    const bool few = class.seq_q < 64; /* few rows select the families that split */
    class.seq_q = few ? 32 : 1024;
    /* few keys: one block has all keys of a head */
    class.seq_k = few ? 8192 : class.op == FA2_OP_BACKWARD && class.seq_k <= 128 ? class.seq_k : 1024;
    class.heads_q = 8;
    class.heads_kv = (class.v_in_k && few) || divides_group(b) ? 1 : 8; /* one key head for all: latent decoding */
    must(fa2i_generator_candidates(t->generator, &class, &t->device.card, &list, &count), b->name);
    for (size_t i = 0; i < count && found.text[0] == '\0'; i++) {
        bool fits = true;
        for (int n = 0; n < 3 && b->needles[n] != NULL; n++) {
            const bool absent = b->needles[n][0] == '!';
            fits = fits && (strstr(list[i].text, b->needles[n] + absent) == NULL) == absent;
        }
        if (fits)
            found = list[i];
    }
    fa2i_free(list);
    if (found.text[0] == '\0') {
        fprintf(stderr, "%s: no candidate has %s and %s\n", b->name, b->needles[0], b->needles[1]);
        exit(1);
    }
    return found;
}

/* Finds "template:line" of a position in the text, "" if it is in no template. */
static void find_place(const char *source, const char *at, char place[PLACE_BYTES])
{
    static const char directive[] = "\n#line ";
    const char *last = NULL;
    char template[PLACE_BYTES - 16];
    int line = 0;
    place[0] = '\0';
    for (const char *next = source; (next = strstr(next, directive)) != NULL && next < at; next++)
        last = next;
    if (last == NULL || sscanf(last, "\n#line %d \"%47[^\"]", &line, template) != 2)
        return;
    for (const char *c = strchr(last + 1, '\n') + 1; c < at; c++)
        line += *c == '\n';
    snprintf(place, PLACE_BYTES, "%s:%d", template, line);
}

/* Returns the text with the bug, and its place. The caller frees it. NULL: the text to replace is missing. */
static char *plant(const char *source, const bug *b, char place[PLACE_BYTES])
{
    const char *at = source;
    for (int i = 1; (at = strstr(at, b->from)) != NULL && i < b->occurrence; i++)
        at++;
    char *text = malloc(strlen(source) + strlen(b->to) + 1);
    if (at == NULL || text == NULL) {
        free(text);
        return NULL;
    }
    find_place(source, at, place);
    const size_t before = (size_t)(at - source);
    memcpy(text, source, before);
    strcpy(text + before, b->to);
    strcat(text, at + strlen(b->from));
    return text;
}

/* Compiles PTX with line information. Returns false after printing the compiler's log. */
static bool compile(const char *source, int arch, const char *suffix, fa2i_blob *ret_ptx)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    nvrtcProgram program = NULL;
    char architecture[48];
    const char *const options[] = {architecture, "--std=c++17", "-default-device", "--generate-line-info"};
    fa2i_blob ptx = {0};
    must(fa2i_nvrtc_get(&nvrtc), "NVRTC");
    snprintf(architecture, sizeof architecture, "--gpu-architecture=compute_%d%s", arch, suffix);
    bool ok = nvrtc->create_program(&program, source, "bug.cu", 0, NULL, NULL) == NVRTC_SUCCESS &&
              nvrtc->compile_program(program, 4, options) == NVRTC_SUCCESS &&
              nvrtc->get_ptx_size(program, &ptx.bytes) == NVRTC_SUCCESS;
    if (!ok && program != NULL) {
        static char log[65536];
        size_t bytes = 0;
        if (nvrtc->get_program_log_size(program, &bytes) == NVRTC_SUCCESS && bytes < sizeof log &&
            nvrtc->get_program_log(program, log) == NVRTC_SUCCESS)
            fprintf(stderr, "%s\n", log);
    }
    ptx.data = ok ? fa2i_alloc(ptx.bytes) : NULL;
    ok = ptx.data != NULL && nvrtc->get_ptx(program, ptx.data) == NVRTC_SUCCESS;
    if (program != NULL)
        (void)nvrtc->destroy_program(&program);
    *ret_ptx = ptx;
    return ok;
}

static bool run(const bench *t, const bug *b, const fa2i_variant *variant, const char *source,
                char why[FORWARD_WHY_BYTES])
{
    fa2i_kernel kernel = {.variant = *variant};
    fa2i_loaded loaded = {0};
    fa2i_expected expected;
    fa2i_case c = {.problem = problem_of(b), .want_lse = 1, .q_magnitude = 2.0f, .seed = 3};
    c.factors.softcap = c.problem.softcap ? softcap : 0.0f;
    const char *shape;
    c.pattern = pattern_of(b, &shape);
    if (c.pattern != FA2I_PATTERN_NONE)
        c.q_magnitude = 0.02f;
    if (c.problem.op == FA2_OP_BACKWARD)
        c.pattern = FA2I_PATTERN_FORWARD;
    if (c.problem.op == FA2_OP_MERGE)
        c.pattern = FA2I_PATTERN_EMPTY;
    snprintf(kernel.target, sizeof kernel.target, "compute_%d", t->device.card.arch);
    bool ok = compile(source, t->device.card.arch, variant->recipe.suffix, &kernel.image);
    CHECK(ok);
    if (ok) {
        must(fa2i_load(&t->device, &kernel, &loaded, NULL), b->name);
        must(fa2i_expected_all(&c, 1, &expected), b->name);
        ok = forward_launch(&t->device, &loaded, &expected, why, NULL);
        fa2i_expected_done(&expected);
        fa2i_unload(&t->device, &loaded);
    }
    fa2i_kernel_done(&kernel);
    return ok;
}

/* Prints a text in one line. */
static void print_text(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text != '\n' && !(*text == ' ' && text[1] == ' '))
            putchar(*text);
}

static void print_report(const bug *b, const char *place, bool passed, const char *why)
{
    printf("%s, on %s\n    planted: ", b->name, b->card);
    print_text(b->from[0] == '\0' ? "nothing" : b->from);
    if (b->from[0] != '\0') {
        printf("  ->  ");
        print_text(b->to[0] == '\0' ? "(removed)" : b->to);
        printf(", at %s", place);
    }
    printf("\n    found:   %s\n", passed ? "nothing, the numbers are right" : why);
    fflush(stdout); /* so that a failed check's message comes after it */
}

static void check_report(const bug *b, const char *place, bool passed, const char *why)
{
    print_report(b, place, passed, why);
    if (b->said == NULL) {
        CHECK(passed);
        return;
    }
    CHECK_CONTAINS(place, ".cu");
    CHECK(!passed);
    CHECK_CONTAINS(why, b->said);
    if (b->where != NULL) {
        CHECK_CONTAINS(why, b->where);
        CHECK_CONTAINS(why, "block (");
    }
}

/* Sets how much the compiler optimises. With less optimisation, lanes that a branch leads around a barrier stay apart
 * after it, too, and another check finds that first. */
static void choose_optimisation(const bug *b)
{
    const bool is_full = b->said != NULL && strcmp(b->said, "barrier divergence") == 0;
    setenv("FA2_TEST_FAST_COMPILE", is_full ? "" : "mid", 1);
}

static void try_bug(fa2i_generator *generator, const bug *b)
{
    bench t = {.generator = generator};
    char why[FORWARD_WHY_BYTES] = "", place[PLACE_BYTES] = "";
    char *source = NULL;
    setenv("FA2_SIM_CARD", b->card, 1);
    setenv("FA2_SIM_REVERSE", strstr(b->shape, "deterministic") != NULL ? "1" : "", 1);
    choose_optimisation(b);
    fa2_sim_reset();
    must(fa2i_device_open(1, &t.device), "the device");
    must(fa2i_device_enter(&t.device), "the context");
    const fa2i_variant variant = find_variant(&t, b);
    must(fa2i_generator_source(t.generator, variant.text, &source), b->name);
    char *planted = plant(source, b, place);
    if (planted == NULL)
        fprintf(stderr, "%s: the source has no '%s'\n", b->name, b->from);
    CHECK(planted != NULL);
    if (planted != NULL)
        check_report(b, place, run(&t, b, &variant, planted, why), why);
    free(planted);
    fa2i_free(source);
    fa2i_device_leave(&t.device);
    fa2i_device_close(&t.device);
    CHECK_EQ(fa2_sim_live(), 0);
}

/* Returns the i-th bug of all lists together, NULL after the last. */
static const bug *bug_at(size_t i)
{
    static const bug_list *const lists[] = {&forward_bugs, &feature_bugs, &backward_bugs, &hopper_bugs, &precision_bugs,
                                            &int8_bugs,    &kv8_bugs,     &partial_bugs,  &fp32_bugs};
    for (size_t n = 0; n < sizeof lists / sizeof *lists; n++) {
        if (i < lists[n]->count)
            return &lists[n]->bugs[i];
        i -= lists[n]->count;
    }
    return NULL;
}

/* Returns how many bugs there are, without those that plant nothing. */
static size_t count_bugs(void)
{
    size_t count = 0;
    const bug *b;
    for (size_t i = 0; (b = bug_at(i)) != NULL; i++)
        count += b->said != NULL;
    return count;
}

int main(int argc, char **argv)
{
    size_t planted = 0, reported = 0, part = 1, parts = 1, step = 1;
    fa2i_generator *generator = NULL;
    const bool divided = argc > 1 && sscanf(argv[1], "%zu/%zu", &part, &parts) == 2;
    if (part < 1 || part > parts || (argc > 2 && sscanf(argv[2], "%zu", &step) != 1) || step < 1) {
        fprintf(stderr, "usage: test_bugs [NAME | PART/PARTS [STEP]]\n");
        return 2;
    }
    if (getenv("FA2_TEST_ALL") != NULL)
        step = 1;
    CHECK(count_bugs() >= BUGS_LEAST);
    must(fa2i_generator_create(&generator), "the generator");
    setenv("FA2_SIM_BUDGET", "3000000", 1);
    setenv("FA2_SIM_THREADS", "1", 1); /* so that the same block always fails first */
    const bug *b;
    for (size_t i = part - 1; (b = bug_at(i)) != NULL; i += parts * step) {
        if (argc > 1 && !divided && strstr(b->name, argv[1]) == NULL)
            continue;
        const int failures = check_failures;
        try_bug(generator, b);
        planted += b->said != NULL;
        reported += b->said != NULL && check_failures == failures;
    }
    fa2i_generator_destroy(generator);
    printf("%zu bugs were planted, %zu were reported as expected\n", planted, reported);
    return check_done();
}
