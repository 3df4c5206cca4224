/*
 * From keys to kernels: kernels in the database are reused. The rest is compiled in parallel and stored at once,
 * failures included.
 */
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/search/compile_all.h"
#include "tuner/search/tune.h"

/* The jobs of one fa2i_compile_all. kernels[i] is the index of the kernel of jobs[i]. */
typedef struct queue {
    fa2i_tune *tune;
    fa2i_compile_job *jobs;
    size_t *kernels;
    size_t count;
} queue;

/* Takes over a kernel that is now known. */
static void adopt(fa2i_findings *found, fa2i_tune_kernel *k, fa2i_kernel *kernel)
{
    fa2i_kernel_done(&k->kernel);
    k->kernel = *kernel;
    *kernel = (fa2i_kernel){0};
    k->known = true;
    found->outcomes[k->kernel.outcome]++;
}

fa2_status fa2i_tune_find_stored(fa2i_cache *cache, const fa2i_tune_kernel *of, fa2i_kernel *ret_kernel,
                                 bool *ret_found)
{
    fa2i_kernel kernel = {0};
    const int abi = of->kernel.variant.recipe.abi;
    fa2_status st = fa2i_cache_get_kernel(cache, &of->kernel.key, abi, false, &kernel);
    if (st == FA2_OK && kernel.outcome != FA2I_OUTCOME_COMPILE_ERROR) {
        fa2i_kernel_done(&kernel);
        st = fa2i_cache_get_kernel(cache, &of->kernel.key, abi, true, &kernel);
    }
    *ret_found = st == FA2_OK;
    if (st == FA2_OK)
        *ret_kernel = kernel;
    else
        fa2i_kernel_done(&kernel);
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

/* Looks a kernel up in the database. */
static fa2_status take_stored(fa2i_findings *found, fa2i_cache *cache, fa2i_tune_kernel *k)
{
    fa2i_kernel kernel = {0};
    bool is_found = false;
    const fa2_status st = fa2i_tune_find_stored(cache, k, &kernel, &is_found);
    if (st == FA2_OK && is_found) {
        adopt(found, k, &kernel);
        found->reused++;
    }
    return st;
}

static fa2_status add_job(queue *q, size_t index)
{
    fa2i_tune *tune = q->tune;
    fa2i_compile_job *job = &q->jobs[q->count];
    const fa2i_variant *variant = &tune->found.kernels[index].kernel.variant;
    fa2_status st = fa2i_generator_source(tune->generator, variant->text, &job->source);
    if (st != FA2_OK)
        return st;
    job->variant = *variant;
    job->target = tune->target;
    q->kernels[q->count++] = index;
    return FA2_OK;
}

static fa2_status fill_queue(queue *q)
{
    fa2i_tune *tune = q->tune;
    fa2_status st = FA2_OK;
    FA2_TRY(FA2I_NEW(q->jobs, tune->found.kernel_count));
    FA2_TRY(FA2I_NEW(q->kernels, tune->found.kernel_count));
    for (size_t i = 0; i < tune->found.kernel_count; i++) {
        fa2i_tune_kernel *k = &tune->found.kernels[i];
        if (!k->staged || k->known)
            continue;
        FA2_TRY(take_stored(&tune->found, tune->cache, k));
        if (!k->known)
            FA2_TRY(add_job(q, i));
    }
done:
    return st;
}

/* Copies a record with its image. The compiler's log stays in the database, because nothing here needs it. */
static fa2_status copy_kernel(const fa2i_kernel *kernel, fa2i_kernel *ret_copy)
{
    fa2i_kernel copy = *kernel;
    copy.log = NULL;
    copy.image.data = fa2i_alloc(kernel->image.bytes);
    if (copy.image.data == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a kernel's image");
    if (kernel->image.bytes > 0)
        memcpy(copy.image.data, kernel->image.data, kernel->image.bytes);
    *ret_copy = copy;
    return FA2_OK;
}

static fa2_status store_compiled(void *user, size_t index, const fa2i_kernel *kernel, bool found)
{
    queue *q = user;
    fa2i_tune *tune = q->tune;
    fa2i_kernel copy = {0};
    fa2_status st = found ? FA2_OK : fa2i_cache_put_kernel(tune->cache, kernel);
    if (st == FA2_OK)
        st = copy_kernel(kernel, &copy);
    if (st != FA2_OK)
        return st;
    if (kernel->outcome == FA2I_OUTCOME_COMPILE_ERROR)
        fa2i_note(&tune->progress, "does not compile: %s\n%s", kernel->variant.text,
                  kernel->log == NULL ? "" : kernel->log);
    adopt(&tune->found, &tune->found.kernels[q->kernels[index]], &copy);
    tune->found.compiled += !found;
    tune->found.reused += found;
    fa2i_progress_step(&tune->progress, kernel->variant.text);
    return FA2_OK;
}

static void queue_done(queue *q)
{
    for (size_t i = 0; i < q->count; i++)
        fa2i_free(q->jobs[i].source);
    fa2i_free(q->jobs);
    fa2i_free(q->kernels);
}

fa2_status fa2i_tune_compile(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    queue q = {.tune = tune};
    FA2_TRY(fill_queue(&q));
    if (q.count > 0) {
        fa2i_progress_begin(&tune->progress, "compiling", q.count);
        st = fa2i_compile_all(q.jobs, q.count, tune->cache, tune->request->threads, fa2i_generator_id(tune->generator),
                              tune->budget->spent, store_compiled, &q);
        fa2i_progress_end(&tune->progress);
    }
done:
    queue_done(&q);
    return st;
}

fa2_status fa2i_tune_mend(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    bool any = false;
    for (size_t i = 0; i < tune->found.problem_count; i++) {
        const fa2i_tune_problem *p = &tune->found.problems[i];
        any = any || p->lost;
        if (p->lost)
            tune->found.kernels[p->winner_place].staged = true;
    }
    if (any)
        st = fa2i_tune_compile(tune);
    for (size_t i = 0; st == FA2_OK && i < tune->found.problem_count; i++) {
        fa2i_tune_problem *p = &tune->found.problems[i];
        const fa2i_tune_kernel *k = p->lost ? &tune->found.kernels[p->winner_place] : NULL;
        if (k == NULL || !k->known) /* nothing was lost, or the budget ended before it was compiled */
            continue;
        if (k->kernel.outcome == FA2I_OUTCOME_COMPILE_ERROR)
            p->state = FA2I_PROBLEM_OPEN;
        else
            tune->found.mended++;
        p->lost = false;
    }
    return st;
}
