/*
 * The problems to work on: presets, shape files, --shape texts. Each problem is there once, in the order given. Errors:
 * FA2_E_INVALID names option or file, line and column, and what is accepted, also for sizes that no launch can have.
 * FA2_E_IO.
 */
#pragma once

#include <stdio.h>
#include "runtime/base/record.h"
#include "tuner/input/problem_text.h"

typedef struct fa2i_shapes {
    fa2_problem *items;
    double *calls; /* of each item: the sum of its column `calls`; 0: not given */
    size_t count, capacity;
    uint32_t *slots; /* hash table of indexes into items, + 1; 0: free */
    size_t slot_count;
    unsigned ops;    /* operations of everything that is added (bits 1 << fa2_op); 0: as the shapes say. Set it before
                      * anything is added */
    size_t left_out; /* rows of files that name another operation */
} fa2i_shapes;

/* Adds a preset of tuner/input/presets.csv. An unknown name gives an error that lists the known ones. Each row is for
 * forward and backward. Rows that continue keys in a cache (one query, or causal and seq_q < seq_k) are for forward
 * alone. With shapes->ops, all rows are for those operations. */
fa2_status fa2i_shapes_add_preset(fa2i_shapes *shapes, const char *name);

/* Lists the names of the presets, in their order: "seeds, paper, ...". On FA2_OK the caller frees *ret_names. */
fa2_status fa2i_shapes_list_presets(char **ret_names);

/* Adds a CSV file (RFC 4180, without line breaks in cells). Its header names fields as in problem.def: all that problem
 * texts always show, and any others. The column `calls` says how often a program calls the problem (FA2_CAPTURE). The
 * column `origin` is for people. Any other column is FA2_E_INVALID, and the message names the nearest known one. Lines
 * with '#' and empty lines are skipped. "-" is standard input.
 *
 * A row that names its operation is for that one, and is left out if shapes->ops lacks it. Other rows are for each of
 * shapes->ops, or for forward. */
fa2_status fa2i_shapes_add_file(fa2i_shapes *shapes, const char *path);

/* Adds "B=1,Hq=8,Hkv=8,Sq=512,Sk=512,D=64,dtype=fp16,causal=1". The keys, and the values of missing ones, are defined
 * in problem.def. With shapes->ops it is for those operations, whatever it says. */
fa2_status fa2i_shapes_add_text(fa2i_shapes *shapes, const char *text);

/* Reads the keys of such a text alone: the given ones, checked field by field. */
fa2_status fa2i_shape_fields(const char *text, fa2i_problem_text *ret_fields);

/* Adds a valid problem. If it is there already, adds the calls to it. */
fa2_status fa2i_shapes_add(fa2i_shapes *shapes, const fa2_problem *problem, double calls);

/* The same for each of shapes->ops if that is set, whatever the problem's operation. FA2_E_INVALID names the problem,
 * and the field that an operation does not have. */
fa2_status fa2i_shapes_add_for_ops(fa2i_shapes *shapes, const fa2_problem *problem, double calls);

/* Combines problems with known calls that round to the same problem (fa2i_problem_rounded). It keeps the most called
 * one, which gets the others' calls, and those that have at least an eighth of the calls. The order stays. */
fa2_status fa2i_shapes_condense(fa2i_shapes *shapes, size_t *ret_dropped);

/* Writes a shape file with every field and the column `calls`. Errors stay in the stream. */
void fa2i_shapes_write(const fa2i_shapes *shapes, FILE *out);

void fa2i_shapes_done(fa2i_shapes *shapes);
