/*
 * Makes databases for tests of reports. Usage: report_database FILE MEASUREMENTS [SCALE [CARD]], or
 * report_database FILE EXPORT.jsonl, which does not ask a generator about the kernels.
 *
 * Kernels are the generator's own candidates. Their times are the cost model's, times SCALE and a factor per variant.
 * Some failed, and some are left out. Nothing is compiled. The device's name and some details are markup, which a page
 * must escape. On another CARD every second winner is modelled.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "put_measurement.h"
#include "cache/internal.h"
#include "cache/content/report.h"
#include "check.h"
#include "runtime/base/alloc.h"
#include "runtime/lua/generator.h"

typedef struct filling {
    fa2i_cache *cache;
    fa2i_generator *generator;
    fa2i_card card;
    int64_t device, session;
    double scale;
    bool mixed; /* every second winner is modelled */
    size_t problems;
    unsigned state; /* of the random numbers */
    size_t count;   /* of measurements */
} filling;

/* The candidates of a class, which fill its problems. */
typedef struct class
{
    fa2_problem problem;
    fa2i_variant *variants;
    size_t count;
} class;

static unsigned next_random(filling *f)
{
    f->state = f->state * 1664525u + 1013904223u;
    return f->state >> 8;
}

static fa2i_kernel make_kernel(const fa2i_variant *variant)
{
    fa2i_kernel kernel = {
        .variant = *variant, .target = "sm_90", .nvrtc = 13000, .generator = "0123456789abcdef", .registers = 128};
    const fa2i_part part = {variant->text, strlen(variant->text)};
    fa2i_key_of(&part, 1, &kernel.key);
    return kernel;
}

static fa2i_measurement make_measurement(filling *f, const fa2i_variant *variant)
{
    const unsigned draw = next_random(f) % 100;
    const double us = f->scale * variant->cost_us * (1 + next_random(f) % 1000 / 4000.0);
    fa2i_measurement m = {.settled = true};
    if (draw < 3) {
        m.outcome = FA2I_OUTCOME_SPILLED;
        snprintf(m.detail, sizeof m.detail, "%u bytes per thread", 8 + draw * 4);
    } else if (draw < 4) {
        m.outcome = FA2I_OUTCOME_WRONG;
        strcpy(m.detail, "</td></table><script>alert(2)</script> & \"more\" | *stars*");
    } else if (draw < 8) {
        strcpy(m.detail, "left out: far behind by what was measured of other problems");
    } else {
        m.n = 20;
        m.min_us = us * 0.98;
        m.q1_us = us * 0.99;
        m.median_us = us;
        m.q3_us = us * 1.01;
        m.max_error = 0.25;
    }
    return m;
}

/* Stores the candidates of a class; the fastest is the winner. */
static void fill_problem(filling *f, const fa2_problem *problem, const class *of, size_t most)
{
    int64_t id = 0;
    fa2i_winner winner = {.measured = !f->mixed || f->problems++ % 2 == 0};
    CHECK_EQ(fa2i_cache_problem(f->cache, problem, &id), FA2_OK);
    for (size_t i = 0; i < of->count && f->count < most; i++, f->count++) {
        const fa2i_kernel kernel = make_kernel(&of->variants[i]);
        const fa2i_measurement m = make_measurement(f, &of->variants[i]);
        CHECK_EQ(fa2i_cache_put_kernel(f->cache, &kernel), FA2_OK);
        CHECK_EQ(put_measurement(f->cache, f->session, f->device, id, &kernel.key, &m), FA2_OK);
        if (i == 0)
            winner.default_us = m.median_us;
        if (m.outcome == FA2I_OUTCOME_OK && m.n > 0 && (winner.median_us <= 0 || m.median_us < winner.median_us)) {
            winner.kernel = kernel.key;
            winner.median_us = m.median_us;
            winner.model_us = of->variants[i].cost_us;
        }
    }
    if (winner.median_us > 0)
        CHECK_EQ(fa2i_cache_put_winner(f->cache, f->session, f->device, id, &winner), FA2_OK);
}

static void fill(filling *f, size_t most)
{
    class classes[] = {
        {.problem = {.heads_q = 16, .heads_kv = 4, .head_dim = 64}},
        {.problem = {.heads_q = 16, .heads_kv = 16, .head_dim = 128, .causal = 1}},
        {.problem = {.op = FA2_OP_BACKWARD, .heads_q = 8, .heads_kv = 8, .head_dim = 64}},
    };
    enum { CLASSES = sizeof classes / sizeof *classes };
    for (int round = 0; f->count < most && check_failures == 0; round++) {
        class *of = &classes[round % CLASSES];
        of->problem.batch = 1 + round / 24;
        of->problem.seq_q = of->problem.seq_k = 128 << round / CLASSES % 8;
        if (of->count == 0)
            CHECK_EQ(fa2i_generator_candidates(f->generator, &of->problem, &f->card, &of->variants, &of->count),
                     FA2_OK);
        fill_problem(f, &of->problem, of, most);
    }
    for (int i = 0; i < CLASSES; i++)
        fa2i_free(classes[i].variants);
}

static int import_export(const char *path, const char *name)
{
    fa2i_cache *cache = NULL;
    FILE *in = fopen(name, "r");
    CHECK(in != NULL);
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_WRITE, NULL, NULL, &cache), FA2_OK);
    if (check_failures > 0)
        return 1;
    CHECK_EQ(fa2i_cache_import(cache, in, name, NULL, NULL, NULL), FA2_OK);
    fclose(in);
    fa2i_cache_close(cache);
    return check_failures > 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: report_database FILE MEASUREMENTS [SCALE [CARD]] | FILE EXPORT.jsonl\n");
        return 2;
    }
    if (strstr(argv[2], ".jsonl") != NULL)
        return import_export(argv[1], argv[2]);
    filling f = {.scale = argc > 3 ? strtod(argv[3], NULL) : 1, .mixed = argc > 4, .state = 2026};
    CHECK_EQ(fa2i_generator_create(&f.generator), FA2_OK);
    CHECK_EQ(fa2i_generator_card(f.generator, 90, &f.card), FA2_OK);
    strcpy(f.card.name, "H<script>alert(1)</script> & \"200\" | `x`");
    if (argc > 4)
        snprintf(f.card.name, sizeof f.card.name, "%s", argv[4]);
    CHECK_EQ(fa2i_cache_open(argv[1], FA2I_CACHE_WRITE, NULL, NULL, &f.cache), FA2_OK);
    if (check_failures > 0)
        return 1;
    /* Each row is a transaction, and no power cut must be survived. */
    sqlite3_exec(f.cache->db, "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY", NULL, NULL, NULL);
    CHECK_EQ(fa2i_cache_device(f.cache, &f.card, true, &f.device), FA2_OK);
    const fa2i_session session = {
        .device = f.device, .driver = 13000, .nvrtc = 13000, .generator = "0123456789abcdef", .origin = "tune"};
    CHECK_EQ(fa2i_cache_session_begin(f.cache, &session, &f.session), FA2_OK);
    fill(&f, strtoul(argv[2], NULL, 10));
    CHECK_EQ(fa2i_cache_session_end(f.cache, f.session), FA2_OK);
    fa2i_cache_close(f.cache);
    fa2i_generator_destroy(f.generator);
    return check_failures > 0;
}
