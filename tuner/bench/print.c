#include "tuner/bench/print.h"

#include <string.h>
#include "tuner/report/table.h"

/* Returns the rate for a time in us. */
static double tflops(const fa2i_benchmark *b, double us)
{
    return b->flop / us * 1e-6;
}

static double gigabytes_per_s(const fa2i_benchmark *b, double us)
{
    return b->bytes / us * 1e-3;
}

/* Returns the device memory that a kernel needs: operands and workspace. */
static double memory_bytes(const fa2i_benchmark *b, const fa2i_timed *t)
{
    return b->tensor_bytes + (double)t->workspace_bytes;
}

static bool is_timed(const fa2i_timed *t)
{
    return t->outcome == FA2I_OUTCOME_OK && t->us.n > 0;
}

/* Return the share of a card's ceiling that a time reaches; 0 if the ceiling is not known. */
static double tensor_share(const fa2i_benchmarks *all, const fa2i_benchmark *b, double us)
{
    const double most = fa2i_ceilings_products(all->ceilings, b->problem.dtype);
    return most > 0 ? tflops(b, us) / most : 0;
}

static double copy_share(const fa2i_benchmarks *all, const fa2i_benchmark *b, double us)
{
    const double most = all->ceilings[FA2I_CEILING_COPY].rate;
    return most > 0 ? gigabytes_per_s(b, us) / most : 0;
}

/* ---- text ---- */

static void print_size(double bytes, FILE *out)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        bytes /= 1024;
    fprintf(out, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

static void print_head(const fa2i_benchmark *b, FILE *out)
{
    fprintf(out, "\n%s\n  %.4g GFLOP, ", fa2i_problem_shape(&b->problem).text, b->flop * 1e-9);
    print_size(b->bytes, out);
    fprintf(out, " to move at least: %.1f FLOP per byte; an S x S matrix has ", b->flop / b->bytes);
    print_size(b->square_bytes, out);
    fputc('\n', out);
}

/* "61 %" */
static const char *format_share(double share, char out[32])
{
    snprintf(out, 32, share > 0 ? "%.1f %%" : "-", 100 * share);
    return out;
}

/* Prints a number, or nothing unless it is positive: then it is not known. */
static void print_known(double number, FILE *out)
{
    if (number > 0)
        fprintf(out, "%.6g", number);
}

static fa2_status print_times(const fa2i_benchmarks *all, const fa2i_benchmark *b, FILE *out)
{
    static const char *const titles[] = {"",   "mean us", "sd",      "95 % CI", "median",  "q1",
                                         "q3", "TFLOPS",  "of most", "GB/s",    "of copy", "x first"};
    fa2i_table table;
    fa2i_table_init(&table, "lrrrrrrrrrrr", titles);
    for (size_t i = 0; i < b->count; i++) {
        const fa2i_timed *t = &b->timed[i];
        const fa2i_summary *s = &t->us;
        const double us = s->order.median, first_us = is_timed(&b->timed[0]) ? b->timed[0].us.order.median : us;
        char of_most[32], of_copy[32];
        if (!is_timed(t))
            fa2i_table_row(&table, "%s", t->role);
        else
            fa2i_table_row(&table, "%s\t%.3f\t%.3f\t+-%.3f\t%.3f\t%.3f\t%.3f\t%.2f\t%s\t%.1f\t%s\t%.2f", t->role,
                           s->mean, s->sd, s->ci95, us, s->order.q1, s->order.q3, tflops(b, us),
                           format_share(tensor_share(all, b, us), of_most), gigabytes_per_s(b, us),
                           format_share(copy_share(all, b, us), of_copy), us / first_us);
    }
    return fa2i_table_end(&table, out);
}

static bool is_naive(const fa2i_timed *t)
{
    return strcmp(t->role, "naive") == 0;
}

static void print_kernel(const fa2i_benchmark *b, const fa2i_timed *t, FILE *out)
{
    if (is_naive(t))
        fputs("naive: three kernels with S x S in memory, fp32 products without tensor cores\n", out);
    else
        fa2i_shown_print(out, "%s: %s (%s)\n", t->role, fa2i_variant_brief(t->variant).text, fa2_rule_string(t->rule));
    if (!is_timed(t)) {
        fa2i_shown_print(out, "  not timed: %s: %s\n", fa2i_outcome_string(t->outcome), t->detail);
        return;
    }
    fputs("  memory ", out);
    print_size(memory_bytes(b, t), out);
    fprintf(out, ", %.1f %% of tensors and one S x S matrix; ",
            100 * memory_bytes(b, t) / (b->tensor_bytes + b->square_bytes));
    fprintf(out, "error %.3g at most, %.3g in the mean", t->errors.max, t->errors.mean);
    if (t->mj > 0)
        fprintf(out, "; %.3g mJ, %.3g GFLOP per J\n", t->mj, b->flop / t->mj * 1e-6);
    else
        fputs("; energy -\n", out);
    if (fa2i_summary_is_wide(&t->us))
        fprintf(out,
                "  spread too wide to be quoted: %.1f %% between the quartiles, the mean unsure by "
                "%.1f %%; is the device in use, or its clock held back?\n",
                100 * (t->us.order.q3 - t->us.order.q1) / t->us.order.median, 100 * t->us.ci95 / t->us.mean);
}

static void print_conditions(const fa2i_conditions *c, FILE *out)
{
    char reasons[160];
    if (c->looks == 0)
        return;
    fa2i_held_back_text(c->held_back, reasons, sizeof reasons);
    fprintf(out, "clock %u to %u MHz, memory %u MHz, %u to %u degrees; held back: %s\n", c->sm_mhz_least,
            c->sm_mhz_most, c->memory_mhz, c->celsius_least, c->celsius_most,
            reasons[0] == '\0' ? "by nothing" : reasons);
}

static fa2_status print_text(const fa2i_benchmarks *all, const fa2i_benchmark *b, FILE *out)
{
    fa2_status st = FA2_OK;
    print_head(b, out);
    if (b->message[0] != '\0') {
        fprintf(out, "  not measured: %s\n", b->message);
        return FA2_OK;
    }
    FA2_TRY(print_times(all, b, out));
    for (size_t i = 0; i < b->count; i++)
        print_kernel(b, &b->timed[i], out);
    if (b->same)
        fputs("Untuned it would be the same kernel.\n", out);
    print_conditions(&b->conditions, out);
done:
    return st;
}

static void print_ceilings(const fa2i_benchmarks *all, FILE *out)
{
    fprintf(out, "\nwhat the card can do%s:\n", all->gpu.modelled ? ", modelled" : "");
    for (int i = 0; i < FA2I_CEILINGS; i++) {
        const fa2i_ceiling *c = &all->ceilings[i];
        if (c->rate > 0)
            fprintf(out, "  %-17s %9.1f %-6s  %s\n", c->name, c->rate, c->unit, c->what);
        else
            fa2i_shown_print(out, "  %-17s not measured: %.*s\n", c->name, (int)strcspn(c->why, "\n"), c->why);
    }
}

/* Prints how times were taken. */
static void print_protocol(const fa2i_benchmarks *all, FILE *out)
{
    const fa2i_card *card = &all->gpu.card;
    fa2i_shown_print(out, "%s (sm_%d, %d SMs), driver for CUDA %d.%d\n", card->name, card->arch, card->sm_count,
                     all->gpu.driver / 1000, all->gpu.driver % 1000 / 10);
    if (all->gpu.modelled)
        fputs("This device is software: times are modelled, not measured, and always the same.\n", out);
    else if (all->cold)
        fprintf(out, "%zu runs of one launch each, L2 flushed before; us per launch\n", all->runs);
    else
        fprintf(out, "%zu runs of a CUDA graph of launches, about %.0f us each, L2 warm; us per launch\n", all->runs,
                FA2I_BENCHMARK_SAMPLE_US);
    if (!all->gpu.modelled && all->nvml.device == NULL)
        fa2i_shown_print(out, "clocks, temperature and energy are not known: %s\n", all->nvml.why);
    print_ceilings(all, out);
}

/* ---- CSV ---- */

/* Prints a field, in quotes if it has commas or quotes. */
static void print_csv_text(const char *text, FILE *out)
{
    const bool quoted = strpbrk(text, ",\"") != NULL;
    fputs(quoted ? "\"" : "", out);
    for (const char *end; text != NULL; text = end) {
        end = strchr(text, '"');
        fa2i_shown_print(out, "%.*s%s", end == NULL ? -1 : (int)(end - text), text, end == NULL ? "" : "\"\"");
        end = end == NULL ? NULL : end + 1;
    }
    fputs(quoted ? "\"" : "", out);
}

static void print_csv_head(FILE *out)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        fprintf(out, "%s,", fa2i_fields[field].name);
    fputs("kernel,rule,variant,outcome,detail,modelled,runs,launches,mean_us,sd_us,ci95_us,min_us,"
          "q1_us,median_us,q3_us,max_us,wide,tflops,tensor_share,gb_per_s,copy_share,flop,bytes,"
          "memory_bytes,square_bytes,max_error,mean_error,mj\n",
          out);
}

static void print_csv_problem(const fa2i_benchmark *b, FILE *out)
{
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        char value[FA2I_VALUE_CHARS];
        fprintf(out, "%s,", fa2i_field_text(&b->problem, field, value));
    }
}

static void print_csv_times(const fa2i_benchmarks *all, const fa2i_benchmark *b, const fa2i_timed *t, FILE *out)
{
    const fa2i_summary *s = &t->us;
    if (!is_timed(t)) {
        fputs(",,,,,,,,,,,,,", out);
        return;
    }
    fprintf(out, ",%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%d,%.6g,", s->mean, s->sd, s->ci95, s->order.min,
            s->order.q1, s->order.median, s->order.q3, s->max, fa2i_summary_is_wide(s), tflops(b, s->order.median));
    print_known(tensor_share(all, b, s->order.median), out);
    fprintf(out, ",%.6g,", gigabytes_per_s(b, s->order.median));
    print_known(copy_share(all, b, s->order.median), out);
}

/* Prints a problem that was not measured: the message is its detail, and other cells are empty. */
static void print_csv_message(const fa2i_benchmark *b, FILE *out)
{
    print_csv_problem(b, out);
    fputs(",,,,", out);
    print_csv_text(b->message, out);
    fputs(",,,,,,,,,,,,,,,,,,,,,,,\n", out);
}

static void print_csv(const fa2i_benchmarks *all, const fa2i_benchmark *b, FILE *out)
{
    if (b->message[0] != '\0')
        print_csv_message(b, out);
    for (size_t i = 0; i < b->count; i++) {
        const fa2i_timed *t = &b->timed[i];
        print_csv_problem(b, out);
        fprintf(out, "%s,%s,", t->role, is_naive(t) ? "" : fa2_rule_string(t->rule));
        print_csv_text(t->variant, out);
        fprintf(out, ",%s,", fa2i_outcome_string(t->outcome));
        print_csv_text(is_timed(t) ? "" : t->detail, out);
        fprintf(out, ",%d,%zu,%d", all->gpu.modelled, b->runs, b->launches);
        print_csv_times(all, b, t, out);
        fprintf(out, ",%.0f,%.0f,%.0f,%.0f,%.6g,%.6g,", b->flop, b->bytes, memory_bytes(b, t), b->square_bytes,
                t->errors.max, t->errors.mean);
        print_known(t->mj, out);
        fputc('\n', out);
    }
}

/* ---- JSON ---- */

static void print_json_begin(const fa2i_benchmarks *all, FILE *out)
{
    const fa2i_card *card = &all->gpu.card;
    fa2i_json_write(out,
                    "{'device':%s,'arch':'sm_%d','sm_count':%d,'driver':%d,'modelled':%i,'l2':%s,'runs':%zu,"
                    "'driver_version':%s,'ceilings':[",
                    card->name, card->arch, card->sm_count, all->gpu.driver, all->gpu.modelled,
                    all->cold ? "cold" : "warm", all->runs,
                    all->nvml.driver[0] == '\0' ? fa2i_json_null : all->nvml.driver);
    for (int i = 0; i < FA2I_CEILINGS; i++) {
        fputs(i == 0 ? "{" : ",{", out);
        fa2i_ceiling_print(&all->ceilings[i], out);
        fputc('}', out);
    }
    fputs("],\"problems\":[", out);
}

static void print_json_problem(const fa2i_benchmark *b, FILE *out)
{
    fa2i_json_write(out, "{'problem':%s", fa2i_problem_shape(&b->problem).text);
    for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
        const int32_t value = fa2i_field_get(&b->problem, field);
        const char *word = fa2i_field_word(field, value);
        if (!fa2i_field_is_shown(&b->problem, field))
            continue;
        if (word != NULL)
            fa2i_json_write(out, ",%s:%s", fa2i_fields[field].name, word);
        else
            fa2i_json_write(out, ",%s:%d", fa2i_fields[field].name, (int)value);
    }
    fa2i_json_write(out, ",'flop':%.0f,'bytes':%.0f,'tensor_bytes':%.0f,'square_bytes':%.0f", b->flop, b->bytes,
                    b->tensor_bytes, b->square_bytes);
}

static void print_json_conditions(const fa2i_conditions *c, FILE *out)
{
    char reasons[160];
    fa2i_held_back_text(c->held_back, reasons, sizeof reasons);
    fa2i_json_write(out, ",'sm_mhz':[%u,%u],'memory_mhz':%u,'celsius':[%u,%u],'held_back':%s", c->sm_mhz_least,
                    c->sm_mhz_most, c->memory_mhz, c->celsius_least, c->celsius_most, reasons);
}

static void print_json_kernel(const fa2i_benchmarks *all, const fa2i_benchmark *b, const fa2i_timed *t, FILE *out)
{
    const fa2i_summary *s = &t->us;
    const double us = s->order.median;
    fa2i_json_write(out, "{'kernel':%s,'rule':%s,'variant':%s,'outcome':%s,'memory_bytes':%.0f", t->role,
                    is_naive(t) ? fa2i_json_null : fa2_rule_string(t->rule), t->variant,
                    fa2i_outcome_string(t->outcome), memory_bytes(b, t));
    if (!is_timed(t)) {
        fa2i_json_write(out, ",'detail':%s}", t->detail);
        return;
    }
    fa2i_json_write(out,
                    ",'n':%zu,'mean_us':%.6g,'sd_us':%.6g,'ci95_us':%.6g,'min_us':%.6g,'q1_us':%.6g,'median_us':%.6g,"
                    "'q3_us':%.6g,'max_us':%.6g,'wide':%i",
                    s->n, s->mean, s->sd, s->ci95, s->order.min, s->order.q1, us, s->order.q3, s->max,
                    fa2i_summary_is_wide(s));
    fa2i_json_write(out,
                    ",'tflops':%.6g,'gb_per_s':%.6g,'max_error':%.6g,'mean_error':%.6g,'tensor_share':%.6g,"
                    "'copy_share':%.6g,'mj':%.6g",
                    tflops(b, us), gigabytes_per_s(b, us), t->errors.max, t->errors.mean,
                    fa2i_json_known(tensor_share(all, b, us)), fa2i_json_known(copy_share(all, b, us)),
                    fa2i_json_known(t->mj));
    if (t->relative[0] >= 0)
        fa2i_json_write(out, ",'relative_errors':{'normal':%.6g,'means':%.6g,'outliers':%.6g,'channel':%.6g}",
                        t->relative[0], t->relative[1], t->relative[2], t->relative[3]);
    fputc('}', out);
}

static void print_json(const fa2i_benchmarks *all, const fa2i_benchmark *b, size_t index, FILE *out)
{
    fputs(index == 0 ? "\n" : ",\n", out);
    print_json_problem(b, out);
    if (b->message[0] != '\0')
        fa2i_json_write(out, ",'message':%s", b->message);
    if (b->conditions.looks > 0)
        print_json_conditions(&b->conditions, out);
    fa2i_json_write(out, ",'runs':%zu,'launches':%d,'same_untuned':%i,'kernels':[", b->runs, b->launches, b->same);
    for (size_t i = 0; i < b->count; i++) {
        fputs(i == 0 ? "" : ",", out);
        print_json_kernel(all, b, &b->timed[i], out);
    }
    fputs("]}", out);
}

/* ---- all formats ---- */

void fa2i_bench_print_begin(const fa2i_benchmarks *all, fa2i_format format, FILE *out)
{
    if (format == FA2I_FORMAT_TEXT)
        print_protocol(all, out);
    else if (format == FA2I_FORMAT_CSV)
        print_csv_head(out);
    else
        print_json_begin(all, out);
}

fa2_status fa2i_bench_print(const fa2i_benchmarks *all, const fa2i_benchmark *b, size_t index, fa2i_format format,
                            FILE *out)
{
    if (format == FA2I_FORMAT_TEXT)
        return print_text(all, b, out);
    if (format == FA2I_FORMAT_CSV)
        print_csv(all, b, out);
    else
        print_json(all, b, index, out);
    return FA2_OK;
}

void fa2i_bench_print_end(fa2i_format format, FILE *out)
{
    if (format == FA2I_FORMAT_JSON)
        fputs("]}\n", out);
}
