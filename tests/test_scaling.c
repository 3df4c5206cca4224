/* Problems that differ in one size: how they are derived, and tables of them. */
#include "check.h"
#include "tuner/bench/scaling.h"

static fa2_problem problem(int32_t batch, int32_t seq_q, int32_t seq_k, int32_t head_dim)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .op = FA2_OP_FORWARD,
                         .dtype = FA2_FP16,
                         .batch = batch,
                         .heads_q = 2,
                         .heads_kv = 2,
                         .seq_q = seq_q,
                         .seq_k = seq_k,
                         .head_dim = head_dim};
}

static bool has(const fa2i_shapes *shapes, fa2_problem wanted)
{
    for (size_t i = 0; i < shapes->count; i++)
        if (memcmp(&shapes->items[i], &wanted, sizeof wanted) == 0)
            return true;
    return false;
}

static void test_extend(void)
{
    fa2i_shapes shapes = {0};
    const fa2_problem square = problem(3, 128, 128, 64), decode = problem(1, 1, 2, 40);
    CHECK_EQ(fa2i_shapes_add(&shapes, &square, 0), FA2_OK);
    CHECK_EQ(fa2i_scaling_extend(&shapes, 1u << FA2I_SCALE_S | 1u << FA2I_SCALE_B), FA2_OK);
    CHECK_EQ(shapes.count, 9);
    CHECK(has(&shapes, problem(3, 32, 32, 64)) && has(&shapes, problem(3, 512, 512, 64)));
    CHECK(has(&shapes, problem(48, 128, 128, 64)) && !has(&shapes, problem(48, 512, 512, 64)));
    fa2i_shapes_done(&shapes);

    shapes = (fa2i_shapes){0};
    CHECK_EQ(fa2i_shapes_add(&shapes, &decode, 0), FA2_OK);
    CHECK_EQ(fa2i_scaling_extend(&shapes, 1u << FA2I_SCALE_S | 1u << FA2I_SCALE_D), FA2_OK);
    CHECK(has(&shapes, problem(1, 1, 8, 40))); /* one query stays one; a quarter of two keys would be none */
    CHECK(has(&shapes, problem(1, 1, 2, 256)) && has(&shapes, problem(1, 1, 2, 32)));
    CHECK_EQ(shapes.count, 1 + 3 + 4);
    fa2i_shapes_done(&shapes);
}

static fa2i_benchmark measured(fa2_problem p, double us, double naive_us)
{
    fa2i_benchmark b = {
        .problem = p, .flop = 1e9 * p.batch, .tensor_bytes = 100, .square_bytes = 300, .count = naive_us > 0 ? 2 : 1};
    b.timed[0] = (fa2i_timed){.role = "tuned", .us = {.n = 1, .order.median = us}};
    b.timed[1] = (fa2i_timed){.role = "naive", .us = {.n = 1, .order.median = naive_us}};
    return b;
}

static void test_tables(void)
{
    static const char wanted[] = "\nby B: B=1 Hq=2 Hkv=2 Sq=64 Sk=64 D=64 dtype=fp16 causal=0, and others\n"
                                 "B  median us  TFLOPS  x first  memory  naive x\n"
                                 "----------------------------------------------\n"
                                 "1     10.000  100.00     1.00  25.0 %     5.00\n"
                                 "2     12.500  160.00     1.60  25.0 %        -\n";
    char text[2048] = "";
    const fa2i_benchmark list[] = {measured(problem(2, 64, 64, 64), 12.5, 0),
                                   measured(problem(4, 64, 64, 64), 0, 0), /* was not measured */
                                   measured(problem(1, 64, 64, 64), 10, 50), measured(problem(1, 1, 64, 64), 10, 0)};
    fa2i_benchmark unmeasured[4];
    memcpy(unmeasured, list, sizeof list);
    unmeasured[1].timed[0].us.n = 0;
    FILE *out = fmemopen(text, sizeof text, "w");
    CHECK_EQ(fa2i_scaling_print(unmeasured, 4, out), FA2_OK);
    fclose(out);
    CHECK_STR(text, wanted);
}

static void test_letters(void)
{
    fa2i_scale scale = FA2I_SCALES;
    CHECK(fa2i_scale_parse("D", &scale) && scale == FA2I_SCALE_D);
    CHECK(!fa2i_scale_parse("H", &scale) && !fa2i_scale_parse("", &scale));
}

int main(void)
{
    test_extend();
    test_tables();
    test_letters();
    return check_done();
}
