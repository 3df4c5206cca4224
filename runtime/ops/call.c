/*
 * NaN lies in no range. So the checks ask if a number is in its range, never if it is outside.
 */
#include "runtime/ops/call.h"

#include <math.h>
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

/* ---- factors of a call ---- */

#define NOTHING      true
#define ASKED(field) (problem->field != 0)

fa2i_factors fa2i_factors_of(const fa2_problem *problem, const void *args)
{
    const fa2_forward_args *forward = args;
    const fa2_backward_args *backward = args;
    const bool is_forward = problem->op == FA2_OP_FORWARD;
#define FA2I_FACTOR(member, needs, ...) .member = !(needs) ? 0 : is_forward ? forward->member : backward->member,
    return (fa2i_factors){
#include "runtime/base/factors.def"
    };
}

fa2i_factors fa2i_factors_asked(const fa2_problem *problem, fa2i_factors factors)
{
#define FA2I_FACTOR(member, needs, ...) .member = (needs) ? factors.member : 0,
    return (fa2i_factors){
#include "runtime/base/factors.def"
    };
}

#undef NOTHING
#undef ASKED

void fa2i_factors_ask(const fa2i_factors *factors, fa2_problem *problem)
{
#define NOTHING      (void)problem
#define ASKED(field) problem->field = 1
#define FA2I_FACTOR(member, needs, ...)                                                                                \
    if (factors->member != 0)                                                                                          \
        needs;
#include "runtime/base/factors.def"
#undef NOTHING
#undef ASKED
}

void fa2i_factors_put(fa2_op op, void *args, const fa2i_factors *factors)
{
    fa2_forward_args *forward = args;
    fa2_backward_args *backward = args;
#define FA2I_FACTOR(member, ...) *(op == FA2_OP_FORWARD ? &forward->member : &backward->member) = factors->member;
#include "runtime/base/factors.def"
}

double fa2i_cap_of(const fa2i_factors *factors)
{
    return (double)factors->softcap;
}

/* ---- what kernels take ---- */

static fa2_status check_softmax_scale(float softmax_scale)
{
    if (softmax_scale >= 0 && softmax_scale <= FA2I_SCALE_MAX) /* false for NaN */
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID,
                     "softmax_scale is %g; it must be finite (at most %g) and positive, or 0 for 1 / sqrt(head_dim)",
                     (double)softmax_scale, (double)FA2I_SCALE_MAX);
}

double fa2i_softmax_scale(const fa2_problem *problem, float softmax_scale)
{
    return softmax_scale > 0 ? (double)softmax_scale : 1 / sqrt((double)problem->head_dim);
}

static fa2_status check_softcap(const fa2_problem *problem, float softmax_scale, float softcap)
{
    if (!(softcap > 0 && softcap <= FA2I_SCALE_MAX)) /* true for NaN, too */
        return fa2i_fail(FA2_E_INVALID,
                         "softcap is %g; it must be finite (at most %g) and positive, because problem.softcap is 1",
                         (double)softcap, (double)FA2I_SCALE_MAX);
    const double rate = fa2i_softmax_scale(problem, softmax_scale) / (double)softcap;
    if (rate > (double)FLT_MAX)
        return fa2i_fail(FA2_E_INVALID, "softcap is %g; the softmax scale divided by it must be at most %g",
                         (double)softcap, (double)FLT_MAX);
    return FA2_OK;
}

fa2_status fa2i_scales_check(const fa2_problem *problem, const void *args)
{
    const fa2i_factors factors = fa2i_factors_of(problem, args);
    const fa2_status st = check_softmax_scale(factors.softmax_scale);
    return st == FA2_OK && problem->softcap ? check_softcap(problem, factors.softmax_scale, factors.softcap) : st;
}

/* Rounds to so many significant bits. */
static double rounded_to(int bits, double x)
{
    int exponent;
    const double fraction = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
}

static double kernels_scale(const fa2_problem *problem, double scale)
{
    enum { BF16_BITS = 8 };
    if (fa2i_bias_type(problem->bias) != FA2_BIAS_BF16 ||
        problem->softcap) /* with a softcap the bias is not added by products */
        return scale;
    const double most = rounded_to(BF16_BITS, 1 / scale);
    return 1 / (most + rounded_to(BF16_BITS, 1 / scale - most));
}

fa2i_scales fa2i_scales_of(const fa2_problem *problem, const void *args)
{
    const fa2i_factors factors = fa2i_factors_of(problem, args);
    const double scale = kernels_scale(problem, fa2i_softmax_scale(problem, factors.softmax_scale));
    if (!problem->softcap)
        return (fa2i_scales){scale, scale, 0};
    const double softcap = fa2i_cap_of(&factors);
    return (fa2i_scales){scale, softcap, (float)(scale / softcap)};
}

static int32_t window_reach(const fa2_problem *problem, int32_t end)
{
    return !problem->window || end < 0 ? (int32_t)FA2I_WINDOW_UNBOUNDED : end;
}

int32_t fa2i_window_left(const fa2_problem *problem)
{
    return window_reach(problem, problem->window_left);
}

int32_t fa2i_window_right(const fa2_problem *problem)
{
    return problem->causal ? 0 : window_reach(problem, problem->window_right);
}

fa2_status fa2i_workspace_check(const void *workspace, size_t workspace_bytes)
{
    if (workspace == NULL && workspace_bytes > 0)
        return fa2i_fail(FA2_E_INVALID, "workspace is NULL, but workspace_bytes is %zu", workspace_bytes);
    if ((uintptr_t)workspace % FA2I_WORKSPACE_ALIGN_BYTES != 0)
        return fa2i_fail(FA2_E_INVALID, "workspace is %p; it must be a multiple of %d bytes", workspace,
                         FA2I_WORKSPACE_ALIGN_BYTES);
    return FA2_OK;
}

fa2_status fa2i_workspace_memory(const void *workspace, size_t workspace_bytes, size_t needed_bytes,
                                 fa2i_memory *ret_memory)
{
    if (workspace_bytes < needed_bytes)
        return fa2i_fail(FA2_E_INVALID, "workspace_bytes is %zu; this problem needs %zu (fa2_workspace_size)",
                         workspace_bytes, needed_bytes);
    return fa2i_memory_of_array("workspace", workspace, needed_bytes, FA2I_WORKSPACE_ALIGN_BYTES, ret_memory);
}

fa2_status fa2i_clusters_check(const fa2i_recipe *recipe, const unsigned *blocks)
{
    for (int i = 0; i < recipe->step_count; i++) {
        const fa2i_step *step = &recipe->steps[i];
        if (blocks[i] % (unsigned)step->cluster != 0)
            return fa2i_fail(FA2_E_UNSUPPORTED, "%s: %u blocks cannot be divided into clusters of %d", step->entry,
                             blocks[i], step->cluster);
    }
    return FA2_OK;
}
