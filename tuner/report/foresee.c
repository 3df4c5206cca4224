/*
 * The order is the runtime's (runtime/plan/planner.c): the winner of the very problem, then the options of
 * the rounded one. Where there is no NVRTC, and nothing in the database can be used, the first option is
 * told: it is what a machine with NVRTC would take.
 */
#include "tuner/report/foresee.h"

#include <stdio.h>
#include <string.h>
#include "cache/shipped.h"
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/cuda/compile.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/ops/op.h"
#include "runtime/ops/steps.h"
#include "runtime/plan/share.h"

typedef struct seeing {
    fa2i_generator *generator;
    fa2i_cache *cache;
    const fa2i_card *card;
    const fa2i_evidence *evidence;
    bool compiles;
    fa2i_target target; /* if compiles */
    fa2i_foreseen *out;
} seeing;

void fa2i_foreseen_done(fa2i_foreseen *foreseen)
{
    fa2i_free(foreseen->options);
    *foreseen = (fa2i_foreseen){0};
}

/* FA2_OK, and *ret_known false: the database does not have the kernel, or not so that it can be used. */
static fa2_status read_record(const seeing *s, const fa2_problem *problem, const fa2i_key *key,
                              bool with_image, fa2i_kernel *ret_kernel, bool *ret_known)
{
    *ret_known = false;
    if (s->cache == NULL)
        return FA2_OK;
    const fa2_status st =
        fa2i_cache_get_kernel(s->cache, key, fa2i_op_of(problem)->abi, with_image, ret_kernel);
    *ret_known = st == FA2_OK;
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

static void take_record(seeing *s, const fa2i_kernel *kernel)
{
    s->out->variant = kernel->variant;
    s->out->key = kernel->key;
    s->out->registers = kernel->registers;
    s->out->spill_bytes = kernel->spill_bytes;
}

/* A kernel that must be compiled: can it be, and what is known of what comes out? */
static fa2_status see_compiling(seeing *s, const fa2_problem *problem, const char *text,
                                fa2i_trial *ret_trial)
{
    fa2_status st = FA2_OK;
    char *source = NULL;
    fa2i_key key;
    fa2i_variant variant;
    fa2i_kernel kernel = {0};
    bool refuted = false, known = false;

    if (!s->compiles)
        return FA2_OK;
    st = fa2i_generator_variant(s->generator, text, &variant);
    if (st == FA2_OK)
        st = fa2i_generator_check_class(problem, &variant);
    if (st != FA2_OK)
        return st == FA2_E_NOT_FOUND || st == FA2_E_UNSUPPORTED ? FA2_OK : st;
    if (fa2i_compile_check(&variant, &s->target) != FA2_OK) {
        ret_trial->foreseen = true;
        return FA2_OK;
    }
    FA2_TRY(fa2i_generator_source(s->generator, text, &source));
    FA2_TRY(fa2i_compile_key(&variant, source, &s->target, &key));
    if (s->cache != NULL)
        FA2_TRY(fa2i_cache_is_refuted(s->cache, &key, &refuted));
    FA2_TRY(read_record(s, problem, &key, false, &kernel, &known));
    if (refuted || (known && kernel.outcome == FA2I_OUTCOME_COMPILE_ERROR))
        goto done;
    s->out->variant = variant;
    s->out->key = (fa2i_key){0};
    if (known)
        take_record(s, &kernel);
    s->out->compiled = false;
    *ret_trial = (fa2i_trial){.usable = true, .spills = known ? fa2i_kernel_spills(&kernel) : 0};
done:
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
    return st;
}

/* A kernel of the database: its code, else compiled again. */
static fa2_status see_stored(seeing *s, const fa2_problem *problem, const fa2i_key *key,
                             fa2i_trial *ret_trial)
{
    fa2i_kernel kernel = {0};
    bool known = false;
    fa2_status st = read_record(s, problem, key, true, &kernel, &known);
    if (st == FA2_OK && known && fa2i_generator_check_class(problem, &kernel.variant) == FA2_OK) {
        take_record(s, &kernel);
        s->out->compiled = true;
        *ret_trial = (fa2i_trial){.usable = true, .spills = fa2i_kernel_spills(&kernel)};
    }
    fa2i_kernel_done(&kernel);
    if (st != FA2_OK || known)
        return st;
    st = read_record(s, problem, key, false, &kernel, &known);
    if (st == FA2_OK && known)
        st = see_compiling(s, problem, kernel.variant.text, ret_trial);
    s->out->lost = ret_trial->usable;
    fa2i_kernel_done(&kernel);
    return st;
}

static fa2_status try_option(void *user, const fa2i_option *option, fa2i_trial *ret_trial)
{
    seeing *s = user;
    s->out->lost = false;
    if (option->kernel != FA2I_NONE && !s->evidence->kernels[option->kernel].shipped)
        return see_stored(s, &s->out->asked, &s->evidence->kernels[option->kernel].key, ret_trial);
    return see_compiling(s, &s->out->asked, option->text, ret_trial);
}

/* The first winner of this very problem that has no sound code: of the card, else of another or offline. */
static fa2_status see_lost(seeing *s, const fa2_problem *problem, const fa2i_choice *exact,
                           const fa2i_choice *choices, size_t count)
{
    const int abi = fa2i_op_of(problem)->abi;
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < count && s->out->lost_winner[0] == '\0'; i++) {
        const fa2i_choice *choice = exact != NULL ? exact : &choices[i];
        fa2i_kernel kernel = {0};
        if (memcmp(&choice->problem, problem, sizeof *problem) != 0)
            continue;
        st = fa2i_cache_get_kernel(s->cache, &choice->winner.kernel, abi, true, &kernel);
        if (st == FA2_E_NOT_FOUND) {
            fa2i_kernel_done(&kernel);
            st = fa2i_cache_get_kernel(s->cache, &choice->winner.kernel, abi, false, &kernel);
            if (st == FA2_OK)
                memcpy(s->out->lost_winner, kernel.variant.text, sizeof s->out->lost_winner);
            st = st == FA2_E_NOT_FOUND ? FA2_OK : st;
        }
        fa2i_kernel_done(&kernel);
    }
    return st;
}

static fa2_status see_exact(seeing *s, const fa2_problem *problem, bool *ret_tuned, bool *ret_found)
{
    fa2_status st = FA2_OK;
    fa2i_choice *choices = NULL;
    size_t count = 0;
    fa2i_trial trial = {.usable = false};

    if (s->cache == NULL)
        return FA2_OK;
    FA2_TRY(fa2i_cache_choices(s->cache, s->card->arch, problem, fa2i_op_of(problem)->abi, &choices,
                               &count));
    const fa2i_choice *exact = fa2i_choose_exact(choices, count, s->card, problem);
    FA2_TRY(see_lost(s, problem, exact, choices, count));
    if (exact == NULL)
        goto done;
    *ret_tuned = true;
    FA2_TRY(see_stored(s, problem, &exact->winner.kernel, &trial));
    *ret_found = trial.usable;
    if (trial.usable)
        fa2i_decide_exact(exact, &s->out->decision);
done:
    fa2i_free(choices);
    return st;
}

/* Everything that could be taken for `asked`, the best first. */
static fa2_status see_options(seeing *s)
{
    fa2i_foreseen *out = s->out;
    return fa2i_generator_rank(s->generator, &out->asked, s->card, &out->options,
                               &out->option_count);
}

/* What is said of an option that cannot be used here: it is the model's. */
static fa2_status take_first(seeing *s)
{
    s->out->compiled = s->out->lost = false;
    s->out->registers = s->out->spill_bytes = 0;
    s->out->key = (fa2i_key){0};
    return fa2i_generator_variant(s->generator, s->out->options[0].text, &s->out->variant);
}

static fa2_status see_estimate(seeing *s, const fa2_problem *problem)
{
    fa2_status st = FA2_OK;
    fa2i_foreseen *out = s->out;
    size_t chosen = 0;
    FA2_TRY(fa2i_choose_option(out->options, out->option_count, try_option, s, &chosen, NULL));
    if (chosen == out->option_count) {
        chosen = 0;
        FA2_TRY(take_first(s));
    } else if (strcmp(out->variant.text, out->options[chosen].text) != 0) {
        fa2i_trial again = {.usable = false}; /* a later one was tried, and is no better */
        FA2_TRY(try_option(s, &out->options[chosen], &again));
    }
    fa2i_decide_option(out->options, out->option_count, chosen, s->evidence, &out->asked, s->card,
                       &out->decision);
    if (memcmp(&out->asked, problem, sizeof *problem) != 0)
        fa2i_decide_for_other(problem, &out->decision);
done:
    return st;
}

void fa2i_foresight_init(fa2i_foresight *f, fa2i_generator *generator, fa2i_cache *cache,
                         const fa2i_card *card)
{
    *f = (fa2i_foresight){.generator = generator, .cache = cache, .card = *card};
}

fa2_status fa2i_foresight_find_share(fa2i_foresight *f)
{
    return fa2i_share_find(&f->share);
}

/* A fa2i_log_fn. */
static void say(void *user, const char *message)
{
    (void)user;
    fprintf(stderr, "fa2-tune: %s\n", message);
}

void fa2i_foresight_done(fa2i_foresight *f)
{
    fa2i_free(f->share);
    for (int op = 0; op < FA2I_OPS; op++)
        fa2i_evidence_done(&f->evidence[op]);
    *f = (fa2i_foresight){0};
}

/* Kernels of another version are learnt, and count for nothing. */
static fa2_status say_unknown(const fa2i_foresight *f, const fa2i_evidence *shipped)
{
    char text[128];
    fa2i_variant variant;
    size_t unknown = 0;
    for (size_t i = 0; i < shipped->kernel_count; i++) {
        const fa2_status st =
            fa2i_generator_variant(f->generator, shipped->kernels[i].text, &variant);
        if (st != FA2_OK && st != FA2_E_NOT_FOUND)
            return st;
        unknown += st == FA2_E_NOT_FOUND;
    }
    snprintf(text, sizeof text,
             "%zu of the %zu kernels that come with fa2 are unknown to this version, and count for "
             "nothing",
             unknown, shipped->kernel_count);
    if (unknown > 0)
        say(NULL, text);
    return FA2_OK;
}

/* Read what the database knows of the operation, once; without one the generator is to know nothing. */
static fa2_status learn(fa2i_foresight *f, const fa2_problem *problem)
{
    fa2_status st = FA2_OK;
    fa2i_evidence shipped = {0}, *evidence = &f->evidence[problem->op];
    if (f->learnt[problem->op])
        return FA2_OK;
    fa2i_evidence_done(evidence); /* of a time that failed */
    if (f->cache != NULL) {
        FA2_TRY(fa2i_cache_evidence(f->cache, &f->card, problem->op, fa2i_op_of(problem)->abi,
                                    evidence));
    }
    FA2_TRY(fa2i_share_read(f->share, &f->card, problem->op, say, NULL, &shipped));
    FA2_TRY(say_unknown(f, &shipped));
    FA2_TRY(fa2i_shipped_merge(&shipped, &f->card, evidence));
    FA2_TRY(fa2i_generator_learn(f->generator, problem->op, evidence, &f->card));
    f->learnt[problem->op] = true;
done:
    fa2i_evidence_done(&shipped);
    return st;
}

fa2_status fa2i_foresee(fa2i_foresight *f, const fa2_problem *problem, fa2i_foreseen *ret_foreseen)
{
    fa2_status st = FA2_OK;
    fa2i_foreseen out = {.asked = *problem};
    seeing s = {.generator = f->generator,
                .cache = f->cache,
                .card = &f->card,
                .evidence = &f->evidence[problem->op],
                .out = &out};
    const fa2i_cuda_table *cuda = NULL;
    bool tuned = false, exact = false, software = false;

    if (fa2i_cuda_get(&cuda) == FA2_OK)
        FA2_TRY(fa2i_cuda_is_software(cuda, &software));
    s.compiles = fa2i_target_for(f->card.arch, software, &s.target) == FA2_OK;
    FA2_TRY(see_exact(&s, problem, &tuned, &exact));
    FA2_TRY(learn(f, problem));
    if (!tuned && !fa2i_shipped_knows(s.evidence, s.card, problem))
        out.asked = fa2i_problem_asked(problem, f->card.sm_count);
    FA2_TRY(see_options(&s));
    if (exact)
        fa2i_decide_runner_up(out.options, out.option_count, out.variant.text, &out.decision);
    else
        FA2_TRY(see_estimate(&s, problem));
    if (strcmp(out.lost_winner, out.variant.text) == 0)
        out.lost_winner[0] = '\0';
    FA2_TRY(fa2i_generator_cost(f->generator, out.variant.text, problem, &f->card, out.registers,
                                &out.variant.cost_us));
    *ret_foreseen = out;
    out = (fa2i_foreseen){0}; /* the caller's now */
done:
    fa2i_foreseen_done(&out);
    return st;
}
