/*
 * Shared by tests of calls that tensor maps may not be able to express: a card whose kernels read by tensor maps, and
 * tensors with huge strides. Nothing reads them, because the fake driver only records launches.
 */
#pragma once

#include "fa2.h"
#include "tuned_database.h"

/* The smallest stride that no map can express: 2^40 bytes, in elements. */
#define FAR_ELEMS (INT64_C(1) << 39)

static inline void *place(unsigned number)
{
    return (void *)((uintptr_t)number << 52);
}

/* [batch, seq, heads, columns] */
static inline fa2_tensor tensor_at(unsigned number, int32_t seq, int32_t heads, int32_t columns)
{
    const int64_t row = (int64_t)heads * columns;
    return (fa2_tensor){place(number), seq * row, row, columns};
}

static inline fa2_context *create_with(fa2_config config)
{
    fa2_context *context = NULL;
    fake_install();
    fake_become_h200();
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    return context;
}

static inline const char *last_function(void)
{
    return fake.launches[fake.launch_count - 1].function;
}
