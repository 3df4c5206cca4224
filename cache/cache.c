/*
 * Kernels and identities: the rows that results refer to.
 *
 * Invariants:
 * - a kernel keeps its row id when it is replaced, so that what refers to it stays;
 * - an image leaves the database only with the hash that it was stored with, and with numbers that
 *   a launch can have;
 * - a log callback runs without the mutex: it may come back into the cache.
 */
#include "cache/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"

const char *fa2i_row_op_string(fa2_op op)
{
    switch (op) {
    case FA2_OP_FORWARD:
        return "forward";
    }
    assert(false && "unknown op");
    return "";
}

void fa2i_row_problem_values(const fa2_problem *problem, fa2i_sql_value out[FA2I_PROBLEM_VALUES])
{
    const fa2i_sql_value values[FA2I_PROBLEM_VALUES] = {
        fa2i_sql_text(fa2i_row_op_string(problem->op)),
        fa2i_sql_text(fa2i_dtype_string(problem->dtype)),
        fa2i_sql_int(problem->batch),
        fa2i_sql_int(problem->heads_q),
        fa2i_sql_int(problem->heads_kv),
        fa2i_sql_int(problem->seq_q),
        fa2i_sql_int(problem->seq_k),
        fa2i_sql_int(problem->head_dim),
        fa2i_sql_int(problem->causal),
    };
    memcpy(out, values, sizeof values);
}

/* ---- identities ---- */

/* The id that find gives; when there is none, insert, and find again. insert takes the values of
 * find and the further ones behind them. */
static fa2_status find_or_insert(fa2i_cache *cache, const char *find, size_t find_count,
                                 const char *insert, const fa2i_sql_value *values, size_t count,
                                 int64_t *ret_id)
{
    fa2_status st = fa2i_sql_number(cache, find, values, find_count, ret_id);
    if (st != FA2_E_NOT_FOUND)
        return st;
    if (!cache->writable)
        return fa2i_fail(FA2_E_NOT_FOUND, "%s: nothing was tuned for this yet", cache->path);
    st = fa2i_sql_run(cache, insert, values, count);
    return st != FA2_OK ? st : fa2i_sql_number(cache, find, values, find_count, ret_id);
}

fa2_status fa2i_row_device(fa2i_cache *cache, const fa2i_card *card, bool real, int64_t *ret_id)
{
    const fa2i_sql_value values[] = {
        fa2i_sql_text(card->name),           fa2i_sql_int(card->arch),
        fa2i_sql_int(card->sm_count),        fa2i_sql_int(card->smem_block_bytes),
        fa2i_sql_int(card->l2_bytes),        fa2i_sql_int(real),
        fa2i_sql_int(card->smem_sm_bytes),   fa2i_sql_int(card->clock_khz),
        fa2i_sql_int(card->bandwidth_bytes),
    };
    return find_or_insert(
        cache,
        "SELECT id FROM device WHERE name = ? AND arch = ? AND sm_count = ? "
        "AND smem_block_bytes = ? AND l2_bytes = ? AND real = ?",
        6,
        "INSERT INTO device (name, arch, sm_count, smem_block_bytes, l2_bytes, real, "
        "smem_sm_bytes, clock_khz, bandwidth_bytes) VALUES (?,?,?,?,?,?,?,?,?)",
        FA2I_SQL_VALUES(values), ret_id);
}

fa2_status fa2i_row_problem(fa2i_cache *cache, const fa2_problem *problem, int64_t *ret_id)
{
    fa2i_sql_value values[FA2I_PROBLEM_VALUES];
    fa2_status st = fa2i_problem_check(problem);
    if (st != FA2_OK)
        return st;
    fa2i_row_problem_values(problem, values);
    return find_or_insert(
        cache, "SELECT id FROM problem WHERE " FA2I_PROBLEM_MATCH, FA2I_PROBLEM_VALUES,
        "INSERT INTO problem (" FA2I_PROBLEM_COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?)",
        FA2I_SQL_VALUES(values), ret_id);
}

/* Identities may be looked up in a cache that is open for reading; inserting then fails. */
static fa2i_cache_mode mode_of(const fa2i_cache *cache)
{
    return cache->writable ? FA2I_CACHE_WRITE : FA2I_CACHE_READ;
}

fa2_status fa2i_cache_device(fa2i_cache *cache, const fa2i_card *card, bool real, int64_t *ret_id)
{
    fa2_status st = fa2i_sql_begin(cache, mode_of(cache));
    if (st == FA2_OK)
        st = fa2i_row_device(cache, card, real, ret_id);
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_problem(fa2i_cache *cache, const fa2_problem *problem, int64_t *ret_id)
{
    fa2_status st = fa2i_sql_begin(cache, mode_of(cache));
    if (st == FA2_OK)
        st = fa2i_row_problem(cache, problem, ret_id);
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_session_begin(fa2i_cache *cache, const fa2i_session *session, int64_t *ret_id)
{
    const fa2i_sql_value values[] = {
        fa2i_sql_int(session->device),  fa2i_sql_int(session->driver),
        fa2i_sql_int(session->nvrtc),   fa2i_sql_text(session->generator),
        fa2i_sql_text(session->origin),
    };
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st = fa2i_sql_number(cache,
                             "INSERT INTO session (device, driver, nvrtc, generator, origin, "
                             "started_at) VALUES (?,?,?,?,?," FA2I_SQL_NOW ") RETURNING id",
                             FA2I_SQL_VALUES(values), ret_id);
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_session_end(fa2i_cache *cache, int64_t session)
{
    const fa2i_sql_value values[] = {fa2i_sql_int(session)};
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st = fa2i_sql_run(cache, "UPDATE session SET ended_at = " FA2I_SQL_NOW " WHERE id = ?",
                          FA2I_SQL_VALUES(values));
    return fa2i_sql_end(cache, st);
}

/* ---- kernels ---- */

fa2i_launch_numbers fa2i_launch_numbers_of(const fa2i_recipe *recipe)
{
    const fa2i_step *step = fa2i_recipe_main(recipe);
    return (fa2i_launch_numbers){.threads = step->threads,
                                 .block_rows = recipe->rows,
                                 .smem_bytes = step->smem_bytes,
                                 .key_step = recipe->keys,
                                 .waves = recipe->waves};
}

fa2_status fa2i_recipe_of_numbers(const char *variant_text, const fa2i_launch_numbers *numbers,
                                  fa2i_recipe *ret_recipe)
{
    const int family = (int)strcspn(variant_text, " ");
    fa2i_recipe recipe = {.op = FA2_OP_FORWARD,
                          .abi = 2,
                          .rows = numbers->block_rows,
                          .keys = numbers->key_step,
                          .waves = numbers->waves,
                          .max_splits = 1,
                          .step_count = 1,
                          .steps[0] = {.role = FA2I_STEP_MAIN,
                                       .threads = numbers->threads,
                                       .smem_bytes = numbers->smem_bytes,
                                       .cluster = 1,
                                       .blocks = FA2I_BLOCKS_ROW_TILES,
                                       .block_rows = 1}};
    snprintf(recipe.steps[0].entry, FA2I_ENTRY_CHARS, "%.*s", family, variant_text);
    if (numbers->waves != 0) {
        recipe.pack = 1;
        recipe.max_splits = 256;
        recipe.workspace = FA2I_WORKSPACE_PARTIALS;
        recipe.step_count = 2;
        recipe.steps[1] = (fa2i_step){.role = FA2I_STEP_COMBINE,
                                      .threads = 128,
                                      .cluster = 1,
                                      .blocks = FA2I_BLOCKS_ROWS,
                                      .block_rows = 4};
        snprintf(recipe.steps[1].entry, FA2I_ENTRY_CHARS, "%.*s_combine", family, variant_text);
    }
    const fa2_status st = fa2i_recipe_format(&recipe);
    if (st == FA2_OK)
        *ret_recipe = recipe;
    return st;
}

fa2_status fa2i_row_kernel_id(fa2i_cache *cache, const fa2i_key *key, int64_t *ret_id)
{
    const fa2i_sql_value values[] = {fa2i_sql_key(key)};
    fa2_status st = fa2i_sql_number(cache, "SELECT id FROM kernel WHERE key = ?",
                                    FA2I_SQL_VALUES(values), ret_id);
    if (st == FA2_E_NOT_FOUND) {
        char hex[2 * FA2I_KEY_BYTES + 1];
        fa2i_key_format(key, hex);
        return fa2i_fail(FA2_E_NOT_FOUND, "%s: there is no kernel %s", cache->path, hex);
    }
    return st;
}

fa2_status fa2i_row_put_kernel(fa2i_cache *cache, const fa2i_kernel *kernel, int launch_abi,
                               int64_t *ret_id)
{
    const fa2i_launch_numbers numbers = fa2i_launch_numbers_of(&kernel->variant.recipe);
    const fa2i_sql_value values[] = {
        fa2i_sql_key(&kernel->key),          fa2i_sql_int(launch_abi),
        fa2i_sql_text(kernel->variant.text), fa2i_sql_text(kernel->target),
        fa2i_sql_int(numbers.threads),       fa2i_sql_int(numbers.block_rows),
        fa2i_sql_int(numbers.smem_bytes),    fa2i_sql_int(kernel->nvrtc),
        fa2i_sql_text(kernel->generator),    fa2i_sql_text(fa2i_outcome_string(kernel->outcome)),
        fa2i_sql_int(kernel->registers),     fa2i_sql_int(kernel->spill_bytes),
        fa2i_sql_real(kernel->compile_ms),   fa2i_sql_text(kernel->log),
        fa2i_sql_int(numbers.key_step),      fa2i_sql_int(numbers.waves),
    };
    return fa2i_sql_number(
        cache,
        "INSERT INTO kernel (key, launch_abi, variant, target, threads, block_rows, smem_bytes, "
        "nvrtc, generator, outcome, registers, spill_bytes, compile_ms, log, key_step, waves) "
        "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (key) DO UPDATE SET "
        "launch_abi = excluded.launch_abi, variant = excluded.variant, target = excluded.target, "
        "threads = excluded.threads, block_rows = excluded.block_rows, "
        "smem_bytes = excluded.smem_bytes, nvrtc = excluded.nvrtc, generator = excluded.generator, "
        "outcome = excluded.outcome, registers = excluded.registers, "
        "spill_bytes = excluded.spill_bytes, compile_ms = excluded.compile_ms, log = excluded.log, "
        "key_step = excluded.key_step, waves = excluded.waves "
        "RETURNING id",
        FA2I_SQL_VALUES(values), ret_id);
}

fa2_status fa2i_row_put_image(fa2i_cache *cache, int64_t kernel, const fa2i_blob *image)
{
    const fa2i_sql_value values[] = {fa2i_sql_int(kernel),
                                     fa2i_sql_blob(image->data, image->bytes)};
    if (image->bytes == 0)
        return fa2i_sql_run(cache, "DELETE FROM image WHERE kernel = ?", values, 1);
    return fa2i_sql_run(cache,
                        "INSERT OR REPLACE INTO image (kernel, hash, data) "
                        "SELECT k.id, fa2_image_hash(?2, " FA2I_LAUNCH_COLUMNS "), ?2 "
                        "FROM kernel k WHERE k.id = ?1",
                        FA2I_SQL_VALUES(values));
}

fa2_status fa2i_cache_put_kernel(fa2i_cache *cache, const fa2i_kernel *kernel, int launch_abi)
{
    fa2_status st;
    int64_t id = 0;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(fa2i_row_put_kernel(cache, kernel, launch_abi, &id));
    FA2_TRY(fa2i_row_put_image(cache, id, &kernel->image));
done:
    return fa2i_sql_end(cache, st);
}

static fa2_status copy_text(sqlite3_stmt *stmt, int column, char **ret_text)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    *ret_text = text != NULL ? fa2i_strdup(text) : NULL;
    return text == NULL || *ret_text != NULL ? FA2_OK : fa2i_fail(FA2_E_MEMORY, "out of memory");
}

static fa2_status copy_blob(sqlite3_stmt *stmt, int column, fa2i_blob *ret_blob)
{
    /* sqlite3_column_blob first, as its documentation asks */
    const void *data = sqlite3_column_blob(stmt, column);
    size_t bytes = (size_t)sqlite3_column_bytes(stmt, column);
    void *copy = fa2i_alloc(bytes);
    if (copy == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory");
    if (bytes > 0)
        memcpy(copy, data, bytes);
    *ret_blob = (fa2i_blob){copy, bytes};
    return FA2_OK;
}

fa2_status fa2i_row_read_kernel(const fa2i_cache *cache, sqlite3_stmt *stmt,
                                fa2i_kernel *ret_kernel)
{
    const fa2i_launch_numbers numbers = {
        .threads = sqlite3_column_int(stmt, 3),
        .block_rows = sqlite3_column_int(stmt, 4),
        .smem_bytes = sqlite3_column_int(stmt, 5),
        .key_step = sqlite3_column_int(stmt, 13),
        .waves = sqlite3_column_int(stmt, 14),
    };
    fa2i_kernel kernel = {
        .nvrtc = sqlite3_column_int(stmt, 6),
        .registers = sqlite3_column_int(stmt, 9),
        .spill_bytes = sqlite3_column_int(stmt, 10),
        .compile_ms = sqlite3_column_double(stmt, 11),
    };
    const void *key = sqlite3_column_blob(stmt, 0);
    if (key == NULL || sqlite3_column_bytes(stmt, 0) != FA2I_KEY_BYTES)
        return fa2i_fail(FA2_E_DATABASE, "%s: holds a kernel with a damaged key", cache->path);
    memcpy(kernel.key.bytes, key, FA2I_KEY_BYTES);
    fa2i_sql_column_text(stmt, 1, kernel.variant.text, sizeof kernel.variant.text);
    fa2i_sql_column_text(stmt, 2, kernel.target, sizeof kernel.target);
    fa2i_sql_column_text(stmt, 7, kernel.generator, sizeof kernel.generator);
    fa2_status st = fa2i_sql_column_outcome(cache, stmt, 8, &kernel.outcome);
    /* damaged numbers leave it empty */
    (void)fa2i_recipe_of_numbers(kernel.variant.text, &numbers, &kernel.variant.recipe);
    if (st == FA2_OK)
        st = copy_text(stmt, 12, &kernel.log);
    if (st == FA2_OK)
        *ret_kernel = kernel;
    return st;
}

/* Tell the log once about a kernel whose image or launch numbers are damaged. */
static void report_damage(fa2i_cache *cache, const fa2i_key *key)
{
    char hex[2 * FA2I_KEY_BYTES + 1];
    char message[512];
    bool known = false;

    pthread_mutex_lock(&cache->mutex);
    for (size_t i = 0; i < cache->reported_count; i++)
        known = known || memcmp(&cache->reported[i], key, sizeof *key) == 0;
    fa2i_key *grown = known ? NULL
                            : fa2i_realloc(cache->reported,
                                           (cache->reported_count + 1) * sizeof *cache->reported);
    if (grown != NULL) { /* without memory it is told twice */
        cache->reported = grown;
        cache->reported[cache->reported_count++] = *key;
    }
    pthread_mutex_unlock(&cache->mutex);
    if (known || cache->log == NULL)
        return;
    fa2i_key_format(key, hex);
    snprintf(message, sizeof message, "%s: kernel %s is damaged and is not used", cache->path, hex);
    cache->log(cache->log_user, message);
}

/* Remove a damaged image. Best effort: another reader finds it damaged as well. */
static void drop_damaged_image(fa2i_cache *cache, const fa2i_key *key)
{
    const fa2i_sql_value values[] = {fa2i_sql_key(key)};
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st = fa2i_sql_run(
            cache, "DELETE FROM image WHERE kernel IN (" FA2I_DAMAGED_IMAGES " AND k.key = ?)",
            FA2I_SQL_VALUES(values));
    (void)fa2i_sql_end(cache, st);
}

/* Columns behind the kernel's: image hash, data (NULL without with_image). */
static fa2_status select_kernel(fa2i_cache *cache, const fa2i_key *key, int launch_abi,
                                bool with_image, sqlite3_stmt **ret_stmt)
{
    const fa2i_sql_value values[] = {fa2i_sql_key(key), fa2i_sql_int(launch_abi)};
    const char *sql = with_image
                          ? "SELECT " FA2I_KERNEL_COLUMNS ", i.hash, i.data FROM kernel k "
                            "JOIN image i ON i.kernel = k.id WHERE k.key = ? AND k.launch_abi = ?"
                          : "SELECT " FA2I_KERNEL_COLUMNS " FROM kernel k "
                            "WHERE k.key = ? AND k.launch_abi = ?";
    fa2_status st = fa2i_sql_row(cache, sql, FA2I_SQL_VALUES(values), ret_stmt);
    if (st == FA2_E_NOT_FOUND) {
        char hex[2 * FA2I_KEY_BYTES + 1];
        fa2i_key_format(key, hex);
        return fa2i_fail(st, "%s: there is no kernel %s%s for launch ABI %d", cache->path, hex,
                         with_image ? " with code" : "", launch_abi);
    }
    return st;
}

/* Read the image of select_kernel's row; *ret_damaged instead of an image whose hash is wrong. */
static fa2_status read_image(sqlite3_stmt *stmt, const fa2i_recipe *recipe, fa2i_blob *ret_image,
                             bool *ret_damaged)
{
    const fa2i_launch_numbers numbers = fa2i_launch_numbers_of(recipe);
    fa2i_key hash;
    fa2_status st = copy_blob(stmt, FA2I_KERNEL_COLUMN_COUNT + 1, ret_image);
    if (st != FA2_OK)
        return st;
    fa2i_image_hash((fa2i_part){ret_image->data, ret_image->bytes}, &numbers, &hash);
    const void *stored = sqlite3_column_blob(stmt, FA2I_KERNEL_COLUMN_COUNT);
    *ret_damaged = stored == NULL ||
                   sqlite3_column_bytes(stmt, FA2I_KERNEL_COLUMN_COUNT) != FA2I_KEY_BYTES ||
                   memcmp(stored, hash.bytes, FA2I_KEY_BYTES) != 0;
    return FA2_OK;
}

fa2_status fa2i_cache_get_kernel(fa2i_cache *cache, const fa2i_key *key, int launch_abi,
                                 bool with_image, fa2i_kernel *ret_kernel)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_kernel kernel = {0};
    bool damaged = false;

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(select_kernel(cache, key, launch_abi, with_image, &stmt));
    FA2_TRY(fa2i_row_read_kernel(cache, stmt, &kernel));
    damaged = kernel.variant.recipe.step_count == 0;
    if (with_image && !damaged)
        FA2_TRY(read_image(stmt, &kernel.variant.recipe, &kernel.image, &damaged));
done:
    sqlite3_finalize(stmt);
    st = fa2i_sql_end(cache, st);
    if (st == FA2_OK && damaged) {
        report_damage(cache, key);
        drop_damaged_image(cache, key);
        st = fa2i_fail(FA2_E_NOT_FOUND, "%s: the kernel is damaged", cache->path);
    }
    if (st == FA2_OK)
        *ret_kernel = kernel;
    else
        fa2i_kernel_done(&kernel);
    return st;
}
