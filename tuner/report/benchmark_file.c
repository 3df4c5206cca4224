/*
 * The text becomes one JSON value: the benchmark's object, or an array of a field report's lines. SQLite's JSON
 * functions make rows from it, in an empty database in memory.
 */
#include "tuner/report/benchmark_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "cache/content/report.h"
#include "runtime/base/alloc.h"

enum { FILE_BYTES_MAX = 256 << 20 };

static const char bench_ceilings[] =
    "SELECT json_extract(?1, '$.device') AS device, json_extract(c.value, '$.name') AS name, "
    "json_extract(c.value, '$.unit') AS unit, json_extract(c.value, '$.rate') AS rate "
    "FROM json_each(?1, '$.ceilings') c WHERE rate > 0";

static const char bench_naive[] =
    "SELECT json_extract(?1, '$.device') AS device, json_extract(p.value, '$.problem') AS shape, "
    "json_extract(k.value, '$.median_us') AS median_us FROM json_each(?1, '$.problems') p, "
    "json_each(p.value, '$.kernels') k WHERE json_extract(k.value, '$.kernel') = 'naive' AND median_us > 0";

static const char bench_times[] =
    "SELECT json_extract(?1, '$.device') AS device, json_extract(p.value, '$.problem') AS shape, "
    "json_extract(p.value, '$.kernels[0].median_us') AS median_us, json_extract(?1, '$.l2') AS l2, "
    "json_extract(?1, '$.arch') AS arch, json_extract(?1, '$.sm_count') AS sm_count "
    "FROM json_each(?1, '$.problems') p WHERE typeof(median_us) IN ('integer', 'real') AND median_us > 0 "
    "AND median_us < 1e300";

static const char field_ceilings[] =
    "SELECT json_extract(a.value, '$.device') AS device, json_extract(c.value, '$.name') AS name, "
    "json_extract(c.value, '$.unit') AS unit, json_extract(c.value, '$.rate') AS rate "
    "FROM json_each(?1) a, json_each(?1) c WHERE json_extract(a.value, '$.fa2_report') = 'about' "
    "AND json_extract(c.value, '$.fa2_report') = 'ceiling' AND rate > 0";

/* The lines of a field report (tuner/bench/field.h) become an array. */
static bool is_field_report(const char *line)
{
    static const char start[] = "{\"fa2_report\":";
    return strncmp(line, start, sizeof start - 1) == 0;
}

static fa2_status take_report(const char *text, char **ret_json)
{
    fa2i_text json = {0};
    const char *separator = "[";
    while (*text != '\0') {
        const size_t bytes = strcspn(text, "\n");
        if (is_field_report(text)) {
            fa2i_text_add(&json, "%s", separator);
            fa2i_text_add_bytes(&json, text, bytes);
            separator = ",";
        }
        text += bytes + (text[bytes] == '\n');
    }
    fa2i_text_add(&json, "%s]", separator[0] == '[' ? "[" : "");
    return fa2i_text_take(&json, ret_json);
}

static fa2_status read_text(const char *path, char **ret_text)
{
    fa2_status st = FA2_OK;
    char part[65536];
    struct stat info;
    fa2i_text text = {0};
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* opening a pipe would wait for its writer */
        return fa2i_fail(FA2_E_INVALID, "%s: is no regular file", path);
    FILE *in = fopen(path, "r");
    if (in == NULL)
        return fa2i_fail(FA2_E_INVALID, "%s: %s", path, strerror(errno));
    for (size_t got; text.length < FILE_BYTES_MAX && (got = fread(part, 1, sizeof part, in)) > 0;)
        fa2i_text_add_bytes(&text, part, got);
    if (ferror(in) || text.length >= FILE_BYTES_MAX)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "%s: cannot be read, or has more than %d bytes", path, (int)FILE_BYTES_MAX));
    FA2_TRY(fa2i_text_take(&text, ret_text));
done:
    fa2i_text_done(&text);
    fclose(in);
    return st;
}

static fa2_status check_json(fa2i_cache *cache, const char *path, const char *json)
{
    bool valid = false;
    const fa2_status st = fa2i_cache_list_json(cache, "SELECT 1 WHERE json_valid(?1)", json, fa2i_row_note, &valid);
    if (st != FA2_OK || valid)
        return st;
    return fa2i_fail(FA2_E_INVALID,
                     "%s: is not JSON, or was cut; it must be what bench --json or field-report writes: make it anew",
                     path);
}

fa2_status fa2i_benchmark_file_read(const char *path, fa2i_gathered *gathered)
{
    fa2_status st = FA2_OK;
    fa2i_cache *cache = NULL;
    char *text = NULL, *lines = NULL;
    FA2_TRY(read_text(path, &text));
    const bool report = strncmp(text, "{\"fa2_export\"", 13) == 0;
    if (report)
        FA2_TRY(take_report(text, &lines));
    const char *json = report ? lines : text;
    FA2_TRY(fa2i_cache_open_empty(path, &cache));
    FA2_TRY(check_json(cache, path, json));
    st = fa2i_gather_json(cache, report ? field_ceilings : bench_ceilings, json, &gathered->ceilings);
    if (st == FA2_OK && !report)
        st = fa2i_gather_json(cache, bench_naive, json, &gathered->naive);
    if (st == FA2_E_DATABASE || (st == FA2_OK && fa2i_rows_count(&gathered->ceilings) == 0))
        st = fa2i_fail(FA2_E_INVALID,
                       "%s: has no ceilings of a card: it is not what bench --json or field-report writes", path);
done:
    fa2i_cache_close(cache);
    fa2i_free(lines);
    fa2i_free(text);
    return st;
}

fa2_status fa2i_benchmark_file_times(const char *path, fa2i_rows *rows)
{
    fa2_status st = FA2_OK;
    fa2i_cache *cache = NULL;
    char *text = NULL;
    FA2_TRY(read_text(path, &text));
    FA2_TRY(fa2i_cache_open_empty(path, &cache));
    FA2_TRY(check_json(cache, path, text));
    st = fa2i_gather_json(cache, bench_times, text, rows);
    if (st == FA2_E_DATABASE || (st == FA2_OK && fa2i_rows_count(rows) == 0))
        st = fa2i_fail(FA2_E_INVALID, "%s: has no times of problems: it is not what bench --json writes", path);
done:
    fa2i_cache_close(cache);
    fa2i_free(text);
    return st;
}
