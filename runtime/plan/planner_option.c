/*
 * The scripts and templates may have changed since a kernel was stored (FA2_GEN_PATH, another version). So a stored
 * kernel that was never timed is generated again; if the source is equal, the stored code is found. If nothing can be
 * compiled, the stored kernel is taken as it is.
 */
#include "runtime/plan/planner_option.h"

#include <string.h>
#include "runtime/plan/planner_compile.h"
#include "runtime/plan/planner_stored.h"

/* Refuses a kernel that must be compiled when nothing can be. The message also says if it failed verification
 * before. */
static void refuse_uncompiled(const fa2i_planner *planner, const char *text, fa2_status st, fa2i_attempt *attempt)
{
    const char *why = fa2i_planner_why_no_compiler(st);
    if (planner->cache != NULL)
        (void)fa2i_cache_variant_refutation(planner->cache, text, &attempt->refuted);
    if (attempt->refuted != FA2I_OUTCOME_OK)
        (void)fa2i_fail(st, "it failed its verification (%s), and %s", fa2i_outcome_string(attempt->refuted), why);
    else
        (void)fa2i_fail(st, "it must be compiled, and %s", why);
    fa2i_attempt_refuse(attempt, st, text);
}

/* Has a kernel that the database lacks. It finds out only once that there is no NVRTC. */
static fa2_status compile_option(fa2i_planner *planner, const fa2_problem *problem,
                                 const fa2i_option *option, fa2i_attempt *ret_attempt)
{
    fa2_status st = planner->no_compiler;
    *ret_attempt = (fa2i_attempt){0};
    if (st == FA2_OK)
        st = fa2i_planner_compile(planner, problem, option->text, ret_attempt);
    if (!fa2i_planner_lacks_compiler(st))
        return st;
    planner->no_compiler = st;
    refuse_uncompiled(planner, option->text, st, ret_attempt);
    return FA2_OK;
}

/* Returns whether other scripts made a kernel that was never timed. */
static bool is_of_another_generator(const fa2i_planner *planner, const fa2i_known_kernel *kernel)
{
    return !kernel->timed && strcmp(kernel->generator, fa2i_generator_id(planner->generator)) != 0;
}

fa2_status fa2i_planner_have(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem,
                             const fa2i_option *option, fa2i_attempt *ret_attempt)
{
    const fa2i_evidence *evidence = &planner->taught[problem->op].evidence;
    const fa2i_known_kernel *known =
        option->kernel == FA2I_NONE ? NULL : &evidence->kernels[option->kernel];
    fa2_status st = FA2_OK;
    if (known == NULL || known->shipped)
        return compile_option(planner, problem, option, ret_attempt);
    if (is_of_another_generator(planner, known)) {
        st = compile_option(planner, problem, option, ret_attempt);
        if (st != FA2_OK || planner->no_compiler == FA2_OK)
            return st;
    }
    st = fa2i_planner_use_stored(planner, of, problem, &known->key, ret_attempt);
    if (st == FA2_OK && fa2i_planner_lacks_compiler(ret_attempt->refusal))
        st = fa2i_planner_use_twin(planner, of, problem, &known->key, ret_attempt);
    if (ret_attempt->for_now)
        of->winners.is_current = false; /* so that the answer is soon forgotten */
    return st;
}

fa2_status fa2i_planner_look(fa2i_planner *planner, const fa2_problem *asked,
                             const fa2i_option *option, fa2i_attempt *ret_attempt)
{
    const bool foresees = planner->foresees;
    fa2i_class *of = fa2i_planner_class(planner, asked);
    if (of == NULL)
        return FA2_E_MEMORY;
    planner->foresees = true;
    const fa2_status st = fa2i_planner_have(planner, of, asked, option, ret_attempt);
    planner->foresees = foresees;
    return st;
}
