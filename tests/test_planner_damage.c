/*
 * A context on a database with one damaged column. It uses the problem's tuned kernel, or compiles one for the problem,
 * and never uses another kernel.
 */
#include "fa2.h"
#include "damage.h"
#include "tuned_database.h"

static tuned_database database;

static void serve(void *user, const char *table, const char *column, const char *value, bool number, const char *sql)
{
    const fa2_problem problem = tuned_problem(1, 512);
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = database.path, .read_only = 1};
    fa2_context *context = NULL;
    fa2_explanation e = {.struct_bytes = sizeof e};
    const int failures = check_failures;
    (void)table, (void)column, (void)number;
    /* only these values are tried, because a context asks the generator, which takes a while */
    if (strcmp(value, "-3") != 0 && strcmp(value, "1e999") != 0 && strcmp(value, "'bogus'") != 0)
        return;
    copy_file(user, database.path);
    if (!damage(database.path, sql))
        return;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_EQ(fa2_explain(context, &problem, &e), FA2_OK);
    if (strcmp(e.variant, "fwd_sm80 d=64 id=1") != 0)
        CHECK_CONTAINS(e.variant, "causal=1");
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    if (check_failures > failures)
        fprintf(stderr, "... after: %s\n", sql);
}

int main(void)
{
    char good[120];
    fa2_problem plain = tuned_problem(1, 512);
    plain.causal = 0;
    fake_install();
    tuned_begin(&database);
    snprintf(good, sizeof good, "%s/good.db", database.folder);
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = plain});
    CHECK_EQ(rename(database.path, good), 0);
    CHECK(damage_each_column(good, serve, good) > 50);
    CHECK_EQ(remove(good), 0);
    fake_uninstall();
    tuned_end(&database);
    return check_done();
}
