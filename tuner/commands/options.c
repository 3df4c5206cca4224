/*
 * Options: "--name value" or "--name=value", from one table.
 *
 * - An option that the command does not take is refused, with the list of those that it takes.
 * - Shapes and architectures accumulate in the order given. Other options may be given once.
 * - A file that cannot be read because its name is wrong is the caller's mistake: FA2_E_INVALID.
 */
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/nearest.h"
#include "runtime/base/problem.h"
#include "tuner/bench/scaling.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/filter_options.h"
#include "tuner/commands/interrupt.h"

typedef fa2_status (*apply_fn)(const char *value, fa2i_options *options);

static fa2_status invalid(const char *option, const char *value, const char *accepted)
{
    return fa2i_fail(FA2_E_INVALID, "%s \"%s\": expected %s", option, value, accepted);
}

static fa2_status apply_preset(const char *value, fa2i_options *options)
{
    return fa2i_shapes_add_preset(&options->shapes, value);
}

static fa2_status apply_shapes(const char *value, fa2i_options *options)
{
    const bool standard = strcmp(value, "-") == 0;
    if (standard && options->reads_stdin)
        return fa2i_fail(FA2_E_INVALID, "--shapes - is given twice; standard input can be read once");
    options->reads_stdin = options->reads_stdin || standard;
    const fa2_status st = fa2i_shapes_add_file(&options->shapes, value);
    return st == FA2_E_IO ? fa2i_fail_prefix(FA2_E_INVALID, "--shapes") : st;
}

/* Parses the name of an operation, or "all": attention and its gradients. Merges have other sizes. */
static fa2_status apply_op(const char *value, fa2i_options *options)
{
    int32_t op = 0;
    if (strcmp(value, "all") == 0)
        options->shapes.ops = 1u << FA2_OP_FORWARD | 1u << FA2_OP_BACKWARD;
    else if (fa2i_field_parse_word(FA2I_FIELD_op, value, &op))
        options->shapes.ops = 1u << op;
    else
        return invalid("--op", value, "forward, backward, merge or all");
    return FA2_OK;
}

static fa2_status apply_device(const char *value, fa2i_options *options)
{
    if (strcmp(value, "all") == 0) {
        options->device = FA2I_DEVICE_ALL;
        return FA2_OK;
    }
    char accepted[96];
    snprintf(accepted, sizeof accepted, "a device number, 0 to %d, as fa2-tune devices lists them; tune also takes all",
             FA2I_DEVICE_MAX);
    return fa2i_whole_parse(value, FA2I_DEVICE_MAX, &options->device) ? FA2_OK : invalid("--device", value, accepted);
}

/* Parses a number with M (2^20 bytes) or G (2^30 bytes) after it. */
static fa2_status apply_max_size(const char *value, fa2i_options *options)
{
    char digits[16];
    int number = 0;
    const size_t length = strlen(value);
    const char unit = length > 1 && length < sizeof digits ? value[length - 1] : '\0';
    snprintf(digits, sizeof digits, "%.*s", unit == '\0' ? 0 : (int)length - 1, value);
    if ((unit != 'M' && unit != 'G') || !fa2i_whole_parse(digits, 1 << 20, &number) || number < 1)
        return invalid("--max-size", value, "a size such as 256M or 2G");
    options->max_bytes = (int64_t)number << (unit == 'M' ? 20 : 30);
    return FA2_OK;
}

static fa2_status apply_budget(const char *value, fa2i_options *options)
{
    char *end = NULL;
    const double seconds = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(seconds) || seconds <= 0)
        return invalid("--budget", value, "seconds, more than 0");
    options->budget_s = seconds;
    return FA2_OK;
}

static fa2_status apply_fail_above(const char *value, fa2i_options *options)
{
    char *end = NULL;
    const double percent = strtod(value, &end);
    if (end == value || (strcmp(end, "%") != 0 && *end != '\0') || !isfinite(percent) || percent <= 0)
        return invalid("--fail-above", value, "a percentage above 0, such as 5%");
    options->fail_above = percent / 100;
    return FA2_OK;
}

static fa2_status apply_scale(const char *value, fa2i_options *options)
{
    fa2i_scale scale = FA2I_SCALE_S;
    if (!fa2i_scale_parse(value, &scale))
        return invalid("--scale", value, "S, B or D");
    options->scales |= 1u << scale;
    return FA2_OK;
}

static fa2_status apply_format(const char *value, fa2i_options *options)
{
    options->csv = strcmp(value, "csv") == 0;
    options->json = strcmp(value, "json") == 0;
    return options->csv || options->json || strcmp(value, "text") == 0
               ? FA2_OK
               : invalid("--format", value, "text, csv or json");
}

#define OPTION(member) offsetof(fa2i_options, member)

static const struct option {
    const char *name;
    int bit;
    const char *value; /* describes the value; NULL: it takes no value */
    apply_fn apply;    /* NULL: the member is set to true, to the value as a path, or to a number */
    bool once;
    size_t member;   /* offset in fa2i_options */
    int least, most; /* of a whole number; most 0: it is none */
} known[] = {
    {"--preset", FA2I_OPT_SHAPES, "the name of a preset", .apply = apply_preset},
    {"--shapes", FA2I_OPT_SHAPES, "a shape file", .apply = apply_shapes},
    {"--shape", FA2I_OPT_FILTER, "fields of a shape: D=64,causal=1", .apply = fa2i_filter_apply_shape, .once = true},
    {"--shape", FA2I_OPT_FILTER_SHOWN, "a shape, or fields of one", .apply = fa2i_filter_apply_shown},
    {"--shape", FA2I_OPT_SHAPES, "a shape: Hq=8,Sq=512,D=64", .apply = fa2i_options_apply_shape},
    {"--op", FA2I_OPT_FILTER | FA2I_OPT_SHAPES, "forward, backward, merge or all", .apply = apply_op, .once = true},
    {"--device", FA2I_OPT_FILTER | FA2I_OPT_FILTER_SHOWN, "a device number, a part of a name, or all",
     .apply = fa2i_filter_apply_device, .once = true},
    {"--variant", FA2I_OPT_FORGET, "a part of a variant's text", .apply = fa2i_filter_apply_variant, .once = true},
    {"--failures", FA2I_OPT_FORGET, .member = OPTION(filter.failures)},
    {"--all", FA2I_OPT_TUNE, .member = OPTION(all)},
    {"--force", FA2I_OPT_TUNE, .member = OPTION(force)},
    {"--share", FA2I_OPT_TUNE, .member = OPTION(share)},
    {"--dry-run", FA2I_OPT_DRY_RUN, .member = OPTION(dry_run)},
    {"--device", FA2I_OPT_DEVICE, "a device number", .apply = apply_device, .once = true},
    {"--arch", FA2I_OPT_ARCH, "architectures: sm_86; native, all", .apply = fa2i_archs_parse},
    {"--db", FA2I_OPT_DB, "the path of a database file", .once = true, .member = OPTION(db)},
    {"--jobs", FA2I_OPT_JOBS, "a number of threads, 0 (all processors) to 1024", .once = true, .member = OPTION(jobs),
     .most = 1024},
    {"--max-size", FA2I_OPT_MAX_SIZE, "a size such as 256M or 2G", .apply = apply_max_size, .once = true},
    {"--budget", FA2I_OPT_BUDGET, "seconds", .apply = apply_budget, .once = true},
    {"--html", FA2I_OPT_REPORT, "the path of a file to write", .once = true, .member = OPTION(html)},
    {"--markdown", FA2I_OPT_REPORT, "the path of a file to write", .once = true, .member = OPTION(markdown)},
    {"--against", FA2I_OPT_REPORT, "the path of a database file", .once = true, .member = OPTION(against)},
    {"--bench", FA2I_OPT_REPORT, "the path of a file of bench or field-report", .once = true, .member = OPTION(bench)},
    {"--against", FA2I_OPT_BENCH, "the path of a file of bench --json", .once = true, .member = OPTION(against)},
    {"--fail-above", FA2I_OPT_BENCH, "a percentage: 5%", .apply = apply_fail_above, .once = true},
    {"--runs", FA2I_OPT_BENCH, "a number of timed runs, 10 to 100000", .once = true, .member = OPTION(runs),
     .least = 10, .most = 100000},
    {"--rest", FA2I_OPT_BENCH, "milliseconds, 0 to 10000", .once = true, .member = OPTION(rest_ms), .most = 10000},
    {"--check", FA2I_OPT_CHECK, .member = OPTION(check)},
    {"--never-compile", FA2I_OPT_EXPLAIN, .member = OPTION(never_compile)},
    {"--ptx", FA2I_OPT_SOURCE, .member = OPTION(ptx)},
    {"--sass", FA2I_OPT_SOURCE, .member = OPTION(sass)},
    {"--lines", FA2I_OPT_SOURCE, .member = OPTION(lines)},
    {"--scale", FA2I_OPT_BENCH, "S, B or D", .apply = apply_scale},
    {"--cold", FA2I_OPT_BENCH, .member = OPTION(cold)},
    {"--precisions", FA2I_OPT_BENCH, .member = OPTION(precisions)},
    {"--format", FA2I_OPT_BENCH, "text, csv or json", .apply = apply_format, .once = true},
    {"--with-code", FA2I_OPT_WITH_CODE, .member = OPTION(with_code)},
    {"--trust", FA2I_OPT_TRUST, .member = OPTION(trust)},
    {"--json", FA2I_OPT_JSON, .member = OPTION(json)},
};

#undef OPTION

enum { KNOWN_COUNT = sizeof known / sizeof *known };
_Static_assert(KNOWN_COUNT <= 64, "those given are bits of a uint64_t");

static const struct option *find_option(const char *arg, size_t bytes, int accepted)
{
    for (int i = 0; i < KNOWN_COUNT; i++) {
        if ((known[i].bit & accepted) && strlen(known[i].name) == bytes && memcmp(known[i].name, arg, bytes) == 0)
            return &known[i];
    }
    return NULL;
}

static fa2_status unknown_option(const char *command, const char *arg, int accepted)
{
    char list[256] = "--help";
    fa2i_nearest meant = {0};
    for (int i = 0; i < KNOWN_COUNT; i++) {
        const size_t used = strlen(list);
        if (find_option(known[i].name, strlen(known[i].name), accepted) != &known[i])
            continue;
        snprintf(list + used, sizeof list - used, ", %s", known[i].name);
        fa2i_nearest_try(&meant, arg, strcspn(arg, "="), known[i].name, known[i].name);
    }
    if (meant.name != NULL)
        return fa2i_fail(FA2_E_INVALID, "%s has no option \"%s\", did you mean %s?", command, arg, meant.name);
    return fa2i_fail(FA2_E_INVALID, "%s has no option \"%s\"; it takes %s", command, arg, list);
}

/* Sets the member of an option that has no function of its own. */
static fa2_status set_member(const struct option *option, const char *value, fa2i_options *options)
{
    void *member = (char *)options + option->member;
    int number = 0;
    const bool takes = option->most > 0 ? fa2i_whole_parse(value, option->most, &number) && number >= option->least
                                        : option->value == NULL || *value != '\0';
    if (!takes)
        return invalid(option->name, value, option->value);
    if (option->most > 0)
        *(int *)member = number;
    else if (option->value == NULL)
        *(bool *)member = true;
    else
        *(const char **)member = value;
    return FA2_OK;
}

/* Looks for --op first, because it also applies to shapes before it. Option values never begin with "--". Errors in it
 * are reported later, in its turn. */
static void look_for_op(int argc, char **argv, fa2i_options *options)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--op=", 5) == 0)
            (void)apply_op(argv[i] + 5, options);
        else if (strcmp(argv[i], "--op") == 0 && i + 1 < argc)
            (void)apply_op(argv[i + 1], options);
    }
}

/* Parses the option at argv[*index]. Its value may be the next argument. *given: the options so far, one bit for each
 * row of the table. */
static fa2_status parse_option(int argc, char **argv, int accepted, int *index, uint64_t *given, fa2i_options *options)
{
    const char *arg = argv[*index];
    const char *equals = strchr(arg, '=');
    const size_t bytes = equals == NULL ? strlen(arg) : (size_t)(equals - arg);
    const struct option *option = find_option(arg, bytes, accepted);
    if (option == NULL)
        return unknown_option(argv[0], arg, accepted);
    const char *value = equals == NULL ? NULL : equals + 1;
    if (option->value == NULL && value != NULL)
        return fa2i_fail(FA2_E_INVALID, "%s takes no value", option->name);
    if (option->value != NULL && value == NULL) {
        if (*index + 1 == argc || strncmp(argv[*index + 1], "--", 2) == 0)
            return fa2i_fail(FA2_E_INVALID, "%s needs a value: %s", option->name, option->value);
        value = argv[++*index];
    }
    const uint64_t bit = UINT64_C(1) << (option - known);
    if (option->once && (*given & bit) != 0)
        return fa2i_fail(FA2_E_INVALID, "%s is given twice; it takes one value", option->name);
    *given |= bit;
    return option->apply != NULL ? option->apply(value, options) : set_member(option, value, options);
}

static fa2_status parse_positional(const char *command, const char *arg, int accepted, fa2i_options *options)
{
    const bool is_variant = (accepted & FA2I_OPT_SOURCE) != 0;
    if (!(accepted & FA2I_OPT_FILE) && !is_variant)
        return fa2i_fail(FA2_E_INVALID, "%s takes options only, not \"%s\"", command, arg);
    if (options->positional != NULL && is_variant)
        return fa2i_fail(FA2_E_INVALID, "%s takes one variant, as one word: \"%s %s ...\"", command,
                         options->positional, arg);
    if (options->positional != NULL)
        return fa2i_fail(FA2_E_INVALID, "%s takes one file; \"%s\" is a second one", command, arg);
    if (*arg == '\0')
        return fa2i_fail(FA2_E_INVALID, "%s needs a %s, not \"\"", command, is_variant ? "variant" : "file");
    options->positional = arg;
    return FA2_OK;
}

bool fa2i_options_takes_next(const char *arg)
{
    const struct option *option = find_option(arg, strlen(arg), INT_MAX);
    return option != NULL && option->value != NULL;
}

fa2_status fa2i_options_parse(int argc, char **argv, int accepted, fa2i_options *ret_options)
{
    const int works_through_shapes = FA2I_OPT_SHAPES | FA2I_OPT_JOBS;
    fa2i_options options = {.device = -1};
    fa2_status st = FA2_OK;
    uint64_t given = 0;
    look_for_op(argc, argv, &options);
    for (int i = 1; i < argc && options.program == NULL; i++) {
        if ((accepted & FA2I_OPT_PROGRAM) && strcmp(argv[i], "--") == 0)
            options.program = argv + i + 1;
        else if (argv[i][0] == '-' && argv[i][1] != '\0')
            FA2_TRY(parse_option(argc, argv, accepted, &i, &given, &options));
        else
            FA2_TRY(parse_positional(argv[0], argv[i], accepted, &options));
    }
    if ((accepted & FA2I_OPT_FILE) && options.positional == NULL)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "%s needs a file (\"-\" is the standard stream)", argv[0]));
    if (options.program != NULL && options.program[0] == NULL)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "-- needs a program after it"));
    if ((accepted & works_through_shapes) == works_through_shapes && options.shapes.count == 0 &&
        options.shapes.left_out == 0 && options.program == NULL) {
        if (options.device != -1 || options.arch_count > 0 || options.arch_all ||
            options.arch_native) /* else it fails */
            fputs("fa2-tune: no shapes are given: these are the preset seeds; --shape, --shapes or --preset name "
                  "others\n",
                  stderr);
        FA2_TRY(fa2i_shapes_add_preset(&options.shapes, "seeds"));
    }
    fa2i_filter_settle_op(&options, accepted);
    if (options.program == NULL)
        FA2_TRY(fa2i_options_say_left_out(&options));
    *ret_options = options;
    options = (fa2i_options){0}; /* the caller owns the shapes now */
done:
    fa2i_options_done(&options);
    return st;
}

void fa2i_options_done(fa2i_options *options)
{
    fa2i_shapes_done(&options->shapes);
}

/* What to do about it, where the message itself does not say. It stays on the message's line: others read the last one. */
static const char *advice(fa2_status status)
{
    switch (status) {
    case FA2_E_NO_DRIVER:
    case FA2_E_NO_DEVICE:
        return "; `fa2-tune doctor` says what is missing, and `fa2-tune build --arch sm_86` needs no GPU";
    default:
        return "";
    }
}

int fa2i_report_failure(fa2_status status)
{
    fprintf(stderr, "fa2-tune: %s%s\n", fa2_last_message(), advice(status));
    if (fa2i_interrupted())
        return FA2I_EXIT_INTERRUPTED;
    switch (status) {
    case FA2_E_INVALID:
    case FA2_E_UNSUPPORTED:
    case FA2_E_NOT_FOUND: /* the named database does not exist */
        return FA2I_EXIT_USAGE;
    case FA2_E_NO_DRIVER:
    case FA2_E_NO_DEVICE:
        return FA2I_EXIT_NO_DEVICE;
    default:
        return FA2I_EXIT_FAILED;
    }
}
