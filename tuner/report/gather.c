/*
 * All cells lie in one growing text; a row is `columns` offsets into it. An out-of-memory error is kept until the end,
 * because a callback of the cache returns no status.
 */
#include "tuner/report/gather.h"

#include <string.h>
#include "runtime/base/alloc.h"

static void add_cell(fa2i_rows *rows, const char *value)
{
    size_t *cells = fa2i_room_for(rows->cells, rows->count + 1, &rows->capacity, sizeof *cells);
    if (cells == NULL) {
        rows->failed = true;
        return;
    }
    rows->cells = cells;
    rows->cells[rows->count++] = value == NULL ? FA2I_NO_CELL : rows->text.length;
    if (value != NULL)
        fa2i_text_add_bytes(&rows->text, value, strlen(value) + 1);
}

static int add_row(void *user, int columns, const char *const *names, const char *const *values)
{
    fa2i_rows *rows = user;
    const bool first = rows->columns == 0;
    rows->columns = (size_t)columns;
    for (int i = 0; first && i < columns && !rows->failed; i++)
        add_cell(rows, names[i]);
    for (int i = 0; i < columns && !rows->failed; i++)
        add_cell(rows, values[i]);
    rows->failed = rows->failed || rows->text.failed;
    return rows->failed;
}

static fa2_status check(const fa2i_rows *rows, fa2_status st)
{
    if (st == FA2_OK && rows->failed)
        return fa2i_fail(FA2_E_MEMORY, "no memory for the rows of a report");
    return st;
}

void fa2i_rows_done(fa2i_rows *rows)
{
    fa2i_text_done(&rows->text);
    fa2i_free(rows->cells);
    *rows = (fa2i_rows){0};
}

void fa2i_gathered_done(fa2i_gathered *gathered)
{
    fa2i_free(gathered->path);
    fa2i_rows_done(&gathered->devices);
    fa2i_rows_done(&gathered->sessions);
    fa2i_rows_done(&gathered->winners);
    fa2i_rows_done(&gathered->measurements);
    fa2i_rows_done(&gathered->ceilings);
    fa2i_rows_done(&gathered->naive);
    *gathered = (fa2i_gathered){0};
}

fa2_status fa2i_gather(fa2i_cache *cache, const fa2i_filter *filter, fa2i_gathered *ret_gathered)
{
    fa2_status st = FA2_OK;
    fa2i_gathered g = {.path = fa2i_strdup(fa2i_cache_path(cache))};
    if (g.path == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for the rows of a report");
    FA2_TRY(check(&g.devices, fa2i_cache_list_devices(cache, add_row, &g.devices)));
    FA2_TRY(check(&g.sessions, fa2i_cache_list_sessions(cache, add_row, &g.sessions)));
    FA2_TRY(check(&g.winners, fa2i_cache_list_winners(cache, filter, add_row, &g.winners)));
    FA2_TRY(check(&g.measurements, fa2i_cache_list_all_measurements(cache, filter, add_row, &g.measurements)));
    *ret_gathered = g;
    g = (fa2i_gathered){0}; /* the caller owns it now */
done:
    fa2i_gathered_done(&g);
    return st;
}

fa2_status fa2i_gather_json(fa2i_cache *cache, const char *sql, const char *json, fa2i_rows *rows)
{
    return check(rows, fa2i_cache_list_json(cache, sql, json, add_row, rows));
}

size_t fa2i_rows_count(const fa2i_rows *rows)
{
    return rows->columns == 0 ? 0 : rows->count / rows->columns - 1;
}

static const char *cell(const fa2i_rows *rows, size_t index)
{
    const size_t place = rows->cells[index];
    return place == FA2I_NO_CELL ? NULL : rows->text.data + place;
}

const char *fa2i_rows_name(const fa2i_rows *rows, size_t column)
{
    return cell(rows, column);
}

const char *fa2i_rows_cell(const fa2i_rows *rows, size_t row, size_t column)
{
    return cell(rows, (row + 1) * rows->columns + column);
}
