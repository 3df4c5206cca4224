/*
 * The public interface: a device, its plans, and the planner that makes them.
 *
 * - The warm path (fa2_forward on a planned problem) reads only plans and device. It takes no lock, allocates nothing
 *   and makes no driver call besides the launch and what entering the context needs. A plan exists only for a valid
 *   problem, so only the arguments are checked.
 * - `mutex` protects everything that changes: the planner, and adding to plans. A thread that finds no plan takes the
 *   lock and looks again. So threads that prepare the same problem together make one plan.
 * - The number of plans is limited, and old ones are dropped (plan.h), so a call copies the part that it needs. A call
 *   that finds an aged plan marks it as used, unless it would have to wait for the lock.
 * - Some calls have strides that the kernel of their plan serves slowly or not at all. They have plans of their own
 *   (unmapped). The launch decides this from its arguments (fa2i_maps_serve). If a slow call can get no such plan, a
 *   plan without a kernel remembers that, so that later calls need no lock.
 * - With FA2_CAPTURE each launch is counted. Without it, a launch tests one pointer.
 * - With config.check_numbers a launch first reads its numbers. Without it, a launch tests one flag.
 * - A launch enters the device's context. That costs one look at the current context if that is already the right one.
 * - In a forked child each function fails before it reads the context, and destroying does nothing.
 */
#include "fa2.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/base/process.h"
#include "runtime/base/sized.h"
#include "runtime/base/text.h"
#include "runtime/cuda/check_numbers.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/rounding.h"
#include "runtime/cuda/tensor_map.h"
#include "runtime/plan/capture.h"
#include "runtime/plan/planner.h"

/* Every SM from 7.5 on for which fa2 generates code. */
static const int archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121};

struct fa2_context {
    fa2i_device device; /* does not change after it was opened */
    fa2i_plans plans;
    fa2i_plans unmapped; /* plans of kernels that read no tensor maps. A plan without a kernel: a slowly served call
                          * asked for one in vain, and does not ask again */
    pthread_mutex_t mutex;
    fa2i_planner planner;
    fa2i_capture *capture; /* NULL if calls are not counted */
    bool checks_numbers;
    int rounding_every; /* as in fa2_config, with the next two */
    void (*rounding)(void *user, const fa2_problem *problem, const fa2_rounding *heads);
    void *rounding_user;
    atomic_uint rounded; /* calls so far whose kernel rounds K */
    unsigned forks;      /* fa2i_process_watch */
};

static fa2_status check_arch(int arch)
{
    fa2i_text known = {0};
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
        if (arch == 0 || arch == archs[i])
            return FA2_OK;
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
        fa2i_text_add(&known, "%s%d", i == 0 ? "" : ", ", archs[i]);
    fa2i_fail(FA2_E_INVALID, "config.arch is %d; it must be 0, or one of %s", arch,
              known.data == NULL ? "75 ..." : known.data);
    fa2i_text_done(&known);
    return FA2_E_INVALID;
}

static fa2_status check_config(const fa2_config *config)
{
    const struct {
        const char *name;
        int value;
    } flags[] = {{"read_only", config->read_only},
                 {"never_compile", config->never_compile},
                 {"check_numbers", config->check_numbers}};
    if (config->device_plus_one < 0)
        return fa2i_fail(FA2_E_INVALID, "config.device_plus_one is %d; it must be 0 or more", config->device_plus_one);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].value != 0 && flags[i].value != 1)
            return fa2i_fail(FA2_E_INVALID, "config.%s is %d; it must be 0 or 1", flags[i].name, flags[i].value);
    if (config->never_compile != 0 && config->arch != 0)
        return fa2i_fail(FA2_E_INVALID,
                         "config.never_compile is 1 and config.arch %d; kernels for another SM must "
                         "be compiled, so one of them must be 0",
                         config->arch);
    if (config->rounding_every < 0 || (config->rounding_every > 0 && config->rounding == NULL))
        return fa2i_fail(FA2_E_INVALID, "config.rounding_every is %d; it must be 0 or more, and 0 if rounding is NULL",
                         config->rounding_every);
    if (config->log_level < 0 || config->log_level > FA2_LOG_DEBUG)
        return fa2i_fail(FA2_E_INVALID, "config.log_level is %d; it must be 0, or a fa2_log_level up to %d",
                         config->log_level, FA2_LOG_DEBUG);
    return check_arch(config->arch);
}

fa2_status fa2_context_create(const fa2_config *config, fa2_context **ret_context)
{
    fa2_status st = FA2_OK;
    fa2_context *context = NULL;
    const fa2_config defaults = {.struct_bytes = sizeof defaults};
    const void *read = NULL;
    fa2_config copy;
    char kept[FA2I_MESSAGE_BYTES];
    if (ret_context == NULL)
        return fa2i_fail(FA2_E_INVALID, "ret_context is NULL");
    fa2i_message_keep(kept);
    FA2_TRY(fa2i_sized_read(&fa2i_sized_config, config != NULL ? config : &defaults, &copy, &read));
    config = read;
    FA2_TRY(check_config(config));
    FA2_TRY(FA2I_NEW(context, 1));
    context->checks_numbers = config->check_numbers;
    context->rounding_every = config->rounding_every;
    context->rounding = config->rounding;
    context->rounding_user = config->rounding_user;
    pthread_mutex_init(&context->mutex, NULL);                                /* cannot fail with default attributes */
    context->forks = atomic_load_explicit(&fa2i_forks, memory_order_relaxed); /* so that destroying works from here
                                                                               * on */
    FA2_TRY(fa2i_process_watch(&context->forks));
    FA2_TRY(fa2i_device_open(config->device_plus_one, &context->device));
    FA2_TRY(fa2i_planner_init(&context->planner, &context->device, config));
    FA2_TRY(fa2i_plans_init(&context->plans));
    FA2_TRY(fa2i_plans_init(&context->unmapped));
    FA2_TRY(fa2i_capture_open(&context->planner.counters, &context->capture));
    fa2i_message_put_back(kept); /* an unusable database at the default path is no error */
    *ret_context = context;
    context = NULL; /* ownership has moved to the caller */
done:
    fa2_context_destroy(context);
    return st;
}

void fa2_context_destroy(fa2_context *context)
{
    if (context == NULL || fa2i_is_forked(context->forks)) /* it belongs to the parent process */
        return;
    if (fa2i_capture_close(context->capture) != FA2_OK)
        fa2i_planner_log(&context->planner, FA2_LOG_ERROR, "%s", fa2_last_message());
    fa2i_plans_done(&context->plans);
    fa2i_plans_done(&context->unmapped);
    fa2i_planner_done(&context->planner);
    fa2i_device_close(&context->device);
    pthread_mutex_destroy(&context->mutex);
    fa2i_free(context);
}

static fa2_status refuse_fork(void)
{
    return fa2i_fail(FA2_E_INVALID, "the context was made before this process was forked, which CUDA does not survive: "
                                    "start the child by exec (multiprocessing: spawn), or use fa2 first in the child");
}

/* Copies from this problem's plan. Returns false if the caller must look again under the lock. Marks an aged plan as
 * used only if the lock is free, because a thread that holds it may be compiling. */
static inline bool find(fa2_context *context, fa2i_plans *plans, const fa2_problem *problem, fa2i_ready *ret_ready)
{
    const fa2i_found found = fa2i_plans_find(plans, problem, ret_ready);
    if (found == FA2I_PLAN_AGED && pthread_mutex_trylock(&context->mutex) == 0) {
        (void)fa2i_plans_get(plans, problem);
        pthread_mutex_unlock(&context->mutex);
    }
    return found != FA2I_PLAN_NONE;
}

/* Fails because nothing can be loaded while the call's stream is captured, and no loaded kernel serves the problem.
 * unmapped: the kernel was needed for a call that its problem's kernel does not serve. */
static fa2_status fail_capture(const fa2_problem *problem, bool unmapped)
{
    const fa2i_shape text = fa2i_problem_shape(problem);
    if (unmapped)
        return fa2i_fail(FA2_E_CAPTURE,
                         "%s: no tensor map has these strides, the kernel without maps is not "
                         "prepared, and the stream is being captured: make the call once before the capture begins",
                         text.text);
    return fa2i_fail(FA2_E_CAPTURE,
                     "%s is not prepared and the stream is being captured: call fa2_prepare before "
                     "the capture begins (a problem stays prepared until %d others were prepared or called)",
                     text.text, FA2I_PLANS_KEPT);
}

/* Counts the time that a caller lost because it found no plan. */
static void count_time(fa2_context *context, int64_t began_ns)
{
    fa2i_count(&context->planner.counters, FA2I_COUNTER_miss_ns, (uint64_t)(fa2i_clock_ns() - began_ns));
}

/* Finds the problem's plan, or makes one and keeps it. The caller holds the lock. */
static fa2_status find_or_make(fa2_context *context, fa2i_plans *plans, const fa2_problem *problem, bool capturing,
                               fa2i_plan *ret_plan)
{
    const bool unmapped = plans == &context->unmapped;
    const fa2i_plan *kept = fa2i_plans_get(plans, problem);
    if (kept != NULL && kept->ready.slot != NULL) {
        *ret_plan = *kept;
        return FA2_OK;
    }
    fa2i_count(&context->planner.counters, FA2I_COUNTER_misses, 1);
    if (capturing && !fa2i_planner_recall(&context->planner, problem, unmapped, ret_plan))
        return fail_capture(problem, unmapped);
    const fa2_status st = capturing ? FA2_OK : fa2i_planner_make(&context->planner, problem, unmapped, ret_plan);
    return st != FA2_OK ? st : fa2i_plans_put(plans, ret_plan);
}

static fa2_status is_capturing(const fa2_context *context, CUstream stream, bool *ret_capturing)
{
    fa2_status st = fa2i_device_enter(&context->device); /* the default stream is the context's */
    if (st != FA2_OK)
        return st;
    st = fa2i_device_is_capturing(&context->device, stream, ret_capturing);
    fa2i_device_leave(&context->device);
    return st;
}

/* Counts calls that failed because a kernel had to be compiled: they should be tuned on another machine. */
static void count_failure(const fa2_context *context, const fa2_problem *problem, fa2_status st)
{
    if (context->capture != NULL && (st == FA2_E_NO_NVRTC || st == FA2_E_FORBIDDEN))
        fa2i_capture_add(context->capture, problem);
}

/* Takes the lock. Then logs what went wrong with the capture file meanwhile, because logging needs the lock. */
static void lock_planner(fa2_context *context)
{
    pthread_mutex_lock(&context->mutex);
    if (context->capture != NULL && fa2i_capture_trouble(context->capture) != FA2_OK)
        fa2i_planner_log(&context->planner, FA2_LOG_ERROR, "%s", fa2_last_message());
}

/* Makes the plan of a valid problem. One thread makes it, and the others wait and find it. Failures that were overcome
 * leave no message; for example, code could not be stored but was compiled. */
static fa2_status make_plan(fa2_context *context, const fa2_problem *problem, bool capturing, fa2i_plan *ret_plan)
{
    char kept[FA2I_MESSAGE_BYTES];
    const int64_t began_ns = fa2i_clock_ns();
    fa2i_message_keep(kept);
    lock_planner(context);
    const fa2_status st = find_or_make(context, &context->plans, problem, capturing, ret_plan);
    pthread_mutex_unlock(&context->mutex);
    count_time(context, began_ns);
    if (st == FA2_OK)
        fa2i_message_put_back(kept);
    else
        count_failure(context, problem, st);
    return st;
}

static fa2_status check_usable(const fa2_context *context)
{
    if (context == NULL)
        return fa2i_fail(FA2_E_INVALID, "context is NULL");
    return fa2i_is_forked(context->forks) ? refuse_fork() : FA2_OK;
}

/* Gets the plan and marks it as used, so that answers about it hold for later calls. */
static fa2_status get_plan(fa2_context *context, const fa2_problem *problem, fa2i_plan *ret_plan)
{
    const fa2_status st = fa2i_problem_check(problem);
    return st != FA2_OK ? st : make_plan(context, problem, false, ret_plan);
}

static fa2_status get_ready(fa2_context *context, const fa2_problem *problem, fa2i_ready *ret_ready)
{
    fa2i_plan plan;
    fa2_problem copy;
    fa2_status st = check_usable(context);
    if (st == FA2_OK)
        st = fa2i_sized_problem_read(&problem, &copy);
    if (st != FA2_OK || fa2i_plans_find(&context->plans, problem, ret_ready) == FA2I_PLAN_FRESH)
        return st;
    st = get_plan(context, problem, &plan);
    if (st == FA2_OK)
        *ret_ready = plan.ready;
    return st;
}

int fa2_version(void)
{
    return FA2_VERSION;
}

fa2_status fa2_prepare(fa2_context *context, const fa2_problem *problem)
{
    fa2i_ready ready;
    return get_ready(context, problem, &ready);
}

fa2_status fa2_workspace_size(fa2_context *context, const fa2_problem *problem, size_t *ret_bytes)
{
    fa2_status st = FA2_OK;
    fa2i_ready ready;
    if (ret_bytes == NULL)
        return fa2i_fail(FA2_E_INVALID, "ret_bytes is NULL");
    FA2_TRY(get_ready(context, problem, &ready));
    *ret_bytes = ready.workspace_bytes;
done:
    return st;
}

static fa2_status find_runner_up(fa2_context *context, const fa2i_plan *plan, fa2i_runner_up *ret_runner_up)
{
    char kept[FA2I_MESSAGE_BYTES];
    fa2i_message_keep(kept);
    pthread_mutex_lock(&context->mutex);
    const fa2_status st = fa2i_planner_find_runner_up(&context->planner, plan, ret_runner_up);
    pthread_mutex_unlock(&context->mutex);
    if (st == FA2_E_MEMORY)
        return st;
    fa2i_message_put_back(kept);
    return FA2_OK; /* if this failed, no runner-up is known */
}

fa2_status fa2_explain(fa2_context *context, const fa2_problem *problem, fa2_explanation *ret_explanation)
{
    fa2_status st = FA2_OK;
    fa2i_plan plan;
    fa2_problem copy;
    if (ret_explanation == NULL)
        return fa2i_fail(FA2_E_INVALID, "ret_explanation is NULL");
    FA2_TRY(fa2i_sized_check(&fa2i_sized_explanation, ret_explanation->struct_bytes));
    FA2_TRY(check_usable(context));
    FA2_TRY(fa2i_sized_problem_read(&problem, &copy));
    FA2_TRY(get_plan(context, problem, &plan));
    fa2i_runner_up runner_up = {.us = 0};
    FA2_TRY(find_runner_up(context, &plan, &runner_up));
    fa2_explanation whole;
    fa2i_planner_explain(&context->planner, &plan, &runner_up, &whole);
    whole.struct_bytes = ret_explanation->struct_bytes;
    memcpy(ret_explanation, &whole, whole.struct_bytes < sizeof(whole) ? whole.struct_bytes : sizeof(whole));
done:
    return st;
}

/* Gets a plan for a problem that has none yet. Checks the arguments first, so nothing is made for a call that could not
 * be launched. */
static fa2_status get_ready_for_call(fa2_context *context, const fa2_problem *problem, const void *args,
                                     CUstream stream, fa2i_ready *ret_ready)
{
    fa2_status st = FA2_OK;
    bool capturing = false;
    fa2i_plan plan;
    FA2_TRY(fa2i_problem_check(problem));
    FA2_TRY(fa2i_op_of(problem)->check_args(problem, args, NULL));
    FA2_TRY(is_capturing(context, stream, &capturing));
    FA2_TRY(make_plan(context, problem, capturing, &plan));
    *ret_ready = plan.ready;
done:
    return st;
}

/* Fails because the problem asks for another operation. op: the operation that the function launches. */
static fa2_status refuse_op(fa2_op op, fa2_op asked)
{
    const char *name = fa2i_field_word(FA2I_FIELD_op, (int32_t)op);
    const fa2_status st = fa2i_field_check(FA2I_FIELD_op, (int32_t)asked);
    if (st != FA2_OK)
        return st;
    return fa2i_fail(FA2_E_INVALID, "op is %s; fa2_%s launches %s", fa2i_field_word(FA2I_FIELD_op, (int32_t)asked),
                     name, name);
}

/* The caller holds the lock. A plan without a kernel says that the planner was asked in vain. The planner is asked
 * again if it failed for want of memory, or because a stream was captured. */
static fa2_status ask_unmapped(fa2_context *context, const fa2_problem *problem, bool capturing, fa2i_plan *ret_plan)
{
    const fa2i_plan none = {.problem = *problem};
    const fa2i_plan *kept = fa2i_plans_get(&context->unmapped, problem);
    if (kept != NULL) {
        *ret_plan = *kept;
        return FA2_OK;
    }
    const fa2_status st = find_or_make(context, &context->unmapped, problem, capturing, ret_plan);
    if (st != FA2_OK && st != FA2_E_MEMORY && st != FA2_E_CAPTURE) {
        fa2i_planner_do_without(&context->planner, problem);
        (void)fa2i_plans_put(&context->unmapped, &none);
    }
    return st;
}

/* Gets the plan for a call that its problem's kernel serves slowly or not at all. A slow call does without such a plan
 * if it gets none: then ret_ready->slot is NULL. That is no failure and leaves no message. */
static fa2_status get_unmapped(fa2_context *context, const fa2_problem *problem, fa2i_maps_service service,
                               CUstream stream, fa2i_ready *ret_ready)
{
    const bool needed = service == FA2I_MAPS_DO_NOT_SERVE;
    bool capturing = false;
    char kept[FA2I_MESSAGE_BYTES];
    fa2i_plan plan;
    if (find(context, &context->unmapped, problem, ret_ready) && (ret_ready->slot != NULL || !needed))
        return FA2_OK;
    fa2i_message_keep(kept);
    fa2_status st = is_capturing(context, stream, &capturing);
    if (st == FA2_OK) {
        const int64_t began_ns = fa2i_clock_ns();
        lock_planner(context);
        st = needed ? find_or_make(context, &context->unmapped, problem, capturing, &plan)
                    : ask_unmapped(context, problem, capturing, &plan);
        pthread_mutex_unlock(&context->mutex);
        count_time(context, began_ns);
    }
    if (needed && st != FA2_OK)
        return st;
    *ret_ready = st == FA2_OK ? plan.ready : (fa2i_ready){.slot = NULL};
    fa2i_message_put_back(kept);
    return FA2_OK;
}

/* Chooses the plan by which a call is launched. *ready: the problem's plan, with which the arguments were checked. */
static fa2_status choose_plan(fa2_context *context, const fa2_problem *problem, const void *args, CUstream stream,
                              fa2i_ready *ready)
{
    fa2_status st = FA2_OK;
    fa2i_ready unmapped;
    const fa2i_maps_service service = fa2i_maps_serve(&ready->slot->loaded.variant.recipe, &ready->grid, problem, args);
    if (service == FA2I_MAPS_SERVE)
        return FA2_OK;
    FA2_TRY(get_unmapped(context, problem, service, stream, &unmapped));
    if (unmapped.slot != NULL) { /* this plan needs a workspace of its own size */
        FA2_TRY(fa2i_op_of(problem)->check_args(problem, args, &unmapped.grid));
        *ready = unmapped;
    }
done:
    return st;
}

static fa2_status check_numbers(const fa2_context *context, const fa2_problem *problem, const void *args,
                                CUstream stream)
{
    fa2_status st = fa2i_device_enter(&context->device);
    if (st != FA2_OK)
        return st;
    st = fa2i_check_numbers(&context->device, problem, args, stream);
    fa2i_device_leave(&context->device);
    return st;
}

/* Launches a call whose arguments were checked. ready: from the problem's plan. */
static fa2_status launch_best(fa2_context *context, fa2i_ready *ready, const fa2_problem *problem, const void *args,
                              CUstream stream)
{
    fa2_status st = FA2_OK;
    FA2_TRY(choose_plan(context, problem, args, stream, ready));
    FA2_TRY(fa2i_device_enter(&context->device));
    st = fa2i_launch(&context->device, &ready->slot->loaded, &ready->grid, problem, args, stream);
    fa2i_device_leave(&context->device);
done:
    return st;
}

/* ---- what rounding lost ---- */

static fa2_status read_rounding(const fa2_context *context, const fa2i_ready *ready, const fa2_problem *problem,
                                const fa2_forward_args *args, CUstream stream, fa2_rounding *ret_heads)
{
    fa2_status st = fa2i_device_enter(&context->device);
    if (st != FA2_OK)
        return st;
    st = fa2i_rounding_read(&context->device, &ready->slot->loaded.variant.recipe, problem, args->workspace, stream,
                            ret_heads);
    fa2i_device_leave(&context->device);
    return st;
}

/* After a launch: tells the caller what the first call and every n-th after it lost. */
static fa2_status tell_rounding(fa2_context *context, const fa2i_ready *ready, const fa2_problem *problem,
                                const void *args, CUstream stream)
{
    fa2_status st = FA2_OK;
    bool capturing = false;
    fa2_rounding *heads = NULL;
    if (!fa2i_recipe_rounds(&ready->slot->loaded.variant.recipe) ||
        atomic_fetch_add_explicit(&context->rounded, 1, memory_order_relaxed) % (unsigned)context->rounding_every != 0)
        return FA2_OK;
    FA2_TRY(fa2i_device_is_capturing(&context->device, stream, &capturing));
    if (capturing)
        return FA2_OK;
    FA2_TRY(FA2I_NEW(heads, (size_t)problem->heads_kv));
    FA2_TRY(read_rounding(context, ready, problem, args, stream, heads));
    context->rounding(context->rounding_user, problem, heads);
done:
    fa2i_free(heads);
    return st;
}

fa2_status fa2_read_rounding(fa2_context *context, const fa2_problem *problem, const fa2_forward_args *args,
                             void *stream, fa2_rounding *ret_heads)
{
    fa2_status st = FA2_OK;
    fa2i_ready ready;
    fa2_problem problem_copy;
    fa2_forward_args args_copy;
    const void *read = NULL;
    bool capturing = false;
    if (ret_heads == NULL)
        return fa2i_fail(FA2_E_INVALID, "ret_heads is NULL");
    FA2_TRY(check_usable(context));
    FA2_TRY(is_capturing(context, stream, &capturing));
    if (capturing)
        FA2_TRY(fa2i_fail(FA2_E_CAPTURE, "the stream is being captured: read what rounding lost before or after it"));
    FA2_TRY(fa2i_sized_problem_read(&problem, &problem_copy));
    FA2_TRY(fa2i_sized_read(&fa2i_sized_forward_args, args, &args_copy, &read));
    FA2_TRY(get_ready(context, problem, &ready));
    if (!fa2i_recipe_rounds(&ready.slot->loaded.variant.recipe))
        FA2_TRY(fa2i_fail(FA2_E_UNSUPPORTED, "the problem's kernel, %s, does not round K",
                          ready.slot->loaded.variant.text));
    FA2_TRY(fa2i_op_of(problem)->check_args(problem, read, &ready.grid));
    FA2_TRY(read_rounding(context, &ready, problem, read, stream, ret_heads));
done:
    return st;
}

/* Launches a call of an operation. op: the operation that args belong to. */
static fa2_status launch(fa2_context *context, fa2_op op, const fa2_problem *problem, const void *args, CUstream stream)
{
    fa2_status st = FA2_OK;
    fa2i_ready ready;
    fa2_problem problem_copy;
    union {
        fa2_forward_args forward;
        fa2_backward_args backward;
        fa2_merge_args merge;
    } args_copy;
    static const fa2i_sized *const sizes[] = {[FA2_OP_FORWARD] = &fa2i_sized_forward_args,
                                              [FA2_OP_BACKWARD] = &fa2i_sized_backward_args,
                                              [FA2_OP_MERGE] = &fa2i_sized_merge_args};

    FA2_TRY(fa2i_sized_problem_read(&problem, &problem_copy));
    FA2_TRY(fa2i_sized_read(sizes[op], args, &args_copy, &args));
    if (problem->op != op)
        return refuse_op(op, problem->op);
    if (!find(context, &context->plans, problem, &ready))
        FA2_TRY(get_ready_for_call(context, problem, args, stream, &ready));
    FA2_TRY(fa2i_op_of(problem)->check_args(problem, args, &ready.grid));
    if (context->checks_numbers)
        FA2_TRY(check_numbers(context, problem, args, stream));
    FA2_TRY(launch_best(context, &ready, problem, args, stream));
    if (context->rounding_every > 0)
        FA2_TRY(tell_rounding(context, &ready, problem, args, stream));
    fa2i_count_call(&context->planner.counters, ready.rule);
    if (context->capture != NULL)
        fa2i_capture_add(context->capture, problem);
done:
    return st;
}

/* The same, and counts failures. A context that cannot be used counts nothing. */
static fa2_status call(fa2_context *context, fa2_op op, const fa2_problem *problem, const void *args, CUstream stream)
{
    fa2_status st = check_usable(context);
    if (st != FA2_OK)
        return st;
    st = launch(context, op, problem, args, stream);
    if (st != FA2_OK)
        fa2i_count(&context->planner.counters, FA2I_COUNTER_calls_failed, 1);
    return st;
}

fa2_status fa2_forward(fa2_context *context, const fa2_problem *problem, const fa2_forward_args *args, void *stream)
{
    return call(context, FA2_OP_FORWARD, problem, args, stream);
}

fa2_status fa2_backward(fa2_context *context, const fa2_problem *problem, const fa2_backward_args *args, void *stream)
{
    return call(context, FA2_OP_BACKWARD, problem, args, stream);
}

fa2_status fa2_merge(fa2_context *context, const fa2_problem *problem, const fa2_merge_args *args, void *stream)
{
    return call(context, FA2_OP_MERGE, problem, args, stream);
}

/* ---- counters ---- */

fa2_status fa2_read_counters(fa2_context *context, fa2_counters *ret_counters)
{
    fa2_status st = FA2_OK;
    fa2_counters whole;
    uint64_t values[FA2I_COUNTERS];
    if (ret_counters == NULL)
        return fa2i_fail(FA2_E_INVALID, "ret_counters is NULL");
    FA2_TRY(fa2i_sized_check(&fa2i_sized_counters, ret_counters->struct_bytes));
    FA2_TRY(check_usable(context));
    fa2i_counters_read(&context->planner.counters, values);
    memcpy((char *)&whole + offsetof(fa2_counters, calls_exact), values, sizeof values);
    whole.struct_bytes = ret_counters->struct_bytes;
    memcpy(ret_counters, &whole, whole.struct_bytes < sizeof whole ? whole.struct_bytes : sizeof whole);
done:
    return st;
}
