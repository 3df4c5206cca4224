/*
 * - If an earlier process compiled and stored an artifact, it is taken from the database by its key. The key contains
 *   source, options, target and compiler, so it is the same code.
 * - A kernel that the tuner found wrong, on this card or another, is never taken. If it is found wrong later, new plans
 *   no longer take it.
 * - A variant that failed to compile is not compiled again, even if only the database says so.
 * - The target is a cubin. In three cases it becomes PTX permanently: the driver refuses this NVRTC's cubins of this
 *   SM, NVRTC does not know the SM, or the caller asked for another SM. The log reports the first two, even if they are
 *   found by a prediction. If the driver refuses the PTX, too, nothing is compiled any more.
 * - Everything that is compiled and loads is stored, so that it is compiled once per machine.
 */
#include "runtime/plan/planner_compile.h"

#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/cuda/dump.h"
#include "runtime/plan/planner_database.h"

fa2_status fa2i_planner_generator(fa2i_planner *planner)
{
    return planner->generator != NULL ? FA2_OK : fa2i_generator_create(&planner->generator);
}

fa2i_card fa2i_planner_card(const fa2i_planner *planner)
{
    fa2i_card card = planner->device->card;
    if (planner->arch != 0) {
        card.generic = card.generic || card.arch != planner->arch;
        card.arch = planner->arch;
    }
    return card;
}

bool fa2i_planner_lacks_compiler(fa2_status st)
{
    return st == FA2_E_NO_NVRTC || st == FA2_E_FORBIDDEN;
}

const char *fa2i_planner_why_no_compiler(fa2_status st)
{
    return st == FA2_E_FORBIDDEN ? "the context's config forbids compiling" : "there is no NVRTC";
}

/* Fails because there is no compiler, for the reason in the last message. */
static fa2_status no_compiler(const fa2i_planner *planner, const fa2_problem *problem,
                              fa2_status st)
{
    char text[FA2I_PROBLEM_CHARS];
    fa2i_problem_format(problem, text, sizeof(text));
    if (planner->database == NULL)
        return fa2i_fail_prefix(st, "no database is used, and no kernel for %s can be compiled",
                                text);
    if (planner->is_unusable)
        return fa2i_fail_prefix(st, "%s cannot be used, and no kernel for %s can be compiled",
                                planner->database, text);
    return fa2i_fail_prefix(st,
                            "%s has no kernel that can be used for %s, and none can be compiled",
                            planner->database, text);
}

static fa2_status forbidden(const fa2i_planner *planner, const fa2_problem *problem)
{
    (void)fa2i_fail(FA2_E_FORBIDDEN, "%s (never_compile); fa2-tune can do it beforehand",
                    fa2i_planner_why_no_compiler(FA2_E_FORBIDDEN));
    return no_compiler(planner, problem, FA2_E_FORBIDDEN);
}

static fa2_status switch_to_ptx(fa2i_planner *planner)
{
    fa2i_target ptx;
    fa2_status st = fa2i_target_for(planner->device->card.arch, true, &ptx);
    if (st != FA2_OK)
        return st;
    fa2i_planner_log(planner, "the driver loads no %s code: kernels are compiled as PTX for %s",
                     planner->target.name, ptx.name);
    planner->target = ptx;
    return FA2_OK;
}

/* Returns whether the driver is known to refuse what would be compiled. */
static bool is_target_refused(const fa2i_planner *planner)
{
    const fa2i_target *target = &planner->target;
    return fa2i_kernels_refuses(&planner->kernels, target->name, target->nvrtc);
}

/* Returns whether PTX can be compiled in place of the refused code. */
static bool must_switch(const fa2i_planner *planner)
{
    return !planner->target.ptx && is_target_refused(planner);
}

fa2_status fa2i_planner_find_target(fa2i_planner *planner, const fa2_problem *problem)
{
    const int arch = fa2i_planner_card(planner).arch;
    const bool as_ptx = planner->arch != 0 || planner->as_ptx;
    if (planner->no_compiler == FA2_E_FORBIDDEN)
        return forbidden(planner, problem);
    if (planner->target.name[0] != '\0')
        return must_switch(planner) ? switch_to_ptx(planner) : FA2_OK;
    fa2_status st = fa2i_target_for(arch, as_ptx, &planner->target);
    if (st == FA2_E_NO_NVRTC)
        return no_compiler(planner, problem, st);
    if (st == FA2_OK && planner->target.ptx && !as_ptx)
        fa2i_planner_log(planner,
                         "this NVRTC does not know sm_%d: kernels are compiled as PTX for %s", arch,
                         planner->target.name);
    return st == FA2_OK && must_switch(planner) ? switch_to_ptx(planner) : st;
}

/* Returns what fa2-tune found wrong with this kernel. If that cannot be read: FA2I_OUTCOME_OK. */
static fa2i_outcome refutation(const fa2i_planner *planner, const fa2i_key *key)
{
    fa2i_outcome outcome = FA2I_OUTCOME_OK;
    if (planner->cache != NULL)
        (void)fa2i_cache_refutation(planner->cache, key, &outcome);
    return outcome;
}

/* Returns whether a record describes the same variant as the generator. */
static bool is_the_same(const fa2i_variant *stored, const fa2i_variant *variant)
{
    return strcmp(stored->class_key, variant->class_key) == 0 &&
           strcmp(stored->recipe.text, variant->recipe.text) == 0;
}

/* Reads an artifact's record, and its code if with_image. */
static fa2_status read_artifact(const fa2i_planner *planner, const fa2i_key *key,
                                const fa2i_variant *variant, bool with_image,
                                fa2i_kernel *ret_kernel)
{
    fa2_status st =
        fa2i_cache_get_kernel(planner->cache, key, variant->recipe.abi, with_image, ret_kernel);
    if (st == FA2_OK && !is_the_same(&ret_kernel->variant, variant)) {
        fa2i_kernel_done(ret_kernel);
        *ret_kernel = (fa2i_kernel){0};
        st = FA2_E_NOT_FOUND;
    }
    return st;
}

/* Changes a record into the record of the artifact that would be compiled. It keeps what an earlier compilation found
 * out. */
static void foresee_artifact(const fa2i_planner *planner, const fa2i_variant *variant, fa2i_kernel *kernel)
{
    kernel->variant = *variant;
    kernel->nvrtc = planner->target.nvrtc;
    memcpy(kernel->target, planner->target.name, sizeof kernel->target);
}

/* Compiles, and writes the kernel to FA2_DUMP's folder. A failure to write is logged once. */
static fa2_status compile(fa2i_planner *planner, const fa2i_variant *variant, const char *source,
                          fa2i_kernel *ret_kernel)
{
    const fa2_status st =
        fa2i_compile(variant, source, &planner->target, fa2i_generator_id(planner->generator), ret_kernel);
    if (st == FA2_OK && fa2i_dump(ret_kernel, source) != FA2_OK && !planner->told_undumped) {
        planner->told_undumped = true;
        fa2i_planner_log(planner, "%s", fa2_last_message());
    }
    return st;
}

/* Takes the artifact from the database, else compiles it. An unreadable database is asked only once. The result is only
 * a record if nothing is compiled, or if compiling is useless because the driver refuses all such code. */
static fa2_status get_artifact(fa2i_planner *planner, const fa2i_key *key,
                               const fa2i_variant *variant, const char *source,
                               fa2i_kernel *ret_kernel, bool *ret_compiled)
{
    *ret_compiled = false;
    if (planner->cache != NULL) {
        fa2_status st = read_artifact(planner, key, variant, true, ret_kernel);
        if (st == FA2_E_NOT_FOUND) {
            st = read_artifact(planner, key, variant, false, ret_kernel);
            *ret_compiled = st != FA2_OK || ret_kernel->outcome != FA2I_OUTCOME_COMPILE_ERROR;
        }
        if (st == FA2_E_MEMORY || (st == FA2_OK && !*ret_compiled))
            return st;
        if (st == FA2_OK && planner->foresees) {
            foresee_artifact(planner, variant, ret_kernel);
            return st;
        }
        fa2i_kernel_done(ret_kernel);
    }
    *ret_compiled = true;
    if (!planner->foresees && !is_target_refused(planner))
        return compile(planner, variant, source, ret_kernel);
    *ret_kernel = (fa2i_kernel){.key = *key};
    foresee_artifact(planner, variant, ret_kernel);
    return FA2_OK;
}

static fa2_status load_artifact(fa2i_planner *planner, fa2i_slot *slot, const fa2i_variant *variant,
                                const char *source, fa2i_attempt *ret_attempt)
{
    fa2_status st = FA2_OK;
    fa2i_kernel kernel = {0};
    bool compiled = false;

    FA2_TRY(get_artifact(planner, &slot->key, variant, source, &kernel, &compiled));
    if (kernel.outcome == FA2I_OUTCOME_COMPILE_ERROR) {
        (void)fa2i_kernels_fail_compile(&kernel);
        fa2i_kernels_refuse(slot, variant, FA2_E_COMPILE);
        fa2i_attempt_refuse(ret_attempt, FA2_E_COMPILE, variant->text);
        goto done;
    }
    st = fa2i_planner_load(planner, slot, &kernel, compiled);
    if (st != FA2_OK && slot->state == FA2I_SLOT_REFUSED) {
        fa2i_attempt_refuse(ret_attempt, st, variant->text);
        st = FA2_OK;
        goto done;
    }
    if (st != FA2_OK)
        goto done;
    fa2i_attempt_take(ret_attempt, slot);
    ret_attempt->made = compiled;
done:
    fa2i_kernel_done(&kernel);
    return st;
}

static fa2_status try_target(fa2i_planner *planner, const fa2i_variant *variant, const char *source,
                             fa2i_attempt *ret_attempt, fa2i_slot **ret_slot)
{
    fa2i_key key;
    fa2_status st = FA2_OK;
    fa2i_compile_key_of(variant, source, &planner->target, planner->target.nvrtc, &key);
    fa2i_slot *slot = fa2i_kernels_slot(&planner->kernels, &key);
    if (slot == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a kernel's record");

    *ret_slot = slot;
    if (slot->state == FA2I_SLOT_REFUSED) {
        (void)fa2i_kernels_fail(slot);
        fa2i_attempt_refuse(ret_attempt, slot->refusal, variant->text);
        return FA2_OK;
    }
    ret_attempt->refuted = refutation(planner, &key);
    if (ret_attempt->refuted != FA2I_OUTCOME_OK) {
        (void)fa2i_fail(FA2_E_UNSUPPORTED, "%s failed its verification (%s)", variant->text,
                        fa2i_outcome_string(ret_attempt->refuted));
        fa2i_attempt_refuse(ret_attempt, FA2_E_UNSUPPORTED, variant->text);
    } else if (fa2i_planner_is_ready(planner, slot))
        fa2i_attempt_take(ret_attempt, slot);
    else
        st = load_artifact(planner, slot, variant, source, ret_attempt);
    return st;
}

static fa2_status try_variant(fa2i_planner *planner, const fa2i_variant *variant,
                              fa2i_attempt *ret_attempt)
{
    fa2_status st = FA2_OK;
    char *source = NULL;
    fa2i_slot *slot = NULL;

    FA2_TRY(fa2i_generator_source(planner->generator, variant->text, &source));
    FA2_TRY(try_target(planner, variant, source, ret_attempt, &slot));
    if (fa2i_kernels_has_refused_code(slot) && must_switch(planner)) {
        FA2_TRY(switch_to_ptx(planner));
        FA2_TRY(try_target(planner, variant, source, ret_attempt, &slot));
    }
    if (ret_attempt->slot == NULL)
        fa2i_planner_pass_over(planner, slot, "a variant");
done:
    fa2i_free(source);
    return st;
}

/* Logs this once, because it holds for all variants of the family. */
static void tell_old_nvrtc(fa2i_planner *planner, const fa2i_variant *variant)
{
    if (planner->told_old_nvrtc || planner->foresees)
        return;
    planner->told_old_nvrtc = true;
    fa2i_planner_log(planner, "%.*s is passed over: %s", (int)strcspn(variant->text, " "),
                     variant->text, fa2_last_message());
}

/* Parses a variant's text from the database or the generator. An invalid text, or a variant of another class, is
 * refused. A failure of the generator says nothing about the variant. */
static fa2_status find_variant(fa2i_planner *planner, const fa2_problem *problem, const char *text,
                               fa2i_variant *ret_variant, fa2i_attempt *ret_attempt)
{
    fa2_status st = fa2i_generator_variant(planner->generator, text, ret_variant);
    if (st == FA2_OK)
        st = fa2i_generator_check_class(problem, ret_variant);
    if (st != FA2_E_NOT_FOUND && st != FA2_E_UNSUPPORTED)
        return st;
    fa2i_attempt_refuse(ret_attempt, st, text);
    return FA2_OK;
}

fa2_status fa2i_planner_compile(fa2i_planner *planner, const fa2_problem *problem, const char *text,
                                fa2i_attempt *ret_attempt)
{
    fa2_status st = FA2_OK;
    fa2i_variant variant;

    *ret_attempt = (fa2i_attempt){0};
    FA2_TRY(fa2i_planner_generator(planner));
    FA2_TRY(find_variant(planner, problem, text, &variant, ret_attempt));
    if (ret_attempt->refusal != FA2_OK)
        goto done;
    FA2_TRY(fa2i_planner_find_target(planner, problem));
    if (fa2i_compile_check(&variant, &planner->target) == FA2_E_UNSUPPORTED) {
        fa2i_attempt_refuse(ret_attempt, FA2_E_UNSUPPORTED, text);
        ret_attempt->foreseen = true;
        tell_old_nvrtc(planner, &variant);
    } else {
        FA2_TRY(try_variant(planner, &variant, ret_attempt));
    }
done:
    return st;
}
