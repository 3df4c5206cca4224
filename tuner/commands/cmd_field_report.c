/*
 * fa2-tune field-report FILE: measures this card for people who cannot use it.
 *
 * The tune command fills a database beside the file (FILE.field.db, which has no other use) with every candidate of a
 * small preset, then with random problems. It continues where an earlier run stopped. The later steps take seconds, and
 * are repeated each time. The report is written when everything is measured.
 */
#define _XOPEN_SOURCE 700 /* for mkdtemp */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cache/content/report.h"
#include "runtime/base/alloc.h"
#include "runtime/base/environment.h"
#include "runtime/base/file.h"
#include "runtime/base/shown.h"
#include "runtime/base/text.h"
#include "runtime/ops/op.h"
#include "tuner/bench/field.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/commands/interrupt.h"
#include "tuner/commands/place.h"
#include "tuner/report/progress.h"

enum { BUDGET_S = 480, OPS = FA2_OP_BACKWARD + 1 };

typedef struct report {
    fa2i_options options;
    const char *path;
    char *database;     /* owned */
    bool made_database; /* there was none before */
    const volatile sig_atomic_t *stop;
    fa2i_gpu gpu;
    fa2i_generator *generator;
    fa2i_cache *cache;
    fa2i_kernel_list kernels;
    fa2i_worker *worker;
    fa2i_nvml nvml;
    fa2i_conditions seen;
    fa2i_ceiling ceilings[FA2I_CEILINGS];
    fa2i_accuracy *problems[OPS]; /* owned */
    size_t counts[OPS];
    fa2i_field_summary summaries[OPS];
    fa2i_export_counts exported;
} report;

static void report_done(report *r)
{
    fa2i_worker_destroy(r->worker);
    fa2i_kernel_list_done(&r->kernels);
    fa2i_nvml_close(&r->nvml);
    for (int op = 0; op < OPS; op++)
        fa2i_free(r->problems[op]);
    fa2i_cache_close(r->cache);
    fa2i_generator_destroy(r->generator);
    fa2i_free(r->database);
    fa2i_options_done(&r->options);
}

static const char beside[] = "what is measured is kept beside it until the report is whole";

/* ---- measuring ---- */

/* The arguments of tune: device, database, budget, jobs, problems. */
typedef struct arguments {
    char *items[2 * FA2I_FIELD_PROBLEMS + 16];
    int count;
    fa2i_text texts; /* the texts of items, one after the other; items are set at the end */
    size_t starts[2 * FA2I_FIELD_PROBLEMS + 16];
} arguments;

static void add_argument(arguments *a, const char *text)
{
    a->starts[a->count++] = a->texts.length;
    fa2i_text_add_bytes(&a->texts, text, strlen(text) + 1);
}

static void add_shape(arguments *a, const fa2_problem *problem)
{
    add_argument(a, "--shape");
    add_argument(a, fa2i_problem_argument(problem).text);
}

/* Runs tune for the preset with every candidate, or for the random problems. *ret_status: its exit status. */
static fa2_status tune(const report *r, bool preset, double budget_s, int *ret_status)
{
    fa2_problem problems[FA2I_FIELD_PROBLEMS];
    size_t count = 0;
    char number[32];
    arguments a = {0};
    if (!preset)
        fa2i_field_problems(r->gpu.modelled, problems, &count);
    add_argument(&a, "tune");
    snprintf(number, sizeof number, "--device=%d", r->options.device);
    add_argument(&a, number);
    snprintf(number, sizeof number, "--budget=%.6g", budget_s);
    if (!r->gpu.modelled || r->options.budget_s > 0)
        add_argument(&a, number);
    snprintf(number, sizeof number, "--jobs=%d", r->options.jobs);
    add_argument(&a, number);
    add_argument(&a, "--db");
    add_argument(&a, r->database);
    if (preset)
        add_argument(&a, "--preset=quick");
    if (preset || r->gpu.modelled) /* a software device has no preset: all candidates would take too long */
        add_argument(&a, "--all");
    for (size_t i = 0; i < count; i++)
        add_shape(&a, &problems[i]);
    if (a.texts.failed) {
        fa2i_text_done(&a.texts);
        return fa2i_fail(FA2_E_MEMORY, "no memory for arguments");
    }
    for (int i = 0; i < a.count; i++)
        a.items[i] = a.texts.data + a.starts[i];
    *ret_status = fa2i_cmd_tune(a.count, a.items);
    fa2i_text_done(&a.texts);
    return FA2_OK;
}

/* Tunes both, within the budget. */
static fa2_status tune_both(const report *r, int *ret_status)
{
    const double budget_s = r->options.budget_s > 0 ? r->options.budget_s : (double)BUDGET_S;
    const double started_s = fa2i_now_s();
    int first = FA2I_EXIT_OK;
    fa2_status st = FA2_OK;
    if (!r->gpu.modelled)
        FA2_TRY(tune(r, true, budget_s, &first));
    *ret_status = first;
    if (*r->stop != 0)
        goto done;
    FA2_TRY(tune(r, false, fmax(budget_s - (fa2i_now_s() - started_s), 0.1), ret_status));
    *ret_status = first != FA2I_EXIT_OK ? first : *ret_status;
done:
    return st;
}

static fa2_status measure_ceilings(report *r)
{
    fa2_status st = FA2_OK;
    r->kernels = (fa2i_kernel_list){.gpu = &r->gpu, .generator = r->generator};
    if (r->gpu.has_uuid && !r->gpu.modelled)
        fa2i_nvml_open(r->gpu.uuid, &r->nvml);
    FA2_TRY(
        fa2i_worker_create(r->gpu.ordinal, r->gpu.modelled, fa2i_kernel_list_get, &r->kernels, r->stop, &r->worker));
    FA2_TRY(fa2i_ceilings_measure(&r->kernels, r->worker, r->stop, &r->nvml, &r->seen, r->ceilings));
done:
    return st;
}

static fa2_status find_accuracy(report *r)
{
    fa2_status st = FA2_OK;
    for (int op = 0; op < OPS; op++) {
        FA2_TRY(fa2i_accuracy_find(r->generator, r->cache, &r->gpu.card, (fa2_op)op, !r->gpu.modelled, &r->problems[op],
                                   &r->counts[op]));
        FA2_TRY(fa2i_field_summarize((fa2_op)op, r->problems[op], r->counts[op], &r->summaries[op]));
    }
done:
    return st;
}

/* ---- writing ---- */

static void print_report(const report *r, FILE *out)
{
    fa2i_field_print_about(&r->gpu, &r->nvml, &r->seen, out);
    for (int i = 0; i < FA2I_CEILINGS; i++)
        fa2i_field_print_ceiling(&r->ceilings[i], out);
    for (int op = 0; op < OPS; op++)
        for (size_t i = 0; i < r->counts[op]; i++)
            fa2i_field_print_problem(&r->problems[op][i], out);
    for (int op = 0; op < OPS; op++)
        if (r->counts[op] > 0)
            fa2i_field_print_summary(&r->summaries[op], out);
}

/* An fa2i_place_fill_fn. */
static fa2_status fill(void *user, FILE *out)
{
    report *r = user;
    const fa2_status st = fa2i_cache_export(r->cache, out, &r->exported);
    if (st == FA2_OK)
        print_report(r, out);
    return st;
}

/* Says what is in the file, for the person who sends it. */
static void list_contents(const report *r)
{
    fa2i_shown_print(stdout,
                     "%s: %zu rows of the database: devices, problems, sessions (driver, NVRTC, times of day),\n"
                     "kernels (parameters, registers, no code), verifications, measurements, winners; and the\n"
                     "report: fa2's version, card, driver, clocks, %d ceilings, %zu problems, summaries.\n"
                     "No name of a person or machine, no path, no address. The database is %s",
                     r->path, r->exported.rows, (int)FA2I_CEILINGS, r->counts[0] + r->counts[1], r->database);
    fputs(r->made_database ? "; it is not\nneeded any more.\n" : ", which was there before.\n", stdout);
}

static fa2_status make_report(report *r, int *ret_status)
{
    fa2_status st = FA2_OK;
    fa2i_destination to = {0};
    FA2_TRY(fa2i_place_look(r->path, &fa2i_place_field_report, &to));
    if (to.stream)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "%s: is no regular file, and %s", r->path, beside));
    FA2_TRY(fa2i_gpu_read(r->options.device, &r->gpu));
    FA2_TRY(fa2i_text_make(&r->database, "%s.field.db", r->path));
    r->made_database = access(r->database, F_OK) != 0;
    FA2_TRY(tune_both(r, ret_status));
    const bool none = *ret_status != FA2I_EXIT_OK && access(r->database, F_OK) != 0;
    if (*r->stop != 0 || none) /* tune has said why */
        goto done;
    FA2_TRY(fa2i_generator_create_stoppable(r->stop, &r->generator));
    FA2_TRY(fa2i_database_open(r->database, FA2I_CACHE_READ, &r->cache));
    FA2_TRY(measure_ceilings(r));
    FA2_TRY(find_accuracy(r));
    FA2_TRY(fa2i_place_write(&to, fill, r));
    list_contents(r);
    for (int op = 0; op < OPS; op++)
        if (r->counts[op] > 0)
            fa2i_field_print_summary(&r->summaries[op], stdout);
    FA2_TRY(fa2i_field_print_misses(r->problems, r->counts, OPS, stdout));
done:
    return st;
}

/* ---- reading ---- */

/* Finds the card on which times were taken, from the first operation that has any, and whether they were measured. */
static fa2_status find_card(report *r)
{
    static char line[16384];
    fa2_status st = FA2_OK;
    const char *why = NULL;
    FILE *in = fa2i_file_open(r->path, &why);
    if (in == NULL)
        return fa2i_fail(FA2_E_INVALID, "%s: %s", r->path, why);
    r->gpu.modelled = false;
    while (fgets(line, sizeof line, in) != NULL) {
        const char *arch = strstr(line, "\"arch\":");
        if (strncmp(line, "{\"type\":\"device\"", 16) == 0 && arch != NULL && r->gpu.card.arch == 0)
            r->gpu.card.arch = atoi(arch + 7);
        if (strncmp(line, "{\"fa2_report\":\"about\"", 21) == 0)
            r->gpu.modelled = strstr(line, "\"modelled\":true") != NULL;
    }
    fclose(in);
    fa2i_evidence evidence = {0};
    r->gpu.card.smem_block_bytes = INT32_MAX; /* no limit while the card is not known, so that all kernels fit */
    for (int op = 0; op < OPS && r->gpu.card.name[0] == '\0'; op++) {
        const fa2_problem any = {.struct_bytes = sizeof(fa2_problem), .op = (fa2_op)op};
        fa2i_evidence_done(&evidence);
        FA2_TRY(fa2i_cache_evidence(r->cache, &r->gpu.card, any.op, fa2i_op_of(&any)->abi, &evidence));
        for (size_t i = 0; i < evidence.set_count && r->gpu.card.name[0] == '\0'; i++)
            if (evidence.sets[i].real)
                r->gpu.card = evidence.sets[i].card;
    }
    if (r->gpu.card.name[0] == '\0')
        st = fa2i_fail(FA2_E_INVALID, "%s: nothing was measured", r->path);
done:
    fa2i_evidence_done(&evidence);
    return st;
}

/* Imports the report into a temporary database, and compares the summaries. */
static fa2_status check_report(report *r, int *ret_status)
{
    fa2_status st = FA2_OK;
    size_t different = 0;
    char *folder = NULL, *name = NULL;
    bool made = false;
    FILE *in = NULL;
    FA2_TRY(fa2i_place_open_export(r->path, &in));
    FA2_TRY(fa2i_text_make(&folder, "%s/fa2-field-XXXXXX", fa2i_environment_folder()));
    made = mkdtemp(folder) != NULL;
    if (!made)
        FA2_TRY(fa2i_fail(FA2_E_IO, "%s: %s; TMPDIR can name a folder", folder, strerror(errno)));
    FA2_TRY(fa2i_text_make(&name, "%s/fa2.db", folder));
    FA2_TRY(fa2i_generator_create_stoppable(r->stop, &r->generator));
    FA2_TRY(fa2i_cache_open(name, FA2I_CACHE_WRITE, NULL, NULL, &r->cache));
    FA2_TRY(fa2i_cache_import(r->cache, in, r->path, NULL, NULL, NULL));
    FA2_TRY(find_card(r));
    FA2_TRY(find_accuracy(r));
    fa2i_field_summary found[OPS];
    size_t count = 0;
    for (int op = 0; op < OPS; op++)
        if (r->counts[op] > 0)
            found[count++] = r->summaries[op];
    FA2_TRY(fa2i_field_compare(r->path, found, count, stdout, &different));
    FA2_TRY(fa2i_field_print_misses(r->problems, r->counts, OPS, stdout));
    puts(different == 0 ? "the same figures here" : "other figures here");
    *ret_status = different == 0 ? FA2I_EXIT_OK : FA2I_EXIT_FAILED;
done:
    if (in != NULL)
        fclose(in);
    fa2i_cache_close(r->cache);
    r->cache = NULL;
    if (name != NULL)
        remove(name);
    if (made)
        rmdir(folder);
    fa2i_free(name);
    fa2i_free(folder);
    return st;
}

static fa2_status parse(report *r, int argc, char **argv)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(
        argc, argv, FA2I_OPT_DEVICE | FA2I_OPT_JOBS | FA2I_OPT_BUDGET | FA2I_OPT_FILE | FA2I_OPT_CHECK, &r->options));
    r->path = r->options.positional;
    if (strcmp(r->path, "-") == 0)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "field-report needs a file: %s", beside));
    if (!r->options.check && r->options.device < 0)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "field-report needs --device N, one device, or --check"));
done:
    return st;
}

int fa2i_cmd_field_report(int argc, char **argv)
{
    report r = {.stop = fa2i_interrupt_watch()};
    fa2_status st = FA2_OK;
    int status = FA2I_EXIT_OK;
    FA2_TRY(parse(&r, argc, argv));
    st = r.options.check ? check_report(&r, &status) : make_report(&r, &status);
done:
    if (st != FA2_OK)
        status = fa2i_report_failure(st);
    else if (*r.stop != 0)
        status = FA2I_EXIT_INTERRUPTED;
    report_done(&r);
    return status;
}
