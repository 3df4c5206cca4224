/*
 * fa2-tune tune: measures on a device and stores the winners.
 *
 * This process only reads the device's attributes. Kernels run in the worker process (tuner/worker/worker.h). Only this
 * process writes to the database.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "tuner/search/compile_all.h"
#include "tuner/commands/all_devices.h"
#include "tuner/commands/database.h"
#include "tuner/commands/filter_options.h"
#include "tuner/commands/interrupt.h"
#include "tuner/commands/program.h"
#include "tuner/search/tune.h"

/* The command's own state. request, budget and gpu are what the tuning borrows. */
typedef struct command {
    fa2i_options options;
    fa2i_tune_request request;
    fa2i_budget budget;
    fa2i_gpu gpu;
    fa2i_tune tune;
    bool absent; /* the database file did not exist. It is opened empty and gets a file when it is needed */
} command;

static bool has_open_problem(const fa2i_findings *found)
{
    return fa2i_findings_count(found, FA2I_PROBLEM_OPEN) > 0;
}

/* With --device all no card is known in this process. */
static fa2_status find_device(command *c)
{
    return c->options.device == FA2I_DEVICE_ALL ? FA2_OK
                                                : fa2i_cache_device(c->tune.cache, &c->gpu.card, true, &c->tune.device);
}

/* Opens for writing, and creates the database if it does not exist. */
static fa2_status open_for_writing(command *c)
{
    const fa2_status st = fa2i_database_open(c->options.db, FA2I_CACHE_WRITE, &c->tune.cache);
    return st == FA2_OK ? find_device(c) : st;
}

/* Opens for reading. If there is no database, opens an empty one without a file. */
static fa2_status open_for_reading(command *c)
{
    const fa2_status st = fa2i_database_open_or_empty(c->options.db, &c->absent, &c->tune.cache);
    if (st == FA2_OK && find_device(c) != FA2_OK)
        c->tune.device = -1; /* the device is not in it, and nothing is written */
    return st;
}

static bool is_there(const char *given)
{
    char *path = NULL;
    const bool there = fa2i_database_path(given, &path) == FA2_OK && access(path, F_OK) == 0;
    fa2i_free(path);
    return there;
}

/* A database is created when there is something to store. But if none can be created, that must be known before a
 * program runs for an hour. */
static fa2_status open_database(command *c)
{
    const fa2i_options *options = &c->options;
    if (options->dry_run && options->program != NULL) {
        const fa2_status st = fa2i_database_check_writable(options->db);
        if (st != FA2_OK)
            return st;
    }
    if (options->dry_run || (options->program == NULL && !is_there(options->db)))
        return open_for_reading(c);
    return open_for_writing(c);
}

/* After planning: creates the file if there was none and something is to be tuned. */
static fa2_status make_database(command *c)
{
    if (!c->absent || c->options.dry_run || !has_open_problem(&c->tune.found))
        return FA2_OK;
    fa2i_cache_close(c->tune.cache);
    c->tune.cache = NULL;
    const fa2_status st = open_for_writing(c);
    return st == FA2_OK ? fa2i_tune_find_ids(&c->tune) : st;
}

static fa2_status parse(command *c, int argc, char **argv)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv,
                               FA2I_OPT_SHAPES | FA2I_OPT_DEVICE | FA2I_OPT_DB | FA2I_OPT_JOBS | FA2I_OPT_BUDGET |
                                   FA2I_OPT_JSON | FA2I_OPT_PROGRAM | FA2I_OPT_TUNE | FA2I_OPT_DRY_RUN | FA2I_OPT_ARCH,
                               &c->options));
    if (c->options.device == -1)
        st = fa2i_fail(FA2_E_INVALID, "tune needs --device N: `fa2-tune devices` lists them");
done:
    return st;
}

/* With --arch the device plays an older SM, whose code it takes as PTX. Without NVRTC, fa2i_tune_plan finds a target. */
static fa2_status read_device(command *c)
{
    fa2i_gpu *gpu = &c->gpu;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_gpu_read(c->options.device, gpu));
    FA2_TRY(fa2i_archs_play(c->tune.generator, &c->options, &gpu->card));
    if (gpu->compiles && fa2i_card_is_proxy(&gpu->card))
        FA2_TRY(fa2i_target_for(gpu->card.arch, true, &gpu->target));
    c->tune.target = gpu->target;
done:
    return st;
}

static fa2_status open_tune(command *c)
{
    const fa2i_options *o = &c->options;
    fa2_status st = FA2_OK;
    c->request = (fa2i_tune_request){.shapes = &o->shapes,
                                     .device = o->device,
                                     .threads = (int)fa2i_compile_threads(o->jobs, SIZE_MAX),
                                     .force = o->force,
                                     .all = o->all,
                                     .share = o->share,
                                     .dry_run = o->dry_run,
                                     .json = o->json};
    c->tune = (fa2i_tune){.request = &c->request, .budget = &c->budget, .gpu = &c->gpu};
    FA2_TRY(fa2i_generator_create_stoppable(c->budget.stop, &c->tune.generator));
    FA2_TRY(read_device(c));
    FA2_TRY(open_database(c));
done:
    return st;
}

static void close_tune(command *c)
{
    fa2i_tune_done(&c->tune);
    fa2i_options_done(&c->options);
}

static fa2_status run_program(command *c, bool *ret_program_failed)
{
    fa2i_options *options = &c->options;
    fa2_status st = FA2_OK;
    char *copy = NULL; /* in a dry run the program must not change the database */
    if (options->dry_run)
        FA2_TRY(fa2i_database_copy(c->tune.cache, &copy));
    FA2_TRY(fa2i_program_run(options->program, copy != NULL ? copy : options->db, options->json, c->budget.stop,
                             &options->shapes, ret_program_failed));
    FA2_TRY(fa2i_options_say_left_out(options));
done:
    fa2i_database_remove_copy(copy);
    return st;
}

/* Includes the problems of the program, if there is one. Combines problems that are nearly the same. */
static fa2_status find_problems(command *c, bool *ret_program_failed)
{
    fa2i_options *options = &c->options;
    size_t dropped = 0;
    fa2_status st = FA2_OK;
    if (options->program != NULL)
        FA2_TRY(run_program(c, ret_program_failed));
    FA2_TRY(fa2i_shapes_condense(&options->shapes, &dropped));
    if (dropped > 0)
        fprintf(stderr, "%zu problems are not tuned by themselves, because they differ little from others\n", dropped);
    c->budget.seconds = options->budget_s;
    c->budget.started_s = fa2i_now_s();
    c->budget.spent = fa2i_interrupt_deadline(options->budget_s);
done:
    return st;
}

/* The program was ended before its problems were known. */
static bool say_interrupted(const command *c, int *ret_status)
{
    if (!fa2i_budget_is_stopped(&c->budget))
        return false;
    fprintf(stderr, "fa2-tune: interrupted; nothing was tuned\n");
    *ret_status = FA2I_EXIT_INTERRUPTED;
    return true;
}

/* Runs the program once, on the devices that it chooses itself. */
static fa2_status tune_all_devices(command *c, int argc, char **argv, bool *ret_program_failed, int *ret_status)
{
    fa2i_gpu first;
    fa2_status st = FA2_OK;
    if (c->options.program != NULL) {
        FA2_TRY(fa2i_gpu_read(0, &first)); /* without any device it need not run */
        FA2_TRY(open_database(c));
        FA2_TRY(run_program(c, ret_program_failed));
        fa2i_cache_close(c->tune.cache);
        c->tune.cache = NULL;
    }
    if (say_interrupted(c, ret_status))
        return FA2_OK;
    FA2_TRY(fa2i_all_devices_tune(argc, argv, &c->options, c->budget.stop, ret_status));
done:
    return st;
}

/* Reports wanted work that was not reached. done: problems that were. */
static void print_unreached(command *c, size_t open, size_t done)
{
    const char *why = fa2i_budget_is_stopped(&c->budget) ? "interrupted"
                      : done > 0                         ? "the budget is spent"
                      : open > 0                         ? "nothing was measured, because the budget ran out first"
                                 : "nothing was compiled again, because the budget ran out first";
    size_t uncompiled = 0, unverified = 0;
    fa2i_findings_mark_needed(&c->tune.found);
    for (size_t i = 0; i < c->tune.found.kernel_count; i++) {
        const fa2i_tune_kernel *k = &c->tune.found.kernels[i];
        uncompiled += k->needed && !k->known;
        unverified += k->needed && k->known && !k->verified && k->kernel.outcome == FA2I_OUTCOME_OK;
    }
    fprintf(stderr,
            "fa2-tune: %s; still to compile: %zu variant%s, to verify: %zu of those that are "
            "compiled, to measure: %zu problem%s; what was done is in %s, and the same command goes on from there\n",
            why, uncompiled, fa2i_plural(uncompiled), unverified, open, fa2i_plural(open),
            fa2i_cache_path(c->tune.cache));
}

/* Returns the exit status for problems that cannot be tuned. A dry run knows them, too. */
static int status_of_problems(const fa2i_findings *found)
{
    if (fa2i_findings_count(found, FA2I_PROBLEM_FAILED) > 0)
        return FA2I_EXIT_FAILED;
    return found->problem_count > 0 && fa2i_findings_count(found, FA2I_PROBLEM_UNSERVED) == found->problem_count
               ? FA2I_EXIT_USAGE
               : FA2I_EXIT_OK;
}

/* Returns the exit status. Explains it on stderr if the caller must do something. */
static int exit_status(command *c)
{
    const fa2i_findings *found = &c->tune.found;
    const size_t open = fa2i_findings_count(found, FA2I_PROBLEM_OPEN);
    const size_t unreached = open + fa2i_findings_count_lost(found);
    const size_t done = fa2i_findings_count(found, FA2I_PROBLEM_MEASURED) + found->mended;
    if (unreached > 0 || fa2i_budget_is_stopped(&c->budget))
        print_unreached(c, open, done);
    if (fa2i_budget_is_stopped(&c->budget))
        return FA2I_EXIT_INTERRUPTED;
    return unreached > 0 && done == 0 ? FA2I_EXIT_FAILED : status_of_problems(found);
}

/* Prints the work. Fails as the run would if its database cannot be written. */
static fa2_status run_dry(command *c)
{
    fa2i_tune_work work;
    const fa2_status st = fa2i_tune_estimate(&c->tune, &work);
    if (st != FA2_OK)
        return st;
    fa2i_tune_print_work(&c->tune, &work);
    return c->absent && !has_open_problem(&c->tune.found) ? FA2_OK : fa2i_database_check_writable(c->options.db);
}

/* Plans, and tunes. *ret_status: the exit status. */
static fa2_status tune_device(command *c, int *ret_status)
{
    fa2i_tune *tune = &c->tune;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_tune_prepare(tune));
    FA2_TRY(make_database(c));
    fa2i_tune_print_start(tune);
    fa2i_tune_print_planned(tune);
    if (c->options.dry_run) {
        FA2_TRY(run_dry(c));
        *ret_status = status_of_problems(&tune->found);
        goto done;
    }
    FA2_TRY(fa2i_tune_run(tune));
    fa2i_tune_print_summary(tune);
    if (c->options.json)
        fa2i_tune_print_json(tune);
    *ret_status = exit_status(c);
done:
    return st;
}

int fa2i_cmd_tune(int argc, char **argv)
{
    fa2_status st = FA2_OK;
    int status = FA2I_EXIT_FAILED;
    bool program_failed = false;
    command c = {.budget.stop = fa2i_interrupt_watch()};
    FA2_TRY(parse(&c, argc, argv));
    if (c.options.device == FA2I_DEVICE_ALL) {
        FA2_TRY(tune_all_devices(&c, argc, argv, &program_failed, &status));
        goto done;
    }
    FA2_TRY(open_tune(&c));
    FA2_TRY(find_problems(&c, &program_failed));
    if (c.options.program == NULL || !say_interrupted(&c, &status))
        FA2_TRY(tune_device(&c, &status));
done:
    if (st != FA2_OK)
        status = fa2i_report_failure(st);
    if (program_failed && (status == FA2I_EXIT_OK || status == FA2I_EXIT_USAGE))
        status = FA2I_EXIT_FAILED;
    close_tune(&c);
    return status;
}
