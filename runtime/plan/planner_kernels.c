/*
 * Compiling:
 * - If an earlier process compiled and stored an artifact, it is taken from the database by its key. The key contains
 *   source, options, target and compiler, so it is the same code.
 * - A kernel that the tuner found wrong, on this card or another, is never taken. If it is found wrong later, new plans
 *   no longer take it.
 * - A variant that failed to compile is not compiled again, even if only the database says so.
 * - The target is a cubin. In three cases it becomes PTX permanently: the driver refuses this NVRTC's cubins of this
 *   SM, NVRTC does not know the SM, or the caller asked for another SM. The log reports the first two, even if they are
 *   found by a prediction. If the driver refuses the PTX, too, nothing is compiled any more.
 * - Everything that is compiled and loads is stored, so that it is compiled once per machine.
 *
 * Stored kernels:
 * - Code that the driver refuses is treated like damaged code: the kernel is compiled again, as code that this driver
 *   takes. The refused code and what is known of it stay, because another driver may take the code. The new code is
 *   stored beside it, and a later process finds it by its key.
 * - A kernel serves only problems of its class, whatever a winner's row says.
 * - The replacement of a lost kernel may have another key, because another compiler or generator made it. Winners and
 *   measurements then move to the new key.
 * - If nothing can be compiled, the same variant's code under another key serves: its twin. Another compiler made the
 *   twin, or this one made it for a driver that refuses the other code. All that is known of the kernel stays with it.
 * - A refused slot is not tried again.
 * - The scripts and templates may have changed since a kernel was stored (FA2_GEN_PATH, another version). So a stored
 *   kernel that was never timed is generated again; if the source is equal, the stored code is found. If nothing can be
 *   compiled, the stored kernel is taken as it is.
 */
#include "runtime/plan/planner_kernels.h"

#include <string.h>
#include "cache/content/report.h"
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/cuda/dump.h"
#include "runtime/ops/op.h"
#include "runtime/plan/database.h"
#include "runtime/plan/planner_candidates.h"

bool fa2i_planner_lacks_compiler(fa2_status st)
{
    return st == FA2_E_NO_NVRTC || st == FA2_E_FORBIDDEN;
}

/* Says in words why nothing can be compiled. */
static const char *why_no_compiler(fa2_status st)
{
    return st == FA2_E_FORBIDDEN ? "the context's config forbids compiling" : "there is no NVRTC";
}

/* Fails because there is no compiler, for the reason in the last message. elsewhere: SMs for which the database has
 * winners of the problem; "": none that is known. */
static fa2_status no_compiler(const fa2i_planner *planner, const fa2_problem *problem, const char *elsewhere,
                              fa2_status st)
{
    const bool known = elsewhere[0] != '\0';
    const fa2i_shape text = fa2i_problem_shape(problem);
    if (planner->database == NULL)
        return fa2i_fail_prefix(st, "no database is used, and no kernel for %s can be compiled", text.text);
    if (planner->is_unusable)
        return fa2i_fail_prefix(st, "%s cannot be used, and no kernel for %s can be compiled", planner->database,
                                text.text);
    return fa2i_fail_prefix(st, "%s has no kernel that can be used for %s for sm_%d%s%s%s, and none can be compiled",
                            planner->database, text.text, fa2i_planner_card(planner).arch,
                            known ? " (it has it for " : "", elsewhere, known ? ")" : "");
}

/* Fails, and names the command that compiles a kernel for the problem. */
static fa2_status forbidden(const fa2i_planner *planner, const fa2_problem *problem, const char *elsewhere)
{
    const char *database = planner->database;
    (void)fa2i_fail(FA2_E_FORBIDDEN, "%s (never_compile); `fa2-tune build --arch sm_%d --shape %s%s%s%s` does it",
                    why_no_compiler(FA2_E_FORBIDDEN), fa2i_planner_card(planner).arch,
                    fa2i_problem_argument(problem).text, database == NULL ? "" : " --db '",
                    database == NULL ? "" : database, database == NULL ? "" : "'");
    return no_compiler(planner, problem, elsewhere, FA2_E_FORBIDDEN);
}

fa2_status fa2i_planner_fail_compiler(fa2i_planner *planner, const fa2_problem *problem)
{
    char archs[FA2I_ARCHS_CHARS] = "";
    if (planner->no_compiler != FA2_E_FORBIDDEN)
        return fa2i_planner_find_target(planner, problem);
    if (planner->cache != NULL)
        (void)fa2i_cache_winner_archs(planner->cache, problem, fa2i_planner_card(planner).arch, archs);
    return forbidden(planner, problem, archs);
}

static fa2_status switch_to_ptx(fa2i_planner *planner)
{
    fa2i_target ptx;
    fa2_status st = fa2i_target_for(planner->device->card.arch, true, &ptx);
    if (st != FA2_OK)
        return st;
    fa2i_planner_log(planner, FA2_LOG_WARNING, "the driver loads no %s code: kernels are compiled as PTX for %s",
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
        return forbidden(planner, problem, "");
    if (planner->target.name[0] != '\0')
        return must_switch(planner) ? switch_to_ptx(planner) : FA2_OK;
    fa2_status st = fa2i_target_for(arch, as_ptx, &planner->target);
    if (st == FA2_E_NO_NVRTC)
        return no_compiler(planner, problem, "", st);
    if (st == FA2_OK && planner->target.ptx && !as_ptx)
        fa2i_planner_log(planner, FA2_LOG_WARNING, "this NVRTC does not know sm_%d: kernels are compiled as PTX for %s",
                         arch, planner->target.name);
    return st == FA2_OK && must_switch(planner) ? switch_to_ptx(planner) : st;
}

/* Returns whether a record describes the same variant as the generator. */
static bool is_the_same(const fa2i_variant *stored, const fa2i_variant *variant)
{
    return strcmp(stored->class_key, variant->class_key) == 0 && strcmp(stored->recipe.text, variant->recipe.text) == 0;
}

/* Reads an artifact's record, and its code if with_image. */
static fa2_status read_artifact(const fa2i_planner *planner, const fa2i_key *key, const fa2i_variant *variant,
                                bool with_image, fa2i_kernel *ret_kernel)
{
    fa2_status st =
        fa2i_layers_get_kernel(planner->cache, &planner->layers, key, variant->recipe.abi, with_image, ret_kernel);
    if (st == FA2_OK && !is_the_same(&ret_kernel->variant, variant)) {
        fa2i_kernel_done(ret_kernel);
        *ret_kernel = (fa2i_kernel){0};
        st = FA2_E_NOT_FOUND;
    }
    return st;
}

/* Changes a record into the record of the artifact that would be compiled. It keeps what an earlier compilation found
 * out. */
static void predict_artifact(const fa2i_planner *planner, const fa2i_variant *variant, fa2i_kernel *kernel)
{
    kernel->variant = *variant;
    kernel->nvrtc = planner->target.nvrtc;
    memcpy(kernel->target, planner->target.name, sizeof kernel->target);
}

/* Compiles, and writes the kernel to FA2_DUMP's folder. A failure to write is logged once. */
static fa2_status compile(fa2i_planner *planner, const fa2i_variant *variant, const char *source,
                          fa2i_kernel *ret_kernel)
{
    const int64_t began_ns = fa2i_clock_ns();
    const fa2_status st =
        fa2i_compile(variant, source, &planner->target, fa2i_generator_id(planner->generator), ret_kernel);
    fa2i_count(&planner->counters, FA2I_COUNTER_compiled, st == FA2_OK);
    fa2i_count(&planner->counters, FA2I_COUNTER_compile_ns, (uint64_t)(fa2i_clock_ns() - began_ns));
    if (st == FA2_OK && fa2i_dump(ret_kernel, source) != FA2_OK && !planner->told_undumped) {
        planner->told_undumped = true;
        fa2i_planner_log(planner, FA2_LOG_ERROR, "%s", fa2_last_message());
    }
    return st;
}

/* Takes the artifact from the database, else compiles it. An unreadable database is asked only once. The result is only
 * a record if nothing is compiled, or if compiling is useless because the driver refuses all such code. */
static fa2_status get_artifact(fa2i_planner *planner, const fa2i_key *key, const fa2i_variant *variant,
                               const char *source, fa2i_kernel *ret_kernel, bool *ret_compiled)
{
    *ret_compiled = false;
    if (planner->cache != NULL || planner->layers.count > 0) {
        fa2_status st = read_artifact(planner, key, variant, true, ret_kernel);
        if (st == FA2_E_NOT_FOUND) {
            st = read_artifact(planner, key, variant, false, ret_kernel);
            *ret_compiled = st != FA2_OK || ret_kernel->outcome != FA2I_OUTCOME_COMPILE_ERROR;
        }
        if (st == FA2_E_MEMORY || (st == FA2_OK && !*ret_compiled))
            return st;
        if (st == FA2_OK && planner->predicts) {
            predict_artifact(planner, variant, ret_kernel);
            return st;
        }
        fa2i_kernel_done(ret_kernel);
    }
    *ret_compiled = true;
    if (!planner->predicts && !is_target_refused(planner))
        return compile(planner, variant, source, ret_kernel);
    *ret_kernel = (fa2i_kernel){.key = *key};
    predict_artifact(planner, variant, ret_kernel);
    return FA2_OK;
}

static fa2_status load_artifact(fa2i_planner *planner, fa2i_slot *slot, const fa2i_variant *variant, const char *source,
                                fa2i_attempt *ret_attempt)
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
    ret_attempt->refuted = fa2i_layers_refutation(planner->cache, &planner->layers, &key);
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

static fa2_status try_variant(fa2i_planner *planner, const fa2i_variant *variant, fa2i_attempt *ret_attempt)
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
    if (planner->told_old_nvrtc || planner->predicts)
        return;
    planner->told_old_nvrtc = true;
    fa2i_planner_log(planner, FA2_LOG_WARNING, "%.*s is passed over: %s", (int)strcspn(variant->text, " "),
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

/* Gets a variant by its text. A variant of another class than the problem's, or one that this generator does not know,
 * cannot be used. FA2_E_NO_NVRTC, FA2_E_FORBIDDEN: it must be compiled and cannot be. FA2_E_GENERATOR: the scripts
 * fail. */
static fa2_status compile_text(fa2i_planner *planner, const fa2_problem *problem, const char *text,
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
        ret_attempt->predicted = true;
        tell_old_nvrtc(planner, &variant);
    } else {
        FA2_TRY(try_variant(planner, &variant, ret_attempt));
    }
done:
    return st;
}

/* ---- stored kernels ---- */

static fa2_status check_class(const fa2i_variant *variant, const fa2i_class *of)
{
    if (strcmp(variant->class_key, of->key) == 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_NOT_FOUND,
                     "%s is for problems with %s, and the database names it for %s; see fa2-tune check", variant->text,
                     variant->class_key, of->key);
}

/* Loads into the slot, which is empty. If the slot is not ready after FA2_OK, the kernel cannot be used, and the last
 * message says why. */
static fa2_status load(fa2i_planner *planner, const fa2i_class *of, int abi, fa2i_slot *slot, fa2i_attempt *attempt)
{
    fa2i_kernel kernel = {0};
    fa2_status st = fa2i_layers_get_kernel(planner->cache, &planner->layers, &slot->key, abi, true, &kernel);
    attempt->lost = st == FA2_E_NOT_FOUND;
    attempt->for_now = st != FA2_OK && !attempt->lost;
    if (st == FA2_OK)
        st = check_class(&kernel.variant, of);
    if (st == FA2_OK && kernel.outcome == FA2I_OUTCOME_COMPILE_ERROR)
        st = fa2i_kernels_fail_compile(&kernel);
    const bool found = st == FA2_OK;
    if (found)
        st = fa2i_planner_load(planner, slot, &kernel, false);
    if (st != FA2_OK && st != FA2_E_MEMORY && (!found || slot->state == FA2I_SLOT_REFUSED)) {
        fa2i_attempt_refuse(attempt, st, kernel.variant.text);
        st = FA2_OK;
    }
    fa2i_kernel_done(&kernel);
    return st;
}

/* Moves the database's rows of a lost kernel to the kernel that was compiled in its place. */
static void move_rows(fa2i_planner *planner, const fa2i_key *lost, const fa2i_slot *slot, int abi)
{
    fa2i_kernel kernel = {0};
    if (planner->cache == NULL || planner->read_only || memcmp(lost, &slot->key, sizeof *lost) == 0)
        return;
    fa2_status st = fa2i_cache_get_kernel(planner->cache, &slot->key, abi, true, &kernel);
    if (st == FA2_OK)
        st = fa2i_cache_rebind_kernel(planner->cache, lost, &kernel);
    if (st != FA2_OK)
        fa2i_planner_log(planner, FA2_LOG_ERROR, "the records of a kernel cannot be moved to its new code: %s",
                         fa2_last_message());
    fa2i_kernel_done(&kernel);
}

/* Refuses a kernel whose code is lost or refused, and that could not be compiled again. If its code was refused, the
 * driver's reason stays the reason, unless there is no compiler. */
static void give_up(fa2i_attempt *attempt, const fa2i_attempt *again, const char *text)
{
    const fa2_status refusal = again->refusal;
    char cause[FA2I_WHY_CHARS] = "its code is damaged or missing";
    attempt->refuted = again->refuted;
    if (!attempt->lost)
        memcpy(cause, attempt->why, sizeof cause);
    if (fa2i_planner_lacks_compiler(refusal))
        (void)fa2i_fail(refusal, "%s, and %s%s", cause, why_no_compiler(refusal),
                        refusal == FA2_E_FORBIDDEN ? " it again" : " to compile it again");
    else if (attempt->lost)
        (void)fa2i_fail(refusal, "%s: %s, and cannot be made again: %s", text, cause, again->why);
    else
        return;
    fa2i_attempt_refuse(attempt, refusal, text);
}

static fa2_status compile_again(fa2i_planner *planner, const fa2_problem *problem, const fa2i_key *lost,
                                const fa2i_kernel *record, fa2i_attempt *attempt)
{
    fa2i_attempt again = {0};
    const char *text = record->variant.text;
    const fa2_status st = compile_text(planner, problem, text, &again);
    if (st != FA2_OK && !fa2i_planner_lacks_compiler(st) && st != FA2_E_UNSUPPORTED)
        return st;
    if (again.slot == NULL) {
        if (st != FA2_OK)
            fa2i_attempt_refuse(&again, st, text);
        give_up(attempt, &again, text);
        return FA2_OK;
    }
    if (!planner->predicts && attempt->lost) {
        fa2i_planner_log(planner, FA2_LOG_INFO, "the code of %s is lost, and %s", text,
                         again.made ? "was compiled again"
                                    : "is replaced by other code of this kernel from the database");
        move_rows(planner, lost, again.slot, fa2i_op_abi(problem));
    } else if (!planner->predicts && again.made) {
        fa2i_planner_log(planner, FA2_LOG_INFO, "%s was compiled again, for %s: %s", text, again.slot->target,
                         attempt->why);
    }
    if (again.origin == FA2I_ORIGIN_COMPILED)
        again.origin = attempt->lost ? FA2I_ORIGIN_REMADE : FA2I_ORIGIN_REFUSED;
    *attempt = (fa2i_attempt){.slot = again.slot, .origin = again.origin, .lost = attempt->lost};
    return FA2_OK;
}

/* Compiles a kernel that has a record, but whose code is missing or refused by the driver. If the class has no such
 * record, or it cannot be read now, the attempt stays as it is. */
static fa2_status revive(fa2i_planner *planner, const fa2i_class *of, const fa2_problem *problem, const fa2i_key *key,
                         fa2i_attempt *attempt)
{
    const int abi = fa2i_op_abi(problem);
    fa2i_kernel record = {0};
    fa2_status st = fa2i_layers_get_kernel(planner->cache, &planner->layers, key, abi, false, &record);
    if (st == FA2_OK)
        st = check_class(&record.variant, of);
    if (st == FA2_OK)
        st = compile_again(planner, problem, key, &record, attempt);
    else if (st != FA2_E_MEMORY) {
        attempt->for_now |= st != FA2_E_NOT_FOUND;
        st = FA2_OK;
    }
    fa2i_kernel_done(&record);
    return st;
}

/* Logs that a kernel cannot be used because compiling it again failed. */
static void pass_over(const fa2i_planner *planner, fa2i_slot *slot, const fa2i_attempt *attempt)
{
    (void)fa2i_fail(attempt->refusal, "%s%s%s", attempt->text, attempt->text[0] == '\0' ? "" : ": ", attempt->why);
    fa2i_planner_pass_over(planner, slot, "a tuned kernel");
}

/* Replaces the code of a kernel whose code is lost or refused. A failure is logged, unless the cause is that there is
 * no compiler. */
static fa2_status replace(fa2i_planner *planner, const fa2i_class *of, const fa2_problem *problem, fa2i_slot *slot,
                          fa2i_attempt *attempt)
{
    const fa2_status st = revive(planner, of, problem, &slot->key, attempt);
    if (st == FA2_OK && attempt->slot == NULL && !fa2i_planner_lacks_compiler(attempt->refusal))
        pass_over(planner, slot, attempt);
    return st;
}

/* Takes the kernel's own slot, which is ready. */
static void take(fa2i_slot *slot, fa2i_attempt *attempt)
{
    fa2i_attempt_take(attempt, slot);
    if (attempt->lost)
        attempt->origin = FA2I_ORIGIN_REMADE;
}

fa2_status fa2i_planner_use_stored(fa2i_planner *planner, const fa2i_class *of, const fa2_problem *problem,
                                   const fa2i_key *key, fa2i_attempt *ret_attempt)
{
    fa2_status st = FA2_OK;
    fa2i_slot *slot = fa2i_kernels_slot(&planner->kernels, key);
    *ret_attempt = (fa2i_attempt){0};
    if (slot == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a kernel's record");
    if (slot->state == FA2I_SLOT_REFUSED) {
        (void)fa2i_kernels_fail(slot);
        fa2i_attempt_refuse(ret_attempt, slot->refusal, slot->loaded.variant.text);
    } else if (!fa2i_planner_is_ready(planner, slot)) {
        st = load(planner, of, fa2i_op_abi(problem), slot, ret_attempt);
        if (st == FA2_OK && !fa2i_planner_is_ready(planner, slot) && !ret_attempt->lost &&
            !fa2i_kernels_has_refused_code(slot))
            fa2i_planner_pass_over(planner, slot, "a tuned kernel");
    } else if (check_class(&slot->loaded.variant, of) != FA2_OK) {
        fa2i_attempt_refuse(ret_attempt, FA2_E_NOT_FOUND, slot->loaded.variant.text);
    } else {
        ret_attempt->lost = slot->compiled; /* compiled for this problem or an earlier one, with the same key */
    }
    const bool lost = ret_attempt->lost && !fa2i_planner_is_ready(planner, slot);
    if (st == FA2_OK && (lost || fa2i_kernels_has_refused_code(slot)))
        st = replace(planner, of, problem, slot, ret_attempt);
    else if (st == FA2_OK && ret_attempt->refusal == FA2_OK)
        take(slot, ret_attempt);
    return st;
}

static void tell_twin(const fa2i_planner *planner, fa2i_slot *slot, const fa2i_attempt *attempt, const fa2i_slot *twin)
{
    if (planner->predicts || slot->told)
        return;
    slot->told = true;
    if (attempt->lost)
        fa2i_planner_log(planner, FA2_LOG_INFO,
                         "the code of %s is lost, and its code for %s is taken from the database", attempt->text,
                         twin->target);
    else
        fa2i_planner_log(planner, FA2_LOG_INFO, "%s is taken as %s code from the database: %s", attempt->text,
                         twin->target, attempt->why);
}

fa2_status fa2i_planner_use_twin(fa2i_planner *planner, const fa2i_class *of, const fa2_problem *problem,
                                 const fa2i_key *key, fa2i_attempt *attempt)
{
    const fa2i_evidence *evidence = &planner->calibrations[problem->op].evidence;
    fa2i_slot *slot = fa2i_kernels_slot(&planner->kernels, key);
    if (slot == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a kernel's record");
    for (size_t i = 0; i < evidence->kernel_count; i++) {
        const fa2i_known_kernel *twin = &evidence->kernels[i];
        fa2i_attempt other = {0};
        if (!twin->has_code || memcmp(&twin->key, key, sizeof *key) == 0 || strcmp(twin->text, attempt->text) != 0 ||
            strcmp(twin->class_key, of->key) != 0)
            continue;
        const fa2_status st = fa2i_planner_use_stored(planner, of, problem, &twin->key, &other);
        if (st != FA2_OK)
            return st;
        if (other.slot == NULL)
            continue;
        tell_twin(planner, slot, attempt, other.slot);
        *attempt = other;
        return FA2_OK;
    }
    pass_over(planner, slot, attempt);
    return FA2_OK;
}

/* ---- the kernel of an option ---- */

/* Refuses a kernel that must be compiled when nothing can be. The message also says if it failed verification
 * before. */
static void refuse_uncompiled(const fa2i_planner *planner, const char *text, fa2_status st, fa2i_attempt *attempt)
{
    const char *why = why_no_compiler(st);
    attempt->refuted = fa2i_layers_variant_refutation(planner->cache, &planner->layers, text);
    if (attempt->refuted != FA2I_OUTCOME_OK)
        (void)fa2i_fail(st, "it failed its verification (%s), and %s", fa2i_outcome_string(attempt->refuted), why);
    else
        (void)fa2i_fail(st, "it must be compiled, and %s", why);
    fa2i_attempt_refuse(attempt, st, text);
}

/* Has a kernel that the database lacks. It finds out only once that there is no NVRTC. */
static fa2_status compile_option(fa2i_planner *planner, const fa2_problem *problem, const fa2i_option *option,
                                 fa2i_attempt *ret_attempt)
{
    fa2_status st = planner->no_compiler;
    *ret_attempt = (fa2i_attempt){0};
    if (st == FA2_OK)
        st = compile_text(planner, problem, option->text, ret_attempt);
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
    const fa2i_evidence *evidence = &planner->calibrations[problem->op].evidence;
    const fa2i_known_kernel *known = option->kernel == FA2I_NONE ? NULL : &evidence->kernels[option->kernel];
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

fa2_status fa2i_planner_look(fa2i_planner *planner, const fa2_problem *asked, const fa2i_option *option,
                             fa2i_attempt *ret_attempt)
{
    const bool predicts = planner->predicts;
    fa2i_class *of = fa2i_planner_class(planner, asked);
    if (of == NULL)
        return FA2_E_MEMORY;
    planner->predicts = true;
    const fa2_status st = fa2i_planner_have(planner, of, asked, option, ret_attempt);
    planner->predicts = predicts;
    return st;
}
