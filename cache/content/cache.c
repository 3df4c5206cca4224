/*
 * Kernels and identities: the rows that results refer to.
 *
 * Invariants:
 * - a kernel that is replaced keeps its row id, so that rows that refer to it stay valid;
 * - the cache returns an image only if its seal is the stored one and a launch can follow its recipe;
 * - a log callback runs without the mutex, because it may call the cache.
 */
#include "cache/database/columns.h"

#include <stdio.h>
#include <string.h>
#include "cache/content/notes.h"
#include "cache/database/rules.h"
#include "cache/content/size_limit.h"
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"
#include "runtime/ops/op.h"

/* ---- identities ---- */

/* Returns the id that `find` selects; if there is none, inserts a row and finds it. `insert` takes the values of
 * `find`, followed by the rest. */
static fa2_status find_or_insert(fa2i_cache *cache, const char *find, size_t find_count, const char *insert,
                                 const fa2i_sql_value *values, size_t count, int64_t *ret_id)
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
    return find_or_insert(cache,
                          "SELECT id FROM device WHERE name = ? AND arch = ? AND sm_count = ? "
                          "AND smem_block_bytes = ? AND l2_bytes = ? AND real = ?",
                          6,
                          "INSERT INTO device (name, arch, sm_count, smem_block_bytes, l2_bytes, real, "
                          "smem_sm_bytes, clock_khz, bandwidth_bytes) VALUES (?,?,?,?,?,?,?,?,?)",
                          FA2I_SQL_VALUES(values), ret_id);
}

/* Finds a problem by its fields and its class. */
#define FA2I_FIELD(name, ...) " AND " #name " = ?"
static const char find_misfiled[] = "SELECT id FROM problem WHERE true"
#include "runtime/base/problem.def"
                                    " AND class <> ?";
#define FA2I_FIELD(name, ...) " AND " #name " = ?"
static const char find_problem[] = "SELECT id FROM problem WHERE true"
#include "runtime/base/problem.def"
                                   " AND class = ?";

static const char insert_problem[] = "INSERT INTO problem (id"
#define FA2I_FIELD(name, ...) ", " #name
#include "runtime/base/problem.def"
                                     ", class, gflop) VALUES (NULL"
#define FA2I_FIELD(name, ...) ", ?"
#include "runtime/base/problem.def"
                                     ", ?, ?)";

/* Drops a row whose class does not match its fields, and the rows that refer to it. Such a row is not valid
 * (cache/transfer/sound.c), and its fields are in the way of the right row. */
static fa2_status drop_misfiled(fa2i_cache *cache, const fa2i_sql_value *found_by, size_t count)
{
    int64_t id = 0;
    fa2_status st = fa2i_sql_number(cache, find_misfiled, found_by, count, &id);
    if (st != FA2_OK)
        return st == FA2_E_NOT_FOUND ? FA2_OK : st;
    const fa2i_sql_value values[] = {fa2i_sql_int(id)};
    FA2_TRY(fa2i_sql_run(cache, "DELETE FROM winner WHERE problem = ?", FA2I_SQL_VALUES(values)));
    FA2_TRY(fa2i_sql_run(cache, "DELETE FROM measurement WHERE problem = ?", FA2I_SQL_VALUES(values)));
    FA2_TRY(fa2i_sql_run(cache, "DELETE FROM problem WHERE id = ?", FA2I_SQL_VALUES(values)));
done:
    return st;
}

fa2_status fa2i_row_problem(fa2i_cache *cache, const fa2_problem *problem, int64_t *ret_id)
{
    fa2i_sql_value values[FA2I_FIELD_COUNT + 2];
    char class_key[FA2I_CLASS_CHARS];
    fa2_status st = fa2i_problem_check(problem);
    if (st != FA2_OK)
        return st;
    fa2i_problem_class(problem, class_key);
    fa2i_columns_values(problem, values);
    values[FA2I_FIELD_COUNT] = fa2i_sql_text(class_key);
    values[FA2I_FIELD_COUNT + 1] = fa2i_sql_real(fa2i_problem_flop(problem) / 1e9);
    if (cache->writable)
        st = drop_misfiled(cache, values, FA2I_FIELD_COUNT + 1);
    return st != FA2_OK ? st
                        : find_or_insert(cache, find_problem, FA2I_FIELD_COUNT + 1, insert_problem,
                                         FA2I_SQL_VALUES(values), ret_id);
}

/* A cache that is open for reading may look up identities; inserting them then fails. */
static fa2i_cache_mode mode_of(const fa2i_cache *cache)
{
    return cache->writable ? FA2I_CACHE_WRITE : FA2I_CACHE_READ;
}

/* Sets the speeds of a device's row if they are 0, because gc put 0 in the place of damaged ones (rules.def). */
static fa2_status tell_speeds(fa2i_cache *cache, const fa2i_card *card, int64_t id)
{
    const fa2i_sql_value values[] = {fa2i_sql_int(card->clock_khz), fa2i_sql_int(card->bandwidth_bytes),
                                     fa2i_sql_int(id)};
    return fa2i_sql_run(cache,
                        "UPDATE device SET clock_khz = ?, bandwidth_bytes = ? "
                        "WHERE id = ? AND (clock_khz = 0 OR bandwidth_bytes = 0)",
                        FA2I_SQL_VALUES(values));
}

fa2_status fa2i_cache_device(fa2i_cache *cache, const fa2i_card *card, bool real, int64_t *ret_id)
{
    fa2_status st = fa2i_sql_begin(cache, mode_of(cache));
    if (st == FA2_OK)
        st = fa2i_row_device(cache, card, real, ret_id);
    if (st == FA2_OK && cache->writable)
        st = tell_speeds(cache, card, *ret_id);
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_problem(fa2i_cache *cache, const fa2_problem *problem, int64_t *ret_id)
{
    fa2_status st = fa2i_sql_begin(cache, mode_of(cache));
    if (st == FA2_OK)
        st = fa2i_row_problem(cache, problem, ret_id);
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_problems(fa2i_cache *cache, const fa2_problem *const *problems, size_t count, int64_t *ret_ids)
{
    fa2_status st = fa2i_sql_begin(cache, mode_of(cache));
    for (size_t i = 0; st == FA2_OK && i < count; i++)
        st = fa2i_row_problem(cache, problems[i], &ret_ids[i]);
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_session_begin(fa2i_cache *cache, const fa2i_session *session, int64_t *ret_id)
{
    const fa2i_sql_value values[] = {
        fa2i_sql_int(session->device),     fa2i_sql_int(session->driver),  fa2i_sql_int(session->nvrtc),
        fa2i_sql_text(session->generator), fa2i_sql_text(session->origin), fa2i_sql_int(session->modelled),
    };
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st = fa2i_sql_number(cache,
                             "INSERT INTO session (device, driver, nvrtc, generator, origin, "
                             "modelled, started_at) VALUES (?,?,?,?,?,?," FA2I_SQL_NOW ") RETURNING id",
                             FA2I_SQL_VALUES(values), ret_id);
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_session_end(fa2i_cache *cache, int64_t session)
{
    const fa2i_sql_value values[] = {fa2i_sql_int(session)};
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st =
            fa2i_sql_run(cache, "UPDATE session SET ended_at = " FA2I_SQL_NOW " WHERE id = ?", FA2I_SQL_VALUES(values));
    return fa2i_sql_end(cache, st);
}

/* ---- kernels ---- */

fa2_status fa2i_row_kernel_id(fa2i_cache *cache, const fa2i_key *key, int64_t *ret_id)
{
    const fa2i_sql_value values[] = {fa2i_sql_key(key)};
    fa2_status st = fa2i_sql_number(cache, "SELECT id FROM kernel WHERE key = ?", FA2I_SQL_VALUES(values), ret_id);
    if (st == FA2_E_NOT_FOUND) {
        char hex[2 * FA2I_KEY_BYTES + 1];
        fa2i_key_format(key, hex);
        return fa2i_fail(FA2_E_NOT_FOUND, "%s: there is no kernel %s", cache->path, hex);
    }
    return st;
}

fa2_status fa2i_row_put_kernel(fa2i_cache *cache, const fa2i_kernel *kernel, int64_t *ret_id)
{
    const fa2i_variant *variant = &kernel->variant;
    const fa2i_sql_value values[] = {
        fa2i_sql_key(&kernel->key),        fa2i_sql_text(variant->text),
        fa2i_sql_text(variant->class_key), fa2i_sql_text(variant->recipe.text),
        fa2i_sql_text(kernel->target),     fa2i_sql_int(kernel->nvrtc),
        fa2i_sql_text(kernel->generator),  fa2i_sql_text(fa2i_outcome_string(kernel->outcome)),
        fa2i_sql_int(kernel->registers),   fa2i_sql_int(kernel->spill_bytes),
        fa2i_sql_real(kernel->compile_ms), fa2i_sql_text(kernel->log),
    };
    return fa2i_sql_number(cache,
                           "INSERT INTO kernel (key, variant, class, recipe, target, nvrtc, generator, outcome, "
                           "registers, spill_bytes, compile_ms, log) VALUES (?,?,?,?,?,?,?,?,?,?,?,?) "
                           "ON CONFLICT (key) DO UPDATE SET variant = excluded.variant, class = excluded.class, "
                           "recipe = excluded.recipe, target = excluded.target, nvrtc = excluded.nvrtc, "
                           "generator = excluded.generator, outcome = excluded.outcome, "
                           "registers = excluded.registers, spill_bytes = excluded.spill_bytes, "
                           "compile_ms = excluded.compile_ms, log = excluded.log RETURNING id",
                           FA2I_SQL_VALUES(values), ret_id);
}

/* Writes the row of this code. If it exists, its bytes are written again, because they may be damaged. */
static fa2_status put_code(fa2i_cache *cache, const fa2i_blob *image, int64_t *ret_id)
{
    fa2i_key hash;
    const fa2i_part part = {image->data, image->bytes};
    fa2i_key_of(&part, 1, &hash);
    const fa2i_sql_value values[] = {fa2i_sql_key(&hash), fa2i_sql_blob(image->data, image->bytes)};
    return fa2i_sql_number(cache,
                           "INSERT INTO code (hash, data) VALUES (?,?) "
                           "ON CONFLICT (hash) DO UPDATE SET data = excluded.data RETURNING id",
                           FA2I_SQL_VALUES(values), ret_id);
}

fa2_status fa2i_row_put_image(fa2i_cache *cache, int64_t id, const fa2i_kernel *kernel)
{
    fa2i_key seal;
    fa2i_seal_of(kernel, &seal);
    return fa2i_row_put_sealed(cache, id, &kernel->image, &seal);
}

fa2_status fa2i_row_put_sealed(fa2i_cache *cache, int64_t id, const fa2i_blob *image, const fa2i_key *seal)
{
    int64_t code = 0;
    const fa2i_sql_value old[] = {fa2i_sql_int(id)};
    fa2_status st = fa2i_sql_run(cache, "DELETE FROM image WHERE kernel = ?", FA2I_SQL_VALUES(old));
    if (st != FA2_OK || image->bytes == 0)
        return st;
    st = put_code(cache, image, &code);
    if (st != FA2_OK)
        return st;
    const fa2i_sql_value values[] = {fa2i_sql_int(id), fa2i_sql_int(code), fa2i_sql_key(seal),
                                     fa2i_sql_int(fa2i_cache_today())};
    return fa2i_sql_run(cache, "INSERT INTO image (kernel, code, seal, used) VALUES (?,?,?,?)",
                        FA2I_SQL_VALUES(values));
}

fa2_status fa2i_cache_put_kernel(fa2i_cache *cache, const fa2i_kernel *kernel)
{
    fa2_status st;
    int64_t id = 0;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(fa2i_size_limit_make_room(cache, kernel->image.bytes));
    FA2_TRY(fa2i_row_put_kernel(cache, kernel, &id));
    FA2_TRY(fa2i_row_put_image(cache, id, kernel));
done:
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_note_loaded(fa2i_cache *cache, const fa2i_kernel *kernel)
{
    fa2_status st;
    const fa2i_sql_value values[] = {fa2i_sql_int(kernel->registers), fa2i_sql_int(kernel->spill_bytes),
                                     fa2i_sql_key(&kernel->key)};
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(
        fa2i_sql_run(cache, "UPDATE kernel SET registers = ?, spill_bytes = ? WHERE key = ?", FA2I_SQL_VALUES(values)));
done:
    return fa2i_sql_end(cache, st);
}

static fa2_status copy_text(sqlite3_stmt *stmt, int column, char **ret_text)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    *ret_text = text != NULL ? fa2i_strdup(text) : NULL;
    return text == NULL || *ret_text != NULL ? FA2_OK : fa2i_fail(FA2_E_MEMORY, "out of memory");
}

/* Copies a blob and appends a NUL that its size does not count, because readers of PTX need one. */
static fa2_status copy_blob(sqlite3_stmt *stmt, int column, fa2i_blob *ret_blob)
{
    /* sqlite3_column_blob first, as its documentation asks */
    const void *data = sqlite3_column_blob(stmt, column);
    size_t bytes = (size_t)sqlite3_column_bytes(stmt, column);
    char *copy = fa2i_alloc(bytes + 1); /* zeroed */
    if (copy == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory");
    if (bytes > 0)
        memcpy(copy, data, bytes);
    *ret_blob = (fa2i_blob){copy, bytes};
    return FA2_OK;
}

bool fa2i_row_has_generator(sqlite3_stmt *stmt, int column)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    return text != NULL &&
           fa2i_rule_takes_text(fa2i_rule_of("kernel", "generator"), text, (size_t)sqlite3_column_bytes(stmt, column));
}

fa2_status fa2i_row_read_kernel(const fa2i_cache *cache, sqlite3_stmt *stmt, fa2i_kernel *ret_kernel)
{
    const char *recipe = (const char *)sqlite3_column_text(stmt, 3);
    fa2i_kernel kernel = {
        .nvrtc = sqlite3_column_int(stmt, 5),
        .registers = sqlite3_column_int(stmt, 8),
        .spill_bytes = sqlite3_column_int(stmt, 9),
        .compile_ms = sqlite3_column_double(stmt, 10),
    };
    const void *key = sqlite3_column_blob(stmt, 0);
    if (key == NULL || sqlite3_column_bytes(stmt, 0) != FA2I_KEY_BYTES ||
        !fa2i_sql_column_outcome(stmt, 7, &kernel.outcome) || !fa2i_row_has_generator(stmt, 6) ||
        kernel.registers < 0 || kernel.spill_bytes < 0)
        return fa2i_fail(FA2_E_NOT_FOUND, "%s: the kernel is damaged; see fa2-tune check", cache->path);
    memcpy(kernel.key.bytes, key, FA2I_KEY_BYTES);
    fa2i_sql_column_text(stmt, 1, kernel.variant.text, sizeof kernel.variant.text);
    fa2i_sql_column_text(stmt, 2, kernel.variant.class_key, sizeof kernel.variant.class_key);
    (void)fa2i_recipe_parse(recipe != NULL ? recipe : "", &kernel.variant.recipe); /* or it is empty */
    fa2i_sql_column_text(stmt, 4, kernel.target, sizeof kernel.target);
    fa2i_sql_column_text(stmt, 6, kernel.generator, sizeof kernel.generator);
    const fa2_status st = copy_text(stmt, 11, &kernel.log);
    if (st == FA2_OK)
        *ret_kernel = kernel;
    return st;
}

void fa2i_row_report_unused(fa2i_cache *cache, const fa2i_key *key, const char *what, const char *remedy)
{
    char hex[2 * FA2I_KEY_BYTES + 1];
    char message[512];
    bool known = false;
    pthread_mutex_lock(&cache->mutex);
    for (size_t i = 0; i < cache->reported_count; i++)
        known = known || memcmp(&cache->reported[i], key, sizeof *key) == 0;
    fa2i_key *grown =
        known ? NULL : fa2i_realloc(cache->reported, (cache->reported_count + 1) * sizeof *cache->reported);
    if (grown != NULL) { /* without memory, the log may be told twice */
        cache->reported = grown;
        cache->reported[cache->reported_count++] = *key;
    }
    pthread_mutex_unlock(&cache->mutex);
    if (known || cache->log == NULL)
        return;
    fa2i_key_format(key, hex);
    fa2i_shown_write(message, sizeof message, "%s: kernel %s %s; %s", cache->path, hex, what, remedy);
    cache->log(cache->log_user, message);
}

/* Removes a damaged image. A failure does not matter, because the next reader also finds the damage. */
static void drop_damaged_image(fa2i_cache *cache, const fa2i_key *key)
{
    const fa2i_sql_value values[] = {fa2i_sql_key(key)};
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_WRITE);
    if (st == FA2_OK)
        st = fa2i_sql_run(cache, "DELETE FROM image WHERE kernel IN (" FA2I_DAMAGED_IMAGES " AND k.key = ?)",
                          FA2I_SQL_VALUES(values));
    (void)fa2i_sql_end(cache, st);
}

static fa2_status no_kernel(const fa2i_cache *cache, const fa2i_key *key, const char *which)
{
    char hex[2 * FA2I_KEY_BYTES + 1];
    fa2i_key_format(key, hex);
    return fa2i_fail(FA2_E_NOT_FOUND, "%s: there is no kernel %s%s", cache->path, hex, which);
}

/* With with_image, three columns follow the kernel's: seal, code (NULL if it is lost), day of the last use. */
static fa2_status select_kernel(fa2i_cache *cache, const fa2i_key *key, bool with_image, sqlite3_stmt **ret_stmt)
{
    const fa2i_sql_value values[] = {fa2i_sql_key(key)};
    const char *sql = with_image ? "SELECT " FA2I_KERNEL_COLUMNS ", i.seal, c.data, i.used FROM kernel k "
                                   "JOIN image i ON i.kernel = k.id LEFT JOIN code c ON c.id = i.code WHERE k.key = ?"
                                 : "SELECT " FA2I_KERNEL_COLUMNS " FROM kernel k WHERE k.key = ?";
    fa2_status st = fa2i_sql_row(cache, sql, FA2I_SQL_VALUES(values), ret_stmt);
    return st == FA2_E_NOT_FOUND ? no_kernel(cache, key, with_image ? " with code" : "") : st;
}

/* Reads the image from select_kernel's row. *ret_damaged: it does not match its seal. */
static fa2_status read_image(sqlite3_stmt *stmt, fa2i_kernel *kernel, bool *ret_damaged)
{
    fa2i_key seal;
    fa2_status st = copy_blob(stmt, FA2I_KERNEL_COLUMN_COUNT + 1, &kernel->image);
    if (st != FA2_OK)
        return st;
    kernel->used_day = sqlite3_column_int(stmt, FA2I_KERNEL_COLUMN_COUNT + 2);
    fa2i_seal_of(kernel, &seal);
    const void *stored = sqlite3_column_blob(stmt, FA2I_KERNEL_COLUMN_COUNT);
    *ret_damaged = stored == NULL || sqlite3_column_bytes(stmt, FA2I_KERNEL_COLUMN_COUNT) != FA2I_KEY_BYTES ||
                   memcmp(stored, seal.bytes, FA2I_KEY_BYTES) != 0;
    return FA2_OK;
}

/* Is the row that was found the one that was asked for? It may be another one if an index is damaged. */
static bool is_usable(const fa2i_kernel *kernel, const fa2i_key *key)
{
    return memcmp(&kernel->key, key, sizeof *key) == 0 && kernel->variant.recipe.step_count > 0;
}

fa2_status fa2i_cache_get_kernel(fa2i_cache *cache, const fa2i_key *key, int abi, bool with_image,
                                 fa2i_kernel *ret_kernel)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_kernel kernel = {0};
    bool damaged = false;
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(select_kernel(cache, key, with_image, &stmt));
    st = fa2i_row_read_kernel(cache, stmt, &kernel);
    if (st != FA2_E_NOT_FOUND) /* FA2_E_NOT_FOUND: the row is damaged; it counts as missing */
        FA2_TRY(st);
    st = FA2_OK;
    damaged = !is_usable(&kernel, key);
    if (with_image && !damaged)
        FA2_TRY(read_image(stmt, &kernel, &damaged));
    if (!damaged && kernel.variant.recipe.abi != abi)
        st = no_kernel(cache, key, " that this fa2 knows how to launch");
done:
    st = fa2i_sql_close(cache, stmt, st);
    if (st == FA2_OK && damaged) {
        fa2i_row_report_unused(cache, key, "is damaged and is not used", "see fa2-tune check");
        drop_damaged_image(cache, key);
        st = fa2i_fail(FA2_E_NOT_FOUND, "%s: the kernel is damaged", cache->path);
    }
    if (st == FA2_OK)
        *ret_kernel = kernel;
    else
        fa2i_kernel_done(&kernel);
    return st;
}
