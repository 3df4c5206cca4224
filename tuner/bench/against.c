#include "tuner/bench/against.h"

#include <stdlib.h>
#include <string.h>
#include "tuner/report/table.h"

enum { DEVICE, SHAPE, MEDIAN_US, L2, ARCH, SM_COUNT };

static bool is_text(const char *cell, const char *text)
{
    return cell != NULL && strcmp(cell, text) == 0;
}

/* Returns whether a row is of such a card. A name alone does not tell: a part of a card (MIG) has fewer SMs. */
static bool is_of(const fa2i_rows *rows, size_t row, const fa2i_card *card)
{
    char arch[16], sm_count[16];
    snprintf(arch, sizeof arch, "sm_%d", card->arch);
    snprintf(sm_count, sizeof sm_count, "%d", card->sm_count);
    return is_text(fa2i_rows_cell(rows, row, DEVICE), card->name) && is_text(fa2i_rows_cell(rows, row, ARCH), arch) &&
           is_text(fa2i_rows_cell(rows, row, SM_COUNT), sm_count);
}

/* Returns us of a problem in the earlier benchmark; 0: it has none. */
static double find_earlier(const fa2i_rows *rows, const fa2i_card *card, const char *shape)
{
    for (size_t i = 0; i < fa2i_rows_count(rows); i++)
        if (is_of(rows, i, card) && is_text(fa2i_rows_cell(rows, i, SHAPE), shape))
            return strtod(fa2i_rows_cell(rows, i, MEDIAN_US), NULL);
    return 0;
}

fa2_status fa2i_against_check(const fa2i_against *against, bool cold)
{
    const char *now = cold ? "cold" : "warm", *then = fa2i_rows_cell(&against->earlier, 0, L2);
    if (then == NULL || strcmp(now, then) == 0)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "%s: was measured with a %s L2, this benchmark has a %s one; %s --cold",
                     against->path, then, now, cold ? "leave out" : "add");
}

static fa2_status no_time(const fa2i_against *against, const fa2i_card *card)
{
    return fa2i_fail(FA2_E_INVALID,
                     "%s: has no time of these problems on %s with %d SMs; fa2-tune bench --json makes such a file",
                     against->path, card->name, card->sm_count);
}

fa2_status fa2i_against_meets(const fa2i_against *against, const fa2i_card *card, const fa2_problem *problems,
                              size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (find_earlier(&against->earlier, card, fa2i_problem_shape(&problems[i]).text) > 0)
            return FA2_OK;
    }
    return no_time(against, card);
}

fa2_status fa2i_against_print(const fa2i_against *against, const fa2i_card *card, const fa2i_benchmark *list,
                              size_t count, FILE *out, size_t *ret_slower)
{
    static const char *const titles[] = {"problem", "then us", "now us", "now / then", ""};
    fa2i_table table;
    fa2_status st = FA2_OK;
    *ret_slower = 0;
    fa2i_table_init(&table, "lrrrl", titles);
    for (size_t i = 0; i < count; i++) {
        const fa2i_timed *first = &list[i].timed[0]; /* the runtime's choice */
        const fa2i_shape shape = fa2i_problem_shape(&list[i].problem);
        const double then = find_earlier(&against->earlier, card, shape.text);
        if (list[i].count == 0 || first->outcome != FA2I_OUTCOME_OK || then <= 0)
            continue;
        const double now = first->us.order.median;
        const bool slower = against->most > 0 && now > against->most * then;
        fa2i_table_row(&table, "%s\t%.2f\t%.2f\t%.3f\t%s", shape.text, then, now, now / then, slower ? "too slow" : "");
        *ret_slower += slower;
    }
    if (fa2i_table_rows(&table) == 0) {
        st = no_time(against, card); /* those that it has were not timed now */
    } else {
        fa2i_shown_print(out, "\nagainst %s\n", against->path);
        st = fa2i_table_print(&table, out);
        if (fa2i_table_rows(&table) < count)
            fprintf(out, "not compared, because one of the two has no time of them: %zu of %zu problems\n",
                    count - fa2i_table_rows(&table), count);
    }
    fa2i_table_done(&table);
    return st;
}
