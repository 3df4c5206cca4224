/*
 * Rounds the sizes of problems, and compares them.
 *
 * - A distance is a sum of ln(larger / smaller), never of ln(a / b). So halving and doubling give the same bits, and
 *   equal distances compare equal.
 */
#include <math.h>
#include "runtime/base/problem.h"

int32_t fa2i_round_up(int32_t size, int64_t step, int bits)
{
    if (size <= 0) /* unbounded, or absent */
        return size;
    while (size / step >> bits != 0)
        step *= 2;
    const int64_t rounded = (size + step - 1) / step * step;
    return rounded > INT32_MAX ? size : (int32_t)rounded;
}

static int32_t round_field(int32_t size, fa2i_field_rounding rounding)
{
    switch (rounding) {
    case FA2I_ROUNDING_UP:
        return fa2i_round_up(size, 1, 4);
    case FA2I_ROUNDING_TILES:
        return fa2i_round_up(size, 16, 5);
    case FA2I_ROUNDING_EXACT:
        break;
    }
    return size;
}

/* A merge has partial results instead of keys, often two, and they come in no tiles. */
static fa2i_field_rounding rounding_of(const fa2_problem *problem, int field)
{
    return problem->op == FA2_OP_MERGE && field == FA2I_FIELD_seq_k ? FA2I_ROUNDING_UP : fa2i_fields[field].rounding;
}

fa2_problem fa2i_problem_rounded(const fa2_problem *problem)
{
    fa2_problem rounded = *problem;
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        fa2i_field_set(&rounded, field, round_field(fa2i_field_get(problem, field), rounding_of(problem, field)));
    return fa2i_problem_check(&rounded) == FA2_OK ? rounded : *problem;
}

/* Returns what a field counts for in a product. An unbounded window reaches over all keys, and a window of 0 is one key
 * wide. The number of query heads that share a key head decides how much is read, and the rows in a tile of several
 * heads. Its exponent was fitted on an H200 (tests/bench/replay.lua: one tuned problem against none), like
 * gen/core/factors.lua. */
static double magnitude(const fa2_problem *problem, int field)
{
    const int32_t value = fa2i_field_get(problem, field);
    if (fa2i_fields[field].distance == FA2I_DISTANCE_GROUP)
        return pow((double)problem->heads_q / value, 0.6);
    if (fa2i_fields[field].distance != FA2I_DISTANCE_WINDOW)
        return value;
    return value < 0 || value > problem->seq_k ? problem->seq_k + 1.0 : value + 1.0;
}

void fa2i_problem_products(const fa2_problem *problem, double out[FA2I_PRODUCTS])
{
    for (int i = 0; i < FA2I_PRODUCTS; i++)
        out[i] = 1;
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const int product = (int)fa2i_fields[field].distance - FA2I_DISTANCE_NONE - 1;
        if (product >= 0)
            out[product] *= magnitude(problem, field);
    }
}

double fa2i_problem_distance(const fa2_problem *a, const fa2_problem *b)
{
    double of_a[FA2I_PRODUCTS], of_b[FA2I_PRODUCTS], sum = 0;
    fa2i_problem_products(a, of_a);
    fa2i_problem_products(b, of_b);
    for (int i = 0; i < FA2I_PRODUCTS; i++)
        sum += log(of_a[i] > of_b[i] ? of_a[i] / of_b[i] : of_b[i] / of_a[i]);
    return sum;
}
