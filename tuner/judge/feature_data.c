#include "tuner/judge/feature_data.h"

#include <math.h>

fa2_status fa2i_fill_slopes(const fa2i_case *c, int operand, size_t count, void *out)
{
    float *slopes = out;
    (void)c;
    (void)operand;
    for (size_t i = 0; i < count; i++)
        slopes[i] = i % 11 == 10 ? 0.0f : ldexpf(1.0f, -(int)(i % 9));
    return FA2_OK;
}

fa2_status fa2i_fill_sinks(const fa2i_case *c, int operand, size_t count, void *out)
{
    static const float values[] = {3.0f, -2.0f, 0.5f, -INFINITY, 30.0f, -100.0f};
    float *sinks = out;
    (void)operand;
    for (size_t i = 0; i < count; i++)
        sinks[i] = values[(i + c->seed) % (sizeof values / sizeof *values)];
    return FA2_OK;
}
