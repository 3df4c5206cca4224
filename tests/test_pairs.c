/*
 * The sets of pairs.h. Every two settings are together in a set, except for pairs that fa2i_problem_check() refuses. It
 * refuses exactly the pairs listed here. For every two settings, a set has the first without the second.
 */
#include "tests/check.h"
#include "tests/pairs.h"

/* Refused pairs. Remove a line when its pair becomes valid; a new refusal must be added. */
static const char *const refused[][2] = {
    {"varlen", "leftpad"},   {"varlen", "cache_rows"},     {"paged", "cache_rows"},     {"v_in_k", "int8_cache"},
    {"v_in_k", "fp8_cache"}, {"int8_cache", "beyond_256"}, {"fp8_cache", "beyond_256"}, {"merged", "carried"},
};
enum { REFUSED = sizeof refused / sizeof *refused };

static bool is_listed(pairs_list list, int a, int b)
{
    for (size_t i = 0; i < REFUSED; i++)
        if (strcmp(refused[i][0], pairs_name(list, a)) == 0 && strcmp(refused[i][1], pairs_name(list, b)) == 0)
            return true;
    return false;
}

/* Counts the sets with both settings; or with a and without b. */
static int count_sets(const uint64_t *sets, size_t count, int a, int b, bool with)
{
    int found = 0;
    for (size_t i = 0; i < count; i++)
        found += sets[i] >> a & 1 && (sets[i] >> b & 1) == with;
    return found;
}

static void fail_for(const char *what, pairs_list list, int a, int b)
{
    fprintf(stderr, "%s and %s: %s\n", pairs_name(list, a), pairs_name(list, b), what);
    check_failures++;
}

static void test_two(pairs_list list, const uint64_t *sets, size_t count, int a, int b)
{
    const bool allowed = pairs_allowed(list, pairs_of(list, a, b));
    check_count += 3;
    if (allowed == is_listed(list, a, b))
        fail_for(allowed ? "no longer refused" : "refused, and not expected to be", list, a, b);
    if (allowed && count_sets(sets, count, a, b, true) == 0)
        fail_for("in no set together", list, a, b);
    if (!(pairs_of(list, a, a) >> b & 1) && count_sets(sets, count, a, b, false) == 0)
        fail_for("the first in no set without the second", list, a, b);
    if (!(pairs_of(list, b, b) >> a & 1) && count_sets(sets, count, b, a, false) == 0)
        fail_for("the second in no set without the first", list, a, b);
}

static void test_list(pairs_list list)
{
    uint64_t sets[PAIRS_SETS_MAX];
    const size_t count = pairs_sets(list, sets);
    const int settings = pairs_count(list);
    int pairs = 0;
    CHECK(count < PAIRS_SETS_MAX);
    for (size_t i = 0; i < count; i++)
        CHECK(pairs_allowed(list, sets[i]));
    for (int a = 0; a < settings; a++)
        for (int b = a + 1; b < settings; b++)
            if (!pairs_exclude(list, a, b)) {
                test_two(list, sets, count, a, b);
                pairs++;
            }
    printf("%d settings, %d pairs, %zu sets\n", settings, pairs, count);
}

int main(void)
{
    for (int list = 0; list < PAIRS_LISTS; list++)
        test_list((pairs_list)list);
    return check_done();
}
