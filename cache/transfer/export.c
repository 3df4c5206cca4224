/*
 * Writes the database as JSON lines: parameters and measurements, and code only if it is asked for.
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
 *     {"type":"code","kernel":hex,"at":0,"bytes":N,"seal":hex,"hex":"7f454c46..."}
 *                                                         with code: that of kernels which a call takes, winners and
 *                                                         the cost model's answers. A kernel takes several lines,
 *                                                         because a line has a limit. Code that does not match its
 *                                                         seal is left out
 *     {"type":"end","rows":N,"sha256":hex}                last: the number of lines between the first and this one,
 *                                                         and the hash of all bytes above this line
 *
 * After the last line there may be lines {"fa2_report":..., ...}; import passes over them. A line refers only to lines
 * above it. Names, units and meanings are the same as in the tables. All lines are one snapshot, in a fixed order: the
 * same database gives the same bytes. Rows that are not valid are left out, because import would refuse the file.
 * Format 1 had other members in a kernel's line, and no line at the end.
 */
#include "cache/content/report.h"

#include <errno.h>
#include <sha2.h>
#include <string.h>
#include "cache/transfer/sound.h"
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"

static const char header_query[] =
    "SELECT json_object('fa2_export', ?, 'schema', user_version) FROM pragma_user_version";

static const char *const queries[] = {

    "SELECT json_object('type', 'device', 'id', id, 'name', name, 'arch', arch, 'sm_count', sm_count, "
    "'smem_block_bytes', smem_block_bytes, 'smem_sm_bytes', smem_sm_bytes, 'l2_bytes', l2_bytes, "
    "'clock_khz', clock_khz, 'bandwidth_bytes', bandwidth_bytes, 'real', real) "
    "FROM device JOIN temp.sound_device USING (id) ORDER BY id",

    "SELECT json_object('type', 'problem', 'id', id"
#define FA2I_FIELD(name, ...) ", '" #name "', " #name
#include "runtime/base/problem.def"
    ") FROM problem JOIN temp.sound_problem USING (id) ORDER BY id",

    "SELECT json_object('type', 'session', 'id', id, 'device', device, 'driver', driver, "
    "'nvrtc', nvrtc, 'generator', generator, 'started_at', started_at, 'modelled', modelled) "
    "FROM session JOIN temp.sound_session USING (id) ORDER BY id",

    "SELECT json_object('type', 'kernel', 'key', lower(hex(key)), 'variant', variant, "
    "'class', class, 'recipe', recipe, 'target', target, 'nvrtc', nvrtc, 'generator', generator, "
    "'outcome', outcome, 'registers', registers, 'spill_bytes', spill_bytes, 'compile_ms', compile_ms) "
    "FROM kernel JOIN temp.sound_kernel USING (id) ORDER BY id",

    "SELECT json_object('type', 'verification', 'device', v.device, 'kernel', lower(hex(k.key)), "
    "'outcome', v.outcome, 'max_error', v.max_error, 'detail', v.detail, 'verified_at', v.verified_at) "
    "FROM verification v JOIN temp.sound_verification USING (device, kernel) "
    "JOIN kernel k ON k.id = v.kernel ORDER BY v.device, k.id",

    "SELECT json_object('type', 'measurement', 'device', m.device, 'problem', m.problem, "
    "'session', m.session, 'kernel', lower(hex(k.key)), 'outcome', m.outcome, 'settled', m.settled, "
    "'n', m.n, 'min_us', m.min_us, 'q1_us', m.q1_us, 'median_us', m.median_us, 'q3_us', m.q3_us, "
    "'max_error', m.max_error, 'detail', m.detail, 'measured_at', m.measured_at) "
    "FROM measurement m JOIN temp.sound_measurement USING (device, problem, kernel) "
    "JOIN kernel k ON k.id = m.kernel ORDER BY m.device, m.problem, k.id",

    "SELECT json_object('type', 'winner', 'device', w.device, 'problem', w.problem, "
    "'session', w.session, 'kernel', lower(hex(k.key)), 'measured', w.measured, "
    "'median_us', w.median_us, 'default_us', w.default_us, 'model_us', w.model_us, 'tuned_at', w.tuned_at) "
    "FROM winner w JOIN temp.sound_winner USING (device, problem) "
    "JOIN kernel k ON k.id = w.kernel ORDER BY w.device, w.problem",
};

/* ?1: bytes of a line; ?2: the most bytes of one kernel. */
static const char code_query[] =
    "WITH RECURSIVE code_of (id, key, seal, bytes, data) AS MATERIALIZED (SELECT k.id, lower(hex(k.key)), "
    "lower(hex(i.seal)), length(c.data), c.data FROM kernel k JOIN temp.sound_kernel USING (id) "
    "JOIN image i ON i.kernel = k.id JOIN code c ON c.id = i.code "
    "WHERE k.id IN (SELECT kernel FROM winner UNION SELECT kernel FROM answer) AND c.hash = fa2_hash(c.data) "
    "AND i.seal = fa2_seal(k.key, k.variant, k.class, k.recipe, k.target, c.data) AND length(c.data) <= ?2), "
    "piece (id, at) AS (SELECT id, 0 FROM code_of UNION ALL "
    "SELECT id, at + ?1 FROM piece JOIN code_of USING (id) WHERE at + ?1 < bytes) "
    "SELECT json_object('type', 'code', 'kernel', key, 'at', at, 'bytes', bytes, 'seal', seal, "
    "'hex', lower(hex(substr(data, at + 1, ?1)))), at = 0 FROM piece JOIN code_of USING (id) ORDER BY id, at";

/* The file that receives the lines, and the facts for the last line. */
typedef struct output {
    FILE *file;
    SHA2_CTX sha;
    size_t rows;
    int error; /* errno of the first write that failed; 0: none did */
} output;

static void note_error(output *out, bool failed)
{
    if (failed && out->error == 0)
        out->error = errno != 0 ? errno : EIO;
}

/* Writes the line as SQLite made it, but escapes characters that a terminal would obey. */
static fa2_status write_line(output *out, const char *json)
{
    fa2i_text text = {0};
    char *line = NULL;
    fa2i_json_add(&text, json);
    fa2i_text_add(&text, "\n");
    const fa2_status st = fa2i_text_take(&text, &line);
    if (st == FA2_OK) {
        SHA256Update(&out->sha, (const uint8_t *)line, strlen(line));
        note_error(out, fputs(line, out->file) < 0);
    }
    fa2i_free(line);
    return st;
}

static fa2_status write_header(fa2i_cache *cache, output *out)
{
    sqlite3_stmt *stmt = NULL;
    const fa2i_sql_value values[] = {fa2i_sql_int(FA2I_EXPORT_VERSION)};
    fa2_status st = fa2i_sql_row(cache, header_query, FA2I_SQL_VALUES(values), &stmt);
    if (st == FA2_OK)
        st = write_line(out, (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    return st;
}

static void write_end(output *out)
{
    fa2i_key hash;
    char hex[2 * FA2I_KEY_BYTES + 1];
    SHA256Final(hash.bytes, &out->sha);
    fa2i_key_format(&hash, hex);
    note_error(out, fprintf(out->file, "{\"type\":\"end\",\"rows\":%zu,\"sha256\":\"%s\"}\n", out->rows, hex) < 0);
    note_error(out, fflush(out->file) != 0);
}

static fa2_status write_rows(fa2i_cache *cache, const char *sql, output *out)
{
    fa2_status st;
    sqlite3_stmt *stmt = NULL;
    FA2_TRY(fa2i_sql_prepare(cache, sql, NULL, 0, &stmt));
    for (; fa2i_sql_next(cache, stmt, &st); out->rows++)
        FA2_TRY(write_line(out, (const char *)sqlite3_column_text(stmt, 0)));
done:
    sqlite3_finalize(stmt);
    return st;
}

static fa2_status count_rows(fa2i_cache *cache, size_t *ret_rows)
{
    fa2_status st = FA2_OK;
    *ret_rows = 0;
    for (int i = 0; st == FA2_OK && i < FA2I_JUDGED_COUNT; i++) {
        char sql[64];
        int64_t rows = 0;
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", fa2i_judged_tables[i].table);
        st = fa2i_sql_number(cache, sql, NULL, 0, &rows);
        *ret_rows += (size_t)rows;
    }
    return st;
}

static fa2_status write_code(fa2i_cache *cache, output *out, size_t *ret_kernels)
{
    const fa2i_sql_value values[] = {fa2i_sql_int(FA2I_PIECE_BYTES), fa2i_sql_int(FA2I_CODE_BYTES_MAX)};
    sqlite3_stmt *stmt = NULL;
    fa2_status st;
    FA2_TRY(fa2i_sql_prepare(cache, code_query, FA2I_SQL_VALUES(values), &stmt));
    for (; fa2i_sql_next(cache, stmt, &st); out->rows++) {
        *ret_kernels += sqlite3_column_int(stmt, 1) != 0;
        FA2_TRY(write_line(out, (const char *)sqlite3_column_text(stmt, 0)));
    }
done:
    sqlite3_finalize(stmt);
    return st;
}

static fa2_status export(fa2i_cache *cache, FILE *file, bool with_code, fa2i_export_counts *ret_counts)
{
    size_t all_rows = 0, with_codes = 0;
    fa2_status st;
    output out = {.file = file};
    SHA256Init(&out.sha);
    FA2_TRY(fa2i_sql_begin(cache, FA2I_CACHE_READ));
    FA2_TRY(fa2i_sql_need_json(cache));
    FA2_TRY(count_rows(cache, &all_rows));
    FA2_TRY(fa2i_sound_begin(cache));
    FA2_TRY(write_header(cache, &out));
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++)
        FA2_TRY(write_rows(cache, queries[i], &out));
    const size_t rows = out.rows;
    if (with_code)
        FA2_TRY(write_code(cache, &out, &with_codes));
    write_end(&out);
    if (out.error != 0)
        FA2_TRY(
            fa2i_fail(FA2_E_IO, "cannot write the export (%s)%s", strerror(out.error),
                      out.error == ENOSPC || out.error == EDQUOT ? "; make room there, or write it elsewhere" : ""));
    FA2_TRY(fa2i_sound_end(cache));
    if (ret_counts != NULL)
        *ret_counts = (fa2i_export_counts){.rows = rows, .left_out = all_rows - rows, .with_code = with_codes};
done:
    return fa2i_sql_end(cache, st);
}

fa2_status fa2i_cache_export(fa2i_cache *cache, FILE *file, fa2i_export_counts *ret_counts)
{
    return export(cache, file, false, ret_counts);
}

fa2_status fa2i_cache_export_with_code(fa2i_cache *cache, FILE *file, fa2i_export_counts *ret_counts)
{
    return export(cache, file, true, ret_counts);
}
