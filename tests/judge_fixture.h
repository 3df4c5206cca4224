/*
 * Shared by the tests of the judges.
 */
#pragma once

#include "tuner/judge/verify.h"

/* Returns the index of dQ among backward's operands. dK and dV follow. */
static inline int first_gradient(void)
{
    const fa2i_judge *judge = fa2i_judge_of(FA2_OP_BACKWARD);
    int operand = 0;
    while (operand < judge->operand_count && !judge->operands[operand].output)
        operand++;
    return operand;
}
