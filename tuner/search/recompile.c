/*
 * Makes a job for each record and compiles the jobs in parallel. Each kernel is bound when it is finished, so that a
 * stop keeps what was done.
 *
 * - The new kernel must compute the same as the record's kernel, because it gets its times. So its abi must be the
 *   same.
 * - The recipe comes from the generator. If the record's recipe differs, the difference is noted, and the record's is
 *   not used.
 */
#include "tuner/search/recompile.h"

#include <stdlib.h>
#include <string.h>
#include "cache/content/report.h"
#include "runtime/base/alloc.h"
#include "runtime/cuda/cuda_api.h"
#include "tuner/report/progress.h"
#include "tuner/search/compile_all.h"

typedef struct work {
    fa2i_cache *cache;
    fa2i_generator *generator;
    fa2i_kernel *kernels; /* records without images */
    size_t kernel_count;
    fa2i_compile_job *jobs;
    const fa2i_kernel **origins; /* origins[i] is the record that jobs[i] replaces */
    size_t job_count;
    fa2i_recompiled *out;
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
}

/* Finds the target here for a record's target: "sm_90" becomes PTX if this NVRTC does not know sm_90. */
static fa2_status target_here(const char *name, fa2i_target *ret_target)
{
    const char *number = strchr(name, '_');
    return fa2i_target_for(number == NULL ? 0 : (int)strtol(number + 1, NULL, 10), fa2i_target_is_ptx(name),
                           ret_target);
}

/* Compares the recipes. A wrong number in a recipe would make the kernel access memory outside of its tensors.
 * FA2_E_UNSUPPORTED: it is another kernel. */
static fa2_status compare_launch(work *w, const fa2i_variant *ours, const fa2i_variant *theirs)
{
    if (ours->recipe.abi != theirs->recipe.abi)
        return fa2i_fail(FA2_E_UNSUPPORTED, "is of another version of fa2, which computes or launches such kernels "
                                            "otherwise");
    if (strcmp(ours->recipe.text, theirs->recipe.text) != 0)
        fa2i_note(&w->progress, "%s: its record would launch it otherwise; this fa2's way is taken", ours->text);
    return FA2_OK;
}

/* Makes a job of a record. Three kinds of records are noted and counted, but get no job:
 * - The class of the record is not the class of its variant. Either is damaged, and the code could be for
 *   problems that it did not win.
 * - This fa2 does not know the variant, or knows it as another kernel.
 * - This NVRTC cannot compile for the SM.
 * A failing script is not such a case: it says nothing about the record. */
static fa2_status add_job(work *w, const fa2i_kernel *kernel)
{
    fa2i_compile_job job = {0};
    fa2_status st = target_here(kernel->target, &job.target);
    if (st == FA2_OK)
        st = fa2i_generator_variant(w->generator, kernel->variant.text, &job.variant);
    if (st == FA2_OK)
        st = fa2i_variant_check_class(&kernel->variant, job.variant.class_key);
    if (st == FA2_OK)
        st = compare_launch(w, &job.variant, &kernel->variant);
    if (st == FA2_OK)
        st = fa2i_generator_source(w->generator, kernel->variant.text, &job.source);
    if (st == FA2_OK) {
        w->origins[w->job_count] = kernel;
        w->jobs[w->job_count++] = job;
        return FA2_OK;
    }
    if (st != FA2_E_NOT_FOUND && st != FA2_E_UNSUPPORTED && st != FA2_E_INVALID)
        return st;
    w->out->unknown++;
    fa2i_note(&w->progress, "%s for %s: %s", kernel->variant.text, kernel->target, fa2_last_message());
    return FA2_OK;
}

static fa2_status add_jobs(work *w)
{
    fa2_status st = FA2_OK;
    FA2_TRY(FA2I_NEW(w->jobs, w->kernel_count));
    FA2_TRY(FA2I_NEW(w->origins, w->kernel_count));
    for (size_t i = 0; i < w->kernel_count; i++)
        FA2_TRY(add_job(w, &w->kernels[i]));
done:
    return st;
}

static fa2_status store(void *user, size_t index, const fa2i_kernel *kernel, bool found)
{
    work *w = user;
    (void)found; /* nothing is shared */
    const fa2i_kernel *origin = w->origins[index];
    if (kernel->outcome == FA2I_OUTCOME_COMPILE_ERROR) {
        w->out->failed++;
        fa2i_note(&w->progress, "does not compile: %s\n%s", kernel->variant.text,
                  kernel->log == NULL ? "" : kernel->log);
    } else {
        w->out->compiled++;
    }
    fa2i_progress_step(&w->progress, kernel->variant.text);
    const fa2_status st = fa2i_cache_rebind_kernel(w->cache, &origin->key, kernel);
    return st == FA2_E_NOT_FOUND ? FA2_OK : st; /* it was forgotten meanwhile, and needs no code */
}

fa2_status fa2i_recompile(fa2i_cache *cache, fa2i_generator *generator, int threads, const volatile sig_atomic_t *stop,
                          fa2i_recompiled *ret_recompiled)
{
    work w = {.cache = cache, .generator = generator, .out = ret_recompiled};
    const fa2i_nvrtc_table *nvrtc = NULL;
    fa2_status st = FA2_OK;
    *ret_recompiled = (fa2i_recompiled){0};
    FA2_TRY(fa2i_cache_kernels_without_image(cache, &w.kernels, &w.kernel_count));
    ret_recompiled->wanted = w.kernel_count;
    if (w.kernel_count == 0)
        goto done;
    FA2_TRY(fa2i_nvrtc_get(&nvrtc));
    FA2_TRY(add_jobs(&w));
    fa2i_progress_begin(&w.progress, "compiling", w.job_count);
    st = fa2i_compile_all(w.jobs, w.job_count, NULL, threads, fa2i_generator_id(generator), stop, store, &w);
    fa2i_progress_end(&w.progress);
done:
    work_done(&w);
    return st;
}
