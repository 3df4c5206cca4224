/*
 * Dropout's reference on the host: its random numbers against values computed elsewhere, and their distribution as
 * dropout.h describes it. Seeds are fixed, so the bounds of five or six standard deviations hold always or never.
 */
#include <math.h>
#include "check.h"
#include "runtime/ops/dropout.h"

/* Random123's known answers for philox4x32. */
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

/* Computed in Python from the words of dropout.h, with unbounded integers. Changing them changes every user's masks. */
static void test_numbers(void)
{
    CHECK_EQ(number_of(0, 0, 0, 0, 0), 229948);
    CHECK_EQ(number_of(11, 5, 0, 0, 1), 291066);
    CHECK_EQ(number_of(11, 5, 3, 77, 200), 285542);
    CHECK_EQ(number_of(0x123456789abcdef0, 0xfedcba9876543210, 6, 1023, 41), 204163);
    CHECK_EQ(number_of(UINT64_C(0xffffffff) << 32, 1, 0x7fffffff, 0x1fffffff, 0xfffffff), 281024);
}

/* ---- probability ---- */

static void test_thresholds(void)
{
    static const float exact[] = {0, 0x1p-20f, 0.00390625f, 0.5f, 0x1.fffffep-1f};
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        const fa2i_dropout_threshold t = fa2i_dropout_threshold_of(exact[i]);
        CHECK(t.byte == (int)(exact[i] * 256) && t.byte + ldexp(t.part, -32) == (double)exact[i] * 256);
    }
    CHECK(fa2i_dropout_scale(0.17f) == (float)(1 / (1 - (double)0.17f)));
    CHECK(fa2i_dropout_scale(0.5f) == 2 && fa2i_dropout_scale(0) == 1);
    CHECK(fa2i_dropout_scale(0x1.fffffep-1f) == 0x1p24f);
}

/* Computed in Python like the numbers above. A choice is found by counting the thresholds above it. */
static void test_choices(void)
{
    static const struct {
        uint64_t seed, offset;
        int64_t plane;
        int32_t row, column;
        uint32_t choice;
    } known[] = {
        {UINT64_C(0x0), UINT64_C(0x0), 0x0, 0x0, 0x0, 0xceadf8d},
        {UINT64_C(0xb), UINT64_C(0x5), 0x0, 0x1f, 0x3, 0x76d641bb},
        {UINT64_C(0xb), UINT64_C(0x5), 0x3, 0x4d, 0x190, 0x4d80f1a4},
        {UINT64_C(0x123456789abcdef0), UINT64_C(0xfedcba9876543210), 0x6, 0x3ff, 0x53, 0xd648d387},
        {UINT64_C(0xffffffff00000000), UINT64_C(0x1), 0x7fffffff, 0x1fffffff, 0x1fffffff, 0x2a53357a},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const uint32_t word = fa2i_dropout_word(known[i].seed, known[i].offset, known[i].plane, known[i].row);
        const fa2i_dropout_threshold not_below = {43, known[i].choice}, below = {43, known[i].choice + 1};
        CHECK_EQ(fa2i_dropout_choose(not_below, word, known[i].row, known[i].column), 43);
        CHECK_EQ(fa2i_dropout_choose(below, word, known[i].row, known[i].column), 44);
    }
}

/* FlashAttention's tests use 0.17. 0.001 is below 1/256, so choices alone decide which elements may be dropped. */
static const float probabilities[] = {0.17f, 0.1f, 0.001f, 0.5f, 0.9f};
enum { PROBABILITIES = sizeof probabilities / sizeof *probabilities };

/* Counts a row's dropped elements for each probability. */
static void count_row(const fa2i_dropout_key *row_key, const fa2i_dropout_key *pairs, int pair_count, uint32_t word,
                      int32_t row, int64_t dropped[PROBABILITIES])
{
    fa2i_dropout_threshold thresholds[PROBABILITIES];
    for (int i = 0; i < PROBABILITIES; i++)
        thresholds[i] = fa2i_dropout_threshold_of(probabilities[i]);
    for (int c = 0; c < pair_count; c++) {
        const uint32_t number = fa2i_dropout_number(row_key, &pairs[c]);
        for (int i = 0; i < PROBABILITIES; i++) {
            dropped[i] += (number & 0xff) < fa2i_dropout_choose(thresholds[i], word, row, 2 * c);
            dropped[i] += (number >> 8 & 0xff) < fa2i_dropout_choose(thresholds[i], word, row, 2 * c + 1);
        }
    }
}

/* Over 2^30 elements (under the sanitizers: 2^25) the share of dropped ones is within 2^-16 of p, apart from chance. So
 * the mean of kept elements, scaled, is 1. */
static void test_probability(void)
{
    enum { EDGE = 4096, HEADS = CHECK_IS_SANITIZED ? 2 : 64 };
    static fa2i_dropout_key pairs[EDGE / 2];
    int64_t dropped[PROBABILITIES] = {0};
    for (int head = 0; head < HEADS; head++) {
        const uint64_t seed = (uint64_t)head / 8;
        for (int c = 0; c < EDGE / 2; c++)
            pairs[c] = fa2i_dropout_pair_key(seed, 4, c);
        for (int32_t row = 0; row < EDGE; row++) {
            const fa2i_dropout_key key = fa2i_dropout_row_key(seed, 4, head, row);
            count_row(&key, pairs, EDGE / 2, fa2i_dropout_word(seed, 4, head, row), row, dropped);
        }
    }
    for (int i = 0; i < PROBABILITIES; i++) {
        const double all = (double)EDGE * EDGE * HEADS, p = (double)probabilities[i], share = (double)dropped[i] / all;
        const double chance = 3 * sqrt(p * (1 - p) / all);
        if (!(fabs(share - p) < 0x1p-16 + chance))
            fprintf(stderr, "p = %g: %.8f of %g are dropped, %+.1e\n", p, share, all, share - p);
        CHECK(fabs(share - p) < 0x1p-16 + chance);
        CHECK(fabs((1 - share) * (double)fa2i_dropout_scale(probabilities[i]) - 1) <
              (0x1p-16 + chance) / (1 - p) + 1e-7);
    }
}

/* Two elements at a fixed distance are dropped together with probability p^2, within dropout.h's bounds. Among 2^25 of
 * them (under the sanitizers: 2^21), some share a choice. */
static void check_together(const uint8_t *mask, int edge, int heads, double p, const int apart[3])
{
    int64_t together = 0, count = 0;
    for (int head = 0; head + apart[0] < heads; head++)
        for (int row = 0; row + apart[1] < edge; row++) {
            const uint8_t *a = mask + ((int64_t)head * edge + row) * edge;
            const uint8_t *b = a + ((int64_t)apart[0] * edge + apart[1]) * edge + apart[2];
            int of_row = 0;
            for (int column = 0; column + apart[2] < edge; column++)
                of_row += !(a[column] | b[column]);
            together += of_row;
            count += edge - apart[2];
        }
    const double all = (double)count, share = (double)together / all;
    const double chance = 5 * p * (1 - p) / sqrt(all);        /* deviation of the covariance's estimate */
    const double shift = 2 * p * 5 * sqrt(p * (1 - p) / all); /* the two shares differ from p */
    if (!(fabs(share - p * p) < 4e-6 + chance + shift))
        fprintf(stderr, "p = %g, %d %d %d apart: %g together, not %g\n", p, apart[0], apart[1], apart[2], share, p * p);
    CHECK(fabs(share - p * p) < 4e-6 + chance + shift);
}

static void test_independence(void)
{
    enum { EDGE = CHECK_IS_SANITIZED ? 512 : 2048, HEADS = 8 };
    static uint8_t mask[HEADS * EDGE * EDGE];
    /* In a pair, in the next row, in the next quarter of 8 columns, in the next 8 with one choice; in other heads. */
    static const int apart[][3] = {{0, 0, 1}, {0, 1, 0},  {0, 1, 1}, {0, 0, 2},  {0, 0, 8}, {0, 8, 0},
                                   {0, 8, 8}, {0, 32, 0}, {0, 2, 0}, {0, 0, 64}, {1, 0, 0}, {1, 1, 1}};
    const fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                                 .batch = 1,
                                 .heads_q = HEADS,
                                 .heads_kv = HEADS,
                                 .seq_q = EDGE,
                                 .seq_k = EDGE,
                                 .head_dim = 64};
    for (int i = 0; i < PROBABILITIES; i++) {
        const fa2_dropout d = {.p = probabilities[i], .seed = 5, .offset = 9};
        CHECK_EQ(fa2_dropout_mask(&problem, &d, mask), FA2_OK);
        for (size_t j = 0; j < sizeof apart / sizeof *apart; j++)
            check_together(mask, EDGE, HEADS, (double)d.p, apart[j]);
    }
}

/* ---- the mask ---- */

/* Element by element, including a column without a second one in its pair, after the columns that are made at once. */
static void test_mask_by_elements(void)
{
    enum { ROWS = 37, COLUMNS = 515, PLANES = 4 };
    const fa2_problem p = {.struct_bytes = sizeof(fa2_problem),
                           .batch = 2,
                           .heads_q = 2,
                           .heads_kv = 1,
                           .seq_q = ROWS,
                           .seq_k = COLUMNS,
                           .head_dim = 64};
    const fa2_dropout d = {.p = 0.17f, .seed = UINT64_C(7) << 33, .offset = UINT64_C(3) << 34};
    static uint8_t mask[PLANES * ROWS * COLUMNS];
    CHECK_EQ(fa2_dropout_mask(&p, &d, mask), FA2_OK);
    int wrong = 0, higher = 0;
    for (int at = 0; at < PLANES * ROWS * COLUMNS; at += 3) {
        const int plane = at / COLUMNS / ROWS, row = at / COLUMNS % ROWS, column = at % COLUMNS;
        const uint32_t number = number_of(d.seed, d.offset, plane, row, column / 2);
        const uint32_t word = fa2i_dropout_word(d.seed, d.offset, plane, row);
        const uint32_t least = fa2i_dropout_choose(fa2i_dropout_threshold_of(d.p), word, row, column);
        const bool keeps = (column % 2 == 1 ? number >> 8 & 0xff : number & 0xff) >= least;
        CHECK(least == 43 || least == 44);
        higher += least == 44;
        wrong += mask[at] != keeps;
        wrong += fa2i_dropout_keeps(d.p, d.seed, d.offset, plane, row, column) != keeps;
    }
    CHECK_EQ(wrong, 0);
    CHECK(fabs(higher / (PLANES * ROWS * COLUMNS / 3.0) - 0.52) < 0.05);
}

/* The share of kept elements, in the whole and in each row. Every argument changes the mask. */
static void test_mask(void)
{
    enum { N = 96, ALL = 2 * 3 * N * N };
    const fa2_problem p = {.struct_bytes = sizeof(fa2_problem),
                           .batch = 2,
                           .heads_q = 3,
                           .heads_kv = 3,
                           .seq_q = N,
                           .seq_k = N,
                           .head_dim = 64};
    fa2_dropout d = {.p = 0.17f, .seed = 11, .offset = 5};
    static uint8_t mask[ALL], other[ALL];
    CHECK_EQ(fa2_dropout_mask(&p, &d, mask), FA2_OK);
    size_t kept = 0, same_rows = 0;
    for (size_t i = 0; i < ALL; i++)
        kept += mask[i];
    CHECK(fabs((double)kept / ALL - 0.83) < 0.006);
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
        CHECK(fabs((double)equal / ALL - (0.83 * 0.83 + 0.17 * 0.17)) < 0.01);
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

/* Returns how many values the lowest byte takes while byte `byte` of one key takes all its values. */
static int values_of(const fa2i_dropout_key *fixed, fa2i_dropout_key moved, int byte)
{
    bool seen[256] = {false};
    int count = 0;
    for (uint32_t value = 0; value < 256; value++) {
        moved.bytes[byte] = (int16_t)value;
        const uint32_t number = fa2i_dropout_number(fixed, &moved);
        count += !seen[number & 0xff];
        seen[number & 0xff] = true;
    }
    return count;
}

/* The property that makes even columns' bytes uniform for any row, and independent of another row's for any pair.
 * Forcing these bits does not bias the others: they are even and odd equally often. */
static void test_permutations(void)
{
    enum { TRIALS = 400 };
    int rows = 0, pairs = 0, odd = 0;
    for (int i = 0; i < TRIALS; i++) {
        const fa2i_dropout_key row = fa2i_dropout_row_key(21, 0, i % 5, 7 * i);
        const fa2i_dropout_key pair = fa2i_dropout_pair_key(21, 0, 5 * i);
        rows += values_of(&row, pair, 0) == 256;
        pairs += values_of(&pair, row, 1) == 256;
        odd += row.bytes[1] % 2;
        odd += pair.bytes[0] % 2;
    }
    CHECK_EQ(rows, TRIALS);
    CHECK_EQ(pairs, TRIALS);
    CHECK(fabs((double)(odd - TRIALS)) < 5 * sqrt(TRIALS / 2.0));
}

/* ---- distributions ---- */

enum { PLANES = 3, ROWS = 256, COLUMNS = 512, PAIRS = COLUMNS / 2, ALL = PLANES * ROWS * COLUMNS };

static uint8_t bytes[ALL];
static float kept[ALL]; /* scaled to mean 0 and variance 1 */

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

static double decide(float p, uint64_t seed, uint64_t offset)
{
    const double q = 1 - (double)p, scale = 1 / sqrt(q * (1 - q));
    const fa2i_dropout_threshold threshold = fa2i_dropout_threshold_of(p);
    double sum = 0;
    for (int i = 0; i < PLANES * ROWS; i++) {
        const uint32_t word = fa2i_dropout_word(seed, offset, i / ROWS, i % ROWS);
        for (int j = 0; j < COLUMNS; j++) {
            const int at = i * COLUMNS + j;
            const double x = (bytes[at] >= fa2i_dropout_choose(threshold, word, i % ROWS, j) ? 1 - q : -q) * scale;
            kept[at] = (float)x;
            sum += x;
        }
    }
    return sum / sqrt(ALL);
}

/* Fails if z, a sum with mean 0 and variance 1, is unlikely by chance. */
static void check_chance(double z, double bound, const char *what, int a, int b, int c)
{
    if (!(fabs(z) < bound))
        fprintf(stderr, "%s %d %d %d: %.2f standard deviations\n", what, a, b, c, z);
    CHECK(fabs(z) < bound);
}

/* Chi-square test of all values of either byte. */
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

/* Sums of rows and of columns have the variance of independent decisions. */
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

/* Correlates decisions at this distance, from every second column on. */
static double pairs_apart(int planes, int rows, int columns, int first)
{
    double sum = 0;
    int count = 0;
    for (int plane = 0; plane + planes < PLANES; plane++)
        for (int i = 0; i + rows < ROWS; i++)
            for (int j = first; j + columns < COLUMNS; j += 2, count++)
                sum += (double)kept[place(plane, i) + j] * (double)kept[place(plane + planes, i + rows) + j + columns];
    return sum / sqrt(count);
}

/* Correlates both decisions of each of two rows, in the same two columns. */
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

/* Correlates row i in the columns of pair c with row c in the columns of pair i. */
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
    /* Neighbours, words of one call of Philox, and neighbouring calls. */
    static const int apart[][3] = {{0, 0, 1},  {0, 0, 2}, {0, 0, 16}, {0, 0, 64}, {0, 1, 0},
                                   {0, 2, 0},  {0, 8, 0}, {0, 32, 0}, {0, 1, 1},  {0, 1, 2},
                                   {0, 8, 16}, {1, 0, 0}, {1, 1, 0},  {1, 0, 1},  {2, 0, 0}};
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        for (int first = 0; first < 2; first++) {
            const int *by = apart[i];
            check_chance(pairs_apart(by[0], by[1], by[2], first), 5, "apart", by[0], by[1], by[2]);
            if (by[0] == 0 && by[1] > 0)
                check_chance(cycles(by[1], by[2] > 0 ? by[2] : 2, first), 5, "cycle", by[1], by[2], first);
        }
    check_chance(mirrored(), 5, "mirrored", 0, 0, 0);
}

static void test_distributions(void)
{
    static const uint64_t seeds[][2] = {{1, 0}, {2, 0}, {UINT64_C(1) << 63, 77}};
    for (size_t s = 0; s < sizeof seeds / sizeof *seeds; s++) {
        make_bytes(seeds[s][0], seeds[s][1]);
        check_values();
        for (int i = 0; i < PROBABILITIES; i++) {
            check_chance(decide(probabilities[i], seeds[s][0], seeds[s][1]), 5, "kept at", i, 0, 0);
            check_sums();
            if (probabilities[i] == 0.17f || probabilities[i] == 0.5f)
                check_pairs();
        }
    }
}

int main(void)
{
    test_philox();
    test_numbers();
    test_thresholds();
    test_choices();
    test_probability();
    test_independence();
    test_mask_by_elements();
    test_mask();
    test_permutations();
    test_distributions();
    return check_done();
}
