/*
 * Each thread takes the next job, compiles it and puts the kernel into a ring. The calling thread takes kernels from
 * the ring and passes them to the callback. One mutex guards the whole pool.
 *
 * - Jobs with the same code form a chain. The first is compiled. The others get copies of the record, with their own
 *   variant and key, and share the image during the callback.
 * - Jobs are handed out in order, and none after `quit` or the caller's stop flag is set. After them come the jobs that
 *   were put off, in turn. A thread that waits for another process holds no claim that this process would need, so two
 *   processes never wait for each other. A claim is given back when the callback has stored the kernel.
 * - After a stop, compiled kernels are still delivered. After a failure they are dropped.
 * - `active` counts the threads that may still add to the ring. If it is 0 and the ring is empty, all is done.
 * - Messages are per thread, so a thread that fails leaves a copy for the caller.
 */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cache/content/claims.h"
#include "runtime/base/alloc.h"
#include "runtime/cuda/dump.h"
#include "runtime/lua/generator.h"
#include "tuner/report/progress.h"
#include "tuner/search/compile_all.h"

enum { RING_SIZE = 16, THREADS_MAX = 256 };
#define PATIENCE_S 120.0

typedef struct result {
    size_t index;
    bool found;
    fa2i_kernel kernel;
} result;

/* Per job: which other jobs have the same code. */
typedef struct code {
    uint64_t hash; /* of the source; most sources differ in it */
    size_t next;   /* the next job in its chain; the number of jobs if it is the last */
    bool repeated; /* it is not the first of its chain */
    fa2i_key claim;
    double since_s; /* when it was first put off; 0: it was not */
} code;

typedef struct pool {
    const fa2i_compile_job *jobs;
    code *codes; /* of each job */
    size_t count, distinct;
    const char *generator;
    const volatile sig_atomic_t *stop;
    pthread_mutex_t lock;
    pthread_cond_t filled; /* a result arrived, or a thread ended */
    pthread_cond_t freed;  /* the ring has room again, or quit was set */
    size_t next;           /* job to hand out */
    fa2i_cache *cache;     /* NULL: nothing is shared */
    size_t *put_off;       /* jobs that another process has; a queue */
    size_t put_off_count;
    result ring[RING_SIZE];
    size_t first, used;
    size_t active;
    bool quit;
    fa2_status status; /* of the first thread that failed */
    char message[FA2I_MESSAGE_BYTES];
} pool;

static bool take_job(pool *p, size_t *ret_index)
{
    const bool stopped = p->stop != NULL && *p->stop != 0;
    while (p->next < p->count && p->codes[p->next].repeated)
        p->next++;
    if (p->quit || stopped || (p->next == p->count && p->put_off_count == 0))
        return false;
    if (p->next < p->count) {
        *ret_index = p->next++;
        return true;
    }
    *ret_index = p->put_off[0];
    p->put_off_count--;
    memmove(p->put_off, p->put_off + 1, p->put_off_count * sizeof *p->put_off);
    return true;
}

static void fail_pool(pool *p, fa2_status status)
{
    p->quit = true;
    pthread_cond_broadcast(&p->freed);
    if (p->status == FA2_OK) {
        p->status = status;
        snprintf(p->message, sizeof p->message, "%s", fa2_last_message());
    }
}

/* Waits for room and puts the result into the ring. Drops it if the pool quits. */
static void deliver(pool *p, result *done)
{
    while (p->used == RING_SIZE && !p->quit)
        pthread_cond_wait(&p->freed, &p->lock);
    if (p->quit) {
        fa2i_kernel_done(&done->kernel);
        return;
    }
    p->ring[(p->first + p->used) % RING_SIZE] = *done;
    p->used++;
    pthread_cond_signal(&p->filled);
}

/* Reads a kernel that may be in the database by now. */
static fa2_status find(const pool *p, const fa2i_compile_job *job, result *done)
{
    fa2i_key key;
    fa2_status st = fa2i_compile_key(&job->variant, job->source, &job->target, &key);
    if (st == FA2_OK)
        st = fa2i_cache_get_kernel(p->cache, &key, job->variant.recipe.abi, true, &done->kernel);
    done->found = st == FA2_OK;
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

/* Claims, finds or compiles a job. *ret_others: another process has it. */
static fa2_status do_job(const pool *p, result *done, bool *ret_others)
{
    const fa2i_compile_job *job = &p->jobs[done->index];
    const code *c = &p->codes[done->index];
    fa2_status st = FA2_OK;
    *ret_others = p->cache != NULL && !fa2i_cache_claim(p->cache, &c->claim) &&
                  (c->since_s <= 0 || fa2i_now_s() - c->since_s < PATIENCE_S);
    if (*ret_others)
        return FA2_OK;
    if (p->cache != NULL)
        st = find(p, job, done);
    if (st == FA2_OK && !done->found)
        st = fa2i_compile(&job->variant, job->source, &job->target, p->generator, &done->kernel);
    return st;
}

/* Puts a job off, and sleeps if there is nothing else to do. The lock is held on entry and exit. */
static void put_off(pool *p, size_t index)
{
    if (p->codes[index].since_s <= 0)
        p->codes[index].since_s = fa2i_now_s();
    p->put_off[p->put_off_count++] = index;
    if (p->next < p->count)
        return;
    const bool tell = fa2i_now_s() - p->codes[index].since_s > FA2I_CLAIMS_QUIET_S;
    pthread_mutex_unlock(&p->lock);
    if (tell)
        fa2i_cache_say_waiting(p->cache, "compiling the same kernels");
    fa2i_nap();
    pthread_mutex_lock(&p->lock);
}

static void *compile_jobs(void *user)
{
    pool *p = user;
    size_t index = 0;
    pthread_mutex_lock(&p->lock);
    while (take_job(p, &index)) {
        result done = {.index = index};
        bool others = false;
        pthread_mutex_unlock(&p->lock);
        const fa2_status st = do_job(p, &done, &others);
        pthread_mutex_lock(&p->lock);
        if (others)
            put_off(p, index);
        else if (st == FA2_OK)
            deliver(p, &done);
        else
            fail_pool(p, st);
    }
    p->active--;
    pthread_cond_signal(&p->filled);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void fa2i_dump_or_say(const fa2i_kernel *kernel, const char *source)
{
    static atomic_flag is_said = ATOMIC_FLAG_INIT;
    if (fa2i_dump(kernel, source) != FA2_OK && !atomic_flag_test_and_set(&is_said))
        fprintf(stderr, "fa2-tune: %s\n", fa2_last_message());
}

/* Passes a kernel to the callback for each job of its chain. */
static fa2_status hand_out(const pool *p, result *taken, fa2i_compiled_fn compiled, void *user)
{
    fa2i_kernel *kernel = &taken->kernel;
    if (!taken->found)
        fa2i_dump_or_say(kernel, p->jobs[taken->index].source);
    fa2_status st = compiled(user, taken->index, kernel, taken->found);
    for (size_t i = p->codes[taken->index].next; st == FA2_OK && i < p->count; i = p->codes[i].next) {
        const fa2i_compile_job *job = &p->jobs[i];
        kernel->variant = job->variant;
        fa2i_compile_key_of(&job->variant, job->source, &job->target, kernel->nvrtc, &kernel->key);
        if (!taken->found)
            fa2i_dump_or_say(kernel, job->source);
        st = compiled(user, i, kernel, false);
    }
    if (p->cache != NULL)
        fa2i_cache_unclaim(p->cache, &p->codes[taken->index].claim);
    return st;
}

/* Passes results to the callback until no thread can add another. The lock is held on entry and exit. */
static fa2_status consume(pool *p, fa2i_compiled_fn compiled, void *user)
{
    fa2_status st = FA2_OK;
    while (p->used > 0 || p->active > 0) {
        if (p->used == 0) {
            pthread_cond_wait(&p->filled, &p->lock);
            continue;
        }
        result taken = p->ring[p->first];
        p->first = (p->first + 1) % RING_SIZE;
        p->used--;
        pthread_cond_signal(&p->freed);
        if (!p->quit) {
            pthread_mutex_unlock(&p->lock);
            st = hand_out(p, &taken, compiled, user);
            pthread_mutex_lock(&p->lock);
        }
        fa2i_kernel_done(&taken.kernel);
        if (st != FA2_OK && !p->quit) {
            p->quit = true;
            pthread_cond_broadcast(&p->freed);
        }
    }
    return st;
}

double fa2i_compile_about_s(fa2_op op)
{
    static const double about_s[FA2I_OPS] = {[FA2_OP_FORWARD] = 1.0, [FA2_OP_BACKWARD] = 2.0, [FA2_OP_MERGE] = 0.2};
    return about_s[op];
}

size_t fa2i_compile_threads(int wanted, size_t jobs)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    size_t threads = wanted > 0 ? (size_t)wanted : processors > 0 ? (size_t)processors : 1;
    if (threads > THREADS_MAX)
        threads = THREADS_MAX;
    return threads < jobs ? threads : jobs;
}

/* Starts up to `wanted` threads, and returns how many run. Fewer are good enough; 0 is a failure. The lock is held. */
static size_t start_threads(pool *p, pthread_t *threads, size_t wanted)
{
    while (p->active < wanted && pthread_create(&threads[p->active], NULL, compile_jobs, p) == 0)
        p->active++;
    return p->active;
}

static fa2_status run_pool(pool *p, size_t wanted, fa2i_compiled_fn compiled, void *user)
{
    pthread_t threads[THREADS_MAX];
    assert(wanted <= THREADS_MAX);
    pthread_mutex_lock(&p->lock);
    const size_t started = start_threads(p, threads, wanted);
    fa2_status st = started == 0 ? fa2i_fail(FA2_E_MEMORY, "no thread to compile in") : consume(p, compiled, user);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (st == FA2_OK && p->status != FA2_OK)
        st = fa2i_fail(p->status, "%s", p->message);
    return st;
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash;
}

static bool same_code(const fa2i_compile_job *a, const fa2i_compile_job *b)
{
    return strcmp(a->source, b->source) == 0 && strcmp(a->target.name, b->target.name) == 0 &&
           strcmp(a->variant.recipe.suffix, b->variant.recipe.suffix) == 0;
}

/* Finds the key that is claimed: it depends on the code alone, not on the variant. */
static fa2_status find_claim(const fa2i_compile_job *job, fa2i_key *ret_claim)
{
    fa2i_variant any = job->variant;
    any.recipe.text[0] = '\0';
    return fa2i_compile_key(&any, job->source, &job->target, ret_claim);
}

/* Chains the jobs with the same code, and returns the number of distinct codes. */
static size_t find_codes(const fa2i_compile_job *jobs, size_t count, code *codes)
{
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        codes[i] = (code){.hash = hash_of(jobs[i].source), .next = count};
        for (size_t j = i; j-- > 0 && !codes[i].repeated;) {
            if (codes[j].hash == codes[i].hash && same_code(&jobs[i], &jobs[j])) {
                codes[j].next = i; /* the nearest one before it is the last of the chain so far */
                codes[i].repeated = true;
            }
        }
        distinct += !codes[i].repeated;
    }
    return distinct;
}

static void pool_done(pool *p)
{
    fa2i_free(p->codes);
    fa2i_free(p->put_off);
    fa2i_free(p);
}

static fa2_status make_pool(const fa2i_compile_job *jobs, size_t count, fa2i_cache *cache, pool **ret_pool)
{
    fa2_status st = FA2_OK;
    pool *p = NULL;
    FA2_TRY(FA2I_NEW(p, 1));
    p->jobs = jobs;
    p->count = count;
    p->cache = cache;
    FA2_TRY(FA2I_NEW(p->codes, count));
    FA2_TRY(FA2I_NEW(p->put_off, count));
    p->distinct = find_codes(jobs, count, p->codes);
    for (size_t i = 0; cache != NULL && i < count; i++)
        if (!p->codes[i].repeated)
            FA2_TRY(find_claim(&jobs[i], &p->codes[i].claim));
    *ret_pool = p;
    p = NULL;
done:
    if (p != NULL)
        pool_done(p);
    return st;
}

fa2_status fa2i_compile_all(const fa2i_compile_job *jobs, size_t count, fa2i_cache *cache, int threads,
                            const char *generator, const volatile sig_atomic_t *stop, fa2i_compiled_fn compiled,
                            void *user)
{
    pool *p = NULL;
    if (count == 0)
        return FA2_OK;
    fa2_status st = make_pool(jobs, count, cache, &p);
    if (st != FA2_OK)
        return st;
    p->generator = generator;
    p->stop = stop;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->filled, NULL);
    pthread_cond_init(&p->freed, NULL);
    st = run_pool(p, fa2i_compile_threads(threads, p->distinct), compiled, user);
    pthread_cond_destroy(&p->freed);
    pthread_cond_destroy(&p->filled);
    pthread_mutex_destroy(&p->lock);
    pool_done(p);
    return st;
}
