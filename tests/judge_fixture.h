/*
 * What tests of the judges share.
 */
#ifndef FA2_TESTS_JUDGE_FIXTURE_H
#define FA2_TESTS_JUDGE_FIXTURE_H

#include "tuner/judge/verify.h"

/* The operand of backward that is dQ; dK and dV follow. */
static inline int first_gradient(void)
{
    const fa2i_judge *judge = fa2i_judge_of(FA2_OP_BACKWARD);
    int operand = 0;
    while (operand < judge->operand_count && !judge->operands[operand].output)
        operand++;
    return operand;
}

#endif
