/*
 * What was found out about kernels: verifications, measurements, winners, and the choices among
 * them.
 */
#include "cache/internal.h"

#include <string.h>
#include "runtime/base/alloc.h"

/* ---- verification ---- */

fa2_status fa2i_cache_put_verification(fa2i_cache *cache, int64_t device, const fa2i_key *kernel,
                                       const fa2i_verification *verification)
{
    fa2_status st;
    int64_t id = 0;

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(fa2i_row_kernel_id(cache, kernel, &id));
    const fa2i_sql_value values[] = {fa2i_sql_int(device), fa2i_sql_int(id),
                                     fa2i_sql_text(fa2i_outcome_string(verification->outcome)),
                                     fa2i_sql_real(verification->max_error),
                                     fa2i_sql_text(verification->detail)};
    FA2_TRY(fa2i_sql_run(cache,
                         "INSERT OR REPLACE INTO verification (device, kernel, outcome, max_error, "
                         "detail, verified_at) VALUES (?,?,?,?,?," FA2I_SQL_NOW ")",
                         FA2I_SQL_VALUES(values)));
done:
    return fa2i_sql_end(cache, st);
}

static fa2_status not_found(const fa2i_cache *cache, fa2_status st, const char *what)
{
    return st == FA2_E_NOT_FOUND ? fa2i_fail(st, "%s: there is no %s", cache->path, what) : st;
}

fa2_status fa2i_cache_get_verification(fa2i_cache *cache, int64_t device, const fa2i_key *kernel,
                                       fa2i_verification *ret_verification)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_verification found = {0};
    const fa2i_sql_value values[] = {fa2i_sql_int(device), fa2i_sql_key(kernel)};

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    st = fa2i_sql_row(cache,
                      "SELECT v.outcome, v.max_error, v.detail FROM verification v "
                      "JOIN kernel k ON k.id = v.kernel WHERE v.device = ? AND k.key = ?",
                      FA2I_SQL_VALUES(values), &stmt);
    FA2_TRY(not_found(cache, st, "verification of this kernel on this device"));
    FA2_TRY(fa2i_sql_column_outcome(cache, stmt, 0, &found.outcome));
    found.max_error = fa2i_sql_column_error(stmt, 1);
    fa2i_sql_column_text(stmt, 2, found.detail, sizeof found.detail);
done:
    sqlite3_finalize(stmt);
    st = fa2i_sql_end(cache, st);
    if (st == FA2_OK)
        *ret_verification = found;
    return st;
}

fa2_status fa2i_cache_is_refuted(fa2i_cache *cache, const fa2i_key *kernel, bool *ret_refuted)
{
    const fa2i_sql_value values[] = {fa2i_sql_key(kernel)};
    int64_t refuted = 0;
    fa2_status st = fa2i_sql_begin(cache, FA2I_CACHE_READ);
    if (st == FA2_OK)
        st = fa2i_sql_number(cache,
                             "SELECT EXISTS (SELECT 1 FROM verification v JOIN kernel k "
                             "ON k.id = v.kernel WHERE k.key = ? AND v.outcome <> 'ok')",
                             FA2I_SQL_VALUES(values), &refuted);
    st = fa2i_sql_end(cache, st);
    if (st == FA2_OK)
        *ret_refuted = refuted != 0;
    return st;
}

/* ---- measurements ---- */

fa2_status fa2i_cache_put_measurement(fa2i_cache *cache, int64_t session, int64_t device,
                                      int64_t problem, const fa2i_key *kernel,
                                      const fa2i_measurement *measurement)
{
    fa2_status st;
    int64_t id = 0;

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(fa2i_row_kernel_id(cache, kernel, &id));
    const fa2i_sql_value values[] = {
        fa2i_sql_int(device),
        fa2i_sql_int(problem),
        fa2i_sql_int(id),
        fa2i_sql_int(session),
        fa2i_sql_text(fa2i_outcome_string(measurement->outcome)),
        fa2i_sql_int(measurement->settled),
        fa2i_sql_int(measurement->n),
        fa2i_sql_real(measurement->min_us),
        fa2i_sql_real(measurement->q1_us),
        fa2i_sql_real(measurement->median_us),
        fa2i_sql_real(measurement->q3_us),
        fa2i_sql_real(measurement->max_error),
        fa2i_sql_text(measurement->detail),
    };
    FA2_TRY(fa2i_sql_run(cache,
                         "INSERT OR REPLACE INTO measurement (device, problem, kernel, session, "
                         "outcome, settled, n, "
                         "min_us, q1_us, median_us, q3_us, max_error, detail, measured_at) "
                         "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?," FA2I_SQL_NOW ")",
                         FA2I_SQL_VALUES(values)));
done:
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_get_measurement(fa2i_cache *cache, int64_t device, int64_t problem,
                                      const fa2i_key *kernel, fa2i_measurement *ret_measurement)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_measurement found = {0};
    const fa2i_sql_value values[] = {fa2i_sql_int(device), fa2i_sql_int(problem),
                                     fa2i_sql_key(kernel)};

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    st = fa2i_sql_row(cache,
                      "SELECT m.outcome, m.settled, m.n, m.min_us, m.q1_us, m.median_us, m.q3_us, "
                      "m.max_error, m.detail FROM measurement m JOIN kernel k ON k.id = m.kernel "
                      "WHERE m.device = ? AND m.problem = ? AND k.key = ?",
                      FA2I_SQL_VALUES(values), &stmt);
    FA2_TRY(not_found(cache, st, "measurement of this kernel on this problem"));
    FA2_TRY(fa2i_sql_column_outcome(cache, stmt, 0, &found.outcome));
    found.settled = sqlite3_column_int(stmt, 1) != 0;
    found.n = sqlite3_column_int(stmt, 2);
    found.min_us = sqlite3_column_double(stmt, 3);
    found.q1_us = sqlite3_column_double(stmt, 4);
    found.median_us = sqlite3_column_double(stmt, 5);
    found.q3_us = sqlite3_column_double(stmt, 6);
    found.max_error = fa2i_sql_column_error(stmt, 7);
    fa2i_sql_column_text(stmt, 8, found.detail, sizeof found.detail);
done:
    sqlite3_finalize(stmt);
    st = fa2i_sql_end(cache, st);
    if (st == FA2_OK)
        *ret_measurement = found;
    return st;
}

/* ---- winners ---- */

fa2_status fa2i_cache_put_winner(fa2i_cache *cache, int64_t session, int64_t device,
                                 int64_t problem, const fa2i_winner *winner)
{
    fa2_status st;
    int64_t id = 0;

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    FA2_TRY(fa2i_row_kernel_id(cache, &winner->kernel, &id));
    const fa2i_sql_value values[] = {
        fa2i_sql_int(device),
        fa2i_sql_int(problem),
        fa2i_sql_int(id),
        fa2i_sql_int(session),
        fa2i_sql_int(winner->measured),
        fa2i_sql_real(winner->median_us),
        fa2i_sql_real(winner->default_us),
        fa2i_sql_real(winner->model_us),
    };
    FA2_TRY(
        fa2i_sql_run(cache,
                     "INSERT OR REPLACE INTO winner (device, problem, kernel, session, measured, "
                     "median_us, default_us, model_us, tuned_at) "
                     "VALUES (?,?,?,?,?,?,?,?," FA2I_SQL_NOW ")",
                     FA2I_SQL_VALUES(values)));
done:
    return fa2i_sql_end(cache, st);
}

#define WINNER_COLUMNS "k.key, w.measured, w.median_us, w.default_us, w.model_us"
enum { WINNER_COLUMN_COUNT = 5 };

static void read_winner(sqlite3_stmt *stmt, fa2i_winner *ret_winner)
{
    fa2i_winner winner = {
        .measured = sqlite3_column_int(stmt, 1) != 0,
        .median_us = sqlite3_column_double(stmt, 2),
        .default_us = sqlite3_column_double(stmt, 3),
        .model_us = sqlite3_column_double(stmt, 4),
    };
    const void *key = sqlite3_column_blob(stmt, 0);
    if (key != NULL && sqlite3_column_bytes(stmt, 0) == FA2I_KEY_BYTES)
        memcpy(winner.kernel.bytes, key, FA2I_KEY_BYTES); /* else zeros, which no kernel has */
    *ret_winner = winner;
}

fa2_status fa2i_cache_get_winner(fa2i_cache *cache, int64_t device, int64_t problem,
                                 fa2i_winner *ret_winner)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_winner found = {0};
    const fa2i_sql_value values[] = {fa2i_sql_int(device), fa2i_sql_int(problem)};

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    st = fa2i_sql_row(cache,
                      "SELECT " WINNER_COLUMNS " FROM winner w JOIN kernel k ON k.id = w.kernel "
                      "WHERE w.device = ? AND w.problem = ?",
                      FA2I_SQL_VALUES(values), &stmt);
    FA2_TRY(not_found(cache, st, "winner for this problem on this device"));
    read_winner(stmt, &found);
done:
    sqlite3_finalize(stmt);
    st = fa2i_sql_end(cache, st);
    if (st == FA2_OK)
        *ret_winner = found;
    return st;
}

/* ---- choices ---- */

/* The problem is the requested one but for what the kernel takes at run time. */
static void read_choice(sqlite3_stmt *stmt, int arch, const fa2_problem *problem,
                        fa2i_choice *choice)
{
    const int c = WINNER_COLUMN_COUNT;
    read_winner(stmt, &choice->winner);
    choice->problem = *problem;
    choice->problem.batch = sqlite3_column_int(stmt, c);
    choice->problem.heads_q = sqlite3_column_int(stmt, c + 1);
    choice->problem.heads_kv = sqlite3_column_int(stmt, c + 2);
    choice->problem.seq_q = sqlite3_column_int(stmt, c + 3);
    choice->problem.seq_k = sqlite3_column_int(stmt, c + 4);
    fa2i_sql_column_text(stmt, c + 5, choice->device, sizeof choice->device);
    choice->arch = arch;
    choice->sm_count = sqlite3_column_int(stmt, c + 6);
    choice->smem_block_bytes = sqlite3_column_int64(stmt, c + 7);
    choice->l2_bytes = sqlite3_column_int64(stmt, c + 8);
    choice->real = sqlite3_column_int(stmt, c + 9) != 0;
    choice->smem_bytes = sqlite3_column_int(stmt, c + 10);
}

static const char choices_sql[] =
    "SELECT " WINNER_COLUMNS ", p.batch, p.heads_q, p.heads_kv, p.seq_q, p.seq_k, d.name, "
    "d.sm_count, d.smem_block_bytes, d.l2_bytes, d.real, k.smem_bytes FROM winner w "
    "JOIN device d ON d.id = w.device JOIN problem p ON p.id = w.problem "
    "JOIN kernel k ON k.id = w.kernel "
    "WHERE d.arch = ? AND p.op = ? AND p.dtype = ? AND p.head_dim = ? AND p.causal = ? "
    "AND k.launch_abi = ? AND k.outcome IN ('ok', 'spilled') "
    "AND EXISTS (SELECT 1 FROM image WHERE kernel = k.id) "
    "AND NOT EXISTS (SELECT 1 FROM verification WHERE kernel = k.id AND outcome <> 'ok') "
    "ORDER BY w.measured DESC, d.real DESC, d.name, p.seq_q, p.seq_k, p.batch, p.heads_q, "
    "p.heads_kv, d.id";

/* Append; the array grows by doubling. */
static fa2_status grow(fa2i_choice **choices, size_t count, size_t *capacity)
{
    if (count < *capacity)
        return FA2_OK;
    size_t wanted = *capacity == 0 ? 16 : 2 * *capacity;
    fa2i_choice *grown = fa2i_realloc(*choices, wanted * sizeof *grown);
    if (grown == NULL)
        return fa2i_fail(FA2_E_MEMORY, "out of memory");
    *choices = grown;
    *capacity = wanted;
    return FA2_OK;
}

fa2_status fa2i_cache_choices(fa2i_cache *cache, int arch, const fa2_problem *problem,
                              int launch_abi, fa2i_choice **ret_choices, size_t *ret_count)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    fa2i_choice *choices = NULL;
    size_t count = 0;
    size_t capacity = 0;
    bool row = false;
    const fa2i_sql_value values[] = {
        fa2i_sql_int(arch),
        fa2i_sql_text(fa2i_row_op_string(problem->op)),
        fa2i_sql_text(fa2i_dtype_string(problem->dtype)),
        fa2i_sql_int(problem->head_dim),
        fa2i_sql_int(problem->causal),
        fa2i_sql_int(launch_abi),
    };

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_sql_prepare(cache, choices_sql, FA2I_SQL_VALUES(values), &stmt));
    FA2_TRY(fa2i_sql_step(cache, stmt, &row));
    for (; row; count++) {
        FA2_TRY(grow(&choices, count, &capacity));
        read_choice(stmt, arch, problem, &choices[count]);
        FA2_TRY(fa2i_sql_step(cache, stmt, &row));
    }
done:
    sqlite3_finalize(stmt);
    st = fa2i_sql_end(cache, st);
    if (st != FA2_OK) {
        fa2i_free(choices);
        return st;
    }
    *ret_choices = choices;
    *ret_count = count;
    return FA2_OK;
}
