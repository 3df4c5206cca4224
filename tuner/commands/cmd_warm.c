/*
 * fa2-tune warm: makes the first calls of a program quick. It prepares each problem as the program's own context would
 * (fa2_prepare), so the kernel of each is compiled and stored, and the model's choice, too. Nothing is timed.
 *
 * Several threads take the problems one by one. Each has its own context, because a context compiles one kernel at a
 * time.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tuner/search/compile_all.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/commands/interrupt.h"
#include "tuner/commands/program.h"
#include "tuner/report/progress.h"
#include "tuner/worker/gpu.h"

enum { THREADS_MAX = 64 };

typedef struct warmer {
    fa2i_options options;
    const volatile sig_atomic_t *stop;
    bool program_failed;

    pthread_mutex_t lock; /* of the rest */
    fa2i_progress progress;
    size_t next, failed;
    uint64_t unstored;             /* kernels that were compiled and could not be stored */
    char told[FA2I_MESSAGE_BYTES]; /* the last line of a context's log that was printed */
    fa2_status refused;            /* of a thread that got no context */
    char why[FA2I_MESSAGE_BYTES];
} warmer;

/* Takes the next problem. Returns false if none is left. */
static bool take(warmer *w, fa2_problem *ret_problem)
{
    pthread_mutex_lock(&w->lock);
    const bool left = *w->stop == 0 && w->refused == FA2_OK && w->next < w->options.shapes.count;
    if (left)
        *ret_problem = w->options.shapes.items[w->next++];
    pthread_mutex_unlock(&w->lock);
    return left;
}

static void finish(warmer *w, const fa2_problem *problem, fa2_status st)
{
    pthread_mutex_lock(&w->lock);
    if (st != FA2_OK)
        fa2i_note(&w->progress, "fa2-tune: %s: %s", fa2i_problem_shape(problem).text, fa2_last_message());
    w->failed += st != FA2_OK;
    fa2i_progress_step(&w->progress, NULL);
    pthread_mutex_unlock(&w->lock);
}

/* Called for each line of a context's log about something broken. Each context says the same, so it is printed once. */
static void hear(void *user, fa2_log_level level, const char *message)
{
    warmer *w = user;
    (void)level;
    pthread_mutex_lock(&w->lock);
    if (strcmp(w->told, message) != 0)
        fa2i_note(&w->progress, "fa2-tune: %s", message);
    snprintf(w->told, sizeof w->told, "%s", message);
    pthread_mutex_unlock(&w->lock);
}

static void add_unstored(warmer *w, fa2_context *context)
{
    fa2_counters counters = {.struct_bytes = sizeof counters};
    if (fa2_read_counters(context, &counters) != FA2_OK)
        return;
    pthread_mutex_lock(&w->lock);
    w->unstored += counters.unstored;
    pthread_mutex_unlock(&w->lock);
}

static void *prepare_some(void *user)
{
    warmer *w = user;
    fa2_context *context = NULL;
    fa2_problem problem;
    const fa2_config config = {.struct_bytes = sizeof config,
                               .database = w->options.db,
                               .device_plus_one = w->options.device + 1,
                               .log_at = hear,
                               .log_level = FA2_LOG_ERROR,
                               .log_user = w};
    const fa2_status st = fa2_context_create(&config, &context);
    if (st != FA2_OK) {
        pthread_mutex_lock(&w->lock);
        w->refused = st;
        snprintf(w->why, sizeof w->why, "%s", fa2_last_message());
        pthread_mutex_unlock(&w->lock);
    }
    while (take(w, &problem))
        finish(w, &problem, fa2_prepare(context, &problem));
    if (context != NULL)
        add_unstored(w, context);
    fa2_context_destroy(context);
    return NULL;
}

/* Threads that cannot be started are done without; this thread is the first one. */
static fa2_status prepare_all(warmer *w)
{
    const size_t wanted = fa2i_compile_threads(w->options.jobs, w->options.shapes.count);
    pthread_t threads[THREADS_MAX];
    size_t count = 0;
    fa2i_progress_begin(&w->progress, "preparing", w->options.shapes.count);
    while (count + 1 < wanted && count < THREADS_MAX && pthread_create(&threads[count], NULL, prepare_some, w) == 0)
        count++;
    prepare_some(w);
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    fa2i_progress_end(&w->progress);
    return w->refused == FA2_OK ? FA2_OK : fa2i_fail(w->refused, "%s", w->why);
}

static fa2_status warm(warmer *w, int argc, char **argv)
{
    fa2i_options *options = &w->options;
    fa2i_gpu gpu;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(
        argc, argv, FA2I_OPT_SHAPES | FA2I_OPT_DEVICE | FA2I_OPT_DB | FA2I_OPT_JOBS | FA2I_OPT_PROGRAM, options));
    if (options->device < 0)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "warm needs --device N, one device: `fa2-tune devices` lists them"));
    FA2_TRY(fa2i_gpu_read(options->device, &gpu)); /* before the program runs */
    FA2_TRY(fa2i_database_check_writable(options->db));
    if (options->program != NULL)
        FA2_TRY(fa2i_program_run(options->program, options->db, false, w->stop, &options->shapes, &w->program_failed));
    FA2_TRY(prepare_all(w));
done:
    return st;
}

int fa2i_cmd_warm(int argc, char **argv)
{
    warmer w = {.stop = fa2i_interrupt_watch(), .lock = PTHREAD_MUTEX_INITIALIZER};
    const fa2_status st = warm(&w, argc, argv);
    const size_t prepared = w.next - w.failed;
    if (st == FA2_OK)
        printf("%zu problem%s ready, %zu failed%s\n", prepared, fa2i_plural(prepared), w.failed,
               w.unstored > 0 ? "; not everything was stored" : "");
    const bool failed = w.failed > 0 || w.unstored > 0 || w.program_failed;
    const int status = st != FA2_OK   ? fa2i_report_failure(st)
                       : *w.stop != 0 ? FA2I_EXIT_INTERRUPTED
                       : failed       ? FA2I_EXIT_FAILED
                                      : FA2I_EXIT_OK;
    fa2i_options_done(&w.options);
    return status;
}
