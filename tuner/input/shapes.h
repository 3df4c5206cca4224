/*
 * The problems to work on: presets, shape files, --shape texts; each problem once, in the order
 * given. Errors: FA2_E_INVALID naming option or file, line and column, and what is accepted, also
 * for sizes that no launch can have; FA2_E_IO.
 */
#ifndef FA2I_SHAPES_H
#define FA2I_SHAPES_H

#include <stdio.h>
#include "runtime/base/record.h"
#include "tuner/input/problem_text.h"

typedef struct fa2i_shapes {
    fa2_problem *items;
    double *calls; /* of each item: what the column `calls` says, summed; 0: nothing does */
    size_t count, capacity;
    uint32_t *slots; /* hash table of indexes into items, + 1; 0: free */
    size_t slot_count;
    unsigned ops;    /* what is added is for these (bits 1 << fa2_op); 0: as it says. Set before anything is added */
    size_t left_out; /* rows of files that name another operation */
} fa2i_shapes;

/* Of tuner/input/presets.csv; an unknown name lists the known ones. Each row is for forward and for
 * backward, but for those that continue keys in a cache (one query; causal and seq_q < seq_k),
 * which are for forward; with shapes->ops all are for those. */
fa2_status fa2i_shapes_add_preset(fa2i_shapes *shapes, const char *name);

/* The names of the presets, in their order: "seeds, paper, ...". On FA2_OK the caller frees *ret_names. */
fa2_status fa2i_shapes_list_presets(char **ret_names);

/* CSV (RFC 4180, without line breaks in cells). Its header names, as problem.def writes them, the fields that texts
 * always show, and any others. The column `calls` says how often a program asks for the problem (FA2_CAPTURE), `origin`
 * is for people; another one is FA2_E_INVALID, with the nearest known. '#' lines and empty lines are
 * skipped. "-" is standard input. A row that names its operation is for that, and left out where shapes->ops has it
 * not; another one is for each of shapes->ops, else forward. */
fa2_status fa2i_shapes_add_file(fa2i_shapes *shapes, const char *path);

/* "B=1,Hq=8,Hkv=8,Sq=512,Sk=512,D=64,dtype=fp16,causal=1": keys of problem.def, which also says
 * what is meant where one is left out. With shapes->ops it is for those, whatever it says. */
fa2_status fa2i_shapes_add_text(fa2i_shapes *shapes, const char *text);

/* The keys of such a text alone: what is given, checked field by field. */
fa2_status fa2i_shape_fields(const char *text, fa2i_problem_text *ret_fields);

/* Add a valid problem, or these calls to it. */
fa2_status fa2i_shapes_add(fa2i_shapes *shapes, const fa2_problem *problem, double calls);

/* The same for each of shapes->ops, where there are any, whichever it is for. FA2_E_INVALID names the problem and what
 * of it an operation does not have. */
fa2_status fa2i_shapes_add_for_ops(fa2i_shapes *shapes, const fa2_problem *problem, double calls);

/* Of problems that calls are known of, and that round to the same one (fa2i_problem_rounded), keep
 * the most called one, to which the others' calls go, and those that have an eighth of the calls.
 * The order stays. */
fa2_status fa2i_shapes_condense(fa2i_shapes *shapes, size_t *ret_dropped);

/* As a shape file of every field, with the column `calls`. What fails is in the stream. */
void fa2i_shapes_write(const fa2i_shapes *shapes, FILE *out);

void fa2i_shapes_done(fa2i_shapes *shapes);

#endif
