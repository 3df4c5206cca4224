/*
 * Dropout's reference on the host: the numbers that keys make, against values computed elsewhere, and what dropout.h
 * says of their distribution. Seeds are fixed, so the bounds, five or six standard deviations, are met always or never.
 */
#include <math.h>
#include <stdlib.h>
#include "check.h"
#include "runtime/ops/dropout.h"

/* The known answers of Random123 for philox4x32. */
static void test_philox(void)
{
    static const struct {
        uint32_t counter[4], key[2];
        int rounds;
        uint32_t answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, 7, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         7,
         {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         7,
         {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
        {{0, 0, 0, 0}, {0, 0}, 10, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t x[4];
        memcpy(x, known[i].counter, sizeof x);
        fa2i_philox(x, known[i].key[0], known[i].key[1], known[i].rounds);
        CHECK_EQ(memcmp(x, known[i].answer, sizeof x), 0);
    }
}

static uint32_t number_of(uint64_t seed, uint64_t offset, int64_t plane, int32_t row, int32_t pair)
{
    const fa2i_dropout_key of_row = fa2i_dropout_row_key(seed, offset, plane, row);
    const fa2i_dropout_key of_pair = fa2i_dropout_pair_key(seed, offset, pair);
    return fa2i_dropout_number(&of_row, &of_pair);
}

/* By dropout.h's words in Python, whose numbers have no width. Changing them changes every mask of every user. */
static void test_numbers(void)
{
    CHECK_EQ(number_of(0, 0, 0, 0, 0), 229948);
    CHECK_EQ(number_of(11, 5, 0, 0, 1), 291066);
    CHECK_EQ(number_of(11, 5, 3, 77, 200), 285542);
    CHECK_EQ(number_of(0x123456789abcdef0, 0xfedcba9876543210, 6, 1023, 41), 204163);
    CHECK_EQ(number_of(UINT64_C(0xffffffff) << 32, 1, 0x7fffffff, 0x1fffffff, 0xfffffff), 281024);
}

/* ---- the mask ---- */

/* Element by element, with a column that is no pair's second one, behind the columns that are made at once. */
static void test_mask_by_elements(void)
{
    enum { ROWS = 37, COLUMNS = 515, PLANES = 4 };
    const fa2_problem p = {
        .batch = 2, .heads_q = 2, .heads_kv = 1, .seq_q = ROWS, .seq_k = COLUMNS, .head_dim = 64};
    const fa2_dropout d = {.p = 0.17f, .seed = UINT64_C(7) << 33, .offset = UINT64_C(3) << 34};
    static uint8_t mask[PLANES * ROWS * COLUMNS];
    CHECK_EQ(fa2_dropout_mask(&p, &d, mask), FA2_OK);
    int wrong = 0;
    for (int at = 0; at < PLANES * ROWS * COLUMNS; at += 3) {
        const int plane = at / COLUMNS / ROWS, row = at / COLUMNS % ROWS, column = at % COLUMNS;
        const uint32_t number = number_of(d.seed, d.offset, plane, row, column / 2);
        const bool keeps = (column % 2 == 1 ? number >> 8 & 0xff : number & 0xff) >= 44;
        wrong += mask[at] != keeps;
        wrong += fa2i_dropout_keeps(44, d.seed, d.offset, plane, row, column) != keeps;
    }
    CHECK_EQ(wrong, 0);
}

/* The share that is kept, of the whole and of each row; every argument changes it. */
static void test_mask(void)
{
    enum { N = 96, ALL = 2 * 3 * N * N };
    const fa2_problem p = {
        .batch = 2, .heads_q = 3, .heads_kv = 3, .seq_q = N, .seq_k = N, .head_dim = 64};
    fa2_dropout d = {.p = 0.17f, .seed = 11, .offset = 5};
    static uint8_t mask[ALL], other[ALL];
    CHECK_EQ(fa2_dropout_mask(&p, &d, mask), FA2_OK);
    size_t kept = 0, same_rows = 0;
    for (size_t i = 0; i < ALL; i++)
        kept += mask[i];
    CHECK(fabs((double)kept / ALL - (1 - 44 / 256.0)) < 0.006);
    for (size_t row = 1; row < ALL / N; row++)
        same_rows += memcmp(mask + row * N, mask + (row - 1) * N, N) == 0;
    CHECK_EQ(same_rows, 0);
    for (int which = 0; which < 4; which++) {
        fa2_dropout changed = d;
        changed.seed += which == 0 ? 1 : which == 1 ? UINT64_C(1) << 40 : 0;
        changed.offset += which == 2 ? 1 : which == 3 ? UINT64_C(1) << 40 : 0;
        size_t equal = 0;
        CHECK_EQ(fa2_dropout_mask(&p, &changed, other), FA2_OK);
        for (size_t i = 0; i < ALL; i++)
            equal += mask[i] == other[i];
        CHECK(fabs((double)equal / ALL - (0.828 * 0.828 + 0.172 * 0.172)) < 0.01);
    }
    for (size_t head = 1; head < 6; head++)
        CHECK(memcmp(mask, mask + head * N * N, N * N) != 0);
    d.p = 0;
    CHECK_EQ(fa2_dropout_mask(&p, &d, mask), FA2_OK);
    CHECK(memchr(mask, 0, ALL) == NULL);
    d.p = 1;
    CHECK_EQ(fa2_dropout_mask(&p, &d, mask), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "dropout.p is 1");
    d.p = 0.5f;
    CHECK_EQ(fa2_dropout_mask(&p, &d, NULL), FA2_E_INVALID);
    CHECK_EQ(fa2_dropout_mask(&p, NULL, mask), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "dropout is NULL");
    d.seed_at = &d.seed;
    CHECK_EQ(fa2_dropout_mask(&p, &d, mask), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "for a mask on the host");
}

/* ---- the odd bytes ---- */

/* How many values the lowest byte has while byte `byte` of one key takes all of its own. */
static int values_of(const fa2i_dropout_key *fixed, fa2i_dropout_key moved, int byte)
{
    bool seen[256] = {false};
    int count = 0;
    for (uint32_t value = 0; value < 256; value++) {
        moved.words[0] = (moved.words[0] & ~(0xffu << 8 * byte)) | value << 8 * byte;
        const uint32_t number = fa2i_dropout_number(fixed, &moved);
        count += !seen[number & 0xff];
        seen[number & 0xff] = true;
    }
    return count;
}

/* What makes even columns' bytes uniform, for any row, and independent of another row's, for any pair. Forcing these
 * bits costs the others nothing: they are even and odd as often. */
static void test_permutations(void)
{
    enum { TRIALS = 400 };
    int rows = 0, pairs = 0, odd = 0;
    for (int i = 0; i < TRIALS; i++) {
        const fa2i_dropout_key row = fa2i_dropout_row_key(21, 0, i % 5, 7 * i);
        const fa2i_dropout_key pair = fa2i_dropout_pair_key(21, 0, 5 * i);
        rows += values_of(&row, pair, 0) == 256;
        pairs += values_of(&pair, row, 1) == 256;
        odd += (row.words[0] & 0x100) != 0;
        odd += (pair.words[0] & 1) != 0;
    }
    CHECK_EQ(rows, TRIALS);
    CHECK_EQ(pairs, TRIALS);
    CHECK(fabs((double)(odd - TRIALS)) < 5 * sqrt(TRIALS / 2.0));
}

/* ---- distributions ---- */

enum { PLANES = 3, ROWS = 256, COLUMNS = 512, PAIRS = COLUMNS / 2, ALL = PLANES * ROWS * COLUMNS };

static uint8_t bytes[ALL];
static float kept[ALL]; /* with mean 0 and variance 1 */

static int place(int plane, int row)
{
    return (plane * ROWS + row) * COLUMNS;
}

static void make_bytes(uint64_t seed, uint64_t offset)
{
    static fa2i_dropout_key pairs[PAIRS];
    for (int c = 0; c < PAIRS; c++)
        pairs[c] = fa2i_dropout_pair_key(seed, offset, c);
    for (int plane = 0; plane < PLANES; plane++)
        for (int row = 0; row < ROWS; row++) {
            const fa2i_dropout_key key = fa2i_dropout_row_key(seed, offset, plane, row);
            uint8_t *out = bytes + place(plane, row);
            for (int c = 0; c < PAIRS; c++) {
                const uint32_t number = fa2i_dropout_number(&key, &pairs[c]);
                out[2 * c] = (uint8_t)number;
                out[2 * c + 1] = (uint8_t)(number >> 8);
            }
        }
}

static double decide(int threshold)
{
    const double q = 1 - threshold / 256.0, scale = 1 / sqrt(q * (1 - q));
    double sum = 0;
    for (int at = 0; at < ALL; at++) {
        const double x = (bytes[at] >= threshold ? 1 - q : -q) * scale;
        kept[at] = (float)x;
        sum += x;
    }
    return sum / sqrt(ALL);
}

/* What is far from what chance makes of a sum with mean 0 and variance 1. */
static void check_chance(double z, double bound, const char *what, int a, int b, int c)
{
    if (!(fabs(z) < bound))
        fprintf(stderr, "%s %d %d %d: %.2f standard deviations\n", what, a, b, c, z);
    CHECK(fabs(z) < bound);
}

/* Chi square of all values of either byte. */
static void check_values(void)
{
    for (int odd = 0; odd < 2; odd++) {
        int counts[256] = {0};
        double square = 0;
        for (int at = odd; at < ALL; at += 2)
            counts[bytes[at]]++;
        const double expected = ALL / 2 / 256.0;
        for (int i = 0; i < 256; i++)
            square += (counts[i] - expected) * (counts[i] - expected) / expected;
        check_chance((square - 255) / sqrt(2 * 255), 6, "values of byte", odd, 0, 0);
    }
}

/* Sums of rows and of columns are as wide as those of independent decisions. */
static void check_sums(void)
{
    static double columns[COLUMNS];
    double of_rows = 0, of_columns = 0;
    memset(columns, 0, sizeof columns);
    for (int i = 0; i < PLANES * ROWS; i++) {
        const float *row = kept + place(0, i);
        double sum = 0;
        for (int j = 0; j < COLUMNS; j++) {
            sum += (double)row[j];
            columns[j] += (double)row[j];
        }
        of_rows += sum * sum / COLUMNS;
    }
    for (int j = 0; j < COLUMNS; j++)
        of_columns += columns[j] * columns[j] / (PLANES * ROWS);
    check_chance((of_rows - PLANES * ROWS) / sqrt(2.0 * PLANES * ROWS), 6, "rows", 0, 0, 0);
    check_chance((of_columns - COLUMNS) / sqrt(2.0 * COLUMNS), 6, "columns", 0, 0, 0);
}

/* Decisions so far apart, from every second column on. */
static double pairs_apart(int planes, int rows, int columns, int first)
{
    double sum = 0;
    int count = 0;
    for (int plane = 0; plane + planes < PLANES; plane++)
        for (int i = 0; i + rows < ROWS; i++)
            for (int j = first; j + columns < COLUMNS; j += 2, count++)
                sum += (double)kept[place(plane, i) + j] *
                       (double)kept[place(plane + planes, i + rows) + j + columns];
    return sum / sqrt(count);
}

/* Both decisions of each of two rows, in the same two columns. */
static double cycles(int rows, int columns, int first)
{
    double sum = 0;
    int count = 0;
    for (int plane = 0; plane < PLANES; plane++)
        for (int i = 0; i + rows < ROWS; i++)
            for (int j = first; j + columns < COLUMNS; j += 2, count++) {
                const float *a = kept + place(plane, i) + j, *b = kept + place(plane, i + rows) + j;
                sum += (double)a[0] * (double)a[columns] * (double)b[0] * (double)b[columns];
            }
    return sum / sqrt(count);
}

/* Row i in the columns of pair c against row c in those of pair i. */
static double mirrored(void)
{
    double sum = 0;
    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < i; c++)
            sum += (double)kept[place(0, i) + 2 * c] * (double)kept[place(0, c) + 2 * i];
    return sum / sqrt(ROWS * (ROWS - 1) / 2);
}

static void check_pairs(void)
{
    /* Neighbours, words of one call of Philox, and calls beside each other. */
    static const int apart[][3] = {{0, 0, 1},  {0, 0, 2}, {0, 0, 16}, {0, 0, 64}, {0, 1, 0},
                                   {0, 2, 0},  {0, 8, 0}, {0, 32, 0}, {0, 1, 1},  {0, 1, 2},
                                   {0, 8, 16}, {1, 0, 0}, {1, 1, 0},  {1, 0, 1},  {2, 0, 0}};
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        for (int first = 0; first < 2; first++) {
            const int *by = apart[i];
            check_chance(pairs_apart(by[0], by[1], by[2], first), 5, "apart", by[0], by[1], by[2]);
            if (by[0] == 0 && by[1] > 0)
                check_chance(cycles(by[1], by[2] > 0 ? by[2] : 2, first), 5, "cycle", by[1], by[2],
                             first);
        }
    check_chance(mirrored(), 5, "mirrored", 0, 0, 0);
}

static void test_distributions(void)
{
    static const uint64_t seeds[][2] = {{1, 0}, {2, 0}, {UINT64_C(1) << 63, 77}};
    static const int thresholds[] = {1, 26, 44, 128, 230};
    for (size_t s = 0; s < sizeof seeds / sizeof *seeds; s++) {
        make_bytes(seeds[s][0], seeds[s][1]);
        check_values();
        for (size_t t = 0; t < sizeof thresholds / sizeof *thresholds; t++) {
            check_chance(decide(thresholds[t]), 5, "kept at", thresholds[t], 0, 0);
            check_sums();
            if (thresholds[t] == 44 || thresholds[t] == 128)
                check_pairs();
        }
    }
}

int main(void)
{
    test_philox();
    test_numbers();
    test_mask_by_elements();
    test_mask();
    test_permutations();
    test_distributions();
    return check_done();
}
