/*
 * fa2-tune source: prints the whole text of a kernel, its PTX or its machine code.
 *
 * The kernel is a variant, named by its text or by its key in a database. Or it is the one that the runtime would use
 * for a problem, according to the same planner as in explain. The text needs no GPU, no driver and no NVRTC. PTX and
 * machine code are compiled for the SM of the card, and not stored.
 */
#include <stdio.h>
#include <string.h>
#include "cache/content/report.h"
#include "runtime/base/alloc.h"
#include "runtime/plan/kernels.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/commands/disassemble.h"
#include "tuner/report/predict.h"

typedef struct session {
    fa2i_options options;
    fa2i_generator *generator;
    char *path;                       /* of the database; NULL: none is used */
    fa2i_cache *cache;                /* NULL: there is no database, or none is used */
    char *disassembler;               /* NULL: not wanted */
    char variant[FA2I_VARIANT_CHARS]; /* the named variant; "": the one that the runtime would use */
    bool printed;                     /* at least one kernel was printed */
    bool fails;                       /* at least one call would fail */
} session;

static void session_done(session *s)
{
    fa2i_cache_close(s->cache);
    fa2i_generator_destroy(s->generator);
    fa2i_free(s->path);
    fa2i_free(s->disassembler);
    fa2i_options_done(&s->options);
}

static bool has_card(const fa2i_options *options)
{
    return options->device >= 0 || options->arch_count > 0;
}

static fa2_status check_options(const fa2i_options *options)
{
    const bool compiles = options->ptx || options->sass;
    if (options->positional == NULL && options->shapes.count == 0)
        return fa2i_fail(FA2_E_INVALID, "source needs a variant, as list and show print it, or --shape, for example "
                                        "--shape Hq=8,Sq=512,D=64 --arch sm_86");
    if (options->ptx + options->sass + options->lines > 1)
        return fa2i_fail(FA2_E_INVALID, "source takes one of --ptx, --sass and --lines");
    if (options->device == FA2I_DEVICE_ALL || (options->device >= 0 && options->arch_count > 0))
        return fa2i_fail(FA2_E_INVALID, "source takes one of --device N and --arch sm_86");
    if (!has_card(options) && (compiles || options->positional == NULL))
        return fa2i_fail(FA2_E_INVALID, "source needs --device N or --arch sm_86 %s",
                         compiles ? "to compile for" : "to choose a kernel for a problem");
    return FA2_OK;
}

/* ---- which variant ---- */

static bool is_key(const char *text)
{
    return strlen(text) == 2 * FA2I_KEY_BYTES && strspn(text, "0123456789abcdef") == 2 * FA2I_KEY_BYTES;
}

/* An fa2i_row_fn: takes the variant of the row that has the wanted key. */
static int take_variant(void *user, int columns, const char *const *names, const char *const *values)
{
    session *s = user;
    const char *key = fa2i_row_value(columns, names, values, "key");
    const char *variant = fa2i_row_value(columns, names, values, "variant");
    if (key == NULL || variant == NULL || strcmp(key, s->options.positional) != 0)
        return 0;
    snprintf(s->variant, sizeof s->variant, "%s", variant);
    return 1;
}

static fa2_status find_key(session *s)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_database_open(s->options.db, FA2I_CACHE_READ, &s->cache));
    FA2_TRY(fa2i_cache_list_winners(s->cache, NULL, take_variant, s));
    if (s->variant[0] == '\0')
        FA2_TRY(fa2i_cache_list_all_measurements(s->cache, NULL, take_variant, s));
    if (s->variant[0] == '\0')
        FA2_TRY(fa2i_fail(FA2_E_NOT_FOUND,
                          "%s has no kernel of that key; fa2-tune list --json and show --json say keys",
                          fa2i_cache_path(s->cache)));
done:
    return st;
}

static fa2_status open_session(session *s, int argc, char **argv)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(
        argc, argv, FA2I_OPT_SHAPES | FA2I_OPT_DEVICE | FA2I_OPT_ARCH | FA2I_OPT_DB | FA2I_OPT_SOURCE, &s->options));
    FA2_TRY(fa2i_generator_create(&s->generator));
    FA2_TRY(fa2i_archs_find(s->generator, &s->options));
    FA2_TRY(check_options(&s->options));
    const char *variant = s->options.positional;
    if (variant == NULL)
        FA2_TRY(fa2i_database_open_if_any(s->options.db, "choosing", &s->path, &s->cache));
    else if (is_key(variant))
        FA2_TRY(find_key(s));
    else if ((size_t)snprintf(s->variant, sizeof s->variant, "%s", variant) >= sizeof s->variant)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "a variant's text has at most %zu characters", sizeof s->variant - 1));
    if (s->options.sass)
        FA2_TRY(fa2i_disassembler_find(&s->disassembler));
done:
    return st;
}

/* ---- printing ---- */

/* Prints the text. Leaves out the #line lines, by which the compiler names places in templates/, unless lines is
 * set. */
static void print_text(const char *text, bool lines)
{
    for (const char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n"), bytes = length + (line[length] == '\n');
        if (lines || strncmp(line, "#line ", 6) != 0)
            fwrite(line, 1, bytes, stdout);
        line += bytes;
    }
}

static fa2_status compile(const session *s, const fa2i_variant *variant, const char *source, int arch,
                          fa2i_kernel *ret_kernel)
{
    fa2_status st = FA2_OK;
    fa2i_target target;
    FA2_TRY(fa2i_target_for(arch, s->options.ptx, &target));
    if (s->options.sass && target.ptx)
        FA2_TRY(fa2i_fail(FA2_E_UNSUPPORTED, "this NVRTC makes no machine code for sm_%d, only PTX for %s: --ptx", arch,
                          target.name));
    FA2_TRY(fa2i_compile(variant, source, &target, fa2i_generator_id(s->generator), ret_kernel));
    if (ret_kernel->outcome == FA2I_OUTCOME_COMPILE_ERROR)
        FA2_TRY(fa2i_kernels_fail_compile(ret_kernel));
done:
    return st;
}

/* Prints the compiled code, after a line about it. */
static fa2_status print_code(const session *s, const fa2i_kernel *kernel)
{
    printf("// %s%s, NVRTC %d.%d", kernel->target, kernel->variant.recipe.suffix, kernel->nvrtc / 1000,
           kernel->nvrtc % 1000 / 10);
    if (s->options.sass)
        printf(", %d registers, %d bytes spilled", kernel->registers, kernel->spill_bytes);
    putchar('\n');
    if (s->options.sass)
        return fa2i_disassemble(s->disassembler, &kernel->image, stdout);
    fwrite(kernel->image.data, 1, strnlen(kernel->image.data, kernel->image.bytes), stdout);
    return FA2_OK;
}

/* Prints a kernel. card: NULL if no card is named and nothing is compiled. about: a line before it; "": none. */
static fa2_status print_kernel(session *s, const fa2i_variant *variant, const fa2i_card *card, const char *about)
{
    const bool compiles = s->options.ptx || s->options.sass;
    fa2_status st = FA2_OK;
    char *source = NULL;
    fa2i_kernel kernel = {0};
    FA2_TRY(fa2i_generator_source(s->generator, variant->text, &source));
    if (compiles)
        FA2_TRY(compile(s, variant, source, card->arch, &kernel));
    printf("%s// %s\n// %s\n%s", s->printed ? "\n" : "", variant->text, variant->recipe.text, about);
    s->printed = true;
    if (compiles)
        FA2_TRY(print_code(s, &kernel));
    else
        print_text(source, s->options.lines);
done:
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
    return st;
}

/* Prints the named variant. problem: NULL, or a problem whose class it must have. */
static fa2_status print_named(session *s, const fa2_problem *problem, const fa2i_card *card)
{
    fa2_status st = FA2_OK;
    fa2i_variant variant;
    char class_key[FA2I_CLASS_CHARS];
    st = fa2i_generator_named_variant(s->generator, s->variant, problem, card, &variant);
    if (st == FA2_E_NOT_FOUND && problem == NULL && strstr(s->variant, " d=") == NULL)
        st = fa2i_fail(st, "%s; a text without the problem's fields needs a --shape that has them", fa2_last_message());
    if (st != FA2_OK)
        goto done;
    if (problem != NULL) {
        fa2i_problem_class(problem, class_key);
        if (strcmp(class_key, variant.class_key) != 0)
            FA2_TRY(fa2i_fail(FA2_E_INVALID, "%s is for %s, and the shape is %s", variant.text, variant.class_key,
                              class_key));
    }
    FA2_TRY(print_kernel(s, &variant, card, ""));
done:
    return st;
}

/* Prints the kernel that a call would get. */
static fa2_status print_chosen(session *s, fa2i_predictor *predictor, const fa2_problem *problem)
{
    const fa2i_card *card = &predictor->device.card;
    fa2_status st = FA2_OK;
    fa2i_predicted predicted = {0};
    char about[FA2I_PROBLEM_CHARS + 256];
    const fa2i_shape shape = fa2i_problem_shape(problem);
    FA2_TRY(fa2i_predict(predictor, problem, &predicted));
    if (predicted.status != FA2_OK) {
        fprintf(stderr, "fa2-tune: %s on sm_%d: the call fails: %s\n", shape.text, card->arch, predicted.message);
        s->fails = true;
        goto done;
    }
    snprintf(about, sizeof about, "// for %s on %s (sm_%d), by the rule %s\n", shape.text, card->name, card->arch,
             fa2_rule_string(predicted.decision.rule));
    FA2_TRY(print_kernel(s, &predicted.variant, card, about));
done:
    fa2i_predicted_done(&predicted);
    return st;
}

/* Prints everything that is wanted on a card. card NULL: a variant that needs no card. */
static fa2_status print_on(session *s, const fa2i_card *card)
{
    const fa2i_shapes *shapes = &s->options.shapes;
    fa2_status st = FA2_OK;
    fa2i_predictor predictor = {0};
    if (s->variant[0] != '\0' && shapes->count == 0)
        FA2_TRY(print_named(s, NULL, card));
    if (s->variant[0] == '\0') {
        FA2_TRY(fa2i_predictor_init(&predictor, s->generator, s->cache, s->path, card));
        FA2_TRY(fa2i_predictor_find_share(&predictor));
        if (s->options.device >= 0)
            fa2i_predictor_be_here(&predictor);
    }
    for (size_t i = 0; i < shapes->count; i++) {
        if (s->variant[0] != '\0')
            FA2_TRY(print_named(s, &shapes->items[i], card));
        else
            FA2_TRY(print_chosen(s, &predictor, &shapes->items[i]));
    }
done:
    fa2i_predictor_done(&predictor);
    return st;
}

int fa2i_cmd_source(int argc, char **argv)
{
    session s = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(open_session(&s, argc, argv));
    for (size_t i = 0; i == 0 || i < s.options.arch_count; i++) {
        fa2i_card card;
        if (has_card(&s.options))
            FA2_TRY(fa2i_archs_card(s.generator, &s.options, i, &card));
        FA2_TRY(print_on(&s, has_card(&s.options) ? &card : NULL));
    }
done:
    session_done(&s);
    return st != FA2_OK ? fa2i_report_failure(st) : s.fails ? FA2I_EXIT_FAILED : FA2I_EXIT_OK;
}
