/*
 * The public interface: a device, its plans, and the planner that makes them.
 *
 * - The warm path (fa2_forward on a planned problem) reads plans and device, and nothing else: no
 *   lock, no allocation, no driver call besides the launch and what enter needs. A plan that is
 *   found vouches for the problem; only its arguments are checked.
 * - Everything that changes is behind `mutex`: the planner, and adding to plans. A thread that
 *   misses takes the lock and looks again, so that threads that prepare one problem together make
 *   one plan.
 * - Plans are never taken away, so readers need no more than the table. That they do not pile up
 *   over the days of a server is the business of PLANS_KEPT: beyond it fa2_forward keeps none.
 * - Calls that a plan's kernel does not serve, or only slowly, for their strides, have plans of their own (unmapped).
 *   Which those are is asked of the arguments before the launch (fa2i_maps_serve). Where no such plan can be had for one
 *   that is served slowly, that is remembered (without), so that it costs no lock.
 * - With FA2_CAPTURE a launch counts itself in its plan; without, it looks at a pointer.
 * - With config.check_numbers a launch reads its numbers first; without, it looks at a flag.
 * - The device's context is entered around a launch, which costs one look at the current one
 *   unless that is another.
 */
#include "fa2.h"

#include <pthread.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"
#include "runtime/cuda/check_numbers.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/tensor_map.h"
#include "runtime/plan/capture.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/planner_estimate.h"

enum { PLANS_KEPT = 16384 }; /* fa2.h names it, and what they take */

/* Sizes of fa2_explanation that a program can have been built with. */
enum { EXPLANATION_LEAST = offsetof(fa2_explanation, tuned_problem), EXPLANATION_MOST = 65536 };

/* Every SM from 7.5 on that there is code for. */
static const int archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121};

struct fa2_context {
    fa2i_device device;         /* does not change once open */
    fa2i_plans plans, unmapped; /* unmapped: of kernels that read no tensor maps */
    fa2i_plans without;         /* no kernels: problems for which a call that is served slowly asked
                                 * in vain for an unmapped one, and is not to ask again */
    pthread_mutex_t mutex;
    fa2i_planner planner;
    fa2i_capture *capture; /* NULL: calls are not counted */
    bool checks_numbers;
};

static fa2_status check_arch(int arch)
{
    fa2i_text known = {0};
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++) {
        if (arch == 0 || arch == archs[i])
            return FA2_OK;
    }
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
        return fa2i_fail(FA2_E_INVALID, "config.device_plus_one is %d; it must be 0 or more",
                         config->device_plus_one);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].value != 0 && flags[i].value != 1)
            return fa2i_fail(FA2_E_INVALID, "config.%s is %d; it must be 0 or 1", flags[i].name,
                             flags[i].value);
    if (config->never_compile != 0 && config->arch != 0)
        return fa2i_fail(FA2_E_INVALID,
                         "config.never_compile is 1 and config.arch %d; kernels for another SM must "
                         "be compiled, so one of them must be 0",
                         config->arch);
    return check_arch(config->arch);
}

fa2_status fa2_context_create(const fa2_config *config, fa2_context **ret_context)
{
    fa2_status st = FA2_OK;
    fa2_context *context = NULL;
    const fa2_config defaults = {0};
    char kept[FA2I_MESSAGE_BYTES];

    if (ret_context == NULL)
        return fa2i_fail(FA2_E_INVALID, "ret_context is NULL");
    fa2i_message_keep(kept);
    if (config == NULL)
        config = &defaults;
    FA2_TRY(check_config(config));
    context = fa2i_alloc(sizeof(*context));
    if (context == NULL) {
        st = fa2i_fail(FA2_E_MEMORY, "no memory for a context");
        goto done;
    }
    context->checks_numbers = config->check_numbers;
    pthread_mutex_init(&context->mutex, NULL); /* cannot fail with default attributes */
    FA2_TRY(fa2i_device_open(config->device_plus_one, &context->device));
    FA2_TRY(fa2i_planner_init(&context->planner, &context->device, config));
    FA2_TRY(fa2i_plans_init(&context->plans));
    FA2_TRY(fa2i_plans_init(&context->unmapped));
    FA2_TRY(fa2i_plans_init(&context->without));
    FA2_TRY(fa2i_capture_open(&context->plans, &context->capture));
    fa2i_message_put_back(kept); /* a database that is not there is done without */
    *ret_context = context;
    context = NULL; /* ownership has moved to the caller */
done:
    fa2_context_destroy(context);
    return st;
}

void fa2_context_destroy(fa2_context *context)
{
    if (context == NULL)
        return;
    if (fa2i_capture_close(context->capture) != FA2_OK)
        fa2i_planner_log(&context->planner, "%s", fa2_last_message());
    fa2i_plans_done(&context->plans);
    fa2i_plans_done(&context->unmapped);
    fa2i_plans_done(&context->without);
    fa2i_planner_done(&context->planner);
    fa2i_device_close(&context->device);
    pthread_mutex_destroy(&context->mutex);
    fa2i_free(context);
}

/* Under the lock. unkept: where the plan goes when PLANS_KEPT are kept; NULL: it is kept always. */
static fa2_status find_or_make(fa2_context *context, fa2i_plans *plans, const fa2_problem *problem,
                               fa2i_plan *unkept, const fa2i_plan **ret_plan)
{
    fa2_status st = FA2_OK;
    fa2i_plan made;
    const fa2i_plan *plan = fa2i_plans_find(plans, problem);

    if (plan == NULL) {
        FA2_TRY(fa2i_planner_make(&context->planner, problem, plans == &context->unmapped, &made));
        if (unkept == NULL || fa2i_plans_count(plans) < PLANS_KEPT) {
            FA2_TRY(fa2i_plans_add(plans, &made, &plan));
        } else {
            *unkept = made;
            plan = unkept;
        }
    }
    *ret_plan = plan;
done:
    return st;
}

/* Preparing would synchronise, so a stream that is being captured is an error. unmapped: what is to be prepared is the
 * kernel for a call that its problem's does not serve. */
static fa2_status check_capture(const fa2_context *context, const fa2_problem *problem,
                                CUstream stream, bool unmapped)
{
    bool capturing = false;
    char text[FA2I_PROBLEM_CHARS];

    fa2_status st = fa2i_device_enter(&context->device); /* the default stream is the context's */
    if (st != FA2_OK)
        return st;
    st = fa2i_device_is_capturing(&context->device, stream, &capturing);
    fa2i_device_leave(&context->device);
    if (st != FA2_OK || !capturing)
        return st;
    fa2i_problem_format(problem, text, sizeof(text));
    if (unmapped)
        return fa2i_fail(FA2_E_CAPTURE,
                         "%s: no tensor map has these strides, the kernel without maps is not "
                         "prepared, and the stream is being captured: make the call once before "
                         "the capture begins",
                         text);
    return fa2i_fail(FA2_E_CAPTURE,
                     "%s is not prepared and the stream is being captured: call fa2_prepare before "
                     "the capture begins (fa2_%s keeps only the first %d problems prepared)",
                     text, fa2i_field_word(FA2I_FIELD_op, (int32_t)problem->op), PLANS_KEPT);
}

/* What fails for want of a kernel is to be tuned, elsewhere. */
static void count_failure(const fa2_context *context, const fa2_problem *problem, fa2_status st)
{
    if (context->capture != NULL && (st == FA2_E_NO_NVRTC || st == FA2_E_FORBIDDEN))
        fa2i_capture_add(context->capture, problem);
}

/* What went wrong with the capture file since is told then, as the log needs the lock. */
static void lock_planner(fa2_context *context)
{
    pthread_mutex_lock(&context->mutex);
    if (context->capture != NULL && fa2i_capture_trouble(context->capture) != FA2_OK)
        fa2i_planner_log(&context->planner, "%s", fa2_last_message());
}

/* The slow path of a valid problem: one thread makes the plan, the others wait and find it. What fails on the
 * way to it and is made good, as code that is not stored is compiled, leaves no message. */
static fa2_status make_plan(fa2_context *context, const fa2_problem *problem, fa2i_plan *unkept,
                            const fa2i_plan **ret_plan)
{
    char kept[FA2I_MESSAGE_BYTES];
    fa2i_message_keep(kept);
    lock_planner(context);
    fa2_status st = find_or_make(context, &context->plans, problem, unkept, ret_plan);
    pthread_mutex_unlock(&context->mutex);
    if (st == FA2_OK)
        fa2i_message_put_back(kept);
    else
        count_failure(context, problem, st);
    return st;
}

/* A plan that is kept, so that what is said about it holds for later calls. */
static fa2_status get_plan(fa2_context *context, const fa2_problem *problem,
                           const fa2i_plan **ret_plan)
{
    if (context == NULL || problem == NULL)
        return fa2i_fail(FA2_E_INVALID, "%s is NULL", context == NULL ? "context" : "problem");
    *ret_plan = fa2i_plans_find(&context->plans, problem);
    if (*ret_plan != NULL)
        return FA2_OK;
    fa2_status st = fa2i_problem_check(problem);
    return st != FA2_OK ? st : make_plan(context, problem, NULL, ret_plan);
}

int fa2_version(void)
{
    return FA2_VERSION;
}

fa2_status fa2_prepare(fa2_context *context, const fa2_problem *problem)
{
    const fa2i_plan *plan = NULL;
    return get_plan(context, problem, &plan);
}

fa2_status fa2_workspace_size(fa2_context *context, const fa2_problem *problem, size_t *ret_bytes)
{
    fa2_status st = FA2_OK;
    const fa2i_plan *plan = NULL;

    if (ret_bytes == NULL)
        return fa2i_fail(FA2_E_INVALID, "ret_bytes is NULL");
    FA2_TRY(get_plan(context, problem, &plan));
    *ret_bytes = plan->workspace_bytes;
done:
    return st;
}

static fa2_status find_runner_up(fa2_context *context, const fa2i_plan *plan,
                                 fa2i_runner_up *ret_runner_up)
{
    char kept[FA2I_MESSAGE_BYTES];
    fa2i_message_keep(kept);
    pthread_mutex_lock(&context->mutex);
    const fa2_status st = fa2i_planner_find_runner_up(&context->planner, plan, ret_runner_up);
    pthread_mutex_unlock(&context->mutex);
    if (st == FA2_E_MEMORY)
        return st;
    fa2i_message_put_back(kept);
    return FA2_OK; /* where it failed, none is known */
}

fa2_status fa2_explain(fa2_context *context, const fa2_problem *problem,
                       fa2_explanation *ret_explanation)
{
    fa2_status st = FA2_OK;
    const fa2i_plan *plan = NULL;

    if (ret_explanation == NULL)
        return fa2i_fail(FA2_E_INVALID, "ret_explanation is NULL");
    if (ret_explanation->struct_bytes < EXPLANATION_LEAST ||
        ret_explanation->struct_bytes > EXPLANATION_MOST)
        return fa2i_fail(FA2_E_INVALID,
                         "explanation.struct_bytes is %zu; it must be sizeof(fa2_explanation), as "
                         "the program was built with it",
                         ret_explanation->struct_bytes);
    FA2_TRY(get_plan(context, problem, &plan));
    fa2i_runner_up runner_up = {.us = 0};
    FA2_TRY(find_runner_up(context, plan, &runner_up));
    fa2_explanation whole;
    fa2i_planner_explain(&context->planner, plan, &runner_up, &whole);
    whole.struct_bytes = ret_explanation->struct_bytes;
    memcpy(ret_explanation, &whole,
           whole.struct_bytes < sizeof(whole) ? whole.struct_bytes : sizeof(whole));
done:
    return st;
}

/* A problem without a plan: nothing is made for arguments that could not be launched. */
static fa2_status get_plan_for_call(fa2_context *context, const fa2_problem *problem,
                                    const void *args, CUstream stream, fa2i_plan *unkept,
                                    const fa2i_plan **ret_plan)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_problem_check(problem));
    FA2_TRY(fa2i_op_of(problem)->check_args(problem, args, NULL));
    FA2_TRY(check_capture(context, problem, stream, false));
    FA2_TRY(make_plan(context, problem, unkept, ret_plan));
done:
    return st;
}

/* op: what the function launches. */
static fa2_status refuse_op(fa2_op op, fa2_op asked)
{
    const char *name = fa2i_field_word(FA2I_FIELD_op, (int32_t)op);
    const fa2_status st = fa2i_field_check(FA2I_FIELD_op, (int32_t)asked);
    if (st != FA2_OK)
        return st;
    return fa2i_fail(FA2_E_INVALID, "op is %s; fa2_%s launches %s",
                     fa2i_field_word(FA2I_FIELD_op, (int32_t)asked), name, name);
}

static void count_call(const fa2_context *context, const fa2i_plan *plan, bool unkept)
{
    if (unkept)
        fa2i_capture_add(context->capture, &plan->problem);
    else
        fa2i_plan_count(plan, 1);
}

static bool does_without(fa2_context *context, const fa2_problem *problem)
{
    return fa2i_plans_find(&context->without, problem) != NULL;
}

/* Under the lock. An unmapped kernel that can be done without is asked for once, but for want of memory, which may be
 * there later. Where PLANS_KEPT problems do without, so do all others. */
static fa2_status ask_unmapped(fa2_context *context, const fa2_problem *problem, fa2i_plan *unkept,
                               const fa2i_plan **ret_plan)
{
    const fa2i_plan none = {.problem = *problem}, *added;
    if (does_without(context, problem) || fa2i_plans_count(&context->without) >= PLANS_KEPT)
        return FA2_OK;
    const fa2_status st = find_or_make(context, &context->unmapped, problem, unkept, ret_plan);
    if (st != FA2_OK && st != FA2_E_MEMORY) {
        fa2i_planner_do_without(&context->planner, problem);
        (void)fa2i_plans_add(&context->without, &none, &added);
    }
    return st;
}

/* The plan for a call that its problem's does not serve, or only slowly. Such a one does without where there is none:
 * *ret_plan is NULL then, which is no failure, and leaves no message. */
static fa2_status get_unmapped(fa2_context *context, const fa2_problem *problem,
                               fa2i_maps_service service, CUstream stream, fa2i_plan *unkept,
                               const fa2i_plan **ret_plan)
{
    const bool needed = service == FA2I_MAPS_DO_NOT_SERVE;
    char kept[FA2I_MESSAGE_BYTES];
    *ret_plan = fa2i_plans_find(&context->unmapped, problem);
    if (*ret_plan != NULL || (!needed && does_without(context, problem)))
        return FA2_OK;
    fa2i_message_keep(kept);
    fa2_status st = check_capture(context, problem, stream, true);
    if (st == FA2_OK) {
        lock_planner(context);
        st = needed ? find_or_make(context, &context->unmapped, problem, unkept, ret_plan)
                    : ask_unmapped(context, problem, unkept, ret_plan);
        pthread_mutex_unlock(&context->mutex);
    }
    if (needed && st != FA2_OK)
        return st;
    fa2i_message_put_back(kept);
    return FA2_OK;
}

/* By which plan a call is launched. *plan: its problem's, with which the arguments were checked. */
static fa2_status choose_plan(fa2_context *context, const fa2_problem *problem, const void *args,
                              CUstream stream, fa2i_plan *unkept, const fa2i_plan **plan)
{
    fa2_status st = FA2_OK;
    const fa2i_plan *unmapped;
    const fa2i_maps_service service =
        fa2i_maps_serve(&(*plan)->slot->loaded.variant.recipe, &(*plan)->grid, problem, args);
    if (service == FA2I_MAPS_SERVE)
        return FA2_OK;
    FA2_TRY(get_unmapped(context, problem, service, stream, unkept, &unmapped));
    if (unmapped != NULL) { /* which has its own workspace */
        FA2_TRY(fa2i_op_of(problem)->check_args(problem, args, &unmapped->grid));
        *plan = unmapped;
    }
done:
    return st;
}

static fa2_status check_numbers(const fa2_context *context, const fa2_problem *problem,
                                const void *args, CUstream stream)
{
    fa2_status st = fa2i_device_enter(&context->device);
    if (st != FA2_OK)
        return st;
    st = fa2i_check_numbers(&context->device, problem, args, stream);
    fa2i_device_leave(&context->device);
    return st;
}

/* A call whose arguments were checked. plan: its problem's. */
static fa2_status launch_best(fa2_context *context, const fa2i_plan *plan,
                              const fa2_problem *problem, const void *args, CUstream stream)
{
    fa2_status st = FA2_OK;
    fa2i_plan unkept;
    FA2_TRY(choose_plan(context, problem, args, stream, &unkept, &plan));
    FA2_TRY(fa2i_device_enter(&context->device));
    st = fa2i_launch(&context->device, &plan->slot->loaded, &plan->grid, problem, args, stream);
    fa2i_device_leave(&context->device);
done:
    return st;
}

/* A call of any operation. op: whose arguments these are. */
static fa2_status launch(fa2_context *context, fa2_op op, const fa2_problem *problem,
                         const void *args, CUstream stream)
{
    fa2_status st = FA2_OK;
    fa2i_plan unkept;

    if (context == NULL || problem == NULL || args == NULL)
        return fa2i_fail(FA2_E_INVALID, "%s is NULL",
                         context == NULL   ? "context"
                         : problem == NULL ? "problem"
                                           : "args");
    if (problem->op != op)
        return refuse_op(op, problem->op);
    const fa2i_plan *plan = fa2i_plans_find(&context->plans, problem);
    if (plan == NULL)
        FA2_TRY(get_plan_for_call(context, problem, args, stream, &unkept, &plan));
    FA2_TRY(fa2i_op_of(problem)->check_args(problem, args, &plan->grid));
    if (context->checks_numbers)
        FA2_TRY(check_numbers(context, problem, args, stream));
    FA2_TRY(launch_best(context, plan, problem, args, stream));
    if (context->capture != NULL && st == FA2_OK)
        count_call(context, plan, plan == &unkept);
done:
    return st;
}

fa2_status fa2_forward(fa2_context *context, const fa2_problem *problem,
                       const fa2_forward_args *args, void *stream)
{
    return launch(context, FA2_OP_FORWARD, problem, args, stream);
}

fa2_status fa2_backward(fa2_context *context, const fa2_problem *problem,
                        const fa2_backward_args *args, void *stream)
{
    return launch(context, FA2_OP_BACKWARD, problem, args, stream);
}
