/*
 * fa2-tune tune: measures on a device and stores the winners.
 *
 * This process only reads the device's attributes. Kernels run in the worker process (tuner/worker/worker.h). Only this
 * process writes to the database.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cache/report.h"
#include "runtime/base/alloc.h"
#include "tuner/commands/all_devices.h"
#include "tuner/commands/database.h"
#include "tuner/commands/filter_options.h"
#include "tuner/commands/interrupt.h"
#include "tuner/commands/program.h"
#include "tuner/search/tune.h"
#include "tuner/worker/gpu.h"

bool fa2i_tune_stopped(const fa2i_tune *tune)
{
    return *tune->stop != 0;
}

bool fa2i_tune_spent(const fa2i_tune *tune)
{
    return *tune->spent != 0;
}

static const fa2i_kernel *worker_kernel(void *user, uint32_t id)
{
    const fa2i_tune *tune = user;
    return &tune->kernels[id].kernel;
}

fa2_status fa2i_tune_worker(fa2i_tune *tune)
{
    if (tune->worker != NULL)
        return FA2_OK;
    return fa2i_worker_create(tune->options.device, tune->modelled, worker_kernel, tune, tune->stop,
                              &tune->worker);
}

static fa2_status read_device(fa2i_tune *tune)
{
    fa2i_gpu gpu;
    const fa2_status st = fa2i_gpu_read(tune->options.device, &gpu);
    if (st != FA2_OK)
        return st;
    tune->card = gpu.card;
    tune->driver = gpu.driver;
    tune->memory_bytes = gpu.memory_bytes;
    memcpy(tune->uuid, gpu.uuid, sizeof tune->uuid);
    tune->has_uuid = gpu.has_uuid;
    tune->modelled = gpu.modelled;
    tune->compiles = gpu.compiles; /* tuned problems need no NVRTC: fa2i_tune_plan */
    tune->target = gpu.target;
    return FA2_OK;
}

static size_t count_state(const fa2i_tune *tune, fa2i_problem_state state)
{
    size_t count = 0;
    for (size_t i = 0; i < tune->problem_count; i++)
        count += tune->problems[i].state == state;
    return count;
}

static bool has_open_problem(const fa2i_tune *tune)
{
    return count_state(tune, FA2I_PROBLEM_OPEN) > 0;
}

/* With --device all no card is known in this process. */
static fa2_status find_device(fa2i_tune *tune)
{
    return tune->options.device == FA2I_DEVICE_ALL
               ? FA2_OK
               : fa2i_cache_device(tune->cache, &tune->card, true, &tune->device);
}

/* Opens for writing, and creates the database if it does not exist. */
static fa2_status open_for_writing(fa2i_tune *tune)
{
    const fa2_status st = fa2i_database_open(tune->options.db, FA2I_CACHE_WRITE, &tune->cache);
    return st == FA2_OK ? find_device(tune) : st;
}

/* Opens for reading. If there is no database, opens an empty one without a file. */
static fa2_status open_for_reading(fa2i_tune *tune)
{
    const fa2_status st =
        fa2i_database_open_or_empty(tune->options.db, &tune->absent, &tune->cache);
    if (st == FA2_OK && find_device(tune) != FA2_OK)
        tune->device = -1; /* the device is not in it, and nothing is written */
    return st;
}

static bool is_there(const char *path)
{
    char *default_path = NULL;
    if (path == NULL && fa2i_cache_default_path(&default_path) != FA2_OK)
        return false;
    const bool there = access(path == NULL ? default_path : path, F_OK) == 0;
    fa2i_free(default_path);
    return there;
}

/* A database is created when there is something to store. But if none can be created, that must be known before a
 * program runs for an hour. */
static fa2_status open_database(fa2i_tune *tune)
{
    const fa2i_options *options = &tune->options;
    if (options->dry_run && options->program != NULL) {
        const fa2_status st = fa2i_database_check_writable(options->db);
        if (st != FA2_OK)
            return st;
    }
    if (options->dry_run || (options->program == NULL && !is_there(options->db)))
        return open_for_reading(tune);
    return open_for_writing(tune);
}

/* After planning: creates the file if there was none and something is to be tuned. */
static fa2_status make_database(fa2i_tune *tune)
{
    if (!tune->absent || tune->options.dry_run || !has_open_problem(tune))
        return FA2_OK;
    fa2i_cache_close(tune->cache);
    tune->cache = NULL;
    const fa2_status st = open_for_writing(tune);
    return st == FA2_OK ? fa2i_tune_find_ids(tune) : st;
}

static fa2_status parse(fa2i_tune *tune, int argc, char **argv)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv,
                               FA2I_OPT_SHAPES | FA2I_OPT_DEVICE | FA2I_OPT_DB | FA2I_OPT_JOBS |
                                   FA2I_OPT_BUDGET | FA2I_OPT_JSON | FA2I_OPT_PROGRAM |
                                   FA2I_OPT_TUNE | FA2I_OPT_DRY_RUN,
                               &tune->options));
    if (tune->options.device == -1)
        st = fa2i_fail(FA2_E_INVALID, "tune needs --device N: `fa2-tune devices` lists them");
done:
    return st;
}

static fa2_status open_tune(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    tune->threads = tune->options.jobs > 0 ? tune->options.jobs
                    : processors > 0       ? (int)processors
                                           : 1;
    FA2_TRY(read_device(tune));
    FA2_TRY(fa2i_generator_create_stoppable(tune->stop, &tune->generator));
    FA2_TRY(open_database(tune));
done:
    return st;
}

static void close_tune(fa2i_tune *tune)
{
    fa2i_worker_destroy(tune->worker);
    fa2i_turn_give_back(&tune->launches);
    fa2i_turn_give_back(&tune->turn);
    for (size_t i = 0; i < tune->kernel_count; i++)
        fa2i_kernel_done(&tune->kernels[i].kernel);
    for (size_t i = 0; i < tune->problem_count; i++) {
        fa2i_free(tune->problems[i].candidates);
        fa2i_free(tune->problems[i].prospects);
    }
    fa2i_free(tune->kernels);
    fa2i_text_index_done(&tune->places);
    fa2i_free(tune->refutations);
    fa2i_free(tune->problems);
    fa2i_generator_destroy(tune->generator);
    fa2i_cache_close(tune->cache);
    fa2i_options_done(&tune->options);
}

/* Runs the program and takes its problems. */
static fa2_status run_program(fa2i_tune *tune, bool *ret_program_failed)
{
    fa2i_options *options = &tune->options;
    fa2_status st = FA2_OK;
    char *copy = NULL; /* in a dry run the program must not change the database */
    if (options->dry_run)
        FA2_TRY(fa2i_database_copy(tune->cache, &copy));
    FA2_TRY(fa2i_program_run(options->program, copy != NULL ? copy : options->db, options->json, tune->stop,
                             &options->shapes, ret_program_failed));
    FA2_TRY(fa2i_options_say_left_out(options));
done:
    fa2i_database_remove_copy(copy);
    return st;
}

/* Includes the problems of the program, if there is one. Combines problems that are nearly the same. */
static fa2_status find_problems(fa2i_tune *tune, bool *ret_program_failed)
{
    fa2i_options *options = &tune->options;
    size_t dropped = 0;
    fa2_status st = FA2_OK;
    if (options->program != NULL)
        FA2_TRY(run_program(tune, ret_program_failed));
    FA2_TRY(fa2i_shapes_condense(&options->shapes, &dropped));
    if (dropped > 0)
        fprintf(stderr, "%zu problems are not tuned by themselves, because they differ little from others\n", dropped);
    tune->started_s = fa2i_now_s();
    tune->spent = fa2i_interrupt_deadline(options->budget_s);
done:
    return st;
}

/* The program was ended before its problems were known. */
static bool say_interrupted(const fa2i_tune *tune, int *ret_status)
{
    if (!fa2i_tune_stopped(tune))
        return false;
    fprintf(stderr, "fa2-tune: interrupted; nothing was tuned\n");
    *ret_status = FA2I_EXIT_INTERRUPTED;
    return true;
}

/* Runs the program once, on the devices that it chooses itself. */
static fa2_status tune_all_devices(fa2i_tune *tune, int argc, char **argv, bool *ret_program_failed,
                                   int *ret_status)
{
    fa2i_gpu first;
    fa2_status st = FA2_OK;
    if (tune->options.program != NULL) {
        FA2_TRY(fa2i_gpu_read(0, &first)); /* without any device it need not run */
        FA2_TRY(open_database(tune));
        FA2_TRY(run_program(tune, ret_program_failed));
        fa2i_cache_close(tune->cache);
        tune->cache = NULL;
    }
    if (say_interrupted(tune, ret_status))
        return FA2_OK;
    FA2_TRY(fa2i_all_devices_tune(argc, argv, &tune->options, tune->stop, ret_status));
done:
    return st;
}

static fa2_status run_phase(fa2i_tune *tune, fa2i_phase phase, fa2_status (*run)(fa2i_tune *tune))
{
    if (fa2i_tune_stopped(tune) || (phase != FA2I_PHASE_PLAN && fa2i_tune_spent(tune)))
        return FA2_OK;
    double started_s = fa2i_now_s();
    fa2_status st = run(tune);
    tune->phase_s[phase] += fa2i_now_s() - started_s;
    return st;
}

static fa2_status begin_session(fa2i_tune *tune)
{
    fa2i_session session = {.device = tune->device,
                            .driver = tune->driver,
                            .nvrtc = tune->target.nvrtc,
                            .origin = "tune",
                            .modelled = tune->modelled};
    snprintf(session.generator, sizeof session.generator, "%s", fa2i_generator_id(tune->generator));
    return fa2i_cache_session_begin(tune->cache, &session, &tune->session);
}

/* Waits for the device, and looks up what others did meanwhile. */
static fa2_status begin_turn(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    fa2i_tune_begin_turn(tune);
    for (size_t i = 0; i < tune->problem_count && st == FA2_OK; i++)
        st = fa2i_tune_look_again(tune, &tune->problems[i]);
    return st;
}

static fa2_status run_stages(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    bool any = true;
    for (bool first = true; !fa2i_tune_spent(tune); first = false) {
        const double started_s = fa2i_now_s();
        FA2_TRY(fa2i_tune_next_stage(tune, &any));
        tune->phase_s[FA2I_PHASE_PLAN] += fa2i_now_s() - started_s;
        if (!any)
            break;
        FA2_TRY(run_phase(tune, FA2I_PHASE_COMPILE, fa2i_tune_compile));
        if (first)
            FA2_TRY(begin_turn(tune));
        FA2_TRY(run_phase(tune, FA2I_PHASE_VERIFY, fa2i_tune_verify));
        FA2_TRY(run_phase(tune, FA2I_PHASE_TIME, fa2i_tune_time));
    }
    FA2_TRY(run_phase(tune, FA2I_PHASE_TIME, fa2i_tune_time_rest));
done:
    return st;
}

static fa2_status tune_open_problems(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    FA2_TRY(begin_session(tune));
    FA2_TRY(run_stages(tune));
    FA2_TRY(fa2i_cache_session_end(tune->cache, tune->session));
done:
    return st;
}

/* Reports wanted work that was not reached. done: problems that were. */
static void print_unreached(fa2i_tune *tune, size_t open, size_t done)
{
    const char *why = fa2i_tune_stopped(tune) ? "interrupted"
                      : done > 0              ? "the budget is spent"
                      : open > 0              ? "nothing was measured, because the budget ran out first"
                                              : "nothing was compiled again, because the budget ran out first";
    size_t uncompiled = 0, unverified = 0;
    fa2i_tune_find_needed(tune);
    for (size_t i = 0; i < tune->kernel_count; i++) {
        const fa2i_tune_kernel *k = &tune->kernels[i];
        uncompiled += k->needed && !k->known;
        unverified += k->needed && k->known && !k->verified && k->kernel.outcome == FA2I_OUTCOME_OK;
    }
    fprintf(stderr,
            "fa2-tune: %s; still to compile: %zu variant%s, to verify: %zu of those that are "
            "compiled, to measure: %zu problem%s; what was done is in %s, and the same command "
            "goes on from there\n",
            why, uncompiled, fa2i_plural(uncompiled), unverified, open, fa2i_plural(open),
            fa2i_cache_path(tune->cache));
}

/* Returns the exit status for problems that cannot be tuned. A dry run knows them, too. */
static int status_of_problems(const fa2i_tune *tune)
{
    if (count_state(tune, FA2I_PROBLEM_FAILED) > 0)
        return FA2I_EXIT_FAILED;
    return tune->problem_count > 0 && count_state(tune, FA2I_PROBLEM_UNSERVED) == tune->problem_count
               ? FA2I_EXIT_USAGE
               : FA2I_EXIT_OK;
}

/* Returns the exit status. Explains it on stderr if the caller must do something. */
static int exit_status(fa2i_tune *tune)
{
    size_t lost = 0;
    for (size_t i = 0; i < tune->problem_count; i++)
        lost += tune->problems[i].lost;
    const size_t open = count_state(tune, FA2I_PROBLEM_OPEN), unreached = open + lost;
    const size_t done = count_state(tune, FA2I_PROBLEM_MEASURED) + tune->mended;
    if (unreached > 0 || fa2i_tune_stopped(tune))
        print_unreached(tune, open, done);
    if (fa2i_tune_stopped(tune))
        return FA2I_EXIT_INTERRUPTED;
    return unreached > 0 && done == 0 ? FA2I_EXIT_FAILED : status_of_problems(tune);
}

/* Prints the work. Fails as the run would if its database cannot be written. */
static fa2_status run_dry(fa2i_tune *tune)
{
    fa2i_tune_work work;
    const fa2_status st = fa2i_tune_estimate(tune, &work);
    if (st != FA2_OK)
        return st;
    fa2i_tune_print_work(tune, &work);
    return tune->absent && !has_open_problem(tune) ? FA2_OK
                                                   : fa2i_database_check_writable(tune->options.db);
}

int fa2i_cmd_tune(int argc, char **argv)
{
    fa2_status st = FA2_OK;
    int status = FA2I_EXIT_FAILED;
    bool program_failed = false;
    fa2i_tune tune = {.stop = fa2i_interrupt_watch()};

    FA2_TRY(parse(&tune, argc, argv));
    if (tune.options.device == FA2I_DEVICE_ALL) {
        FA2_TRY(tune_all_devices(&tune, argc, argv, &program_failed, &status));
        goto done;
    }
    FA2_TRY(open_tune(&tune));
    FA2_TRY(find_problems(&tune, &program_failed));
    if (tune.options.program != NULL && say_interrupted(&tune, &status))
        goto done;
    FA2_TRY(run_phase(&tune, FA2I_PHASE_PLAN, fa2i_tune_plan));
    FA2_TRY(make_database(&tune));
    fa2i_tune_print_start(&tune);
    fa2i_tune_print_planned(&tune);
    if (tune.options.dry_run) {
        FA2_TRY(run_dry(&tune));
        status = status_of_problems(&tune);
        goto done;
    }
    FA2_TRY(run_phase(&tune, FA2I_PHASE_COMPILE, fa2i_tune_mend));
    if (has_open_problem(&tune))
        FA2_TRY(tune_open_problems(&tune));
    fa2i_tune_print_summary(&tune);
    if (tune.options.json)
        fa2i_tune_print_json(&tune);
    status = exit_status(&tune);
done:
    if (st != FA2_OK)
        status = fa2i_report_failure(st);
    if (program_failed && (status == FA2I_EXIT_OK || status == FA2I_EXIT_USAGE))
        status = FA2I_EXIT_FAILED;
    close_tune(&tune);
    return status;
}
