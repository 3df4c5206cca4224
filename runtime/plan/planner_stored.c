/*
 * - Code that the driver refuses is treated like damaged code: the kernel is compiled again, as code that this driver
 *   takes. The refused code and what is known of it stay, because another driver may take the code. The new code is
 *   stored beside it, and a later process finds it by its key.
 * - A kernel serves only problems of its class, whatever a winner's row says.
 * - The replacement of a lost kernel may have another key, because another compiler or generator made it. Winners and
 *   measurements then move to the new key.
 * - If nothing can be compiled, the same variant's code under another key serves: its twin. Another compiler made the
 *   twin, or this one made it for a driver that refuses the other code. All that is known of the kernel stays with it.
 * - A refused slot is not tried again.
 */
#include "runtime/plan/planner_stored.h"

#include <string.h>
#include "cache/report.h"
#include "runtime/ops/op.h"
#include "runtime/plan/planner_compile.h"
#include "runtime/plan/planner_database.h"

static fa2_status check_class(const fa2i_variant *variant, const fa2i_class *of)
{
    if (strcmp(variant->class_key, of->key) == 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_NOT_FOUND,
                     "%s is for problems with %s, and the database names it for %s; see fa2-tune "
                     "check",
                     variant->text, variant->class_key, of->key);
}

/* Loads into the slot, which is empty. If the slot is not ready after FA2_OK, the kernel cannot be used, and the last
 * message says why. */
static fa2_status load(fa2i_planner *planner, const fa2i_class *of, int abi, fa2i_slot *slot,
                       fa2i_attempt *attempt)
{
    fa2i_kernel kernel = {0};
    fa2_status st = fa2i_cache_get_kernel(planner->cache, &slot->key, abi, true, &kernel);
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
    if (planner->read_only || memcmp(lost, &slot->key, sizeof *lost) == 0)
        return;
    fa2_status st = fa2i_cache_get_kernel(planner->cache, &slot->key, abi, true, &kernel);
    if (st == FA2_OK)
        st = fa2i_cache_rebind_kernel(planner->cache, lost, &kernel);
    if (st != FA2_OK)
        fa2i_planner_log(planner, "the records of a kernel cannot be moved to its new code: %s",
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
        (void)fa2i_fail(refusal, "%s, and %s%s", cause, fa2i_planner_why_no_compiler(refusal),
                        refusal == FA2_E_FORBIDDEN ? " it again" : " to compile it again");
    else if (attempt->lost)
        (void)fa2i_fail(refusal, "%s: %s, and cannot be made again: %s", text, cause, again->why);
    else
        return;
    fa2i_attempt_refuse(attempt, refusal, text);
}

static fa2_status compile_again(fa2i_planner *planner, const fa2_problem *problem,
                                const fa2i_key *lost, const fa2i_kernel *record,
                                fa2i_attempt *attempt)
{
    fa2i_attempt again = {0};
    const char *text = record->variant.text;
    const fa2_status st = fa2i_planner_compile(planner, problem, text, &again);
    if (st != FA2_OK && !fa2i_planner_lacks_compiler(st) && st != FA2_E_UNSUPPORTED)
        return st;
    if (again.slot == NULL) {
        if (st != FA2_OK)
            fa2i_attempt_refuse(&again, st, text);
        give_up(attempt, &again, text);
        return FA2_OK;
    }
    if (!planner->foresees && attempt->lost) {
        fa2i_planner_log(planner, "the code of %s is lost, and %s", text,
                         again.made ? "was compiled again"
                                    : "is replaced by other code of this kernel from the database");
        move_rows(planner, lost, again.slot, fa2i_op_abi(problem));
    } else if (!planner->foresees && again.made) {
        fa2i_planner_log(planner, "%s was compiled again, for %s: %s", text, again.slot->target,
                         attempt->why);
    }
    if (again.origin == FA2I_ORIGIN_COMPILED)
        again.origin = attempt->lost ? FA2I_ORIGIN_REMADE : FA2I_ORIGIN_REFUSED;
    *attempt = (fa2i_attempt){.slot = again.slot, .origin = again.origin, .lost = attempt->lost};
    return FA2_OK;
}

/* Compiles a kernel that has a record, but whose code is missing or refused by the driver. If the class has no such
 * record, or it cannot be read now, the attempt stays as it is. */
static fa2_status revive(fa2i_planner *planner, const fa2i_class *of, const fa2_problem *problem,
                         const fa2i_key *key, fa2i_attempt *attempt)
{
    const int abi = fa2i_op_abi(problem);
    fa2i_kernel record = {0};
    fa2_status st = fa2i_cache_get_kernel(planner->cache, key, abi, false, &record);
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
    (void)fa2i_fail(attempt->refusal, "%s%s%s", attempt->text, attempt->text[0] == '\0' ? "" : ": ",
                    attempt->why);
    fa2i_planner_pass_over(planner, slot, "a tuned kernel");
}

/* Replaces the code of a kernel whose code is lost or refused. A failure is logged, unless the cause is that there is
 * no compiler. */
static fa2_status replace(fa2i_planner *planner, const fa2i_class *of, const fa2_problem *problem,
                          fa2i_slot *slot, fa2i_attempt *attempt)
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

fa2_status fa2i_planner_use_stored(fa2i_planner *planner, const fa2i_class *of,
                                   const fa2_problem *problem, const fa2i_key *key,
                                   fa2i_attempt *ret_attempt)
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

static void tell_twin(const fa2i_planner *planner, fa2i_slot *slot, const fa2i_attempt *attempt,
                      const fa2i_slot *twin)
{
    if (planner->foresees || slot->told)
        return;
    slot->told = true;
    if (attempt->lost)
        fa2i_planner_log(planner,
                         "the code of %s is lost, and its code for %s is taken from the database",
                         attempt->text, twin->target);
    else
        fa2i_planner_log(planner, "%s is taken as %s code from the database: %s", attempt->text,
                         twin->target, attempt->why);
}

fa2_status fa2i_planner_use_twin(fa2i_planner *planner, const fa2i_class *of,
                                 const fa2_problem *problem, const fa2i_key *key,
                                 fa2i_attempt *attempt)
{
    const fa2i_evidence *evidence = &planner->taught[problem->op].evidence;
    fa2i_slot *slot = fa2i_kernels_slot(&planner->kernels, key);
    if (slot == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a kernel's record");
    for (size_t i = 0; i < evidence->kernel_count; i++) {
        const fa2i_known_kernel *twin = &evidence->kernels[i];
        fa2i_attempt other = {0};
        if (!twin->has_code || memcmp(&twin->key, key, sizeof *key) == 0 ||
            strcmp(twin->text, attempt->text) != 0 || strcmp(twin->class_key, of->key) != 0)
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
