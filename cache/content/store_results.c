/*
 * Stores what a tuning found out about a problem: measurements and the winner. The times of a search, the variants that
 * it left out and its winner are one transaction, which waits for the disk once.
 */
#include "cache/internal.h"
#include "cache/database/rules.h"

/* ---- inside a transaction ---- */

static fa2_status check_measurement(const fa2i_measurement *measurement)
{
    const char *fault = fa2i_measurement_fault(measurement);
    return fault == NULL ? FA2_OK
                         : fa2i_fail(FA2_E_INVALID, "a measurement of %d samples of %g us is not stored: %s",
                                     measurement->n, measurement->median_us, fault);
}

static fa2_status put_measurement(fa2i_cache *cache, const fa2i_results_of *of, const fa2i_key *kernel,
                                  const fa2i_measurement *measurement)
{
    fa2_status st = FA2_OK;
    int64_t id = 0;
    FA2_TRY(fa2i_row_kernel_id(cache, kernel, &id));
    const fa2i_sql_value values[] = {
        fa2i_sql_int(of->device),
        fa2i_sql_int(of->problem),
        fa2i_sql_int(id),
        fa2i_sql_int(of->session),
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
    st = fa2i_sql_run(cache,
                      "INSERT OR REPLACE INTO measurement (device, problem, kernel, session, outcome, settled, n, "
                      "min_us, q1_us, median_us, q3_us, max_error, detail, measured_at) "
                      "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?," FA2I_SQL_NOW ")",
                      FA2I_SQL_VALUES(values));
done:
    return st;
}

static fa2_status check_winner(const fa2i_winner *winner)
{
    const char *fault = fa2i_winner_fault(winner);
    return fault == NULL
               ? FA2_OK
               : fa2i_fail(FA2_E_INVALID, "a winner of %g us (default %g us, cost model %g us) is not stored: %s",
                           winner->median_us, winner->default_us, winner->model_us, fault);
}

static fa2_status put_winner(fa2i_cache *cache, const fa2i_results_of *of, const fa2i_winner *winner)
{
    fa2_status st = FA2_OK;
    int64_t id = 0;
    FA2_TRY(fa2i_row_kernel_id(cache, &winner->kernel, &id));
    const fa2i_sql_value values[] = {
        fa2i_sql_int(of->device),          fa2i_sql_int(of->problem),       fa2i_sql_int(id),
        fa2i_sql_int(of->session),         fa2i_sql_int(winner->measured),  fa2i_sql_real(winner->median_us),
        fa2i_sql_real(winner->default_us), fa2i_sql_real(winner->model_us),
    };
    st = fa2i_sql_run(cache,
                      "INSERT OR REPLACE INTO winner (device, problem, kernel, session, measured, "
                      "median_us, default_us, model_us, tuned_at) VALUES (?,?,?,?,?,?,?,?," FA2I_SQL_NOW ")",
                      FA2I_SQL_VALUES(values));
done:
    return st;
}

/* Stores the record of a kernel that was never compiled, unless there is one. */
static fa2_status note_kernel(fa2i_cache *cache, const fa2i_kernel *kernel, size_t *new_count)
{
    int64_t id = 0;
    fa2_status st = fa2i_row_kernel_id(cache, &kernel->key, &id);
    if (st != FA2_E_NOT_FOUND)
        return st;
    *new_count += 1;
    return fa2i_row_put_kernel(cache, kernel, &id);
}

/* ---- one transaction ---- */

fa2_status fa2i_cache_put_results(fa2i_cache *cache, const fa2i_results_of *of, const fa2i_result *results,
                                  size_t count, const fa2i_winner *winner, size_t *ret_noted)
{
    fa2_status st = FA2_OK;
    size_t noted = 0;
    for (size_t i = 0; st == FA2_OK && i < count; i++)
        st = check_measurement(&results[i].measurement);
    if (st == FA2_OK && winner != NULL)
        st = check_winner(winner);
    if (st != FA2_OK)
        return st;

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_WRITE));
    for (size_t i = 0; i < count; i++) {
        if (results[i].record != NULL)
            FA2_TRY(note_kernel(cache, results[i].record, &noted));
        if (results[i].verdict != NULL)
            FA2_TRY(fa2i_row_put_verification(cache, of->device, &results[i].kernel, results[i].verdict));
        FA2_TRY(put_measurement(cache, of, &results[i].kernel, &results[i].measurement));
    }
    if (winner != NULL)
        FA2_TRY(put_winner(cache, of, winner));
done:
    st = fa2i_sql_end(cache, st);
    if (st == FA2_OK && ret_noted != NULL)
        *ret_noted = noted;
    return st;
}

fa2_status fa2i_cache_put_winner(fa2i_cache *cache, int64_t session, int64_t device, int64_t problem,
                                 const fa2i_winner *winner)
{
    const fa2i_results_of of = {.session = session, .device = device, .problem = problem};
    return fa2i_cache_put_results(cache, &of, NULL, 0, winner, NULL);
}
