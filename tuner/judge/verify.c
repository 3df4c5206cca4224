/*
 * Expectations and verdicts.
 *
 * The bytes of a kernel's results come output by output, as they lie on the device, or packed row by row. A view says
 * where a row of an output is in them. They have byte alignment only.
 */
#include "tuner/judge/verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/judge/number.h"

/* ---- expectations ---- */

static size_t row_count(const fa2i_extent *e)
{
    return (size_t)e->batch * (size_t)e->heads * (size_t)e->seq;
}

static void list_all(fa2i_expected *e, int operand, const fa2i_extent *extent)
{
    for (int32_t b = 0; b < extent->batch; b++)
        for (int32_t h = 0; h < extent->heads; h++)
            for (int32_t row = 0; row < extent->seq; row++)
                e->places[e->place_count++] = (fa2i_place){.operand = operand, .batch = b, .head = h, .row = row};
}

/* Chooses the sampled rows of an output. Outputs with equal extents get equal places. */
static void list_sampled(fa2i_expected *e, int operand, const fa2i_extent *extent, uint64_t seed)
{
    enum { HEADS = 4, ROWS_EACH = FA2I_VERIFY_ROWS / HEADS };
    fa2i_place *places = e->places + e->place_count;
    uint64_t state = seed;
    for (size_t i = 0; i < HEADS; i++) {
        const int32_t b = (int32_t)(fa2i_random(&state) % (uint64_t)extent->batch);
        const int32_t h = (int32_t)(fa2i_random(&state) % (uint64_t)extent->heads);
        for (size_t j = 0; j < ROWS_EACH; j++) {
            const int32_t row = (int32_t)(fa2i_random(&state) % (uint64_t)extent->seq);
            places[i * ROWS_EACH + j] = (fa2i_place){.operand = operand, .batch = b, .head = h, .row = row};
        }
    }
    places[0].row = 0;
    /* The last row of the last head of the last batch: the end of every tensor. */
    places[FA2I_VERIFY_ROWS - 1] =
        (fa2i_place){.operand = operand, .batch = extent->batch - 1, .head = extent->heads - 1, .row = extent->seq - 1};
    e->place_count += FA2I_VERIFY_ROWS;
}

/* Fills the places, and the members of the outputs that follow from them. */
static fa2_status list_outputs(fa2i_expected *e, uint64_t seed)
{
    const fa2i_judge *judge = fa2i_judge_of(e->c.problem.op);
    size_t total = 0;
    for (int i = 0; i < judge->operand_count; i++) {
        const fa2i_extent extent = fa2i_case_extent(&e->c, i);
        if (judge->operands[i].output && extent.elems > 0)
            total += e->all ? row_count(&extent) : FA2I_VERIFY_ROWS;
    }
    fa2_status st = FA2I_NEW(e->places, total);
    for (int i = 0; st == FA2_OK && i < judge->operand_count; i++) {
        const fa2i_extent extent = fa2i_case_extent(&e->c, i);
        if (!judge->operands[i].output || extent.elems == 0)
            continue;
        const size_t first = e->place_count;
        if (e->all)
            list_all(e, i, &extent);
        else
            list_sampled(e, i, &extent, seed);
        const size_t rows = e->place_count - first;
        e->outputs[e->output_count++] =
            (fa2i_wanted){.places = e->places + first, .row_count = rows, .width = extent.width};
        e->output_bytes += e->all ? fa2i_case_operand_bytes(&e->c, i) : rows * (size_t)extent.width * extent.elem_bytes;
    }
    return st;
}

/* Bytes of an input's block, rounded up so that the next one is aligned. */
static size_t block_bytes(const fa2i_case *c, int operand)
{
    return (fa2i_case_period(c, operand) * fa2i_case_extent(c, operand).elem_bytes + 15) / 16 * 16;
}

/* Makes the blocks of all inputs. The caller owns *ret_memory. */
static fa2_status make_inputs(const fa2i_case *c, void **ret_memory, fa2i_inputs *ret_inputs)
{
    fa2_status st = FA2_OK;
    const fa2i_judge *judge = fa2i_judge_of(c->problem.op);
    fa2i_inputs inputs = {0};
    size_t bytes = 0;
    for (int i = 0; i < judge->operand_count; i++)
        if (fa2i_case_has_data(c, i))
            bytes += block_bytes(c, i);
    unsigned char *memory = fa2i_alloc(bytes);
    if (memory == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for test data");
    *ret_memory = memory;
    for (int i = 0; i < judge->operand_count; i++) {
        if (!fa2i_case_has_data(c, i) || fa2i_case_operand_bytes(c, i) == 0)
            continue;
        inputs.data[i] = memory;
        inputs.period[i] = fa2i_case_period(c, i);
        FA2_TRY(fa2i_case_fill(c, i, memory));
        memory += block_bytes(c, i);
    }
    *ret_inputs = inputs;
done:
    return st;
}

static fa2_status expect(fa2i_expected *e, uint64_t seed, int threads, fa2i_expected *ret_expected)
{
    fa2_status st = FA2_OK;
    void *memory = NULL;
    fa2i_inputs inputs;
    FA2_TRY(list_outputs(e, seed));
    FA2_TRY(make_inputs(&e->c, &memory, &inputs));
    FA2_TRY(fa2i_judge_of(e->c.problem.op)->reference(&e->c, &inputs, threads, e->outputs));
    *ret_expected = *e;
done:
    fa2i_free(memory);
    if (st != FA2_OK)
        fa2i_expected_done(e);
    return st;
}

fa2_status fa2i_expected_all(const fa2i_case *c, int threads, fa2i_expected *ret_expected)
{
    fa2i_expected e = {.c = *c, .all = true};
    return expect(&e, 0, threads, ret_expected);
}

fa2_status fa2i_expected_sampled(const fa2i_case *c, uint64_t seed, int threads, fa2i_expected *ret_expected)
{
    fa2i_expected e = {.c = *c};
    return expect(&e, seed, threads, ret_expected);
}

void fa2i_expected_done(fa2i_expected *expected)
{
    for (int i = 0; i < expected->output_count; i++)
        fa2i_wanted_done(&expected->outputs[i]);
    fa2i_free(expected->places);
    *expected = (fa2i_expected){0};
}

/* ---- verdicts ---- */

/* One output in the bytes of a kernel's results. */
typedef struct view {
    const unsigned char *data;
    fa2i_extent extent;
    fa2_dtype dtype;
} view;

static double element(const view *v, int64_t index)
{
    float number;
    uint16_t bits;
    if (v->extent.elem_bytes == sizeof number) {
        memcpy(&number, v->data + (size_t)index * sizeof number, sizeof number);
        return (double)number;
    }
    memcpy(&bits, v->data + (size_t)index * sizeof bits, sizeof bits);
    return (double)fa2i_from_bits(v->dtype, bits);
}

/* Counts elements between rows that are no longer poison. */
static size_t count_gap_writes(const view *v)
{
    const fa2i_extent *e = &v->extent;
    const size_t bytes = e->elem_bytes;
    const uint32_t poison = FA2I_POISON;
    size_t writes = 0;
    for (int64_t i = 0; e->pitch > e->width && i < e->elems; i++)
        writes += i % e->pitch >= e->width && memcmp(v->data + (size_t)i * bytes, &poison, bytes);
    return writes;
}

typedef struct worst {
    double error, value, expected;
    fa2i_place place;
} worst;

/* Returns the first element of row i of the wanted rows. */
static int64_t place_of(const fa2i_wanted *wanted, const view *v, bool packed, size_t i)
{
    const fa2i_place *place = &wanted->places[i];
    return packed ? (int64_t)i * wanted->width : fa2i_extent_at(&v->extent, place->batch, place->head, place->row);
}

/* Returns the bytes of an output in a kernel's results. */
static size_t output_bytes(const fa2i_expected *e, const fa2i_wanted *wanted, const view *v)
{
    return e->all ? fa2i_case_operand_bytes(&e->c, wanted->places[0].operand)
                  : wanted->row_count * (size_t)wanted->width * v->extent.elem_bytes;
}

static void compare(const fa2i_wanted *wanted, const view *v, bool packed, worst *worst_so_far)
{
    for (size_t i = 0; i < wanted->row_count; i++) {
        const fa2i_place *place = &wanted->places[i];
        const int64_t at = place_of(wanted, v, packed, i);
        const fa2i_bound bound = fa2i_bound_of_row(wanted->bound, wanted->allowed, i);
        for (int d = 0; d < wanted->width; d++) {
            const double value = element(v, at + d);
            const double expected = wanted->values[i * (size_t)wanted->width + (size_t)d];
            const double error = fa2i_error_of(value, expected, bound, wanted->exact[i]);
            if (error > worst_so_far->error)
                *worst_so_far = (worst){error, value, expected, *place};
        }
    }
}

static void describe(const fa2i_expected *e, const char *name, const worst *w, fa2i_verification *verdict)
{
    const fa2i_place *at = &w->place;
    verdict->max_error = w->error;
    verdict->outcome = w->error <= 1 ? FA2I_OUTCOME_OK : FA2I_OUTCOME_WRONG;
    snprintf(verdict->detail, sizeof verdict->detail,
             "%s: %s of batch %d head %d row %d is %.6g, not %.6g: error %.3g x the bound", name,
             fa2i_judge_of(e->c.problem.op)->operands[at->operand].name, (int)at->batch, (int)at->head, (int)at->row,
             w->value, w->expected, w->error);
}

void fa2i_expected_judge(const fa2i_expected *expected, const char *name, const void *output, uint32_t overwritten,
                         fa2i_verification *ret_verdict)
{
    const fa2i_expected *e = expected;
    const unsigned char *data = output;
    fa2i_verification verdict = {.outcome = FA2I_OUTCOME_WRONG, .max_error = FA2I_ERROR_NOT_FINITE};
    worst w = {.place = e->places[0]};
    size_t gap_writes = 0;
    for (int i = 0; i < e->output_count; i++) {
        const fa2i_wanted *wanted = &e->outputs[i];
        const int operand = wanted->places[0].operand;
        const view v = {data, fa2i_case_extent(&e->c, operand), e->c.problem.dtype};
        gap_writes += e->all ? count_gap_writes(&v) : 0;
        compare(wanted, &v, !e->all, &w);
        data += output_bytes(e, wanted, &v);
    }
    if (overwritten > 0 || gap_writes > 0)
        snprintf(verdict.detail, sizeof verdict.detail,
                 "%s: wrote outside of its outputs: %u words around them, %zu elements between rows", name, overwritten,
                 gap_writes);
    else
        describe(e, name, &w, &verdict);
    *ret_verdict = verdict;
}

fa2i_errors fa2i_expected_errors(const fa2i_expected *expected, const void *output)
{
    const fa2i_expected *e = expected;
    const unsigned char *data = output;
    fa2i_errors errors = {0};
    double sum = 0, size = 0;
    size_t count = 0;
    for (int i = 0; i < e->output_count; i++) {
        const fa2i_wanted *w = &e->outputs[i];
        const view v = {data, fa2i_case_extent(&e->c, w->places[0].operand), e->c.problem.dtype};
        for (size_t j = 0; j < w->row_count * (size_t)w->width; j++) {
            const int64_t at = place_of(w, &v, !e->all, j / (size_t)w->width) + (int64_t)(j % (size_t)w->width);
            if (!isfinite(w->values[j]))
                continue;
            const double error = fabs(element(&v, at) - w->values[j]);
            const double counted = isfinite(error) ? error : FA2I_ERROR_NOT_FINITE;
            errors.max = fmax(errors.max, counted);
            sum += counted;
            size += fabs(w->values[j]);
            count++;
        }
        data += output_bytes(e, w, &v);
    }
    errors.mean = count > 0 ? sum / (double)count : 0;
    errors.relative = size > 0 ? sum / size : 0;
    return errors;
}
