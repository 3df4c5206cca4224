/*
 * The database as JSON lines: parameters and measurements, no code.
 *
 * The format, one object per line, UTF-8:
 *
 *     {"fa2_export":2,"schema":2}                         first; 2 is the version of this format
 *     {"type":"device","id":..., ...}                     ids mean something in this file only
 *     {"type":"problem","id":..., ...}
 *     {"type":"session","id":...,"device":id, ...}
 *     {"type":"kernel","key":hex, ...}                    kernels are known by their key
 *     {"type":"verification","device":id,"kernel":hex, ...}
 *     {"type":"measurement","device":id,"problem":id,"session":id,"kernel":hex, ...}
 *     {"type":"winner","device":id,"problem":id,"session":id,"kernel":hex, ...}
 *
 * A line refers only to lines above it. Names, units and meanings are those of the tables.
 * All lines are one snapshot, in a fixed order: the same database gives the same bytes.
 */
#include "cache/report.h"

#include <errno.h>
#include <string.h>
#include "cache/internal.h"

static const char *const queries[] = {
    "SELECT json_object('fa2_export', 2, 'schema', user_version) FROM pragma_user_version",

    "SELECT json_object('type', 'device', 'id', id, 'name', name, 'arch', arch, 'sm_count', "
    "sm_count, "
    "'smem_block_bytes', smem_block_bytes, 'smem_sm_bytes', smem_sm_bytes, 'l2_bytes', l2_bytes, "
    "'clock_khz', clock_khz, 'bandwidth_bytes', bandwidth_bytes, 'real', real) "
    "FROM device ORDER BY id",

    "SELECT json_object('type', 'problem', 'id', id"
#define FA2I_FIELD(name, ...) ", '" #name "', " #name
#include "runtime/base/problem.def"
#undef FA2I_FIELD
    ") FROM problem ORDER BY id",

    "SELECT json_object('type', 'session', 'id', id, 'device', device, 'driver', driver, "
    "'nvrtc', nvrtc, 'generator', generator, 'started_at', started_at) FROM session ORDER BY id",

    "SELECT json_object('type', 'kernel', 'key', lower(hex(key)), 'variant', variant, "
    "'class', class, 'recipe', recipe, 'target', target, 'nvrtc', nvrtc, 'generator', generator, "
    "'outcome', outcome, 'registers', registers, 'spill_bytes', spill_bytes, "
    "'compile_ms', compile_ms) FROM kernel ORDER BY id",

    "SELECT json_object('type', 'verification', 'device', v.device, 'kernel', lower(hex(k.key)), "
    "'outcome', v.outcome, 'max_error', v.max_error, 'detail', v.detail, "
    "'verified_at', v.verified_at) "
    "FROM verification v JOIN kernel k ON k.id = v.kernel ORDER BY v.device, k.id",

    "SELECT json_object('type', 'measurement', 'device', m.device, 'problem', m.problem, "
    "'session', m.session, 'kernel', lower(hex(k.key)), 'outcome', m.outcome, 'settled', "
    "m.settled, "
    "'n', m.n, 'min_us', m.min_us, 'q1_us', m.q1_us, 'median_us', m.median_us, 'q3_us', m.q3_us, "
    "'max_error', m.max_error, 'detail', m.detail, 'measured_at', m.measured_at) "
    "FROM measurement m JOIN kernel k ON k.id = m.kernel ORDER BY m.device, m.problem, k.id",

    "SELECT json_object('type', 'winner', 'device', w.device, 'problem', w.problem, "
    "'session', w.session, 'kernel', lower(hex(k.key)), 'measured', w.measured, "
    "'median_us', w.median_us, 'default_us', w.default_us, 'model_us', w.model_us, "
    "'tuned_at', w.tuned_at) "
    "FROM winner w JOIN kernel k ON k.id = w.kernel ORDER BY w.device, w.problem",
};

static fa2_status write_lines(fa2i_cache *cache, const char *sql, FILE *out, size_t *rows)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    bool row = false;

    FA2_TRY(fa2i_sql_prepare(cache, sql, NULL, 0, &stmt));
    FA2_TRY(fa2i_sql_step(cache, stmt, &row));
    for (; row; (*rows)++) {
        fprintf(out, "%s\n", (const char *)sqlite3_column_text(stmt, 0));
        FA2_TRY(fa2i_sql_step(cache, stmt, &row));
    }
done:
    sqlite3_finalize(stmt);
    return st;
}

fa2_status fa2i_cache_export(fa2i_cache *cache, FILE *out, size_t *ret_rows)
{
    fa2_status st;
    size_t lines = 0;

    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_sql_need_json(cache));
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++)
        FA2_TRY(write_lines(cache, queries[i], out, &lines));
    if (fflush(out) != 0 || ferror(out)) {
        st = fa2i_fail(FA2_E_IO, "cannot write the export (%s)", strerror(errno));
        goto done;
    }
    if (ret_rows != NULL)
        *ret_rows = lines - 1; /* the header is no row */
done:
    return fa2i_sql_end(cache, st);
}
