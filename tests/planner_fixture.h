/*
 * A context with its own database on the fake driver. check.h counts failures.
 */
#pragma once

#include "fa2.h"
#include "tuned_database.h"

static tuned_database database;
static tuned_log log_of;

/* Creates a new fake, folder and log, and a context with the database in that folder. */
static inline void begin(void)
{
    fake_install();
    tuned_begin(&database);
    log_of = (tuned_log){.count = 0};
}

static int never_compile; /* for contexts that are created later */

static inline fa2_config config_of(void)
{
    return (fa2_config){.struct_bytes = sizeof(fa2_config),
                        .database = database.path,
                        .log = tuned_log_add,
                        .log_user = &log_of,
                        .never_compile = never_compile};
}

static inline fa2_context *create(void)
{
    const fa2_config config = config_of();
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    return context;
}

static inline void end(fa2_context *context)
{
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
    tuned_end(&database);
}

/* Removes NVRTC for the rest of the test. */
static inline void remove_nvrtc(void)
{
    setenv("FA2_NVRTC_LIBRARY", "/nonexistent/libnvrtc.so", 1);
    fa2i_nvrtc_install(NULL);
}

static inline fa2_explanation explain(fa2_context *context, fa2_problem problem)
{
    fa2_explanation e = {.struct_bytes = sizeof e, .rule = (fa2_rule)99};
    CHECK_EQ(fa2_explain(context, &problem, &e), FA2_OK);
    return e;
}
