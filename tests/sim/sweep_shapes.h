/*
 * The shapes on which the sweep runs a variant. They reach all code paths of its tile sizes.
 */
#pragma once

#include "runtime/base/record.h"
#include "tuner/judge/case.h"

enum { SWEEP_SHAPES = 12 };

/* Returns shape `index`, 0 ... SWEEP_SHAPES - 1. The class gives the fields that are compiled into a kernel. */
fa2i_case sweep_shape(const fa2_problem *class, const fa2i_variant *variant, int sm_count, int index);

bool sweep_same_shape(const fa2i_case *a, const fa2i_case *b);
