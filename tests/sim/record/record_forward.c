/*
 * Runs whole kernels on a CUDA device and prints rows of their results. It prints one line per case: variant, problem
 * and number of splits, then O and LSE of these rows as hexadecimal words.
 *
 *     sim_record_forward              print
 *     sim_record_forward RECORD       compare with a record made elsewhere
 *
 * A record made on a real GPU checks the software device (libfa2sim.so). The record does not contain the kernels. They
 * are generated and compiled to PTX anew each time, so the record survives changes of the templates. Renew it if a
 * case, its number of splits or the inputs (tuner/judge/case.h) change, on a GPU with SM 8.0 or newer:
 *
 *     sim_record_forward >tests/sim/record/h100_forward.txt
 *
 * runtime/cuda/cuda_api.h says where it finds the driver and NVRTC.
 *
 * Two devices may differ where the PTX ISA allows it: ex2 and lg2 are approximations, and mma may sum in any order.
 * record.c allows them 2^-22 of the value and 2^-18. The effects here are:
 * - LSE, a score plus a logarithm, differs by at most lse_tolerance.
 * - P is rounded to the dtype before P V. If P is nearly halfway between two numbers of the dtype, it may round to the
 *   other one. That is rare, so most of O must be equal to the bit. It changes a whole row of O, small numbers as much
 *   as large ones. So the rest may differ by one unit in the last place of the largest number of its row.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "tuner/judge/number.h"
#include "tuner/worker/bench_gpu.h"

enum { OPERAND_O = 3, OPERAND_LSE }; /* indices in forward's list of operands */

enum {
    ROWS = 12, /* per case, evenly spaced from the first to the last */
    D_MAX = 128,
    WORDS_MAX = ROWS * (D_MAX / 2 + 1),
    NAME_CHARS = 2 * FA2I_VARIANT_CHARS,
    /* The minimum for O. It is 98 or more on a software device whose mma truncates sums 23 bits below their largest
     * term, or whose ex2 is off by 2^-22. */
    EQUAL_PERCENT = 95
};

/* The variant gives dtype, D and causal. Every row sees a key. There are so few key tiles that the number of splits
 * does not depend on the number of SMs. */
typedef struct test_case {
    const char *variant;
    int batch, heads_q, heads_kv, seq_q, seq_k;
} test_case;

static const test_case cases[] = {
    {"fwd_sm75 d=64 dtype=fp16 causal=0 br=64 bc=64 warps=4 kstages=1 vstages=1 layout=swizzle "
     "q=smem fill=whole",
     1, 2, 2, 70, 150},
    {"fwd_sm75 d=64 dtype=fp16 causal=1 br=128 bc=32 warps=4 kstages=2 vstages=2 layout=swizzle "
     "q=reg fill=whole",
     1, 2, 1, 140, 140},
    {"fwd_sm80 d=64 dtype=fp16 causal=0 br=64 bc=64 warps=4 kstages=2 vstages=1 layout=swizzle "
     "q=reg fill=whole",
     1, 2, 2, 70, 150},
    {"fwd_sm80 d=64 dtype=fp16 causal=1 br=128 bc=64 warps=4 kstages=2 vstages=2 layout=swizzle "
     "q=smem fill=spread",
     1, 2, 1, 140, 140},
    {"fwd_sm80 d=128 dtype=fp16 causal=1 br=64 bc=32 warps=4 kstages=3 vstages=3 layout=swizzle "
     "q=smem fill=whole",
     1, 1, 1, 90, 120},
    {"fwd_sm80 d=40 dtype=fp16 causal=0 br=32 bc=48 warps=2 kstages=1 vstages=1 layout=pad q=reg "
     "fill=whole",
     1, 2, 1, 50, 130},
    {"fwd_sm80 d=64 dtype=bf16 causal=1 br=64 bc=64 warps=2 kstages=2 vstages=2 layout=swizzle "
     "q=reg fill=whole",
     1, 2, 1, 140, 140},
    {"fwd_splitkv_sm75 d=64 dtype=fp16 causal=0 br=16 bc=32 warps=2 teams=2 kstages=2 vstages=2 "
     "waves=1 layout=swizzle q=smem",
     2, 8, 2, 1, 250},
    {"fwd_splitkv_sm80 d=64 dtype=fp16 causal=0 br=16 bc=64 warps=1 teams=1 kstages=2 vstages=2 "
     "waves=1 layout=swizzle q=reg",
     2, 8, 1, 1, 300},
    {"fwd_splitkv_sm80 d=64 dtype=fp16 causal=1 br=32 bc=32 warps=8 teams=4 kstages=2 vstages=2 "
     "waves=2 layout=swizzle q=smem",
     1, 4, 2, 9, 500},
    {"fwd_splitkv_sm80 d=64 dtype=fp16 causal=0 br=64 bc=16 warps=8 teams=2 kstages=3 vstages=3 "
     "waves=1 layout=swizzle q=reg",
     1, 1, 1, 70, 30},
    {"fwd_splitkv_sm80 d=128 dtype=bf16 causal=1 br=16 bc=16 warps=8 teams=8 kstages=1 vstages=1 "
     "waves=1 layout=swizzle q=smem",
     1, 8, 2, 3, 260},
};
enum { CASES = sizeof cases / sizeof *cases };

/* The results of a case. */
typedef struct outputs {
    char name[NAME_CHARS];
    fa2_dtype dtype;
    size_t o_elems;            /* [ROWS, D] */
    uint32_t words[WORDS_MAX]; /* O, two to a word, then LSE, [ROWS] */
} outputs;

static size_t word_count(const outputs *out)
{
    return out->o_elems / 2 + ROWS;
}

/* ---- running ---- */

static fa2_status case_of(const test_case *t, fa2i_case *ret_case)
{
    fa2i_case c = {.problem = {.op = FA2_OP_FORWARD,
                               .batch = t->batch,
                               .heads_q = t->heads_q,
                               .heads_kv = t->heads_kv,
                               .seq_q = t->seq_q,
                               .seq_k = t->seq_k},
                   .want_lse = 1,
                   .q_magnitude = 1,
                   .seed = 1};
    fa2_problem *p = &c.problem;
    char dtype[8] = "";
    int32_t element = 0;
    if (sscanf(t->variant, "%*s d=%" SCNd32 " dtype=%7s causal=%" SCNd32, &p->head_dim, dtype, &p->causal) != 3 ||
        !fa2i_field_parse_word(FA2I_FIELD_dtype, dtype, &element) || p->head_dim > D_MAX)
        return fa2i_fail(FA2_E_INVALID, "d, dtype and causal do not come first, or d > %d", D_MAX);
    p->dtype = (fa2_dtype)element;
    *ret_case = c;
    return FA2_OK;
}

/* Chooses the rows of O, and the same rows of LSE. */
static void choose_rows(const fa2_problem *p, fa2i_place places[2 * ROWS])
{
    const int total = p->batch * p->heads_q * p->seq_q;
    assert(total >= ROWS);
    for (int i = 0; i < ROWS; i++) {
        const int at = i * (total - 1) / (ROWS - 1);
        places[i] = (fa2i_place){.operand = OPERAND_O,
                                 .batch = at / (p->heads_q * p->seq_q),
                                 .head = at / p->seq_q % p->heads_q,
                                 .row = at % p->seq_q};
        places[ROWS + i] = places[i];
        places[ROWS + i].operand = OPERAND_LSE;
    }
}

/* Compiles PTX for the family's own SM on every GPU. */
static fa2_status compile(fa2i_generator *generator, const char *text, fa2i_kernel *ret_kernel)
{
    fa2_status st = FA2_OK;
    fa2i_variant variant;
    fa2i_target target;
    char *source = NULL;

    st = fa2i_generator_variant(generator, text, &variant);
    if (st != FA2_OK)
        FA2_TRY(fa2i_fail(st,
                          "%s\nis no longer legal: put another (fa2-tune explain) into %s and "
                          "renew the record",
                          fa2_last_message(), __FILE__));
    FA2_TRY(fa2i_generator_source(generator, text, &source));
    FA2_TRY(fa2i_target_for(atoi(strstr(text, "_sm") + 3), true, &target));
    FA2_TRY(fa2i_compile(&variant, source, &target, "record", ret_kernel));
    if (ret_kernel->outcome != FA2I_OUTCOME_OK)
        st = fa2i_fail(FA2_E_COMPILE, "%s", ret_kernel->log != NULL ? ret_kernel->log : "no code, and no log");
done:
    fa2i_free(source);
    return st;
}

static fa2_status run(fa2i_bench *bench, fa2i_generator *generator, const test_case *t, outputs *ret_outputs)
{
    fa2_status st = FA2_OK;
    fa2i_case c;
    fa2i_kernel kernel = {0};
    fa2i_place places[2 * ROWS];
    uint32_t overwritten = 0;

    FA2_TRY(case_of(t, &c));
    FA2_TRY(compile(generator, t->variant, &kernel));
    FA2_TRY(fa2i_bench_load(bench, 0, &kernel));
    FA2_TRY(fa2i_bench_case(bench, &c));
    FA2_TRY(fa2i_bench_launch(bench, 0, &overwritten));
    if (overwritten > 0)
        FA2_TRY(fa2i_fail(FA2_E_CUDA, "%u words outside of the outputs are overwritten", (unsigned)overwritten));
    choose_rows(&c.problem, places);
    FA2_TRY(fa2i_bench_output(bench, places, 2 * ROWS, ret_outputs->words));
    ret_outputs->dtype = c.problem.dtype;
    ret_outputs->o_elems = ROWS * (size_t)c.problem.head_dim;
    snprintf(ret_outputs->name, sizeof ret_outputs->name, "%s, %s, splits=%d", t->variant,
             fa2i_problem_shape(&c.problem).text, (int)bench->slots[0].grid.splits);
done:
    fa2i_kernel_done(&kernel);
    return st;
}

static void print(const outputs *out)
{
    printf("%s:", out->name);
    for (size_t i = 0; i < word_count(out); i++)
        printf(" %08x", (unsigned)out->words[i]);
    printf("\n");
}

/* ---- comparison ---- */

/* Finds the words of the record's line with this name. Returns false if there is none, or its length differs. */
static bool find_recorded(FILE *record, const outputs *out, uint32_t words[WORDS_MAX])
{
    static char line[NAME_CHARS + WORDS_MAX * 9 + 16];
    const size_t length = strlen(out->name);
    rewind(record);
    while (fgets(line, sizeof line, record) != NULL) {
        if (strncmp(line, out->name, length) != 0 || line[length] != ':')
            continue;
        char *at = line + length + 1;
        for (size_t i = 0; i < word_count(out); i++) {
            char *const before = at;
            words[i] = (uint32_t)strtoul(before, &at, 16);
            if (at == before)
                return false;
        }
        return *at == '\n';
    }
    return false;
}

typedef struct agreement {
    size_t count, equal, beyond; /* beyond: differs by more than the tolerance, or is not finite */
    double worst;                /* largest ratio of difference to tolerance */
} agreement;

static void compare(agreement *a, bool equal, double x, double y, double tolerance)
{
    const double error = fabs(x - y) / tolerance;
    a->count++;
    a->equal += equal;
    a->beyond += !(isfinite(x) && error <= 1);
    a->worst = fmax(a->worst, error);
}

static uint16_t o_bits(const uint32_t *words, size_t elem)
{
    return (uint16_t)(words[elem / 2] >> elem % 2 * 16);
}

/* Returns the unit in the last place of a normal number. */
static double unit_of(fa2_dtype dtype, double x)
{
    return ldexp(1, ilogb(x) - (dtype == FA2_FP16 ? 10 : 7));
}

static agreement compare_o(const outputs *out, const uint32_t *recorded)
{
    agreement a = {0};
    const size_t head_dim = out->o_elems / ROWS;
    for (size_t row = 0; row < out->o_elems; row += head_dim) {
        double largest = 0x1p-14; /* below this, the units of fp16 do not shrink */
        for (size_t i = row; i < row + head_dim; i++)
            largest = fmax(largest, fabs(fa2i_from_bits(out->dtype, o_bits(recorded, i))));
        for (size_t i = row; i < row + head_dim; i++) {
            const uint16_t x = o_bits(out->words, i), y = o_bits(recorded, i);
            compare(&a, x == y, fa2i_from_bits(out->dtype, x), fa2i_from_bits(out->dtype, y),
                    unit_of(out->dtype, largest));
        }
    }
    return a;
}

/* A score is D / 16 or D / 8 sums of mma, times 1 / sqrt(D): at most 16 / sqrt(128) of 2^-18. The logarithm follows the
 * terms of the sum, each of which is off by 2^-22. */
static double lse_tolerance(double lse)
{
    return ldexp(1.5, -18) + fabs(lse) * ldexp(1, -22);
}

static agreement compare_lse(const outputs *out, const uint32_t *recorded)
{
    agreement a = {0};
    for (size_t i = out->o_elems / 2; i < word_count(out); i++) {
        float x, y;
        memcpy(&x, &out->words[i], sizeof x);
        memcpy(&y, &recorded[i], sizeof y);
        compare(&a, out->words[i] == recorded[i], x, y, lse_tolerance(y));
    }
    return a;
}

static bool agrees(const char *name, const agreement *a, size_t equal_percent)
{
    printf("  %-3s %4zu of %4zu equal, %zu beyond the tolerance, worst %.2f of it\n", name, a->equal, a->count,
           a->beyond, a->worst);
    return a->beyond == 0 && 100 * a->equal >= equal_percent * a->count;
}

/* Returns true if a case's outputs agree with the record. Prints the differences. */
static bool judge(FILE *record, const outputs *out)
{
    uint32_t recorded[WORDS_MAX];
    printf("%s\n", out->name);
    if (!find_recorded(record, out, recorded)) {
        printf("  is not in the record, which must be renewed (%s)\n", __FILE__);
        return false;
    }
    const agreement o = compare_o(out, recorded), lse = compare_lse(out, recorded);
    const bool o_agrees = agrees("O", &o, EQUAL_PERCENT);
    return agrees("LSE", &lse, 0) && o_agrees;
}

/* Prints what made the record. find_recorded ignores this line. */
static void print_origin(const fa2i_bench *bench)
{
    const fa2i_device *device = &bench->device;
    printf("# %s, sm_%d, driver for CUDA %d.%d\n", device->card.name, device->card.arch, device->driver / 1000,
           device->driver % 1000 / 10);
}

/* Prints if there is no record, else counts the cases that do not agree. Ends at a case that does not run. */
static fa2_status run_all(FILE *record, int *ret_wrong)
{
    fa2_status st = FA2_OK;
    fa2i_generator *generator = NULL;
    fa2i_bench bench = {0};
    int wrong = 0;

    FA2_TRY(fa2i_generator_create(&generator));
    FA2_TRY(fa2i_bench_open(&bench, 0));
    if (record == NULL)
        print_origin(&bench);
    for (size_t i = 0; i < CASES; i++) {
        outputs out;
        st = run(&bench, generator, &cases[i], &out);
        if (st != FA2_OK) {
            fa2i_fail_prefix(st, "%s", cases[i].variant);
            goto done;
        }
        if (record == NULL)
            print(&out);
        else
            wrong += !judge(record, &out);
    }
    *ret_wrong = wrong;
done:
    fa2i_bench_done(&bench);
    fa2i_generator_destroy(generator);
    return st;
}

int main(int argc, char **argv)
{
    FILE *record = argc == 2 ? fopen(argv[1], "r") : NULL;
    int wrong = 0;
    if (argc > 2 || (argc == 2 && record == NULL)) {
        fprintf(stderr, "usage: sim_record_forward [RECORD]\n");
        return 2;
    }
    const fa2_status st = run_all(record, &wrong);
    if (record != NULL)
        fclose(record);
    if (st != FA2_OK)
        fprintf(stderr, "%s\n", fa2_last_message());
    else if (record != NULL)
        printf("%d of %d cases disagree with the record\n", wrong, CASES);
    return st != FA2_OK || wrong > 0;
}
