#include "tuner/bench/scaling.h"

#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/report/table.h"

enum { STEPS = 5 };

bool fa2i_scale_parse(const char *text, fa2i_scale *ret_scale)
{
    static const char *const letters[FA2I_SCALES] = {"S", "B", "D"};
    for (int i = 0; i < FA2I_SCALES; i++) {
        if (strcmp(text, letters[i]) == 0) {
            *ret_scale = (fa2i_scale)i;
            return true;
        }
    }
    return false;
}

/* ---- problems ---- */

static bool is_square(const fa2_problem *p)
{
    return p->seq_q == p->seq_k;
}

static int32_t value_of(const fa2_problem *p, fa2i_scale axis)
{
    return axis == FA2I_SCALE_S ? p->seq_k : axis == FA2I_SCALE_B ? p->batch : p->head_dim;
}

static fa2_problem with_value(const fa2_problem *p, fa2i_scale axis, int32_t value)
{
    fa2_problem other = *p;
    if (axis == FA2I_SCALE_S) {
        other.seq_k = value;
        other.seq_q = is_square(p) ? value : p->seq_q;
    } else if (axis == FA2I_SCALE_B) {
        other.batch = value;
    } else {
        other.head_dim = value;
    }
    return other;
}

/* Returns the value of a step, 0 ... STEPS - 1; 0: there is no such step. */
static int32_t step_value(const fa2_problem *p, fa2i_scale axis, int step)
{
    const int32_t value = value_of(p, axis);
    if (axis == FA2I_SCALE_D)
        return step + 1 < STEPS ? 32 << step : 0;
    if (value > INT32_MAX / 16)
        return 0;
    return axis == FA2I_SCALE_B ? value << step : (value << step) / 4;
}

fa2_status fa2i_scaling_extend(fa2i_shapes *shapes, unsigned axes)
{
    fa2_status st = FA2_OK;
    const size_t given = shapes->count;
    for (size_t i = 0; i < given; i++) {
        for (int axis = 0; axis < FA2I_SCALES; axis++) {
            for (int step = 0; (axes >> axis & 1u) != 0 && step < STEPS; step++) {
                const fa2_problem p = shapes->items[i]; /* a copy, because adding moves the items */
                const int32_t value = step_value(&p, (fa2i_scale)axis, step);
                const fa2_problem other = with_value(&p, (fa2i_scale)axis, value);
                if (value > 0 && fa2i_problem_check(&other) == FA2_OK)
                    FA2_TRY(fa2i_shapes_add(shapes, &other, 0));
            }
        }
    }
done:
    return st;
}

/* ---- tables ---- */

/* Returns a problem that is equal for all problems of one table. */
static fa2_problem common(const fa2_problem *p, fa2i_scale axis)
{
    fa2_problem rest = with_value(p, axis, 0);
    if (axis == FA2I_SCALE_S && is_square(p))
        rest.seq_q = 0;
    return rest;
}

static const fa2i_timed *find(const fa2i_benchmark *b, bool naive)
{
    for (size_t i = 0; i < b->count; i++)
        if ((strcmp(b->timed[i].role, "naive") == 0) == naive && b->timed[i].us.n > 0)
            return &b->timed[i];
    return NULL;
}

typedef struct row {
    const fa2i_benchmark *b;
    int32_t value;
} row;

static int by_value(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

/* Gathers the problems of the table of list[first], in the order of their values. Returns 0 if an earlier problem has
 * the same table. */
static size_t gather(const fa2i_benchmark *list, size_t count, size_t first, fa2i_scale axis, row *rows)
{
    const fa2_problem key = common(&list[first].problem, axis);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        const fa2_problem other = common(&list[i].problem, axis);
        if (find(&list[i], false) == NULL || memcmp(&key, &other, sizeof key) != 0)
            continue;
        if (i < first)
            return 0;
        rows[found++] = (row){.b = &list[i], .value = value_of(&list[i].problem, axis)};
    }
    qsort(rows, found, sizeof *rows, by_value);
    return found;
}

static double tflops(const fa2i_benchmark *b)
{
    return b->flop / find(b, false)->us.order.median * 1e-6;
}

static void add_row(fa2i_table *table, const row *r, const row *first)
{
    const fa2i_timed *t = find(r->b, false), *naive = find(r->b, true);
    const double memory = (r->b->tensor_bytes + (double)t->workspace_bytes) / (r->b->tensor_bytes + r->b->square_bytes);
    fa2i_table_row(table, naive == NULL ? "%d\t%.3f\t%.2f\t%.2f\t%.1f %%" : "%d\t%.3f\t%.2f\t%.2f\t%.1f %%\t%.2f",
                   (int)r->value, t->us.order.median, tflops(r->b), tflops(r->b) / tflops(first->b), 100 * memory,
                   naive == NULL ? 0 : naive->us.order.median / t->us.order.median);
}

static fa2_status print_table(const row *rows, size_t count, fa2i_scale axis, FILE *out)
{
    static const char *const names[FA2I_SCALES] = {"S", "B", "D"};
    const char *titles[] = {names[axis], "median us", "TFLOPS", "x first", "memory", "naive x"};
    fa2i_table table;
    fa2i_table_init(&table, "rrrrrr", titles);
    for (size_t i = 0; i < count; i++)
        add_row(&table, &rows[i], &rows[0]);
    fprintf(out, "\nby %s: %s, and others\n", names[axis], fa2i_problem_shape(&rows[0].b->problem).text);
    return fa2i_table_end(&table, out);
}

fa2_status fa2i_scaling_print(const fa2i_benchmark *list, size_t count, FILE *out)
{
    fa2_status st = FA2_OK;
    row *rows = NULL;
    FA2_TRY(FA2I_NEW(rows, count + 1));
    for (int axis = 0; axis < FA2I_SCALES; axis++) {
        for (size_t i = 0; i < count; i++) {
            const size_t found = gather(list, count, i, (fa2i_scale)axis, rows);
            if (found > 1)
                FA2_TRY(print_table(rows, found, (fa2i_scale)axis, out));
        }
    }
done:
    fa2i_free(rows);
    return st;
}
