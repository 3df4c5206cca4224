/*
 * - A kernel is for problems of its class alone, whatever a winner's row says.
 * - What replaces a lost kernel may have another key: another compiler or generator made it. Winners and
 *   measurements then move to it.
 * - A slot that was refused is not tried again.
 */
#include "runtime/plan/planner_stored.h"

#include <string.h>
#include "cache/report.h"
#include "runtime/ops/op.h"
#include "runtime/plan/planner_compile.h"

static fa2_status check_class(const fa2i_variant *variant, const fa2i_class *of)
{
    if (strcmp(variant->class_key, of->key) == 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_NOT_FOUND,
                     "%s is for problems with %s, and the database names it for %s; see fa2-tune "
                     "check",
                     variant->text, variant->class_key, of->key);
}

/* Load into the slot, which is empty. FA2_OK, and the slot is not loaded: the kernel cannot be used, with
 * a message; *ret_lost: only its code is missing. */
static fa2_status load(fa2i_planner *planner, const fa2i_class *of, int abi, fa2i_slot *slot,
                       bool *ret_lost, bool *ret_for_now)
{
    fa2i_kernel kernel = {0};
    fa2_status st = fa2i_cache_get_kernel(planner->cache, &slot->key, abi, true, &kernel);
    if (st == FA2_OK)
        st = check_class(&kernel.variant, of);
    if (st == FA2_OK) {
        st = fa2i_kernels_load(&planner->kernels, slot, &kernel);
        if (slot->state == FA2I_SLOT_REFUSED)
            st = FA2_OK;
    } else if (st != FA2_E_MEMORY) {
        *ret_lost = st == FA2_E_NOT_FOUND;
        *ret_for_now = st != FA2_E_NOT_FOUND;
        st = FA2_OK;
    }
    fa2i_kernel_done(&kernel);
    return st;
}

/* Let the database's rows of a lost kernel be those of the one that was compiled in its place. */
static void move_rows(fa2i_planner *planner, const fa2i_key *lost, const fa2i_slot *slot, int abi)
{
    fa2i_kernel kernel = {0};
    if (planner->read_only || memcmp(lost, &slot->key, sizeof *lost) == 0)
        return;
    fa2_status st = fa2i_cache_get_kernel(planner->cache, &slot->key, abi, true, &kernel);
    if (st == FA2_OK)
        st = fa2i_cache_rebind_kernel(planner->cache, lost, &kernel);
    if (st != FA2_OK)
        fa2i_planner_log(planner, "what is known of a kernel does not follow its code: %s",
                         fa2_last_message());
    fa2i_kernel_done(&kernel);
}

/* Compile a kernel whose record is there and whose code is not. */
static fa2_status revive(fa2i_planner *planner, const fa2i_class *of, const fa2_problem *problem,
                         const fa2i_key *key, const fa2i_slot **ret_slot)
{
    const int abi = fa2i_op_of(problem)->abi;
    fa2i_kernel record = {0};
    fa2i_attempt attempt = {0};
    fa2_status st = fa2i_cache_get_kernel(planner->cache, key, abi, false, &record);
    if (st == FA2_OK)
        st = check_class(&record.variant, of);
    if (st == FA2_OK)
        st = fa2i_planner_compile(planner, problem, record.variant.text, &attempt);
    if (st == FA2_OK && attempt.slot != NULL) {
        fa2i_planner_log(planner, "the code of %s is lost, and was compiled again",
                         record.variant.text);
        move_rows(planner, key, attempt.slot, abi);
        *ret_slot = attempt.slot;
    }
    fa2i_kernel_done(&record);
    return st == FA2_E_NOT_FOUND || st == FA2_E_NO_NVRTC ? FA2_OK : st;
}

fa2_status fa2i_planner_use_stored(fa2i_planner *planner, const fa2i_class *of,
                                   const fa2_problem *problem, const fa2i_key *key,
                                   const fa2i_slot **ret_slot, bool *ret_for_now)
{
    fa2_status st = FA2_OK;
    bool lost = false;
    fa2i_slot *slot = fa2i_kernels_slot(&planner->kernels, key);

    *ret_slot = NULL;
    *ret_for_now = false;
    if (slot == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a kernel's record");
    if (slot->state == FA2I_SLOT_EMPTY) {
        st = load(planner, of, fa2i_op_of(problem)->abi, slot, &lost, ret_for_now);
        if (st == FA2_OK && slot->state != FA2I_SLOT_LOADED)
            fa2i_planner_pass_over(planner, slot, "a tuned kernel");
    }
    if (st == FA2_OK && lost)
        st = revive(planner, of, problem, key, ret_slot);
    else if (slot->state == FA2I_SLOT_LOADED && check_class(&slot->loaded.variant, of) == FA2_OK)
        *ret_slot = slot;
    return st;
}
