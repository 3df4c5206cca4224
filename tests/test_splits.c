/* runtime/ops/splits compared with counting one by one: the keys that rows see, and the shares of tiles. */
#include "check.h"
#include "runtime/ops/splits.h"

static fa2_problem problem_of(int batch, int group, int heads_kv, int seq_q, int seq_k)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = batch,
                         .heads_q = group * heads_kv,
                         .heads_kv = heads_kv,
                         .seq_q = seq_q,
                         .seq_k = seq_k,
                         .head_dim = 64};
}

/* Counts the keys that the rows of one row tile of the packed matrix see. */
static int seen_by(const fa2_problem *p, int first_row, int rows)
{
    const int group = p->heads_q / p->heads_kv;
    int count = 0;
    for (int key = 0; key < p->seq_k; key++) {
        bool seen = false;
        for (int r = first_row; r < first_row + rows && r < p->seq_q * group && !seen; r++) {
            const int at = r / group + p->seq_k - p->seq_q;
            const bool left = !p->window || p->window_left < 0 || key >= at - p->window_left;
            const bool right = !p->window || p->window_right < 0 || key <= at + p->window_right;
            seen = left && right && (!p->causal || key <= at);
        }
        count += seen;
    }
    return count;
}

/* No row tile sees more keys than predicted, and the largest number is not much smaller. */
static void test_keys(void)
{
    static const int windows[][2] = {{-1, -1}, {0, 0}, {5, 0}, {17, 3}, {-1, 4}, {9, -1}};
    for (int group = 1; group <= 5; group++)
        for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
            for (int causal = 0; causal < 2; causal++)
                for (int seq_q = 1; seq_q < 40; seq_q += 13) {
                    fa2_problem p = problem_of(1, group, 1, seq_q, 61);
                    p.causal = causal;
                    p.window = 1;
                    p.window_left = windows[w][0];
                    p.window_right = windows[w][1];
                    const int said = (int)fa2i_row_tile_keys(&p, 16);
                    int most = 0;
                    for (int row = 0; row < seq_q * group; row += 16) {
                        const int seen = seen_by(&p, row, 16);
                        most = seen > most ? seen : most;
                    }
                    CHECK(most <= said && said <= 61 && said <= most + 2);
                    CHECK(p.window_left >= 0 ? said < 61 : said == 61);
                }
}

static void test_counts(void)
{
    const fa2i_splitting plan = {.rows = 16, .keys = 64, .waves = 2, .max_splits = 256};
    fa2_problem p = problem_of(1, 4, 8, 1, 4096);
    /* 8 row tiles, 100 SMs: 25 splits of 64 tiles are 3 tiles each, so 22. */
    CHECK_EQ(fa2i_split_count(&p, 100, &plan), 22);
    p.batch = 32;
    CHECK_EQ(fa2i_split_count(&p, 100, &plan), 1);
    p.batch = 1;
    /* A window of 128 keys overlaps three tiles. */
    p.window = 1;
    p.window_left = 127;
    p.window_right = 0;
    CHECK_EQ(fa2i_row_tile_keys(&p, 16), 128);
    CHECK_EQ(fa2i_split_count(&p, 100, &plan), 3);
    p.window_left = -1;
    CHECK_EQ(fa2i_split_count(&p, 100, &plan), 22);
    /* The recipe's limit. */
    p = problem_of(1, 1, 1, 1, 1 << 29);
    CHECK(fa2i_split_count(&p, 100000, &plan) <= 256);
    CHECK_EQ(fa2i_split_count(&p, 100000, &(fa2i_splitting){.rows = 16, .keys = 64, .waves = 2, .max_splits = 1}), 1);
    /* The largest problems. */
    p = problem_of(INT32_MAX, 1, 1 << 16, 1 << 29, 1 << 29);
    CHECK_EQ(fa2i_split_count(&p, 132, &plan), 1);
}

/* Every tile belongs to exactly one split, and no split is empty. */
static void test_shares(void)
{
    const fa2i_splitting plan = {.rows = 16, .keys = 64, .waves = 1, .max_splits = 256};
    for (int seq_k = 1; seq_k < 20000; seq_k += 61) {
        const fa2_problem p = problem_of(1, 1, 8, 1, seq_k);
        const int splits = fa2i_split_count(&p, 100, &plan);
        const int steps = (seq_k + 63) / 64, share = (steps + splits - 1) / splits;
        CHECK((splits - 1) * share < steps && splits * share >= steps);
    }
}

int main(void)
{
    test_keys();
    test_counts();
    test_shares();
    return check_done();
}
