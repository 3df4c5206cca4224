/*
 * fa2-tune import: read an export, then compile the winners' kernels here, where that is possible.
 *
 * An export has no code in it. The variant of each imported winner is expanded and compiled by this
 * fa2 and this NVRTC, and what refers to the exporter's kernel is bound to the new one. How a
 * kernel is launched follows from its variant, so the generator says it, not the file. A variant that this
 * generator does not know is passed over with its results; one that does not compile here stays without code,
 * which the runtime treats as not tuned.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/report.h"
#include "runtime/base/alloc.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/lua/generator.h"
#include "tuner/commands/commands.h"
#include "tuner/search/compile_all.h"
#include "tuner/commands/database.h"
#include "tuner/commands/interrupt.h"
#include "tuner/commands/place.h"
#include "tuner/report/progress.h"

typedef struct work {
    fa2i_cache *cache; /* borrowed */
    fa2i_generator *generator;
    fa2i_kernel *kernels; /* records without images */
    size_t kernel_count;
    fa2i_compile_job *jobs;
    const fa2i_kernel **origins; /* the record that jobs[i] replaces */
    size_t job_count;
    size_t compiled, unusable; /* unusable: no code came of it */
    fa2i_progress progress;
} work;

static void work_done(work *w)
{
    for (size_t i = 0; i < w->job_count; i++)
        fa2i_free(w->jobs[i].source);
    fa2i_free(w->jobs);
    fa2i_free(w->origins);
    for (size_t i = 0; i < w->kernel_count; i++)
        fa2i_kernel_done(&w->kernels[i]);
    fa2i_free(w->kernels);
    fa2i_generator_destroy(w->generator);
}

/* The target here for an exporter's: its "sm_90" is PTX where this NVRTC does not know sm_90. */
static fa2_status target_here(const char *name, fa2i_target *ret_target)
{
    const char *number = strchr(name, '_');
    const bool ptx = strncmp(name, "compute_", 8) == 0;
    return fa2i_target_for(number == NULL ? 0 : (int)strtol(number + 1, NULL, 10), ptx, ret_target);
}

/* A wrong number makes the kernel read or write outside of its tensors. */
static void compare_launch(work *w, const fa2i_variant *ours, const fa2i_variant *theirs)
{
    if (strcmp(ours->recipe.text, theirs->recipe.text) != 0)
        fa2i_note(&w->progress, "%s: the file would launch it otherwise; this fa2's way is taken",
                  ours->text);
}

/* Make a job of a record. One that an earlier fa2 left and this does not know, and one for an SM that this NVRTC makes
 * no code for, is noted and counted; scripts that fail say nothing about it. */
static fa2_status add_job(work *w, const fa2i_kernel *kernel)
{
    fa2i_compile_job job = {0};
    fa2_status st = target_here(kernel->target, &job.target);
    if (st == FA2_OK)
        st = fa2i_generator_variant(w->generator, kernel->variant.text, &job.variant);
    if (st == FA2_OK)
        st = fa2i_generator_source(w->generator, kernel->variant.text, &job.source);
    if (st == FA2_OK) {
        compare_launch(w, &job.variant, &kernel->variant);
        w->origins[w->job_count] = kernel;
        w->jobs[w->job_count++] = job;
        return FA2_OK;
    }
    if (st != FA2_E_NOT_FOUND && st != FA2_E_UNSUPPORTED && st != FA2_E_INVALID)
        return st;
    w->unusable++;
    fa2i_note(&w->progress, "%s for %s: %s", kernel->variant.text, kernel->target,
              fa2_last_message());
    return FA2_OK;
}

static fa2_status add_jobs(work *w)
{
    w->jobs = fa2i_alloc_array(w->kernel_count, sizeof *w->jobs);
    w->origins = fa2i_alloc_array(w->kernel_count, sizeof *w->origins);
    if (w->jobs == NULL || w->origins == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu kernels", w->kernel_count);
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < w->kernel_count; i++)
        st = add_job(w, &w->kernels[i]);
    return st;
}

static fa2_status store(void *user, size_t index, const fa2i_kernel *kernel, bool found)
{
    work *w = user;
    (void)found; /* nothing is shared */
    const fa2i_kernel *origin = w->origins[index];
    if (kernel->outcome == FA2I_OUTCOME_COMPILE_ERROR) {
        w->unusable++;
        fa2i_note(&w->progress, "does not compile: %s\n%s", kernel->variant.text,
                  kernel->log == NULL ? "" : kernel->log);
    } else {
        w->compiled++;
    }
    fa2i_progress_step(&w->progress, kernel->variant.text);
    return fa2i_cache_rebind_kernel(w->cache, &origin->key, kernel);
}

static fa2_status compile_imported(work *w, int threads, const volatile sig_atomic_t *stop)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_cache_kernels_without_image(w->cache, &w->kernels, &w->kernel_count));
    if (w->kernel_count == 0)
        goto done;
    FA2_TRY(add_jobs(w));
    fa2i_progress_begin(&w->progress, "compiling", w->job_count);
    st = fa2i_compile_all(w->jobs, w->job_count, NULL, threads, fa2i_generator_id(w->generator),
                          stop, store, w);
    fa2i_progress_end(&w->progress);
done:
    return st;
}

/* ---- the command ---- */

/* fa2i_variant_fn */
static fa2_status know_variant(void *user, const char *text)
{
    fa2i_variant variant;
    return fa2i_generator_variant(user, text, &variant);
}

/* How the rows of the file and those that came in relate. */
static void print_counts(const fa2i_import_counts *counts, const char *path)
{
    printf(
        "imported %zu new row%s into %s; of the %zu row%s of the file, %zu %s here already and %zu "
        "%s not taken: a kernel is verified where it runs\n",
        counts->fresh, fa2i_plural(counts->fresh), path, counts->rows, fa2i_plural(counts->rows),
        counts->known, counts->known == 1 ? "was" : "were", counts->verifications,
        counts->verifications == 1 ? "verification is" : "verifications are");
    if (counts->unknown > 0)
        printf("passed over: %zu row%s about %zu kernel%s that this fa2 does not know; the first: "
               "%s\n",
               counts->passed_over, fa2i_plural(counts->passed_over), counts->unknown,
               fa2i_plural(counts->unknown), counts->first_unknown);
}

/* No NVRTC is no failure of the import: the kernels can be compiled by a later one. */
static fa2_status compile_where_possible(work *w, int threads, const volatile sig_atomic_t *stop)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    if (fa2i_nvrtc_get(&nvrtc) == FA2_OK)
        return compile_imported(w, threads, stop);
    fprintf(stderr,
            "fa2-tune: the imported kernels are not compiled, so they are not used yet: %s\n"
            "Run the same import where NVRTC is.\n",
            fa2_last_message());
    return FA2_OK;
}

int fa2i_cmd_import(int argc, char **argv)
{
    const volatile sig_atomic_t *stop = fa2i_interrupt_watch();
    fa2i_options options = {0};
    fa2i_cache *cache = NULL;
    FILE *in = NULL;
    work w = {0};
    fa2i_import_counts counts = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_DB | FA2I_OPT_JOBS | FA2I_OPT_FILE, &options));
    FA2_TRY(fa2i_place_open_export(options.positional, &in)); /* before anything is created */
    FA2_TRY(fa2i_generator_create_stoppable(stop, &w.generator));
    FA2_TRY(fa2i_database_open(options.db, FA2I_CACHE_WRITE, &cache));
    FA2_TRY(fa2i_cache_import(cache, in, in == stdin ? "standard input" : options.positional,
                              know_variant, w.generator, &counts));
    print_counts(&counts, fa2i_cache_path(cache));
    w.cache = cache;
    FA2_TRY(compile_where_possible(&w, options.jobs, stop));
    if (w.kernel_count > 0)
        printf("compiled %zu of %zu kernel%s without code here\n"
               "fa2-tune tune verifies what was compiled, on a device of this machine.\n",
               w.compiled, w.kernel_count, fa2i_plural(w.kernel_count));
done:
    work_done(&w);
    if (in != NULL && in != stdin)
        fclose(in);
    const int status = st == FA2_OK ? FA2I_EXIT_OK : fa2i_report_failure(st);
    fa2i_cache_abandon(cache); /* and not the rows that came in before a failure to compile */
    fa2i_options_done(&options);
    if (st != FA2_OK)
        return status;
    if (*stop != 0)
        return FA2I_EXIT_INTERRUPTED;
    return w.unusable > 0 ? FA2I_EXIT_FAILED : FA2I_EXIT_OK;
}
