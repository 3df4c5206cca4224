/*
 * The database side of planning: opening it, and trying its choices in the order of the rules.
 *
 * - fa2i_choose_among names the best choice; if its kernel cannot be loaded, all choices of that
 *   kernel are dropped and it is asked again, so exact, nearest and arch follow each other by
 *   themselves.
 * - A slot that is lost or refused was told through the log when that was found; later plans pass
 *   over it without a word and without trying again. A database that is busy, or fails otherwise,
 *   makes no slot lost.
 * - With fa2_config.arch the database's choices are not used: they were made for the device's own
 *   SM.
 */
#include "runtime/planner.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"

void fa2i_planner_log(const fa2i_planner *planner, const char *format, ...)
{
    if (planner->log == NULL)
        return;
    char message[FA2I_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    planner->log(planner->log_user, message);
}

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
    fa2i_kernels_done(&planner->kernels);
    fa2i_generator_destroy(planner->generator);
    fa2i_cache_close(planner->cache);
    fa2i_free(planner->database);
    *planner = (fa2i_planner){0};
}

/* Load a kernel of the database. FA2_OK with *ret_slot == NULL: it cannot be used, which was told.
 */
static fa2_status load_tuned(fa2i_planner *planner, const fa2i_key *key, fa2i_slot **ret_slot)
{
    fa2_status st = FA2_OK;
    fa2i_kernel kernel = {0};

    fa2i_slot *slot = fa2i_kernels_slot(&planner->kernels, key);
    if (slot == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a kernel's record");
    if (slot->state == FA2I_SLOT_EMPTY) {
        bool pass_over = false;
        st = fa2i_cache_get_kernel(planner->cache, key, FA2I_LAUNCH_ABI, true, &kernel);
        if (st == FA2_OK) {
            st = fa2i_kernels_load(&planner->kernels, slot, &kernel);
            pass_over = slot->state == FA2I_SLOT_REFUSED;
        } else if (st != FA2_E_MEMORY) {
            pass_over = true;
            if (st == FA2_E_NOT_FOUND) /* else it may be there when the next plan asks */
                slot->state = FA2I_SLOT_LOST;
        }
        if (pass_over) {
            fa2i_planner_log(planner, "a tuned kernel is passed over: %s", fa2_last_message());
            st = FA2_OK;
        }
    }
    if (slot->state == FA2I_SLOT_LOADED)
        *ret_slot = slot;
    fa2i_kernel_done(&kernel);
    return st;
}

static size_t drop_choices(fa2i_choice *choices, size_t count, const fa2i_key *kernel)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (memcmp(&choices[i].winner.kernel, kernel, sizeof(*kernel)) != 0)
            choices[kept++] = choices[i];
    return kept;
}

/* Exact, nearest, arch. FA2_OK with rule FA2_RULE_DEFAULT: the database has nothing that can be
 * used. */
static fa2_status pick_tuned(fa2i_planner *planner, const fa2_problem *problem,
                             fa2i_decision *decision, fa2i_slot **ret_slot)
{
    fa2_status st = FA2_OK;
    fa2i_choice *choices = NULL;
    size_t count = 0;
    const fa2i_card *card = &planner->device->card;

    st = fa2i_cache_choices(planner->cache, card->arch, problem, FA2I_LAUNCH_ABI, &choices, &count);
    if (st == FA2_E_MEMORY)
        goto done;
    if (st != FA2_OK) { /* a database is a cache: without it there is still the default rule */
        fa2i_planner_log(planner, "the database is passed over: %s", fa2_last_message());
        st = FA2_OK;
    }
    for (;;) {
        fa2i_choose_among(choices, count, card, problem, decision);
        if (decision->rule == FA2_RULE_DEFAULT)
            break;
        const fa2i_key kernel = decision->choice.winner.kernel;
        FA2_TRY(load_tuned(planner, &kernel, ret_slot));
        if (*ret_slot != NULL)
            break;
        count = drop_choices(choices, count, &kernel);
    }
done:
    fa2i_free(choices);
    return st;
}

fa2_status fa2i_planner_make(fa2i_planner *planner, const fa2_problem *problem,
                             fa2i_plan **ret_plan)
{
    fa2_status st = FA2_OK;
    fa2i_decision decision = {.rule = FA2_RULE_DEFAULT};
    fa2i_slot *slot = NULL;
    size_t tried = 0;

    if (planner->cache != NULL && planner->arch == 0)
        FA2_TRY(pick_tuned(planner, problem, &decision, &slot));
    if (slot == NULL)
        FA2_TRY(fa2i_planner_pick_default(planner, problem, &slot, &tried));

    fa2i_grid grid;
    FA2_TRY(fa2i_grid_of(&planner->device->card, &slot->loaded.variant, problem, &grid));
    fa2i_plan *plan = fa2i_alloc(sizeof(*plan));
    if (plan == NULL) {
        st = fa2i_fail(FA2_E_MEMORY, "no memory for a plan");
        goto done;
    }
    plan->problem = *problem;
    plan->grid = grid;
    plan->loaded = &slot->loaded;
    fa2i_planner_explain(problem, &planner->device->card, planner->arch, &decision, slot, tried,
                         &plan->explanation);
    *ret_plan = plan;
done:
    return st;
}
