/*
 * What a context takes from the database and what it compiles: the rules with a real file, what is
 * passed over and told, databases that cannot be used, and what is stored.
 */
#include <sys/wait.h>
#include "fa2.h"
#include "tuned_database.h"

enum { NOBODY = 65534 };

static tuned_database database;
static tuned_log log_of;

/* Fresh fake, folder and log; then a context with the database in it. */
static void begin(void)
{
    fake_install();
    tuned_begin(&database);
    log_of = (tuned_log){.count = 0};
}

static fa2_config config_of(void)
{
    return (fa2_config){.database = database.path, .log = tuned_log_add, .log_user = &log_of};
}

static fa2_context *create(void)
{
    const fa2_config config = config_of();
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    return context;
}

static void end(fa2_context *context)
{
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
    tuned_end(&database);
}

/* From here on there is no NVRTC. */
static void remove_nvrtc(void)
{
    setenv("FA2_NVRTC_LIBRARY", "/nonexistent/libnvrtc.so", 1);
    fa2i_nvrtc_install(NULL);
}

static fa2_explanation explain(fa2_context *context, fa2_problem problem)
{
    fa2_explanation e = {.struct_bytes = sizeof e, .rule = (fa2_rule)99};
    CHECK_EQ(fa2_explain(context, &problem, &e), FA2_OK);
    return e;
}

/* With a tuned database NVRTC is not needed, by any of the rules. */
static void test_exact_and_nearest(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = tuned_problem(1, 2048)});
    remove_nvrtc();
    fa2_context *context = create();

    fa2_explanation e = explain(context, tuned_problem(1, 2048));
    CHECK_EQ(e.rule, FA2_RULE_EXACT);
    CHECK_EQ(e.measured, 1);
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=2");
    CHECK(e.median_us > 12.4 && e.median_us < 12.6);
    CHECK_STR(e.device, "Fake RTX 3060");
    CHECK_STR(e.target, "sm_86");
    CHECK_CONTAINS(e.reason, "this very problem");

    e = explain(context, tuned_problem(1, 640));
    CHECK_EQ(e.rule, FA2_RULE_NEAREST);
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=1");
    CHECK_EQ(e.tuned_problem.seq_q, 512);
    CHECK_CONTAINS(e.reason, "Sq=512");
    CHECK_CONTAINS(e.reason, "distance 0.446");
    CHECK_EQ(log_of.count, 0);

    fa2_problem other = tuned_problem(1, 512);
    other.head_dim = 128; /* no kernel for that, and nothing to compile one with */
    CHECK_EQ(fa2_prepare(context, &other), FA2_E_NO_NVRTC);
    CHECK_CONTAINS(fa2_last_message(), database.path);
    CHECK_CONTAINS(fa2_last_message(), "D=128");
    CHECK_CONTAINS(fa2_last_message(), "/nonexistent/libnvrtc.so");
    end(context);
    unsetenv("FA2_NVRTC_LIBRARY");
}

static void test_arch(void)
{
    begin();
    fa2i_card other = tuned_card(0);
    other.sm_count = 82;
    strcpy(other.name, "Fake RTX 3090");
    tuned_put(&database,
              &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512), .card = &other});
    fa2i_card model = tuned_card(0);
    strcpy(model.name, "model of sm_86");
    tuned_put(&database,
              &(tuned_winner){
                  .id = 2, .problem = tuned_problem(1, 4096), .card = &model, .modelled = true});
    remove_nvrtc();
    fa2_context *context = create();

    fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_ARCH);
    CHECK_EQ(e.measured, 1);
    CHECK_STR(e.device, "Fake RTX 3090");
    CHECK_CONTAINS(e.reason, "measured on another card");

    e = explain(context, tuned_problem(1, 4096));
    CHECK_EQ(e.rule, FA2_RULE_ARCH);
    CHECK_EQ(e.measured, 0);
    CHECK(e.median_us <= 0);
    CHECK_STR(e.device, "model of sm_86");
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=2");
    CHECK_CONTAINS(e.reason, "ranked by the cost model offline");
    end(context);
    unsetenv("FA2_NVRTC_LIBRARY");
}

/* A damaged image and one for another SM are told once each and passed over: what is left is taken.
 */
static void test_passed_over(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_put(&database,
              &(tuned_winner){.id = 2, .problem = tuned_problem(1, 768), .target = "sm_75"});
    tuned_put(&database, &(tuned_winner){.id = 3, .problem = tuned_problem(1, 1024)});
    tuned_sql(&database, "UPDATE image SET seal = zeroblob(32) WHERE kernel = "
                         "(SELECT id FROM kernel WHERE variant LIKE '%id=1')");
    fa2_context *context = create();

    fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_NEAREST);
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=3");
    CHECK_CONTAINS(log_of.text, "passed over");
    CHECK_CONTAINS(log_of.text, "CUDA_ERROR_NO_BINARY_FOR_GPU");
    const int said = log_of.count;
    e = explain(context, tuned_problem(1, 520));
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=3");
    CHECK_EQ(log_of.count, said);

    tuned_sql(&database, "DELETE FROM image");
    fa2_context *second = create(); /* nothing is left: the default rule */
    e = explain(second, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
    CHECK_EQ(fake.compile_count, 1);
    fa2_context_destroy(second);
    end(context);
}

/* A kernel that cannot be read now is asked for again later, and that is told once. */
static void test_read_fails_for_a_while(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    fa2_context *context = create();
    tuned_sql(&database, "ALTER TABLE code RENAME COLUMN data TO away");
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    CHECK_CONTAINS(log_of.text, "a tuned kernel is passed over");
    const int said = log_of.count;
    tuned_wait();
    CHECK_EQ(explain(context, tuned_problem(1, 516)).rule, FA2_RULE_DEFAULT);
    CHECK_EQ(log_of.count, said);
    tuned_sql(&database, "ALTER TABLE code RENAME COLUMN away TO data");
    tuned_wait();
    const fa2_explanation e = explain(context, tuned_problem(1, 520));
    CHECK_EQ(e.rule, FA2_RULE_NEAREST);
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=1");
    end(context);
}

/* A kernel whose image was damaged serves again when fa2-tune has stored it again. */
static void test_lost_and_found(void)
{
    const tuned_winner winner = {.id = 1, .problem = tuned_problem(1, 512)};
    begin();
    tuned_put(&database, &winner);
    tuned_sql(&database, "UPDATE code SET data = zeroblob(99)");
    fa2_context *context = create();
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    CHECK_CONTAINS(log_of.text, "damaged");
    tuned_put(&database, &winner);
    tuned_wait();
    CHECK_EQ(explain(context, tuned_problem(1, 520)).rule, FA2_RULE_NEAREST);
    end(context);
}

/* A winner whose code is lost is compiled again, from its parameters: it stays the winner, with its time. The
 * generator's kernel has another key, to which the rows move. */
static void test_lost_code(void)
{
    static const char text[] = "fwd_sm80 d=64 dtype=fp16 causal=1 br=64 bc=32 warps=4 kstages=1 "
                               "vstages=1 layout=swizzle q=smem fill=whole";
    char sql[512];
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    snprintf(sql, sizeof sql, "UPDATE kernel SET variant = '%s'; DELETE FROM image", text);
    tuned_sql(&database, sql);

    fa2_config config = config_of();
    fa2_context *context = NULL;
    config.read_only = 1;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_STR(explain(context, tuned_problem(1, 512)).variant, text);
    CHECK_EQ(fake.compile_count, 1);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM image"), 0);
    fa2_context_destroy(context);

    context = create();
    const fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_EXACT);
    CHECK_STR(e.variant, text);
    CHECK(e.median_us > 12.4 && e.median_us < 12.6);
    CHECK_EQ(fake.compile_count, 2);
    CHECK_CONTAINS(log_of.text, "compiled again");
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 1);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM winner JOIN image USING (kernel) "
                                     "WHERE measured AND median_us = 12.5"),
             1);
    fa2_context_destroy(context);
    context = create();
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_EXACT);
    CHECK_EQ(fake.compile_count, 2);
    end(context);
}

/* A recipe that would crash the launch path: the kernel is passed over. */
static void test_bad_recipe(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_sql(&database, "UPDATE kernel SET recipe = replace(recipe, 'rows=64', 'rows=0')");
    fa2_context *context = create();
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    CHECK_CONTAINS(log_of.text, "damaged");
    end(context);
}

/* ---- never a wrong kernel ---- */

/* A causal winner, id 1, and one that is not, id 2. */
static void put_both_kinds(void)
{
    fa2_problem plain = tuned_problem(1, 512);
    plain.causal = 0;
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = plain});
}

/* After this damage the causal problem gets a kernel that is made for it, and the log is told. */
static void check_not_taken(const char *damage, const char *told)
{
    begin();
    put_both_kinds();
    tuned_sql(&database, damage);
    fa2_context *context = create();
    const fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
    CHECK(strstr(e.variant, "id=2") == NULL);
    CHECK_CONTAINS(log_of.text, told);
    end(context);
}

static void test_wrong_kernels(void)
{
#define KERNEL(id) "(SELECT id FROM kernel WHERE variant LIKE '%id=" id "')"
    /* a winner that points at another problem's kernel */
    check_not_taken("UPDATE winner SET kernel = " KERNEL("2"), "of another class");
    /* and that kernel's record made to look right */
    check_not_taken("UPDATE winner SET kernel = " KERNEL(
                        "2") ";"
                             "UPDATE kernel SET class = 'D=64 dtype=fp16 causal=1'",
                    "is damaged");
    /* another kernel's code and seal */
    check_not_taken(
        "UPDATE image SET code = (SELECT code FROM image WHERE kernel = " KERNEL("2") ")",
        "is damaged");
    check_not_taken(
        "UPDATE image SET (code, seal) = (SELECT code, seal FROM image WHERE kernel = " KERNEL(
            "2") ")",
        "is damaged");
    check_not_taken("UPDATE code SET data = (SELECT data FROM code WHERE id = (SELECT code FROM "
                    "image WHERE kernel = " KERNEL("2") "))",
                    "is damaged");
    /* a problem that is filed under another class than its fields', with its kernel */
    check_not_taken("DELETE FROM winner WHERE kernel = " KERNEL(
                        "1") ";"
                             "UPDATE problem SET class = 'D=64 dtype=fp16 causal=1'",
                    "of another class");
#undef KERNEL
}

/* An index whose entries are others than the table's: made over an expression, and then declared to be
 * over the column. */
static void bend_index(const char *name, const char *table, const char *columns, const char *bent)
{
    char sql[600];
    snprintf(sql, sizeof(sql),
             "DROP INDEX %s; CREATE INDEX %s ON %s (%s); PRAGMA writable_schema = ON;"
             "UPDATE sqlite_schema SET sql = 'CREATE INDEX %s ON %s (%s)' WHERE name = '%s'",
             name, name, table, bent, name, table, columns, name);
    tuned_sql(&database, sql);
}

/* Each bit of the kernels' ids in the index of winners, and of verifications. */
static void test_damaged_indexes(void)
{
    for (int bit = 1; bit <= 8; bit *= 2) {
        char bent[64];
        snprintf(bent, sizeof(bent), "(kernel | %d) - (kernel & %d)", bit, bit);
        begin();
        put_both_kinds();
        bend_index("winner_kernel", "winner", "kernel", bent);
        bend_index("image_code", "image", "code", "3 - code");
        fa2_context *context = create();
        fa2_explanation e = explain(context, tuned_problem(1, 512));
        CHECK_EQ(e.rule, FA2_RULE_EXACT);
        CHECK_STR(log_of.text, "");
        CHECK_STR(e.variant, "fwd_sm80 d=64 id=1");
        fa2_context_destroy(context);

        tuned_sql(&database, "INSERT INTO verification SELECT d.id, k.id, 'wrong', 9, '', '' "
                             "FROM device d, kernel k WHERE k.variant LIKE '%id=1'");
        bend_index("verification_kernel", "verification", "kernel", bent);
        context = create();
        e = explain(context, tuned_problem(1, 512));
        CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
        end(context);
    }
}

/* A kernel that was found wrong is chosen by no rule, and one that spills where it was measured. */
static void test_wrong_and_spilled(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_put(&database, &(tuned_winner){.id = 2, .problem = tuned_problem(1, 1024)});
    tuned_sql(&database, "UPDATE kernel SET outcome = 'spilled', spill_bytes = 8;"
                         "INSERT INTO verification SELECT device, kernel, 'wrong', 9, '', '' "
                         "FROM winner WHERE kernel = (SELECT id FROM kernel WHERE variant "
                         "LIKE '%id=1')");
    fa2_context *context = create();
    const fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_NEAREST);
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=2");
    CHECK_EQ(e.spill_bytes, 8);
    CHECK_EQ(fake.compile_count, 0);
    end(context);
}

/* The default rule is told once per class of problems, and looks without leaving a trace. */
static void test_default_is_told_once(void)
{
    begin();
    fa2_context *context = create();
    fa2_problem problem = tuned_problem(1, 512);
    explain(context, problem);
    CHECK_EQ(log_of.count, 1);
    explain(context, tuned_problem(3, 640));
    CHECK_EQ(log_of.count, 1);
    problem.causal = 0;
    explain(context, problem);
    CHECK_EQ(log_of.count, 2);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM device"), 0);
    end(context);
}

/* Too much shared memory for this card's blocks: never even loaded. */
static void test_too_much_shared_memory(void)
{
    begin();
    tuned_put(&database,
              &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512), .smem_bytes = 101377});
    tuned_put(&database,
              &(tuned_winner){.id = 2, .problem = tuned_problem(1, 1024), .smem_bytes = 101376});
    fa2_context *context = create();
    const fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_STR(e.variant, "fwd_sm80 d=64 id=2");
    CHECK_EQ(e.smem_bytes, 101376);
    CHECK_EQ(log_of.count, 0);
    end(context);
}

/* What was compiled is stored and found again, unless the database is read-only. */
static void test_compiled_once(void)
{
    begin();
    fa2_context *context = create();
    fa2_explanation first = explain(context, tuned_problem(1, 512));
    CHECK_EQ(first.rule, FA2_RULE_DEFAULT);
    CHECK_CONTAINS(log_of.text, "nothing tuned for B=1");
    CHECK_CONTAINS(log_of.text, first.variant);
    CHECK_EQ(fake.compile_count, 1);
    fa2_context_destroy(context);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM image"), 1);

    context = create();
    fa2_explanation second = explain(context, tuned_problem(1, 512));
    CHECK_EQ(fake.compile_count, 1);
    CHECK_STR(second.variant, first.variant);
    CHECK_EQ(second.registers, first.registers);

    tuned_sql(&database, "UPDATE code SET data = zeroblob(8)"); /* damaged: compiled and stored */
    fa2_context_destroy(context);
    context = create();
    explain(context, tuned_problem(1, 512));
    CHECK_EQ(fake.compile_count, 2);
    CHECK(tuned_number(&database, "SELECT length(data) FROM code") > 8);
    end(context);
}

static void test_read_only(void)
{
    begin();
    fa2_config config = config_of();
    fa2_context *context = NULL;
    config.read_only = 1;
    CHECK_EQ(fa2_context_create(&config, &context),
             FA2_OK); /* there is no file, and none is made */
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    CHECK(access(database.path, F_OK) != 0);
    fa2_context_destroy(context);

    fa2_context_destroy(create()); /* makes the file */
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 0);
    end(context);
}

/* Storing fails: told once, and no error of the call. */
static void test_store_fails(void)
{
    begin();
    fa2_context *context = create();
    tuned_sql(&database, "CREATE TRIGGER full BEFORE INSERT ON kernel "
                         "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END");
    fa2_problem problem = tuned_problem(1, 512);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    CHECK_CONTAINS(log_of.text, "not stored");
    CHECK_CONTAINS(log_of.text, "the disk is full");
    problem.head_dim = 128;
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    const char *first = strstr(log_of.text, "not stored");
    CHECK(first != NULL && strstr(first + 1, "not stored") == NULL);
    end(context);
}

static void check_unusable(const char *part)
{
    const fa2_config config = config_of();
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_DATABASE);
    CHECK(context == NULL);
    CHECK_CONTAINS(fa2_last_message(), database.path);
    CHECK_CONTAINS(fa2_last_message(), part);
    CHECK_EQ(fake_live(), 0);
}

static void test_unusable_database(void)
{
    begin();
    FILE *file = fopen(database.path, "w");
    CHECK(file != NULL && fputs("this is a diary, dear diary, and no database", file) >= 0);
    CHECK(file != NULL && fclose(file) == 0);
    chmod(database.path, 0600);
    check_unusable("not a database");
    remove(database.path);

    fa2_context_destroy(create());
    CHECK_EQ(chmod(database.path, 0666), 0);
    check_unusable("others can write");
    CHECK_EQ(chmod(database.path, 0600), 0);
    tuned_sql(&database, "PRAGMA user_version = 1000");
    check_unusable("1000");
    end(NULL);
}

/* Where no file can be made, there is no database, and the log says why. */
static void test_nowhere_to_create(void)
{
    begin();
    fa2_config config = config_of();
    fa2_context *context = NULL;
    config.database = "/proc/fa2-cannot-be-made/fa2.db";
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_CONTAINS(log_of.text, "working without a database");
    CHECK_CONTAINS(log_of.text, config.database);
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_DEFAULT);
    end(context);
}

/* In a child, as a user who may read but not write: root may always write. */
static int use_unwritable(void)
{
    if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        return 1;
    fa2_context *context = create();
    CHECK_CONTAINS(log_of.text, "without writing to it");
    CHECK_EQ(log_of.count, 1);
    CHECK_EQ(explain(context, tuned_problem(1, 512)).rule, FA2_RULE_EXACT);
    fa2_problem other = tuned_problem(1, 512);
    other.causal = 0;
    CHECK_EQ(explain(context, other).rule, FA2_RULE_DEFAULT);
    fa2_context_destroy(context);
    return check_failures;
}

static void test_unwritable_database(void)
{
    begin();
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    CHECK_EQ(chmod(database.path, 0444), 0);
    CHECK_EQ(chmod(database.folder, 0555), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(use_unwritable() == 0 ? 0 : 1);
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(tuned_number(&database, "SELECT count(*) FROM kernel"), 1);
    end(NULL);
}

/* No path can be found out: work without, and say so. A path in $FA2_DB is taken. */
static void test_default_path(void)
{
    const fa2_config config = {.log = tuned_log_add, .log_user = &log_of};
    fa2_context *context = NULL;

    begin();
    unsetenv("FA2_DB");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_CONTAINS(log_of.text, "working without a database");
    fa2_context_destroy(context);
    setenv("FA2_DB", database.path, 1);
    CHECK_EQ(fa2_context_create(NULL, &context), FA2_OK);
    CHECK_EQ(access(database.path, F_OK), 0);
    end(context);
    unsetenv("FA2_DB");
}

int main(void)
{
    test_exact_and_nearest();
    test_arch();
    test_passed_over();
    test_read_fails_for_a_while();
    test_lost_and_found();
    test_lost_code();
    test_bad_recipe();
    test_wrong_kernels();
    test_damaged_indexes();
    test_wrong_and_spilled();
    test_default_is_told_once();
    test_too_much_shared_memory();
    test_compiled_once();
    test_read_only();
    test_store_fails();
    test_unusable_database();
    test_nowhere_to_create();
    test_unwritable_database();
    test_default_path();
    return check_done();
}
