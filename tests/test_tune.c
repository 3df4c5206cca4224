/*
 * The results of tuning: winners, kernels that fail, and problems that cannot be measured.
 */
#include "tune_fixture.h"

#define SHAPE_CAUSAL "B=2,Hq=2,Sq=300,D=16,causal=1"
#define SHAPE_BF16   "Hq=4,Sq=600,Sk=900,D=16,dtype=bf16"

static const char *const three_shapes[] = {SHAPE_SHORT, SHAPE_CAUSAL, SHAPE_BF16, NULL};

/* Tunes twice. The second time there is nothing to do. */
static void test_tune_twice(void)
{
    tuned_database database;
    run r;
    tuned_begin(&database);
    tune(&database, three_shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(states(&r, "measured"), 3);
    CHECK(number(&r, "compiled") > 20);
    CHECK_EQ(number(&r, "reused"), 0);
    CHECK_EQ(number(&r, "verified"), number(&r, "compiled"));
    CHECK(number(&r, "timed") > 30);
    CHECK_EQ(number(&r, "failed_while_timed"), 0);
    /* The winner is the fastest variant, up to ties, and no slower than the default. */
    CHECK_EQ(query(&database, "SELECT count(*) FROM winners w WHERE source = 'measured' AND "
                              "median_us <= 1.005 * (SELECT min(median_us) FROM measurements m "
                              "WHERE m.seq_q = w.seq_q AND m.outcome = 'ok')"),
             3);
    CHECK_EQ(query(&database, "SELECT count(*) FROM winners WHERE speedup_vs_default >= 1"), 3);
    CHECK_EQ(query(&database, "SELECT count(*) FROM measurements WHERE NOT settled"), 0);
    /* At least one round; more if the best two are close, which depends on their texts on this device. */
    CHECK(query(&database, "SELECT max(n) FROM measurements") >= 4);
    CHECK(query(&database, "SELECT max(n) FROM measurements") <= 60);

    tune(&database, three_shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(states(&r, "settled"), 3);
    CHECK_EQ(number(&r, "compiled"), 0);
    CHECK_EQ(number(&r, "verified"), 0);
    CHECK_EQ(number(&r, "timed"), 0);

    /* A new problem of a known class: kernels and verifications exist already. */
    static const char *const more[] = {SHAPE_SHORT, "Hq=3,Sq=777,D=16", NULL};
    tune(&database, more, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(states(&r, "settled"), 1);
    CHECK_EQ(states(&r, "measured"), 1);
    CHECK(number(&r, "reused") > 0);
    CHECK_EQ(number(&r, "compiled"), number(&r, "verified"));
    tuned_end(&database);
}

/* Windows and softcaps make separate classes. Kernels without them would be wrong. */
static void test_features(void)
{
    static const char *const shapes[] = {"Hq=2,Sq=60,D=16", "Hq=2,Sq=60,D=16,Wl=20,Wr=0",
                                         "Hq=2,Sq=60,D=16,causal=1,softcap=1,Wl=7", NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(states(&r, "measured"), 3);
    CHECK_EQ(number(&r, "verified"), number(&r, "compiled"));
    CHECK_EQ(query(&database, "SELECT count(*) FROM verification WHERE outcome <> 'ok'"), 0);
    CHECK_EQ(query(&database, "SELECT count(DISTINCT class) FROM kernel"), 3);
    tuned_end(&database);
}

/* Kernels that are wrong or do not compile are recorded and never win. */
static void test_bad_kernels(void)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    setenv("FA2_TEST_WRONG", "kBc = 32;", 1);
    fake.rejected = "kBr = 64;";
    tune(&database, shapes, NULL, &r);
    fake.rejected = NULL;
    unsetenv("FA2_TEST_WRONG");
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK(number(&r, "wrong") > 0);
    CHECK(number(&r, "compile_error") > 0);
    CHECK_EQ(query(&database, "SELECT count(*) FROM measurements WHERE outcome = 'ok' AND "
                              "(variant LIKE '%bc=32 %' OR variant LIKE '%br=64 %')"),
             0);
    CHECK(query(&database, "SELECT count(*) FROM measurements WHERE outcome = 'wrong' AND settled "
                           "AND detail LIKE '%x the bound'") > 0);
    CHECK_EQ(query(&database, "SELECT count(*) FROM winners"), 1);
    tune(&database, shapes, NULL, &r); /* failures are results: no kernel is tried again */
    CHECK_EQ(states(&r, "settled"), 1);
    tuned_end(&database);
}

static void spill(fake_compilation *compilation, void *user)
{
    const char *what = user;
    if (strstr(compilation->source, what) != NULL)
        compilation->spill_stores = 64;
}

/* Kernels that spill are left out, unless there are no others. */
static void test_spills(void)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    static const char *const texts[2] = {"kWarps = 4;", "kHeadDim"};
    for (int i = 0; i < 2; i++) {
        tuned_database database;
        run r;
        tuned_begin(&database);
        fake.on_compile = spill;
        fake.on_compile_user = (void *)(uintptr_t)texts[i];
        tune(&database, shapes, NULL, &r);
        fake.on_compile = NULL;
        CHECK_EQ(r.status, FA2I_EXIT_OK);
        CHECK_EQ(states(&r, "measured"), 1);
        CHECK(number(&r, "spilled") > 0);
        CHECK_EQ(query(&database, "SELECT count(*) > 0 FROM measurements WHERE outcome = 'spilled'"), i == 0);
        tune(&database, shapes, NULL, &r);
        CHECK_EQ(states(&r, "settled"), 1);
        tuned_end(&database);
    }
}

/* Families that fault and hang are recorded once, and all others are tuned as usual. */
static void test_fault_and_hang(void)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    tuned_database database;
    run r;
    char folder[1024];
    const char *source = getenv("FA2_SOURCE_DIR");
    snprintf(folder, sizeof folder, "%s/tests/families", source != NULL ? source : ".");
    setenv("FA2_GEN_PATH", folder, 1);
    tuned_begin(&database);
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_OK);
    CHECK_EQ(number(&r, "fault"), 1);
    CHECK_EQ(number(&r, "hang"), 1);
    CHECK_EQ(states(&r, "measured"), 1);
    CHECK_EQ(query(&database, "SELECT count(*) FROM measurements WHERE settled AND outcome IN "
                              "('fault', 'hang')"),
             2);
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(states(&r, "settled"), 1);
    CHECK_EQ(number(&r, "timed"), 0);
    unsetenv("FA2_GEN_PATH");
    tuned_end(&database);
}

/* A problem that does not fit into memory fails alone, and the output says why. */
static void test_memory(void)
{
    static const char *const shapes[] = {"B=20000,Hq=64,Sq=4096,D=16", SHAPE_SHORT, NULL};
    static const char *const large[] = {"B=20000,Hq=64,Sq=4096,D=24", NULL};
    static const char *const uncountable[] = {"B=8191,Hq=65536,Sq=1,Sk=536870912,D=72", NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    tune(&database, large, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_CONTAINS(r.json, database.path);
    CHECK(access(database.path, F_OK) != 0); /* there was nothing to store */
    tune(&database, uncountable, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_EQ(number(&r, "compiled"), 0);
    CHECK_CONTAINS(r.json, "more device memory than can be counted");
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_EQ(states(&r, "failed"), 1);
    CHECK_EQ(states(&r, "measured"), 1);
    CHECK_CONTAINS(r.json, "MiB of device memory");
    tune(&database, large, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_EQ(number(&r, "compiled"), 0); /* compiling would be useless */
    tuned_end(&database);
}

/* Kernels that pass the verification but are wrong on the problem itself never win. */
static void test_wrong_on_problem(void)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    setenv("FA2_TEST_WRONG", "kHeadDim", 1);
    setenv("FA2_TEST_WRONG_AT", "100", 1);
    tune(&database, shapes, NULL, &r);
    unsetenv("FA2_TEST_WRONG");
    unsetenv("FA2_TEST_WRONG_AT");
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_EQ(states(&r, "failed"), 1);
    CHECK(number(&r, "wrong") > 0);
    CHECK_EQ(query(&database, "SELECT count(*) FROM verification WHERE outcome = 'wrong'"),
             (double)number(&r, "wrong"));
    CHECK_EQ(query(&database, "SELECT count(*) FROM winners"), 0);
    tuned_end(&database);
}

/* A driver that refuses all code of this NVRTC: no kernel is blamed. */
static void test_misfit(void)
{
    static const char *const shapes[] = {SHAPE_SHORT, NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    setenv("FA2_TEST_OLD_DRIVER", "1", 1);
    tune(&database, shapes, NULL, &r);
    unsetenv("FA2_TEST_OLD_DRIVER");
    CHECK_EQ(r.status, FA2I_EXIT_FAILED);
    CHECK_EQ(query(&database, "SELECT count(*) FROM verification"), 0);
    CHECK_EQ(query(&database, "SELECT count(*) FROM measurements"), 0);
    tuned_end(&database);
}

/* A problem that no family supports on this device. */
static void test_unserved(void)
{
    static const char *const shapes[] = {SHAPE_BF16, NULL};
    tuned_database database;
    run r;
    tuned_begin(&database);
    fake.devices[0] = fake.devices[1]; /* a T4 has no bf16 */
    tune(&database, shapes, NULL, &r);
    CHECK_EQ(r.status, FA2I_EXIT_USAGE);
    CHECK_EQ(states(&r, "unserved"), 1);
    CHECK_CONTAINS(r.json, "bf16");
    tuned_end(&database);
    fake_reset();
}

static void test_usage(void)
{
    char *without[] = {"tune", NULL};
    char *too_high[] = {"tune", "--device", "3", "--shape", "Hq=1,Sq=16,D=16", "--db", "", NULL};
    char path[] = "/tmp/fa2-test-not-made.db";
    too_high[6] = path;
    CHECK_EQ(fa2i_cmd_tune(1, without), FA2I_EXIT_USAGE);
    CHECK_EQ(fa2i_cmd_tune(7, too_high), FA2I_EXIT_NO_DEVICE);
    CHECK(access(path, F_OK) != 0);
}

int main(int argc, char **argv)
{
    int status = 0;
    if (tune_stands_in(argc, argv, &status))
        return status;
    test_usage();
    test_tune_twice();
    test_features();
    test_bad_kernels();
    test_spills();
    test_fault_and_hang();
    test_memory();
    test_wrong_on_problem();
    test_misfit();
    test_unserved();
    return check_done();
}
