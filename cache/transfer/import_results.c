/*
 * Verifications, measurements and winners of an export. Results of a kernel that was passed over are passed over, too.
 */
#include "cache/transfer/import.h"

#include "cache/database/rules.h"
#include "cache/transfer/sound.h"

/* The rows that a result's line refers to. */
typedef struct references {
    int64_t device, problem, session, kernel;
} references;

fa2_status fa2i_import_verification(fa2i_import *in)
{
    fa2_status st;
    fa2i_verification verification;
    int64_t id = 0;
    char verified_at[32];
    FA2_TRY(fa2i_import_id(in, "device", &id));
    FA2_TRY(fa2i_import_kernel_id(in, &id));
    FA2_TRY(fa2i_members_outcome(&in->members, "outcome", &verification.outcome));
    FA2_TRY(fa2i_members_real(&in->members, "max_error", &verification.max_error));
    FA2_TRY(fa2i_members_remark(&in->members, "detail", verification.detail, sizeof verification.detail));
    FA2_TRY(fa2i_members_text(&in->members, "verified_at", verified_at, sizeof verified_at));
done:
    return st;
}

static const char fits_sql[] = "SELECT k.class = p.class AND s.device = d.id AND " FA2I_TARGET_FITS
                               " FROM kernel k, problem p, session s, device d "
                               "WHERE k.id = ?1 AND p.id = ?2 AND s.id = ?3 AND d.id = ?4";

/* Reads the device, problem, session and kernel of a result, which must fit together. If the kernel was passed over, it
 * reads none. */
static fa2_status read_references(fa2i_import *in, references *ret)
{
    fa2_status st;
    references refs = {0};
    int64_t fits = 0;
    FA2_TRY(fa2i_import_id(in, "device", &refs.device));
    FA2_TRY(fa2i_import_id(in, "problem", &refs.problem));
    FA2_TRY(fa2i_import_id(in, "session", &refs.session));
    FA2_TRY(fa2i_import_kernel_id(in, &refs.kernel));
    if (in->is_unknown)
        goto done;
    const fa2i_sql_value values[] = {fa2i_sql_int(refs.kernel), fa2i_sql_int(refs.problem), fa2i_sql_int(refs.session),
                                     fa2i_sql_int(refs.device)};
    FA2_TRY(fa2i_sql_number(in->cache, fits_sql, FA2I_SQL_VALUES(values), &fits));
    if (fits == 0)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "the kernel is of another class than the problem or for another SM than the "
                                         "device's, or the session is of another device"));
    *ret = refs;
done:
    return st;
}

static fa2_status refuse_fault(const char *fault)
{
    return fault == NULL ? FA2_OK : fa2i_fail(FA2_E_INVALID, "%s", fault);
}

fa2_status fa2i_import_measurement(fa2i_import *in)
{
    fa2_status st;
    references refs = {0};
    fa2i_measurement m = {0};
    char measured_at[32];
    FA2_TRY(read_references(in, &refs));
    if (in->is_unknown)
        goto done;
    FA2_TRY(fa2i_members_outcome(&in->members, "outcome", &m.outcome));
    FA2_TRY(fa2i_members_bool(&in->members, "settled", &m.settled)); /* checked, and not kept */
    FA2_TRY(fa2i_members_int(&in->members, "n", &m.n));
    FA2_TRY(fa2i_members_real(&in->members, "min_us", &m.min_us));
    FA2_TRY(fa2i_members_real(&in->members, "q1_us", &m.q1_us));
    FA2_TRY(fa2i_members_real(&in->members, "median_us", &m.median_us));
    FA2_TRY(fa2i_members_real(&in->members, "q3_us", &m.q3_us));
    FA2_TRY(fa2i_members_real(&in->members, "max_error", &m.max_error));
    FA2_TRY(fa2i_members_remark(&in->members, "detail", m.detail, sizeof m.detail));
    FA2_TRY(fa2i_members_text(&in->members, "measured_at", measured_at, sizeof measured_at));
    FA2_TRY(refuse_fault(fa2i_measurement_fault(&m)));
    const fa2i_sql_value values[] = {fa2i_sql_int(refs.device),
                                     fa2i_sql_int(refs.problem),
                                     fa2i_sql_int(refs.kernel),
                                     fa2i_sql_int(refs.session),
                                     fa2i_sql_text(fa2i_outcome_string(m.outcome)),
                                     fa2i_sql_int(false),
                                     fa2i_sql_int(m.n),
                                     fa2i_sql_real(m.min_us),
                                     fa2i_sql_real(m.q1_us),
                                     fa2i_sql_real(m.median_us),
                                     fa2i_sql_real(m.q3_us),
                                     fa2i_sql_real(m.max_error),
                                     fa2i_sql_text(m.detail),
                                     fa2i_sql_text(measured_at)};
    FA2_TRY(fa2i_sql_run(in->cache,
                         "INSERT INTO measurement (device, problem, kernel, session, outcome, settled, "
                         "n, min_us, q1_us, median_us, q3_us, max_error, detail, measured_at) "
                         "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
                         FA2I_SQL_VALUES(values)));
done:
    return st;
}

fa2_status fa2i_import_winner(fa2i_import *in)
{
    fa2_status st;
    references refs = {0};
    fa2i_winner w = {0};
    char tuned_at[32];
    FA2_TRY(read_references(in, &refs));
    if (in->is_unknown)
        goto done;
    FA2_TRY(fa2i_members_bool(&in->members, "measured", &w.measured));
    FA2_TRY(fa2i_members_real(&in->members, "median_us", &w.median_us));
    FA2_TRY(fa2i_members_real(&in->members, "default_us", &w.default_us));
    FA2_TRY(fa2i_members_real(&in->members, "model_us", &w.model_us));
    FA2_TRY(fa2i_members_text(&in->members, "tuned_at", tuned_at, sizeof tuned_at));
    FA2_TRY(refuse_fault(fa2i_winner_fault(&w)));
    const fa2i_sql_value values[] = {
        fa2i_sql_int(refs.device),   fa2i_sql_int(refs.problem), fa2i_sql_int(refs.kernel),
        fa2i_sql_int(refs.session),  fa2i_sql_int(w.measured),   fa2i_sql_real(w.median_us),
        fa2i_sql_real(w.default_us), fa2i_sql_real(w.model_us),  fa2i_sql_text(tuned_at)};
    FA2_TRY(fa2i_sql_run(in->cache,
                         "INSERT INTO winner (device, problem, kernel, session, measured, median_us, "
                         "default_us, model_us, tuned_at) VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
                         FA2I_SQL_VALUES(values)));
done:
    return st;
}
