/*
 * The database side of planning: opening it, and trying its choices in the order of the rules.
 *
 * - fa2i_choose_among names the best choice; if its kernel cannot be loaded, all choices of that
 *   kernel are dropped and it is asked again, so exact, nearest and arch follow each other by
 *   themselves.
 * - A kernel that cannot be used is told through the log when that is found, and later plans pass
 *   over it without a word. One that was refused is not tried again; one that the database has lost
 *   is, once the database was written; one that could not be read, a second later.
 * - What a class's earlier problems fetched serves its later ones: winners.c, planner_default.c,
 *   kernels.c. A problem of a known class asks SQLite nothing, except once a second whether the
 *   database was written.
 * - With fa2_config.arch the database's choices are not used: they were made for the device's own
 *   SM.
 */
#include "runtime/plan/planner.h"

#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/ops/op.h"
#include "runtime/plan/planner_default.h"

static fa2_status find_path(fa2i_planner *planner, const char *database)
{
    if (database == NULL) {
        fa2_status st = fa2i_cache_default_path(&planner->database);
        if (st == FA2_OK || st == FA2_E_MEMORY)
            return st;
        fa2i_planner_log(planner, "working without a database: %s", fa2_last_message());
        return FA2_OK;
    }
    if (database[0] == '\0')
        return FA2_OK;
    planner->database = fa2i_strdup(database);
    if (planner->database == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for the path of the database");
    return FA2_OK;
}

static fa2_status open_to_read(fa2i_planner *planner)
{
    fa2_status st = fa2i_cache_open(planner->database, FA2I_CACHE_READ, planner->log,
                                    planner->log_user, &planner->cache);
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

static fa2_status open_to_write(fa2i_planner *planner)
{
    fa2_status st = fa2i_cache_open(planner->database, FA2I_CACHE_WRITE, planner->log,
                                    planner->log_user, &planner->cache);
    if (st == FA2_OK || st == FA2_E_MEMORY)
        return st;

    char why[FA2I_MESSAGE_BYTES];
    snprintf(why, sizeof(why), "%s", fa2_last_message());
    planner->read_only = true;
    st = open_to_read(planner);
    if (st == FA2_OK)
        fa2i_planner_log(planner, "%s: %s",
                         planner->cache == NULL ? "working without a database"
                                                : "using the database without writing to it",
                         why);
    return st;
}

fa2_status fa2i_planner_init(fa2i_planner *planner, const fa2i_device *device,
                             const fa2_config *config)
{
    fa2_status st = FA2_OK;

    *planner = (fa2i_planner){.device = device,
                              .arch = config->arch,
                              .log = config->log,
                              .log_user = config->log_user,
                              .read_only = config->read_only != 0,
                              .kernels = {.device = device}};
    FA2_TRY(find_path(planner, config->database));
    if (planner->database != NULL)
        FA2_TRY(planner->read_only ? open_to_read(planner) : open_to_write(planner));
done:
    if (st != FA2_OK)
        fa2i_planner_done(planner);
    return st;
}

void fa2i_planner_done(fa2i_planner *planner)
{
    fa2i_planner_state_done(planner);
}

/* A kernel is for problems of its class alone, whatever a winner's row says. */
static fa2_status check_class(const fa2i_variant *variant, const fa2i_class *of)
{
    if (strcmp(variant->class_key, of->key) == 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_NOT_FOUND,
                     "%s is for problems with %s, and the database names it for %s; see fa2-tune "
                     "check",
                     variant->text, variant->class_key, of->key);
}

/* Load a kernel of the database into its slot. FA2_OK, and the slot is not loaded: the kernel
 * cannot be used, which was told; *ret_for_now: it may be readable later. */
static fa2_status load_tuned(fa2i_planner *planner, const fa2i_class *of, int abi, fa2i_slot *slot,
                             bool *ret_for_now)
{
    fa2_status st = FA2_OK;
    fa2i_kernel kernel = {0};
    bool pass_over = false;

    *ret_for_now = false;
    if (slot->state != FA2I_SLOT_EMPTY)
        return FA2_OK;
    st = fa2i_cache_get_kernel(planner->cache, &slot->key, abi, true, &kernel);
    if (st == FA2_OK)
        st = check_class(&kernel.variant, of);
    if (st == FA2_OK) {
        st = fa2i_kernels_load(&planner->kernels, slot, &kernel);
        pass_over = slot->state == FA2I_SLOT_REFUSED;
    } else if (st != FA2_E_MEMORY) {
        pass_over = true;
        *ret_for_now = st != FA2_E_NOT_FOUND;
    }
    if (pass_over) {
        fa2i_planner_pass_over(planner, slot, "a tuned kernel");
        st = FA2_OK;
    }
    fa2i_kernel_done(&kernel);
    return st;
}

/* A database is a cache: one that cannot be read is told, and is no error. */
static fa2_status update_class(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem)
{
    bool read = false;
    fa2_status st = fa2i_winners_update(&of->winners, planner->cache, planner->device->card.arch,
                                        problem, &read);
    if (read) {
        of->told_unreadable = false;
        fa2i_class_forget_defaults(of); /* one of them may be known to be wrong by now */
    }
    if (st == FA2_OK || st == FA2_E_MEMORY)
        return st;
    if (!of->told_unreadable)
        fa2i_planner_log(planner, "the database is passed over: %s", fa2_last_message());
    of->told_unreadable = true;
    return FA2_OK;
}

/* Exact, nearest, arch. FA2_OK with slot == NULL: the database has nothing that can be used. */
static fa2_status pick_tuned(fa2i_planner *planner, fa2i_class *of, fa2i_plan *plan)
{
    const fa2i_card *card = &planner->device->card;
    fa2i_winners *winners = &of->winners;
    bool for_now = false;

    fa2_status st = update_class(planner, of, &plan->problem);
    if (st != FA2_OK)
        return st;
    for (;;) {
        fa2i_choose_among(winners->choices, winners->count, card, &plan->problem, &plan->decision);
        if (plan->decision.rule == FA2_RULE_DEFAULT)
            return FA2_OK;
        const fa2i_key *kernel = &plan->decision.choice.winner.kernel;
        fa2i_slot *slot = fa2i_kernels_slot(&planner->kernels, kernel);
        if (slot == NULL)
            return fa2i_fail(FA2_E_MEMORY, "no memory for a kernel's record");
        st = load_tuned(planner, of, fa2i_op_of(&plan->problem)->abi, slot, &for_now);
        if (st != FA2_OK)
            return st;
        if (slot->state == FA2I_SLOT_LOADED && check_class(&slot->loaded.variant, of) == FA2_OK) {
            plan->slot = slot;
            return FA2_OK;
        }
        fa2i_winners_drop(winners, kernel, for_now);
    }
}

fa2_status fa2i_planner_make(fa2i_planner *planner, const fa2_problem *problem, fa2i_plan *ret_plan)
{
    fa2_status st = FA2_OK;
    fa2i_plan plan = {.problem = *problem, .decision.rule = FA2_RULE_DEFAULT};

    fa2i_class *of = fa2i_planner_class(planner, problem);
    if (of == NULL)
        return FA2_E_MEMORY;
    if (planner->cache != NULL && planner->arch == 0)
        FA2_TRY(pick_tuned(planner, of, &plan));
    if (plan.slot == NULL)
        FA2_TRY(fa2i_planner_pick_default(planner, of, &plan));
    FA2_TRY(fa2i_op_of(problem)->grid(&planner->device->card, &plan.slot->loaded.variant.recipe,
                                      problem, &plan.grid));
    *ret_plan = plan;
done:
    return st;
}
