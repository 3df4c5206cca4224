/*
 * Cells are copied; widths are computed when printing. Invariant: count is a multiple of columns unless failed is set,
 * and the first row holds the titles.
 */
#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"
#include "tuner/report/table.h"

enum { GAP = 2 }; /* spaces between columns */

/* Counts UTF-8 characters: every byte that is not a continuation begins one. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

void fa2i_table_init(fa2i_table *table, const char *align, const char *const *titles)
{
    assert(strlen(align) > 0 && strlen(align) <= FA2I_TABLE_COLUMNS_MAX);
    *table = (fa2i_table){.columns = strlen(align), .align = align};
    fa2i_table_add(table, titles);
}

static void grow(fa2i_table *table)
{
    const size_t capacity = 2 * (table->capacity + table->columns);
    char **cells = fa2i_realloc(table->cells, capacity * sizeof *cells);
    if (cells != NULL)
        table->cells = cells;
    char *styles = fa2i_realloc(table->styles, capacity / table->columns);
    if (styles != NULL)
        table->styles = styles;
    table->failed = cells == NULL || styles == NULL;
    if (!table->failed)
        table->capacity = capacity;
}

void fa2i_table_add(fa2i_table *table, const char *const *cells)
{
    if (!table->failed && table->count + table->columns > table->capacity)
        grow(table);
    if (!table->failed)
        table->styles[table->count / table->columns] = FA2I_STYLE_PLAIN;
    for (size_t i = 0; !table->failed && i < table->columns; i++) {
        fa2i_text cell = {0};
        char *copy = NULL;
        fa2i_shown_add(&cell, cells[i] == NULL ? "-" : cells[i]);
        table->failed = fa2i_text_take(&cell, &copy) != FA2_OK;
        if (copy != NULL)
            table->cells[table->count++] = copy;
    }
}

void fa2i_table_row(fa2i_table *table, const char *format, ...)
{
    char line[4096], *at = line;
    const char *cells[FA2I_TABLE_COLUMNS_MAX] = {NULL};
    va_list args;
    va_start(args, format);
    fa2i_shown_format(line, sizeof line, NULL, format, args); /* escapes the tabs of arguments */
    va_end(args);
    for (size_t i = 0; i < table->columns && at != NULL; i++) {
        cells[i] = at;
        at = strchr(at, '\t');
        if (at != NULL)
            *at++ = '\0';
    }
    fa2i_table_add(table, cells);
}

void fa2i_table_style(fa2i_table *table, fa2i_style style)
{
    if (!table->failed)
        table->styles[table->count / table->columns - 1] = (char)style;
}

/* ---- printing ---- */

/* The layout of a table on a stream. */
typedef struct layout {
    size_t widths[FA2I_TABLE_COLUMNS_MAX];
    size_t first; /* number of columns on a row's first line */
    size_t total; /* width of that line */
    size_t width; /* of the terminal; 0: the stream is no terminal */
} layout;

enum { BELOW = 4 /* indent of the lines below a row's first line */ };

static layout lay_out(const fa2i_table *table, FILE *out)
{
    layout l = {.width = fa2i_terminal_width(out)};
    for (size_t i = 0; i < table->count; i++) {
        const size_t width = width_of(table->cells[i]);
        if (l.widths[i % table->columns] < width)
            l.widths[i % table->columns] = width;
    }
    for (; l.first < table->columns; l.first++) {
        const size_t more = l.widths[l.first] + (l.first > 0 ? GAP : 0);
        if (l.first > 0 && l.width > 0 && l.total + more > l.width)
            break;
        l.total += more;
    }
    return l;
}

static void print_cell(FILE *out, const char *text, size_t width, char align, bool last)
{
    const int pad = (int)(width - width_of(text));
    if (align == 'r')
        fprintf(out, "%*s%s", pad, "", text);
    else
        fprintf(out, "%s%*s", text, last ? 0 : pad, "");
    if (!last)
        fprintf(out, "%*s", GAP, "");
}

/* Prints the cells that did not fit on the row's first line, word by word. */
static void print_below(const fa2i_table *table, const layout *l, size_t row, FILE *out)
{
    char *const *cells = table->cells + row * table->columns;
    size_t used = l->width; /* starts a new line */
    for (size_t i = l->first; i < table->columns; i++) {
        const bool titled = table->align[i] == 'r';
        const char *title = titled ? table->cells[i] : "";
        const size_t width = width_of(cells[i]) + (titled ? width_of(title) + 1 : 0);
        if (cells[i][0] == '\0')
            continue;
        const bool breaks = used + GAP + width > l->width;
        fprintf(out, "%s%*s%s%s", breaks ? "\n" : "", breaks ? BELOW : GAP, "", title, titled ? " " : "");
        used = breaks ? BELOW : used + GAP;
        fa2i_terminal_fold(out, cells[i], strlen(cells[i]), l->width, used + (titled ? width_of(title) + 1 : 0),
                           BELOW + GAP);
        used = used + width;
    }
}

static void print_row(const fa2i_table *table, const layout *l, size_t row, FILE *out)
{
    char *const *cells = table->cells + row * table->columns;
    for (size_t i = 0; i < l->first; i++)
        print_cell(out, cells[i], l->widths[i], table->align[i], i + 1 == l->first);
    if (row > 0)
        print_below(table, l, row, out);
}

fa2_status fa2i_table_print(const fa2i_table *table, FILE *out)
{
    if (table->failed)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a table of %zu cells", table->count);
    const layout l = lay_out(table, out);
    for (size_t row = 0; row < table->count / table->columns; row++) {
        const fa2i_style style = row == 0 ? FA2I_STYLE_HEAD : (fa2i_style)table->styles[row];
        fa2i_terminal_begin(out, style);
        print_row(table, &l, row, out);
        fa2i_terminal_end(out, style);
        fputc('\n', out);
        for (size_t dash = 0; row == 0 && dash < l.total; dash++)
            fputc('-', out);
        if (row == 0)
            fputc('\n', out);
    }
    return FA2_OK;
}

size_t fa2i_table_rows(const fa2i_table *table)
{
    return table->count == 0 ? 0 : table->count / table->columns - 1;
}

void fa2i_table_done(fa2i_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        fa2i_free(table->cells[i]);
    fa2i_free(table->cells);
    fa2i_free(table->styles);
    *table = (fa2i_table){0};
}

fa2_status fa2i_table_end(fa2i_table *table, FILE *out)
{
    const fa2_status st = fa2i_table_print(table, out);
    fa2i_table_done(table);
    return st;
}
