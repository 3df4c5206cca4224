/*
 * What tests of calls that tensor maps may not express have in common: a card whose kernels read by them, and tensors
 * far apart, which nothing reads: the fake driver launches without looking at them.
 */
#ifndef FA2_TESTS_UNMAPPED_FIXTURE_H
#define FA2_TESTS_UNMAPPED_FIXTURE_H

#include "fa2.h"
#include "tuned_database.h"

/* The least stride that no map has, 2^40 bytes, in elements. */
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

#endif
