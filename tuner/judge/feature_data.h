/*
 * The features of a case, for any operation: arguments of a call, and what references read. judge.h declares the test
 * data of their operands.
 */
#pragma once

#include "tuner/judge/attention.h"
#include "tuner/judge/features.h"
#include "tuner/judge/judge.h"

/* Packs the sequences of a case and adds `more`. All but the longest have half the rows. */
void fa2i_case_pack(fa2i_case *c, int more);

/* Set the members of features in the arguments of a call. An address is 0 if the case does not have the operand. */
void fa2i_case_put_forward(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX], fa2_forward_args *args);
void fa2i_case_put_backward(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX], fa2_backward_args *args);

/* The dropout that a launch finds. seed, offset: these operands on the host, or NULL. */
fa2_dropout fa2i_case_dropout_found(const fa2i_case *c, const uint64_t *seed, const uint64_t *offset);

/* Where a case lies in a larger call, for dropout: two cases of three are parts. */
fa2_dropout_origin fa2i_case_origin(const fa2i_case *c);

/* The case's distance_shift: 0 in one case of three; not negative if the problem is causal. */
float fa2i_case_shift(const fa2i_case *c);

/* The operands of features, and the sequence integers among them, for a reference. They borrow from the inputs. */
fa2i_features fa2i_case_features(const fa2i_case *c, const fa2i_inputs *inputs);
fa2i_said fa2i_case_said(const fa2i_case *c, const fa2i_inputs *inputs);
