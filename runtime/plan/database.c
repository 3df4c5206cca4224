/*
 * - A database is a cache. If the file at the default path is unusable, the log says why, and the planner works without
 *   it. If the caller named the path (fa2_config.database, FA2_DB), creating the context fails. If the file becomes
 *   unusable later, the log says why.
 * - The file may have been locked, or on a full disk. So a file that could not be used or created is tried again when
 *   it was changed or replaced, else once a minute. These tries do not wait for a lock.
 * - A file that was deleted or replaced is never read again. SQLite finds the journal by the path, and would play the
 *   new file's journal into the old file.
 */
#include "runtime/plan/database.h"

#include <stdio.h>
#include <sys/stat.h>
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/plan/notes.h"
#include "runtime/plan/share.h"

#define RETRY_NS (60 * FA2I_SECOND_NS)

static fa2_status find_path(fa2i_planner *planner, const char *database)
{
    planner->is_named = database != NULL || fa2i_cache_is_named();
    if (database == NULL) {
        fa2_status st = fa2i_cache_default_path(&planner->database);
        if (st == FA2_OK || st == FA2_E_MEMORY)
            return st;
        fa2i_planner_log(planner, FA2_LOG_ERROR, "working without a database: %s", fa2_last_message());
        return FA2_OK;
    }
    if (database[0] == '\0')
        return FA2_OK;
    planner->database = fa2i_strdup(database);
    if (planner->database == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for the path of the database");
    return FA2_OK;
}

/* ---- opening ---- */

static fa2_status open_to_read(fa2i_planner *planner, int *wait_ms)
{
    fa2_status st = fa2i_cache_open_within(planner->database, FA2I_CACHE_READ, wait_ms, fa2i_planner_hear, planner,
                                           &planner->cache);
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

/* Reading gets the rest of the wait. told: the log already says why the file cannot be written. */
static fa2_status open_to_write(fa2i_planner *planner, int *wait_ms, bool told)
{
    fa2_status st = fa2i_cache_open_within(planner->database, FA2I_CACHE_WRITE, wait_ms, fa2i_planner_hear, planner,
                                           &planner->cache);
    if (st == FA2_OK || st == FA2_E_MEMORY)
        return st;

    char why[FA2I_MESSAGE_BYTES];
    snprintf(why, sizeof(why), "%s", fa2_last_message());
    planner->read_only = true;
    st = open_to_read(planner, wait_ms);
    if (st == FA2_OK && !(told && planner->cache == NULL))
        fa2i_planner_log(
            planner, FA2_LOG_ERROR, "%s: %s",
            planner->cache == NULL ? "working without a database" : "using the database without writing to it", why);
    return st;
}

static fa2i_file_state state_of(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return (fa2i_file_state){.is_there = false};
    return (fa2i_file_state){.is_there = true,
                             .device = (uint64_t)info.st_dev,
                             .inode = (uint64_t)info.st_ino,
                             .changed_ns = info.st_ctim.tv_sec * FA2I_SECOND_NS + info.st_ctim.tv_nsec};
}

static bool is_same_file(const fa2i_file_state *a, const fa2i_file_state *b)
{
    return a->is_there == b->is_there && a->device == b->device && a->inode == b->inode;
}

/* Opens the file at the path. If it is missing or unusable, there is no cache. told: it was tried before. */
static fa2_status open_file(fa2i_planner *planner, bool told)
{
    int wait_ms = told ? 0 : FA2I_CACHE_WAIT_MS;
    planner->read_only = planner->never_writes;
    const fa2_status st = planner->read_only ? open_to_read(planner, &wait_ms) : open_to_write(planner, &wait_ms, told);
    planner->looked_ns = planner->tried_ns = fa2i_clock_ns();
    planner->tried = state_of(planner->database);
    planner->is_deleted = false;
    planner->is_unusable = st != FA2_OK;
    return st;
}

fa2_status fa2i_planner_open(fa2i_planner *planner, const char *database)
{
    fa2_status st = FA2_OK;
    FA2_TRY(find_path(planner, database));
    if (planner->database == NULL)
        goto done;
    st = open_file(planner, false);
    if (st != FA2_OK && st != FA2_E_MEMORY && !planner->is_named) {
        fa2i_planner_log(planner, FA2_LOG_ERROR, "working without a database: %s", fa2_last_message());
        st = FA2_OK;
    }
done:
    return st;
}

fa2_status fa2i_planner_find_files(fa2i_planner *planner)
{
    const fa2_status st = fa2i_share_find(&planner->share);
    return st == FA2_OK ? fa2i_layers_open(planner->share, fa2i_planner_hear, planner, &planner->layers) : st;
}

/* ---- following the file ---- */

/* Forgets what the database said. Loaded kernels stay, because plans launch them. */
static void forget(fa2i_planner *planner)
{
    for (fa2i_class *of = planner->classes; of != NULL; of = of->next) {
        fa2i_winners_done(&of->winners);
        of->reading++;
        of->told_unreadable = false;
    }
    for (int op = 0; op < FA2I_OPS; op++)
        planner->calibrations[op].is_partial = true;             /* so that it is learned again */
    planner->notes.answer_count = planner->notes.used_count = 0; /* they are about the other file */
    planner->told_unstored = false;
}

static fa2_status try_file(fa2i_planner *planner, bool was_replaced)
{
    const fa2i_file_state found = state_of(planner->database);
    const bool told = is_same_file(&found, &planner->tried) && found.changed_ns == planner->tried.changed_ns;
    if (!found.is_there && (planner->never_writes || planner->is_deleted))
        return FA2_OK;
    if (told && fa2i_clock_ns() - planner->tried_ns < RETRY_NS)
        return FA2_OK;
    const fa2_status st = open_file(planner, told);
    if (st == FA2_E_MEMORY)
        return st;
    if (st != FA2_OK && !told)
        fa2i_planner_log(planner, FA2_LOG_ERROR, "working without a database: %s", fa2_last_message());
    if (planner->cache == NULL)
        return FA2_OK;
    forget(planner);
    fa2i_planner_log(planner, FA2_LOG_INFO, "%s: %s, and is used from now on", planner->database,
                     was_replaced ? "was replaced" : "can be used now");
    return FA2_OK;
}

/* Returns whether the open file is still the one at the path. The path may be a link, so its target is compared,
 * too. */
static bool is_current(const fa2i_planner *planner)
{
    const fa2i_file_state found = state_of(planner->database);
    return is_same_file(&found, &planner->tried) && !fa2i_cache_has_moved(planner->cache);
}

static void lose_file(fa2i_planner *planner)
{
    fa2i_cache_close(planner->cache);
    planner->cache = NULL;
    planner->tried = (fa2i_file_state){.is_there = false};
    planner->is_deleted = !state_of(planner->database).is_there;
    forget(planner);
    if (planner->is_deleted)
        fa2i_planner_log(planner, FA2_LOG_WARNING, "%s: was deleted; working without it until there is another",
                         planner->database);
}

fa2_status fa2i_planner_follow_file(fa2i_planner *planner)
{
    const bool is_open = planner->cache != NULL;
    if (planner->database == NULL || planner->predicts || fa2i_clock_ns() - planner->looked_ns < FA2I_SECOND_NS)
        return FA2_OK;
    planner->looked_ns = fa2i_clock_ns();
    if (is_open && is_current(planner))
        return FA2_OK;
    if (is_open)
        lose_file(planner);
    return try_file(planner, is_open && !planner->is_deleted);
}

/* ---- storing ---- */

/* Returns whether there is a database to write to. Creates a deleted file again for that. */
static bool can_store(fa2i_planner *planner)
{
    if (planner->is_deleted && !planner->never_writes)
        (void)open_file(planner, false); /* if that fails, nothing is stored */
    return planner->cache != NULL && !planner->read_only && !fa2i_cache_has_moved(planner->cache);
}

/* Stores what the database lacks of a kernel: everything if it was compiled here, else what loading it revealed. Returns
 * whether it is stored. */
static bool keep(fa2i_planner *planner, const fa2i_kernel *kernel, bool compiled)
{
    if (!can_store(planner))
        return false;
    planner->notes.has_compiled |= compiled;
    const fa2_status st =
        compiled ? fa2i_cache_put_kernel(planner->cache, kernel) : fa2i_cache_note_loaded(planner->cache, kernel);
    if (st != FA2_OK && !planner->told_unstored)
        fa2i_planner_log(planner, FA2_LOG_ERROR, "%s stored: %s",
                         compiled ? "compiled kernels are not"
                                  : "registers and spills that the driver reported are not",
                         fa2_last_message());
    planner->told_unstored = st != FA2_OK;
    return st == FA2_OK;
}

fa2_status fa2i_planner_load(fa2i_planner *planner, fa2i_slot *slot, fa2i_kernel *kernel, bool compiled)
{
    const int registers = kernel->registers, spill_bytes = kernel->spill_bytes;
    slot->compiled = compiled;
    if (planner->predicts)
        return fa2i_kernels_predict(&planner->kernels, slot, kernel);
    const fa2_status st = fa2i_kernels_load(&planner->kernels, slot, kernel);
    if (st == FA2_OK && !compiled)
        fa2i_count(&planner->counters, FA2I_COUNTER_loaded, 1);
    if (st == FA2_OK && (compiled || kernel->registers != registers || kernel->spill_bytes != spill_bytes) &&
        !keep(planner, kernel, compiled) && compiled)
        fa2i_count(&planner->counters, FA2I_COUNTER_unstored, 1);
    if (st == FA2_OK && !compiled)
        fa2i_planner_note_used(planner, kernel);
    return st;
}
