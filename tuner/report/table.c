/*
 * How: cells are kept as copies, widths are found when printing. Invariant: count is a multiple of
 * columns unless failed is set; the first row holds the titles.
 */
#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/report/table.h"

enum { GAP = 2 }; /* spaces between columns */

/* Characters of UTF-8: every byte that is not a continuation begins one. */
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

void fa2i_table_add(fa2i_table *table, const char *const *cells)
{
    if (!table->failed && table->count + table->columns > table->capacity) {
        const size_t capacity = 2 * (table->capacity + table->columns);
        char **grown = fa2i_realloc(table->cells, capacity * sizeof *grown);
        if (grown != NULL) {
            table->cells = grown;
            table->capacity = capacity;
        }
        table->failed = grown == NULL;
    }
    for (size_t i = 0; !table->failed && i < table->columns; i++) {
        char *copy = fa2i_strdup(cells[i] == NULL ? "-" : cells[i]);
        table->failed = copy == NULL;
        if (copy != NULL)
            table->cells[table->count++] = copy;
    }
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

fa2_status fa2i_table_print(const fa2i_table *table, FILE *out)
{
    size_t widths[FA2I_TABLE_COLUMNS_MAX] = {0};
    size_t total = 0;
    if (table->failed)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a table of %zu cells", table->count);
    for (size_t i = 0; i < table->count; i++) {
        const size_t width = width_of(table->cells[i]);
        if (widths[i % table->columns] < width)
            widths[i % table->columns] = width;
    }
    for (size_t i = 0; i < table->columns; i++)
        total += widths[i] + (i + 1 < table->columns ? GAP : 0);
    for (size_t i = 0; i < table->count; i++) {
        const size_t column = i % table->columns;
        const bool last = column + 1 == table->columns;
        print_cell(out, table->cells[i], widths[column], table->align[column], last);
        if (last)
            fputc('\n', out);
        if (i + 1 == table->columns) {
            for (size_t dash = 0; dash < total; dash++)
                fputc('-', out);
            fputc('\n', out);
        }
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
    *table = (fa2i_table){0};
}

/* Bytes of the UTF-8 sequence at text, 0 when it is none. */
static size_t utf8_bytes(const unsigned char *text)
{
    const size_t bytes = text[0] < 0x80             ? 1
                         : (text[0] & 0xE0) == 0xC0 ? 2
                         : (text[0] & 0xF0) == 0xE0 ? 3
                         : (text[0] & 0xF8) == 0xF0 ? 4
                                                    : 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    }
    return bytes;
}

void fa2i_json_string(FILE *out, const char *text)
{
    if (text == NULL) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        const size_t bytes = utf8_bytes(at);
        if (bytes == 0)
            fputs("\\ufffd", out);
        else if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if (*at < 0x20)
            fprintf(out, "\\u%04x", *at);
        else
            fwrite(at, 1, bytes, out);
        at += bytes == 0 ? 1 : bytes;
    }
    fputc('"', out);
}
