/*
 * The generator host: the one place that owns a lua_State. Scripts and templates are embedded in
 * the library; a file of the same name in a folder of $FA2_GEN_PATH (colon-separated) takes
 * precedence.
 *
 * Pure: problem and card in, text and numbers out; no CUDA, no clock, no files besides
 * FA2_GEN_PATH. Errors: FA2_E_GENERATOR with Lua's message and traceback; FA2_E_UNSUPPORTED when no
 * family serves the problem on that SM (with the reason). One generator must not be used by two
 * threads at once.
 */
#ifndef FA2I_GENERATOR_H
#define FA2I_GENERATOR_H

#include <signal.h>
#include "cache/evidence.h"

typedef struct fa2i_generator fa2i_generator;

enum { FA2I_OPS = FA2_OP_BACKWARD + 1 };

/* On FA2_OK *ret_generator belongs to the caller. Takes some hundredths of a second: it reads all
 * scripts. stop (borrowed): scripts that run when it becomes nonzero, also those that create it, end
 * with FA2_E_GENERATOR; within a second, where no call of Lua's own library takes longer. */
fa2_status fa2i_generator_create(fa2i_generator **ret_generator);
fa2_status fa2i_generator_create_stoppable(const volatile sig_atomic_t *stop,
                                           fa2i_generator **ret_generator);
void fa2i_generator_destroy(fa2i_generator *generator);

/* Hash of all scripts and templates as this generator reads them: 16 hex digits. Borrowed. */
const char *fa2i_generator_id(const fa2i_generator *generator);

/* The candidates for a problem on a card, cheapest first by the cost model; ties in the order of
 * their text. At least one on FA2_OK. *ret_variants belongs to the caller (fa2i_free). */
fa2_status fa2i_generator_candidates(fa2i_generator *generator, const fa2_problem *problem,
                                     const fa2i_card *card, fa2i_variant **ret_variants,
                                     size_t *ret_count);

/* What an estimate rests on, best first. */
typedef enum fa2i_rests {
    FA2I_RESTS_MEASURED,  /* measured on this problem and this card */
    FA2I_RESTS_NEARBY,    /* carried over from problems near to it, on this card */
    FA2I_RESTS_ELSEWHERE, /* the same, from another card of the SM, or ranked for one offline */
    FA2I_RESTS_MODEL      /* the cost model alone, or corrected by what was measured of others */
} fa2i_rests;

/* A kernel that could be taken for a problem. */
typedef struct fa2i_option {
    char text[FA2I_VARIANT_CHARS];
    double us;       /* estimate of its time on the problem */
    double model_us; /* by the cost model alone */
    fa2i_rests rests;
    bool compile;    /* its code is not there */
    size_t kernel;   /* index of the evidence; FA2I_NONE: it is not in there, and is for the
                      * problem's class as the generator knows it */
    size_t set;      /* the nearest of the evidence that us rests on; FA2I_NONE: by the model */
    double distance; /* of that */
    size_t kin;      /* the nearest set of another class that corrects the model; or FA2I_NONE */
} fa2i_option;

#define FA2I_NONE ((size_t)-1)

/* From now on fa2i_generator_rank of that operation rests on this evidence, and on none that was given
 * before. card: this one's measurements count as its own. The evidence is copied. */
fa2_status fa2i_generator_learn(fa2i_generator *generator, fa2_op op, const fa2i_evidence *evidence,
                                const fa2i_card *card);

/* The same, and what was given before still counts. Indexes of kernels and sets go on from those. */
fa2_status fa2i_generator_learn_more(fa2i_generator *generator, fa2_op op,
                                     const fa2i_evidence *evidence, const fa2i_card *card);

/* What a kernel is expected to take on a problem. */
typedef struct fa2i_judgement {
    double us;    /* 0: no SM can hold it */
    double doubt; /* standard deviation of ln us, but for what all kernels of a problem share */
    double known; /* on how many measurements of this very problem it might as well rest */
} fa2i_judgement;

/* Of kernels of the problem's class, by their canonical texts, by what was learned. */
fa2_status fa2i_generator_judge(fa2i_generator *generator, const fa2_problem *problem,
                                const fa2i_card *card, const char *const *texts, size_t count,
                                fa2i_judgement *ret_judgements);

/* What could be taken for a problem on a card: the kernels of the evidence and the model's candidates,
 * each text once, the best choice first. What must be compiled stands behind what is about as fast and
 * need not. Candidates are left out where enough was measured nearby. Milliseconds for the first problem of
 * a class, less for the others. *ret_options belongs to the caller (fa2i_free). Errors as of
 * fa2i_generator_candidates. */
fa2_status fa2i_generator_rank(fa2i_generator *generator, const fa2_problem *problem,
                               const fa2i_card *card, fa2i_option **ret_options, size_t *ret_count);

/* Lines "variant: why it is no candidate", for people. *ret_text belongs to the caller
 * (fa2i_free). */
fa2_status fa2i_generator_rejected(fa2i_generator *generator, const fa2_problem *problem,
                                   const fa2i_card *card, char **ret_text);

/* The variant of a canonical text with its launch numbers; its cost_us is 0. FA2_E_NOT_FOUND: the scripts know none of
 * that text, and why. */
fa2_status fa2i_generator_variant(fa2i_generator *generator, const char *variant_text,
                                  fa2i_variant *ret_variant);

/* The same of a text that a person gives. With a problem, the text may leave out the problem's fields, as tables do.
 * With a card, the variant's family must serve the card's SM. Each may be NULL. */
fa2_status fa2i_generator_named_variant(fa2i_generator *generator, const char *text, const fa2_problem *problem,
                                        const fa2i_card *card, fa2i_variant *ret_variant);

/* Is a variant that the generator gave for the problem's class? Scripts that pass over what they do not
 * know must not give kernels of one class for another: FA2_E_UNSUPPORTED. */
fa2_status fa2i_generator_check_class(const fa2_problem *problem, const fa2i_variant *variant);

/* The CUDA text of a variant (fa2i_variant.text). *ret_source belongs to the caller (fa2i_free). */
fa2_status fa2i_generator_source(fa2i_generator *generator, const char *variant_text,
                                 char **ret_source);

/* The cost model's time with the register count that the compiler reported; registers == 0: with
 * the model's own estimate. */
fa2_status fa2i_generator_cost(fa2i_generator *generator, const char *variant_text,
                               const fa2_problem *problem, const fa2i_card *card, int registers,
                               double *ret_us);

/* The card that stands for an SM when there is no GPU (75 ... 121). FA2_E_INVALID lists the known
 * SMs. */
fa2_status fa2i_generator_card(fa2i_generator *generator, int arch, fa2i_card *ret_card);

#endif
