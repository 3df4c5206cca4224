/*
 * The rows of all handlers, sorted by opcode, and the SM that an instruction needs.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "program.h"

static const sim_rows *const groups[] = {&sim_rows_integer,   &sim_rows_wide,   &sim_rows_float,    &sim_rows_convert,
                                         &sim_rows_predicate, &sim_rows_move,   &sim_rows_memory,   &sim_rows_atomic,
                                         &sim_rows_async,     &sim_rows_matrix, &sim_rows_exchange, &sim_rows_control,
                                         &sim_rows_mbarrier,  &sim_rows_bulk,   &sim_rows_products, &sim_rows_half};
enum { GROUPS = sizeof groups / sizeof *groups, ROWS_MAX = 2048 };

static const sim_row *sorted[ROWS_MAX];
static size_t sorted_count;
static pthread_once_t sorted_once = PTHREAD_ONCE_INIT;

/* Orders rows by opcode. Rows of one opcode keep the order in which they must be tried. */
static int compare_rows(const void *a, const void *b)
{
    const sim_row *x = *(const sim_row *const *)a, *y = *(const sim_row *const *)b;
    const int order = strcmp(x->opcode, y->opcode);
    return order != 0 ? order : (x > y) - (x < y);
}

static void sort_rows(void)
{
    for (size_t g = 0; g < GROUPS; g++)
        for (size_t i = 0; i < groups[g]->count && sorted_count < ROWS_MAX; i++)
            sorted[sorted_count++] = &groups[g]->rows[i];
    qsort(sorted, sorted_count, sizeof *sorted, compare_rows);
}

const sim_row *const *sim_find_rows(const char *opcode, size_t *ret_count)
{
    pthread_once(&sorted_once, sort_rows);
    size_t low = 0, high = sorted_count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (strcmp(sorted[middle]->opcode, opcode) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (high = low; high < sorted_count && strcmp(sorted[high]->opcode, opcode) == 0;)
        high++;
    *ret_count = high - low;
    return sorted + low;
}

static bool begins(const sim_row *row, const char *with)
{
    return strncmp(row->opcode, with, strlen(with)) == 0;
}

/* All other known instructions exist since sm_75. */
static bool needs_sm80(const sim_row *row)
{
    return begins(row, "mbarrier.") || begins(row, "cp.async.mbarrier.") || row->kind == SIM_KIND_ASYNC ||
           strstr(row->opcode, "m16n8k16") != NULL || strstr(row->opcode, "m16n8k32") != NULL ||
           strstr(row->opcode, "bf16") != NULL || strstr(row->opcode, "f16x2.f32") != NULL;
}

/* Conversions to 8-bit floats. */
static bool needs_sm89(const sim_row *row)
{
    return begins(row, "cvt.rn.satfinite.e4m3");
}

/* Vector additions in memory, stmatrix, and bulk copies. */
static bool needs_sm90(const sim_row *row)
{
    return begins(row, "red.global.add.v") || begins(row, "stmatrix.") || begins(row, "cp.async.bulk.") ||
           begins(row, "cp.reduce.async.bulk.") || begins(row, "fence.proxy.") || begins(row, "fence.mbarrier_init.") ||
           strstr(row->opcode, ".expect_tx.") != NULL || begins(row, "mbarrier.try_wait.");
}

/* Instructions that later SMs lack. */
static bool needs_sm90a(const sim_row *row)
{
    return begins(row, "wgmma.") || begins(row, "setmaxnreg.");
}

const char *sim_row_needs(const sim_row *row, const ptx_module *module)
{
    if (module->target_sm < 80 && needs_sm80(row))
        return "it needs sm_80";
    if (module->target_sm < 89 && needs_sm89(row))
        return "it needs sm_89";
    if (module->target_sm < 90 && needs_sm90(row))
        return "it needs sm_90";
    if (!(module->target_sm == 90 && module->target_specific) && needs_sm90a(row))
        return "it needs sm_90a";
    return NULL;
}
