/*
 * Shape files and presets.
 *
 * - A CSV is parsed line by line into spans of the text; nothing of it is kept.
 * - A wrong value is reported at its column, also if it is only wrong together with another. A message about no field
 *   is reported at the row.
 * - A header names every field that has no default. Other columns may be missing. Cells of features may be empty.
 * - An unknown column is refused. It may be a misspelt feature, or one of a newer fa2, and its rows would be other
 *   problems without it.
 * - Cells may be quoted as in RFC 4180, but without line breaks inside quotes.
 * - The presets are one embedded CSV with an additional column, `preset`. Rows of other presets are skipped. A user's
 *   file has no such column.
 * - If the last line has no end and too few cells, the file may be cut off there.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "gen/asset.h"
#include "runtime/base/nearest.h"
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"
#include "runtime/base/text.h"
#include "tuner/input/problem_text.h"
#include "tuner/input/shapes.h"

#define PRESETS_ASSET "tuner/input/presets.csv"

enum { COLUMNS_MAX = 64, FILE_BYTES_MAX = 16 << 20, NAMES_CHARS = 512, NAME_CHARS = 48 };

enum { CALLS = FA2I_FIELD_COUNT, ORIGIN, PRESET, COLUMN_KINDS };

typedef struct csv {
    const char *name;   /* of the file, for messages */
    const char *preset; /* only rows of this preset; NULL: every row, and there is no such column */
    fa2i_span rest;
    size_t line;                    /* 1-based */
    bool cut;                       /* the line has no end, so it is the last one */
    bool lacks;                     /* its error may come from missing text at its end */
    size_t column_of[COLUMN_KINDS]; /* 1-based; 0: absent */
    size_t columns;
    size_t rows;
    fa2i_text presets; /* names of the other presets, for the message */
} csv;

static const char *column_name(int kind)
{
    return kind == CALLS ? "calls" : kind == ORIGIN ? "origin" : kind == PRESET ? "preset" : fa2i_fields[kind].name;
}

/* Returns the number of kinds of columns that the file may have. They are the first ones. */
static int column_kinds(const csv *file)
{
    return file->preset == NULL ? (int)PRESET : (int)COLUMN_KINDS;
}

/* Says whether a header must name it. */
static bool is_required(int kind)
{
    if (kind >= FA2I_FIELD_COUNT)
        return kind == PRESET;
    return fa2i_fields[kind].missing == FA2I_MISSING_REQUIRED && fa2i_fields[kind].needs < 0;
}

/* Says whether its cells must have a value. An empty size or type is an accident, not a wish for the default. */
static bool is_filled(int field)
{
    return fa2i_fields[field].shown_always && fa2i_fields[field].needs < 0;
}

/* Lists "heads_q,seq_q,...": the columns that a header must name, or all that it may. */
static const char *columns_of(int kinds, bool all, char out[NAMES_CHARS])
{
    size_t used = 0;
    for (int kind = 0; kind < kinds && used < NAMES_CHARS; kind++)
        if (all || is_required(kind))
            used += (size_t)snprintf(out + used, NAMES_CHARS - used, "%s%s", used == 0 ? "" : ",", column_name(kind));
    return out;
}

static const char *required_columns(char out[NAMES_CHARS])
{
    return columns_of(FA2I_FIELD_COUNT, false, out);
}

/* Finds the next line that is neither empty nor a comment. */
static bool next_line(csv *file, fa2i_span *ret_line)
{
    while (file->rest.bytes > 0) {
        const char *end = memchr(file->rest.data, '\n', file->rest.bytes);
        const size_t bytes = end == NULL ? file->rest.bytes : (size_t)(end - file->rest.data);
        const fa2i_span line = fa2i_span_trim((fa2i_span){file->rest.data, bytes});
        const size_t used = end == NULL ? bytes : bytes + 1;
        file->rest = (fa2i_span){file->rest.data + used, file->rest.bytes - used};
        file->line++;
        file->cut = end == NULL;
        if (line.bytes > 0 && line.data[0] != '#') {
            *ret_line = line;
            return true;
        }
    }
    return false;
}

/* Takes the next cell off the line, without the blanks around it. A cell in quotes (RFC 4180) may hold commas. No value
 * of a shape file contains a quote. So "" inside a cell is refused like any other text after the closing quote.
 * *ret_more: a comma followed, and so another cell. */
static fa2_status next_cell(const csv *file, size_t column, fa2i_span *line, fa2i_span *ret_cell, bool *ret_more)
{
    const fa2i_span rest = fa2i_span_trim(*line);
    const bool quoted = rest.bytes > 0 && rest.data[0] == '"';
    const char *close = quoted ? memchr(rest.data + 1, '"', rest.bytes - 1) : NULL;
    if (quoted && close == NULL)
        return fa2i_fail(FA2_E_INVALID, "%s:%zu:%zu: a quote opens and does not close on this line", file->name,
                         file->line, column);
    const char *from = quoted ? close + 1 : line->data, *end = line->data + line->bytes;
    const char *comma = memchr(from, ',', (size_t)(end - from));
    const char *stop = comma == NULL ? end : comma;
    const fa2i_span after = fa2i_span_trim((fa2i_span){from, (size_t)(stop - from)});
    if (quoted && after.bytes > 0)
        return fa2i_fail(FA2_E_INVALID, "%s:%zu:%zu: \"%.*s\" follows the closing quote; put a comma between",
                         file->name, file->line, column, (int)after.bytes, after.data);
    *ret_cell = quoted ? fa2i_span_trim((fa2i_span){rest.data + 1, (size_t)(close - rest.data - 1)}) : after;
    *ret_more = comma != NULL;
    *line = comma == NULL ? (fa2i_span){end, 0} : (fa2i_span){comma + 1, (size_t)(end - comma - 1)};
    return FA2_OK;
}

/* Cuts a line at its commas. Returns FA2_E_INVALID if there are more than COLUMNS_MAX columns, or quotes do not
 * match. */
static fa2_status split(const csv *file, fa2i_span line, fa2i_span cells[COLUMNS_MAX], size_t *ret_count)
{
    size_t count = 0;
    for (bool more = true; more; count++) {
        if (count == COLUMNS_MAX)
            return fa2i_fail(FA2_E_INVALID, "%s:%zu:%d: more than %d columns", file->name, file->line, COLUMNS_MAX + 1,
                             COLUMNS_MAX);
        const fa2_status st = next_cell(file, count + 1, &line, &cells[count], &more);
        if (st != FA2_OK)
            return st;
    }
    *ret_count = count;
    return FA2_OK;
}

/* Returns FA2_E_INVALID, and suggests the column that was probably meant, also if a field was named by its key. */
static fa2_status no_such_column(const csv *file, fa2i_span cell, size_t column)
{
    char name[NAME_CHARS], names[NAMES_CHARS];
    fa2i_shown_write(name, sizeof name, "%.*s", (int)cell.bytes, cell.data);
    fa2i_nearest meant = {0};
    for (int kind = 0; kind < column_kinds(file); kind++) {
        fa2i_nearest_try(&meant, cell.data, cell.bytes, column_name(kind), column_name(kind));
        if (kind < FA2I_FIELD_COUNT)
            fa2i_nearest_try(&meant, cell.data, cell.bytes, fa2i_fields[kind].key, column_name(kind));
    }
    if (meant.name != NULL)
        return fa2i_fail(FA2_E_INVALID, "%s:%zu:%zu: unknown column \"%s\", did you mean %s?", file->name, file->line,
                         column, name, meant.name);
    if (memchr(cell.data, ';', cell.bytes) != NULL || memchr(cell.data, '\t', cell.bytes) != NULL)
        return fa2i_fail(FA2_E_INVALID, "%s:%zu:%zu: unknown column \"%s\"; separate columns by commas alone",
                         file->name, file->line, column, name);
    return fa2i_fail(FA2_E_INVALID, "%s:%zu:%zu: unknown column \"%s\"; the columns are %s", file->name, file->line,
                     column, name, columns_of(column_kinds(file), true, names));
}

/* Notes the kind of the 1-based `column`. */
static fa2_status place_column(csv *file, fa2i_span cell, size_t column)
{
    int kind = 0;
    while (kind < column_kinds(file) && !fa2i_span_is(cell, column_name(kind)))
        kind++;
    if (kind == column_kinds(file)) {
        file->lacks = column == file->columns; /* it may be a part of a name */
        return no_such_column(file, cell, column);
    }
    if (file->column_of[kind] != 0)
        return fa2i_fail(FA2_E_INVALID, "%s:%zu:%zu: column %s is there already (column %zu)", file->name, file->line,
                         column, column_name(kind), file->column_of[kind]);
    file->column_of[kind] = column;
    return FA2_OK;
}

static fa2_status read_header(csv *file)
{
    fa2i_span line, cells[COLUMNS_MAX];
    char names[NAMES_CHARS];
    if (!next_line(file, &line))
        return fa2i_fail(FA2_E_INVALID, "%s:%zu:1: there is no header; it must name %s", file->name, file->line + 1,
                         required_columns(names));
    const fa2_status st = split(file, line, cells, &file->columns);
    if (st != FA2_OK)
        return st;
    for (size_t i = 0; i < file->columns; i++) {
        const fa2_status found = place_column(file, cells[i], i + 1);
        if (found != FA2_OK)
            return found;
    }
    for (int kind = 0; kind < column_kinds(file); kind++) {
        file->lacks = file->column_of[kind] == 0 && is_required(kind);
        if (file->lacks)
            return fa2i_fail(FA2_E_INVALID, "%s:%zu:%zu: there is no column %s; the header must name %s", file->name,
                             file->line, file->columns + 1, column_name(kind), required_columns(names));
    }
    return FA2_OK;
}

/* Says whether the row is of the wanted preset. Keeps the names of the others for a message. */
static bool wanted(csv *file, const fa2i_span *cells)
{
    if (file->preset == NULL)
        return true;
    const fa2i_span name = cells[file->column_of[PRESET] - 1];
    if (fa2i_span_is(name, file->preset))
        return true;
    const char *known = file->presets.data;
    const size_t length = file->presets.length;
    if (length < name.bytes || memcmp(known + length - name.bytes, name.data, name.bytes) != 0)
        fa2i_text_add(&file->presets, "%s%.*s", length == 0 ? "" : ", ", (int)name.bytes, name.data);
    return false;
}

/* Queries that continue keys in a cache: decoding, chunks of a prompt. They are never differentiated. */
static bool is_inference(const fa2_problem *problem)
{
    return problem->seq_q == 1 || (problem->causal && problem->seq_q < problem->seq_k);
}

/* Adds a preset's row for attention and its gradients, as far as they support its features. Merges have other sizes. */
static fa2_status add_for_all_ops(fa2i_shapes *shapes, const fa2_problem *problem)
{
    fa2_problem other = *problem;
    fa2_status st = fa2i_shapes_add(shapes, problem, 0);
    for (int op = 0; st == FA2_OK && op <= FA2_OP_BACKWARD; op++) {
        other.op = (fa2_op)op;
        if (!is_inference(problem) && fa2i_problem_check(&other) == FA2_OK)
            st = fa2i_shapes_add(shapes, &other, 0);
    }
    return st;
}

/* Reads the column `calls` of the row; 0 if there is none. */
static fa2_status read_calls(const csv *file, const fa2i_span *cells, double *ret_calls)
{
    const double calls_max = 18446744073709551615.0; /* a capture stops counting there */
    const size_t column = file->column_of[CALLS];
    double calls = 0;
    if (column == 0)
        return FA2_OK;
    const fa2i_span cell = cells[column - 1];
    for (size_t i = 0; i < cell.bytes; i++) {
        const bool digit = cell.data[i] >= '0' && cell.data[i] <= '9';
        calls = 10 * calls + (cell.data[i] - '0');
        if (!digit || calls > calls_max)
            return fa2i_fail(FA2_E_INVALID,
                             "%s:%zu:%zu: calls is \"%.*s\"; it must be a whole number below 2^64, or empty",
                             file->name, file->line, column, (int)cell.bytes, cell.data);
    }
    *ret_calls = calls;
    return FA2_OK;
}

static fa2_status add_row(const csv *file, const fa2i_problem_text *text, const fa2_problem *problem, double calls,
                          fa2i_shapes *shapes)
{
    if (file->preset != NULL)
        return shapes->ops == 0 ? add_for_all_ops(shapes, problem) : fa2i_shapes_add_for_ops(shapes, problem, 0);
    if (text->given[FA2I_FIELD_op] && shapes->ops != 0) {
        const bool asked = (shapes->ops >> problem->op & 1u) != 0;
        shapes->left_out += !asked;
        return asked ? fa2i_shapes_add(shapes, problem, calls) : FA2_OK;
    }
    const fa2_status st = fa2i_shapes_add_for_ops(shapes, problem, calls);
    return st == FA2_E_INVALID ? fa2i_fail_prefix(st, "%s:%zu", file->name, file->line) : st;
}

static fa2_status read_row(csv *file, fa2i_span line, fa2i_shapes *shapes)
{
    fa2i_span cells[COLUMNS_MAX];
    size_t count = 0;
    file->lacks = false;
    fa2_status st = split(file, line, cells, &count);
    if (st != FA2_OK)
        return st;
    const fa2i_span last = cells[count - 1];
    file->lacks = count < file->columns || (count == file->columns && last.bytes == 0);
    if (count != file->columns)
        return fa2i_fail(FA2_E_INVALID, "%s:%zu:%zu: the row has %zu columns, the header has %zu", file->name,
                         file->line, count < file->columns ? count + 1 : file->columns + 1, count, file->columns);
    if (!wanted(file, cells))
        return FA2_OK;
    fa2i_problem_text text = {0};
    fa2_problem problem;
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const size_t column = file->column_of[field];
        if (column == 0 || (cells[column - 1].bytes == 0 && !is_filled(field)))
            continue;
        st = fa2i_problem_text_read(&text, field, cells[column - 1]);
        if (st != FA2_OK)
            return fa2i_fail_prefix(st, "%s:%zu:%zu", file->name, file->line, column);
    }
    int wrong = -1;
    st = fa2i_problem_text_finish(&text, &problem, &wrong);
    if (st != FA2_OK && wrong >= 0 && file->column_of[wrong] > 0)
        return fa2i_fail_prefix(st, "%s:%zu:%zu", file->name, file->line, file->column_of[wrong]);
    if (st != FA2_OK)
        return fa2i_fail_prefix(st, "%s:%zu", file->name, file->line);
    double calls = 0;
    st = read_calls(file, cells, &calls);
    if (st != FA2_OK)
        return st;
    file->rows++;
    return add_row(file, &text, &problem, calls, shapes);
}

static fa2_status read_csv(csv *file, fa2i_shapes *shapes)
{
    static const char bom[] = "\xEF\xBB\xBF";
    if (file->rest.bytes >= 3 && memcmp(file->rest.data, bom, 3) == 0)
        file->rest = (fa2i_span){file->rest.data + 3, file->rest.bytes - 3};
    fa2_status st = read_header(file);
    fa2i_span line;
    while (st == FA2_OK && next_line(file, &line))
        st = read_row(file, line, shapes);
    if (st == FA2_E_INVALID && file->cut && file->lacks)
        st = fa2i_fail(st,
                       "%s; line %zu has no end, so the file may be cut off there: take a whole "
                       "copy, or remove the line",
                       fa2_last_message(), file->line);
    return st;
}

/* Reads the rows of a preset. *ret_others gets the names of all other presets. The caller frees it, also after an
 * error. */
static fa2_status read_preset(fa2i_shapes *shapes, const char *name, size_t *ret_rows, fa2i_text *ret_others)
{
    const fa2i_asset *asset = fa2i_asset_find(PRESETS_ASSET);
    if (asset == NULL)
        return fa2i_fail(FA2_E_INVALID, "this build has no %s", PRESETS_ASSET);
    csv file = {.name = PRESETS_ASSET, .preset = name, .rest = {asset->data, asset->bytes}};
    const fa2_status st = read_csv(&file, shapes);
    *ret_rows = file.rows;
    *ret_others = file.presets;
    return st;
}

fa2_status fa2i_shapes_add_preset(fa2i_shapes *shapes, const char *name)
{
    fa2i_text others = {0};
    size_t rows = 0;
    fa2_status st = read_preset(shapes, name, &rows, &others);
    if (st == FA2_OK && rows == 0)
        st = fa2i_fail(FA2_E_INVALID, "there is no preset \"%s\"; known: %s", name,
                       others.length == 0 ? "none" : others.data);
    fa2i_text_done(&others);
    return st;
}

fa2_status fa2i_shapes_list_presets(char **ret_names)
{
    fa2i_shapes none = {0};
    fa2i_text names = {0};
    size_t rows = 0;
    fa2_status st = read_preset(&none, "", &rows, &names); /* no preset has this name, so all are others */
    fa2i_shapes_done(&none);
    if (st == FA2_OK)
        st = fa2i_text_take(&names, ret_names);
    fa2i_text_done(&names);
    return st;
}

static fa2_status open_file(const char *path, FILE **ret_file)
{
    struct stat info;
    if (strcmp(path, "-") == 0) {
        *ret_file = stdin;
        return FA2_OK;
    }
    /* Opening a named pipe waits for a writer; the pipe of a shell's <(...) has its writer already. */
    const bool known = stat(path, &info) == 0;
    const bool named_pipe = known && S_ISFIFO(info.st_mode) && strncmp(path, "/dev/fd/", 8) != 0;
    if (known && (named_pipe || !(S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode))))
        return fa2i_fail(FA2_E_INVALID, "%s: is no regular file; name one, or - for standard input", path);
    *ret_file = fopen(path, "rb");
    return *ret_file != NULL ? FA2_OK : fa2i_fail(FA2_E_IO, "%s: %s", path, strerror(errno));
}

static fa2_status read_file(const char *path, fa2i_text *text)
{
    char buffer[4096];
    FILE *in = NULL;
    const fa2_status st = open_file(path, &in);
    if (st != FA2_OK)
        return st;
    size_t bytes = 0;
    while (text->length <= FILE_BYTES_MAX && (bytes = fread(buffer, 1, sizeof buffer, in)) > 0)
        fa2i_text_add_bytes(text, buffer, bytes);
    const int error = ferror(in) ? errno : 0;
    if (in != stdin)
        fclose(in);
    if (error != 0)
        return fa2i_fail(FA2_E_IO, "%s: %s", path, strerror(error));
    if (text->failed)
        return fa2i_fail(FA2_E_MEMORY, "%s: no memory to read it", path);
    if (text->length > FILE_BYTES_MAX)
        return fa2i_fail(FA2_E_INVALID, "%s: larger than %d bytes, the limit for a shape file", path, FILE_BYTES_MAX);
    return FA2_OK;
}

/* Makes a valid example row: the file's columns, in their order. */
static const char *example_row(const csv *file, char out[NAMES_CHARS])
{
    static const char *const values[COLUMN_KINDS] = {
        [FA2I_FIELD_batch] = "1",    [FA2I_FIELD_heads_q] = "8", [FA2I_FIELD_heads_kv] = "8",
        [FA2I_FIELD_seq_q] = "512",  [FA2I_FIELD_seq_k] = "512", [FA2I_FIELD_head_dim] = "64",
        [FA2I_FIELD_dtype] = "fp16", [FA2I_FIELD_causal] = "1"};
    size_t used = 0;
    for (size_t column = 1; column <= file->columns && used < NAMES_CHARS; column++)
        for (int kind = 0; kind < COLUMN_KINDS; kind++)
            if (file->column_of[kind] == column && used < NAMES_CHARS)
                used += (size_t)snprintf(out + used, NAMES_CHARS - used, "%s%s", column == 1 ? "" : ",",
                                         values[kind] == NULL ? "" : values[kind]);
    return out;
}

fa2_status fa2i_shapes_add_file(fa2i_shapes *shapes, const char *path)
{
    fa2_status st = FA2_OK;
    fa2i_text text = {0};
    char row[NAMES_CHARS];
    FA2_TRY(read_file(path, &text));
    csv file = {.name = strcmp(path, "-") == 0 ? "standard input" : path, .rest = {text.data, text.length}};
    FA2_TRY(read_csv(&file, shapes));
    if (file.rows == 0)
        st = fa2i_fail(FA2_E_INVALID,
                       "%s:%zu:1: there is no row after the header; add one, such as %s, or leave the "
                       "file out",
                       file.name, file.line + 1, example_row(&file, row));
done:
    fa2i_text_done(&text);
    return st;
}
