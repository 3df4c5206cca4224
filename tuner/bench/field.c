#include "tuner/bench/field.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/file.h"
#include "runtime/ops/op.h"
#include "tuner/judge/case.h"
#include "tuner/report/table.h"

/* ---- problems ---- */

/* Returns a number from least to most, with an evenly spread logarithm. */
static int32_t spread(uint64_t *state, double least, double most)
{
    const double part = (double)(fa2i_random(state) >> 11) * 0x1p-53;
    return (int32_t)(least * pow(most / least, part) + 0.5);
}

static fa2_problem random_problem(uint64_t *state, int kind)
{
    static const int32_t kv_heads[] = {1, 2, 4, 8, 16, 32}, groups[] = {1, 1, 2, 4, 8};
    fa2_problem p = {.struct_bytes = sizeof(fa2_problem), .op = FA2_OP_FORWARD, .dtype = FA2_FP16, .causal = kind != 0};
    p.heads_kv = kv_heads[fa2i_random(state) % 6];
    p.heads_q = p.heads_kv * groups[fa2i_random(state) % 5];
    p.head_dim = fa2i_random(state) % 2 == 0 ? 64 : 128;
    p.batch = spread(state, 1, kind == 1 ? 64 : 8);
    p.seq_q = kind == 1 ? 1 : kind == 2 ? spread(state, 16, 1024) : spread(state, 64, 8192);
    p.seq_k = kind == 1 ? spread(state, 256, 65536) : kind == 2 ? p.seq_q + spread(state, 256, 32768) : p.seq_q;
    return p;
}

/* At most some milliseconds on a small card, and small enough for its memory. */
static bool is_modest(const fa2_problem *p)
{
    const fa2i_op *op = fa2i_op_of(p);
    return p->heads_q <= 64 && op->flop(p) < 1e11 && op->bytes(p) < 0x1p28;
}

void fa2i_field_problems(bool small, fa2_problem problems[FA2I_FIELD_PROBLEMS], size_t *ret_count)
{
    uint64_t state = FA2I_FIELD_SEED;
    size_t count = 0;
    if (small) {
        for (int32_t seq = 20; seq <= 44; seq += 12)
            problems[count++] = (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                                              .op = FA2_OP_FORWARD,
                                              .dtype = FA2_FP16,
                                              .batch = 1,
                                              .heads_q = 2,
                                              .heads_kv = 2,
                                              .seq_q = seq,
                                              .seq_k = seq,
                                              .head_dim = 16,
                                              .causal = 1};
        *ret_count = count;
        return;
    }
    while (count < FA2I_FIELD_PROBLEMS) {
        const fa2_problem p = random_problem(&state, (int)(count % 3));
        if (is_modest(&p))
            problems[count++] = p;
    }
    *ret_count = count;
}

/* ---- summary ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

fa2_status fa2i_field_summarize(fa2_op op, const fa2i_accuracy *list, size_t count, fa2i_field_summary *ret_summary)
{
    fa2i_field_summary s = {.op = op, .problems = count};
    double *rhos = fa2i_alloc_array(count + 1, sizeof *rhos);
    if (rhos == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu problems", count);
    for (size_t i = 0; i < count; i++) {
        const fa2i_accuracy *a = &list[i];
        rhos[i] = a->rank_correlation;
        s.first_loss_mean += a->first_loss / (double)count;
        s.first_loss_worst = fmax(s.first_loss_worst, a->first_loss);
        s.unknown += a->regret == FA2I_ACCURACY_UNKNOWN;
    }
    for (size_t i = 0; i < count; i++) {
        if (list[i].regret == FA2I_ACCURACY_UNKNOWN)
            continue;
        s.regret_mean += list[i].regret / (double)(count - s.unknown);
        s.regret_worst = fmax(s.regret_worst, list[i].regret);
    }
    qsort(rhos, count, sizeof *rhos, by_value);
    s.rank_correlation = count > 0 ? (rhos[(count - 1) / 2] + rhos[count / 2]) / 2 : 0;
    *ret_summary = s;
    fa2i_free(rhos);
    return FA2_OK;
}

/* ---- lines ---- */

void fa2i_field_print_about(const fa2i_gpu *gpu, const fa2i_nvml *nvml, const fa2i_conditions *seen, FILE *out)
{
    char reasons[160];
    const fa2i_card *card = &gpu->card;
    fa2i_held_back_text(seen->held_back, reasons, sizeof reasons);
    fa2i_json_write(out, "{'fa2_report':'about','fa2':'%d.%d.%d','device':%s,'arch':%d,'sm_count':%d,",
                    FA2_VERSION_MAJOR, FA2_VERSION_MINOR, FA2_VERSION_PATCH, card->name, card->arch, card->sm_count);
    fa2i_json_write(out, "'memory_bytes':%zu,'cuda':%d,'nvrtc':%d,'modelled':%i,'driver':%s,", gpu->memory_bytes,
                    gpu->driver, gpu->target.nvrtc, gpu->modelled,
                    nvml->driver[0] == '\0' ? fa2i_json_null : nvml->driver);
    fa2i_json_write(out, "'seed':%d,'looks':%zu,'sm_mhz':[%u,%u],'memory_mhz':%u,'celsius':[%u,%u],'held_back':%s}\n",
                    FA2I_FIELD_SEED, seen->looks, seen->sm_mhz_least, seen->sm_mhz_most, seen->memory_mhz,
                    seen->celsius_least, seen->celsius_most, reasons);
}

void fa2i_field_print_ceiling(const fa2i_ceiling *ceiling, FILE *out)
{
    fputs("{\"fa2_report\":\"ceiling\",", out);
    fa2i_ceiling_print(ceiling, out);
    fputs("}\n", out);
}

void fa2i_field_print_problem(const fa2i_accuracy *problem, FILE *out)
{
    fa2i_json_write(out,
                    "{'fa2_report':'problem','problem':%s,'variants':%zu,'best_us':%.6g,'rank_correlation':%.4f,"
                    "'first_loss':%.5f,'first':%s,'regret':%.5f,'chosen':%s}\n",
                    fa2i_problem_shape(&problem->problem).text, problem->variants, problem->best_us,
                    problem->rank_correlation, problem->first_loss, problem->first,
                    problem->regret == FA2I_ACCURACY_UNKNOWN ? (double)NAN : problem->regret, problem->chosen);
}

static void format_summary(const fa2i_field_summary *s, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes,
             "{\"fa2_report\":\"summary\",\"op\":\"%s\",\"problems\":%zu,"
             "\"rank_correlation_median\":%.4f,\"first_loss_mean\":%.5f,\"first_loss_worst\":%.5f,"
             "\"regret_mean\":%.5f,\"regret_worst\":%.5f,\"regret_unknown\":%zu}",
             fa2i_field_word(FA2I_FIELD_op, (int32_t)s->op), s->problems, s->rank_correlation, s->first_loss_mean,
             s->first_loss_worst, s->regret_mean, s->regret_worst, s->unknown);
}

void fa2i_field_print_summary(const fa2i_field_summary *summary, FILE *out)
{
    char line[512];
    format_summary(summary, line, sizeof line);
    fa2i_shown_print(out, "%s\n", line);
}

static int by_loss(const void *a, const void *b)
{
    const fa2i_accuracy *const *x = a, *const *y = b;
    return ((*x)->first_loss < (*y)->first_loss) - ((*x)->first_loss > (*y)->first_loss);
}

fa2_status fa2i_field_print_misses(fa2i_accuracy *const *lists, const size_t *counts, size_t list_count, FILE *out)
{
    size_t all = 0, count = 0;
    for (size_t i = 0; i < list_count; i++)
        all += counts[i];
    const fa2i_accuracy **sorted = fa2i_alloc_array(all + 1, sizeof *sorted);
    if (sorted == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu problems", all);
    for (size_t i = 0; i < list_count; i++)
        for (size_t j = 0; j < counts[i]; j++)
            sorted[count++] = &lists[i][j];
    qsort(sorted, count, sizeof *sorted, by_loss);
    if (count > 0 && sorted[0]->first_loss > 0)
        fputs("problems on which the model's first choice loses most:\n", out);
    for (size_t i = 0; i < count && i < FA2I_FIELD_MISSES && sorted[i]->first_loss > 0; i++) {
        fa2i_shown_print(out, "  +%.1f %% of %.4g us  %s\n    %s\n", 100 * sorted[i]->first_loss, sorted[i]->best_us,
                         fa2i_problem_shape(&sorted[i]->problem).text, sorted[i]->first);
    }
    fa2i_free(sorted);
    return FA2_OK;
}

fa2_status fa2i_field_compare(const char *path, const fa2i_field_summary *summaries, size_t count, FILE *out,
                              size_t *ret_different)
{
    static const char start[] = "{\"fa2_report\":\"summary\"";
    static char line[16384], here[512];
    size_t found = 0, different = 0;
    const char *why = NULL;
    FILE *file = fa2i_file_open(path, &why);
    if (file == NULL)
        return fa2i_fail(FA2_E_IO, "%s: %s", path, why);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, start, sizeof start - 1) != 0)
            continue;
        if (found < count)
            format_summary(&summaries[found], here, sizeof here);
        const bool same = found < count && strcmp(line, here) == 0;
        fa2i_shown_print(out, "%s\n", line);
        if (!same)
            fa2i_shown_print(out, "here: %s\n", found < count ? here : "nothing");
        different += !same;
        found++;
    }
    fclose(file);
    *ret_different = different;
    return found > 0 ? FA2_OK : fa2i_fail(FA2_E_INVALID, "%s: has no summary: it is no field report", path);
}
