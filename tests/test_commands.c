/*
 * The output of commands if there is a device and measurements: devices, explain --device, list and show, with a driver
 * of the test's own.
 */
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>
#include "put_measurement.h"
#include "cache/cache.h"
#include "cache/content/report.h"
#include "check.h"
#include "damage.h"
#include "fake_cuda.h"
#include "recipe_fixture.h"
#include "runtime/cuda/device.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"

static char folder[] = "/tmp/fa2_test_commands_XXXXXX";
static char db[64], shape[] = "Hq=8,Sq=512,D=64";
static char output[65536];

/* Runs a command and stores its standard output in `output`. */
static int run(int (*command)(int, char **), int argc, char **argv)
{
    FILE *file = tmpfile();
    const int saved = dup(STDOUT_FILENO);
    CHECK(file != NULL && saved >= 0);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    const int status = command(argc, argv);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(file);
    output[fread(output, 1, sizeof output - 1, file)] = '\0';
    fclose(file);
    return status;
}

static fa2i_kernel kernel_named(unsigned char number, const char *text, fa2i_outcome outcome)
{
    static char image[] = "code";
    fa2i_kernel kernel = {
        .target = "sm_86", .nvrtc = 13000, .generator = "0123456789abcdef", .outcome = outcome, .registers = 100};
    kernel.key.bytes[0] = number;
    snprintf(kernel.variant.text, sizeof kernel.variant.text, "%s", text);
    snprintf(kernel.variant.class_key, sizeof kernel.variant.class_key, "D=64 dtype=fp16 causal=0");
    kernel.variant.recipe = plain_recipe("fwd_sm80", 128, 64, 64, 16384);
    if (outcome == FA2I_OUTCOME_OK)
        kernel.image = (fa2i_blob){image, sizeof image};
    return kernel;
}

/* Stores a winner, and a variant that spilled, measured on device 0. */
static void fill_database(void)
{
    fa2i_cache *cache = NULL;
    const fa2i_cuda_table *cuda = NULL;
    fa2i_card card;
    fa2i_session session = {.generator = "0123456789abcdef", .origin = "tune", .driver = 13000};
    int64_t problem_id = 0, session_id = 0;
    const fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                                 .batch = 1,
                                 .heads_q = 8,
                                 .heads_kv = 8,
                                 .seq_q = 512,
                                 .seq_k = 512,
                                 .head_dim = 64};
    const fa2i_kernel good = kernel_named(1,
                                          "fwd_sm80 d=64 dtype=fp16 causal=0 br=64 bc=64 warps=4 "
                                          "kstages=2 vstages=2 layout=swizzle q=reg fill=whole",
                                          FA2I_OUTCOME_OK);
    const fa2i_kernel bad = kernel_named(2,
                                         "fwd_sm80 d=64 dtype=fp16 causal=0 br=128 bc=64 warps=4 "
                                         "kstages=2 vstages=2 layout=pad q=reg fill=whole",
                                         FA2I_OUTCOME_SPILLED);
    const fa2i_measurement timed = {
        .settled = true, .n = 48, .min_us = 19, .q1_us = 19.5, .median_us = 20, .q3_us = 21, .max_error = 0.25};
    const fa2i_measurement dropped = {.outcome = FA2I_OUTCOME_SPILLED, .settled = true, .detail = "24 bytes spilled"};
    const fa2i_winner winner = {
        .kernel = good.key, .measured = true, .median_us = 20, .default_us = 30, .model_us = 25};
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_OK);
    CHECK_EQ(fa2i_device_card(cuda, 0, &card), FA2_OK);
    CHECK_EQ(fa2i_database_open(db, FA2I_CACHE_WRITE, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &good), FA2_OK);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &bad), FA2_OK);
    CHECK_EQ(fa2i_cache_device(cache, &card, true, &session.device), FA2_OK);
    CHECK_EQ(fa2i_cache_problem(cache, &problem, &problem_id), FA2_OK);
    CHECK_EQ(fa2i_cache_session_begin(cache, &session, &session_id), FA2_OK);
    CHECK_EQ(put_measurement(cache, session_id, session.device, problem_id, &good.key, &timed), FA2_OK);
    CHECK_EQ(put_measurement(cache, session_id, session.device, problem_id, &bad.key, &dropped), FA2_OK);
    CHECK_EQ(fa2i_cache_put_winner(cache, session_id, session.device, problem_id, &winner), FA2_OK);
    fa2i_cache_close(cache);
}

static void test_devices(void)
{
    char *text[] = {"devices", NULL}, *json[] = {"devices", "--json", NULL};
    CHECK_EQ(run(fa2i_cmd_devices, 1, text), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "sm_86");
    CHECK_CONTAINS(output, "sm_75");
    CHECK_CONTAINS(output, "Everything is here");
    CHECK_EQ(run(fa2i_cmd_devices, 2, json), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "\"usable\":2,");
    /* A device that is too old is listed, but it cannot be used. */
    fake.device_count = 1;
    fake.devices[0].arch = 61;
    CHECK_EQ(run(fa2i_cmd_devices, 1, text), FA2I_EXIT_NO_DEVICE);
    CHECK_CONTAINS(output, "sm_61");
    CHECK_CONTAINS(output, "No usable device");
    fake_install();
}

/* Nothing runs on this driver, so the call's result is wrong. */
static void test_doctor(void)
{
    char *argv[] = {"doctor", "--device", "0", "--db", db, NULL},
         *none[] = {"doctor", "--device", "7", "--db", db, NULL};
    CHECK_EQ(run(fa2i_cmd_doctor, 5, argv), FA2I_EXIT_FAILED);
    CHECK_CONTAINS(output, "winners 1");
    CHECK_CONTAINS(output, "the call's result is wrong: element 0 is 0x0000, expected 0x3c00");
    CHECK_EQ(run(fa2i_cmd_doctor, 5, none), FA2I_EXIT_FAILED);
    CHECK_CONTAINS(output, "there is no CUDA device 7");
    fake_install();
}

static void test_explain(void)
{
    char *argv[] = {"explain", "--device", "0", "--shape", shape, "--db", db, NULL};
    char *json[] = {"explain", "--device=0", "--shape", shape, "--db", db, "--json", NULL};
    char *missing[] = {"explain", "--device", "7", "--shape", shape, "--db", db, NULL};
    CHECK_EQ(run(fa2i_cmd_explain, 7, argv), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "rule      exact: tuned on this device for this very problem\n");
    CHECK_CONTAINS(output, "\nreason    tuned for B=");
    CHECK_CONTAINS(output, "measured  20.00 us there, 26.84 TFLOPS\n");
    CHECK_CONTAINS(output, "100 registers, 0 bytes spilled\n");
    CHECK_EQ(run(fa2i_cmd_explain, 7, json), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "\"rule\":\"exact\"");
    CHECK_CONTAINS(output, "\"status\":\"success\",\"message\":null");
    CHECK_CONTAINS(output, "\"measured\":true,\"median_us\":20.000");
    CHECK_CONTAINS(output, "\"registers\":100,\"spill_bytes\":0,");
    CHECK_EQ(run(fa2i_cmd_explain, 7, missing), FA2I_EXIT_NO_DEVICE);
    CHECK_EQ(fake.launch_count, 0);
    CHECK_EQ(fake.compile_count, 0);
}

/* Changes the file without the library. */
static void change(const char *sql)
{
    sqlite3 *file = NULL;
    CHECK_EQ(sqlite3_open(db, &file), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(file, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(file);
}

/* The winner's code is damaged: it is compiled again, or the call fails. No time or register number is invented. */
static void test_explain_damaged(void)
{
    char *argv[] = {"explain", "--device", "0", "--shape", shape, "--db", db, NULL};
    char *json[] = {"explain", "--device=0", "--shape", shape, "--db", db, "--json", NULL};
    char *never[] = {"explain", "--device", "0", "--shape", shape, "--db", db, "--never-compile", NULL};
    change("UPDATE code SET data = x'00'");
    CHECK_EQ(run(fa2i_cmd_explain, 7, argv), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "code      lost: compiled again at the first call");
    CHECK_CONTAINS(output, "  damaged  fwd_sm80 br=64 bc=64 ");
    CHECK(strstr(output, " bytes spilled") == NULL);
    CHECK_EQ(run(fa2i_cmd_explain, 7, json), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "\"code\":false,\"damaged\":true,\"unusable\":null}");
    CHECK_EQ(run(fa2i_cmd_explain, 8, never), FA2I_EXIT_FAILED);
    CHECK_CONTAINS(output, "rule      none: the call fails, a kernel must be compiled and the context's config "
                           "forbids compiling\n");
    setenv("FA2_NVRTC_LIBRARY", "/nonexistent/libnvrtc.so", 1);
    fa2i_nvrtc_install(NULL);
    CHECK_EQ(run(fa2i_cmd_explain, 7, argv), FA2I_EXIT_FAILED);
    CHECK_CONTAINS(output, "rule      none: the call fails, a kernel must be compiled and there is no NVRTC\n");
    CHECK_CONTAINS(output, "message   ");
    CHECK_CONTAINS(output, " has no kernel that can be used for B=1 Hq=8 ");
    CHECK_EQ(run(fa2i_cmd_explain, 7, json), FA2I_EXIT_FAILED);
    CHECK_CONTAINS(output, "\"rule\":null,\"variant\":null,");
    CHECK_CONTAINS(output, "\"damaged\":true,\"unusable\":\"its code is damaged or missing, and there ");
    unsetenv("FA2_NVRTC_LIBRARY");
    fake_install();
    change("UPDATE code SET data = CAST('code' || x'00' AS BLOB)");
    CHECK_EQ(run(fa2i_cmd_explain, 7, argv), FA2I_EXIT_OK);
    char code[128];
    snprintf(code, sizeof code, "code      in %s\n", db);
    CHECK_CONTAINS(output, code);
}

/* Each driver call fails once. Facts that could not be found out are not invented. */
static void test_explain_fails(void)
{
    char *argv[] = {"explain", "--device", "0", "--shape", shape, "--db", db, NULL};
    for (long nth = 1;; nth++) {
        fake_fail_driver(nth, CUDA_ERROR_UNKNOWN);
        const int status = run(fa2i_cmd_explain, 7, argv);
        const long calls = fake_fail_driver(0, CUDA_SUCCESS);
        if (calls < nth) {
            CHECK_EQ(status, FA2I_EXIT_OK);
            CHECK(nth > 1);
            break;
        }
        CHECK(status != FA2I_EXIT_OK);
    }
}

static void test_list_and_show(void)
{
    char *list[] = {"list", "--db", db, NULL};
    char *show[] = {"show", "--shape", shape, "--db", db, NULL};
    CHECK_EQ(run(fa2i_cmd_list, 3, list), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "(sm_86)\n");
    CHECK_CONTAINS(output, "  median us  model us  TFLOPS  vs default  source    variant");
    CHECK_CONTAINS(output, "      20.00     25.00   26.84       1.500  measured  fwd_sm80 br=64 ");
    CHECK_EQ(run(fa2i_cmd_show, 5, show), FA2I_EXIT_OK);
    const char *good = strstr(output, "*     ok ");
    const char *bad = strstr(output, "      spilled ");
    CHECK(good != NULL && bad != NULL && good < bad);
    CHECK_CONTAINS(output, "24 bytes spilled");
    CHECK_CONTAINS(output, "  48 ");
    /* A problem that was never tuned is a failure, alone and among others. */
    char other[] = "Hq=8,Sq=513,D=64";
    char *unknown[] = {"show", "--shape", other, "--shape", shape, "--db", db, NULL};
    char *unknown_json[] = {"show", "--json", "--shape", other, "--db", db, NULL};
    CHECK_EQ(run(fa2i_cmd_show, 7, unknown), FA2I_EXIT_FAILED);
    CHECK_CONTAINS(output, "24 bytes spilled");
    CHECK_EQ(run(fa2i_cmd_show, 6, unknown_json), FA2I_EXIT_FAILED);
    CHECK_STR(output, "[\n]\n");
    /* All measurements of a device; none of an unknown name. */
    char *on_device[] = {"show", "--device", "all", "--json", "--db", db, NULL};
    CHECK_EQ(run(fa2i_cmd_show, 6, on_device), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "\"outcome\":\"spilled\"");
    on_device[2] = "no such card";
    CHECK_EQ(run(fa2i_cmd_show, 6, on_device), FA2I_EXIT_USAGE);
    CHECK_STR(output, "");
}

static void run_sql(const char *sql)
{
    sqlite3 *file = NULL;
    CHECK_EQ(sqlite3_open(db, &file), SQLITE_OK);
    CHECK_EQ(sqlite3_exec(file, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(file);
}

/* fa2 reads by views of its own, so a changed view has no effect; gc restores it. */
static void test_other_view(void)
{
    char *list[] = {"list", "--db", db, NULL}, *gc[] = {"gc", "--db", db, NULL};
    run_sql("DROP VIEW winners; CREATE VIEW winners AS SELECT name AS device, arch FROM device, "
            "problem");
    CHECK_EQ(run(fa2i_cmd_list, 3, list), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "fwd_sm");
    run_sql("DROP VIEW winners; CREATE VIEW winners AS SELECT name AS device, arch, p.*, 1 AS variant "
            "FROM device, problem p");
    CHECK_EQ(run(fa2i_cmd_list, 3, list), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "fwd_sm");
    CHECK_EQ(run(fa2i_cmd_gc, 3, gc), FA2I_EXIT_OK);
    CHECK_EQ(run(fa2i_cmd_list, 3, list), FA2I_EXIT_OK);
}

/* Returns the number of damaged winners that `list` reports on stderr. */
static size_t damaged_winners(void)
{
    fa2i_cache *cache = NULL;
    size_t damaged = 0;
    CHECK_EQ(fa2i_cache_open(db, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_damaged_winners(cache, &damaged), FA2_OK);
    fa2i_cache_close(cache);
    return damaged;
}

/* A winner without code is marked. check and gc do what they say: the winner and its measurements stay. */
static void test_lost_code(void)
{
    char *list[] = {"list", "--db", db, NULL}, *check[] = {"check", "--db", db, NULL}, *gc[] = {"gc", "--db", db, NULL};
    CHECK_EQ(run(fa2i_cmd_list, 3, list), FA2I_EXIT_OK);
    CHECK(strstr(output, "code") == NULL);
    CHECK_EQ(damaged_winners(), 0);
    CHECK_EQ(run(fa2i_cmd_check, 3, check), FA2I_EXIT_OK);
    char *json[] = {"list", "--json", "--db", db, NULL};
    CHECK_EQ(run(fa2i_cmd_list, 4, json), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, ",\"damaged\":0,\"refuted\":null,\"other_version\":0,\"database\":\"");
    run_sql("UPDATE code SET data = zeroblob(length(data))");
    CHECK_EQ(damaged_winners(), 1);
    CHECK_EQ(run(fa2i_cmd_list, 3, list), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "source    state    variant");
    CHECK_CONTAINS(output, "measured  damaged  fwd_sm80");
    CHECK_EQ(run(fa2i_cmd_list, 4, json), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, ",\"damaged\":1,\"refuted\":null,\"other_version\":0,\"database\":\"");
    run_sql("DELETE FROM image");
    CHECK_EQ(run(fa2i_cmd_list, 3, list), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "source    state    variant");
    CHECK_CONTAINS(output, "measured  missing  fwd_sm80");
    CHECK_EQ(run(fa2i_cmd_check, 3, check), FA2I_EXIT_FAILED);
    CHECK_CONTAINS(output, "winners without code 1");
    CHECK_CONTAINS(output, "fa2-tune gc");
    CHECK_EQ(run(fa2i_cmd_gc, 3, gc), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "0 winners that could not serve");
    CHECK_CONTAINS(output, "compiled 1 of 1 kernel of winners without code");
    CHECK_EQ(run(fa2i_cmd_check, 3, check), FA2I_EXIT_OK);
    CHECK_EQ(run(fa2i_cmd_list, 3, list), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "      20.00     25.00   26.84       1.500  measured  fwd_sm80 br=64 ");
}

#define OTHER_CLASS                                                                                                    \
    "UPDATE kernel SET variant = iif(instr(variant, 'causal=1'), replace(variant, 'causal=1', 'causal=0'), "           \
    "replace(variant, 'causal=0', 'causal=1')) WHERE id IN (SELECT kernel FROM winner)"

/* One wrong bit in a winner's variant gives it another class. The hash of the code shows the original. Without code the
 * original is unknown. Then the winner is kept and reported, and wins no other problem. */
static void test_other_class(void)
{
    char *list[] = {"list", "--db", db, NULL}, *gc[] = {"gc", "--db", db, NULL}, *check[] = {"check", "--db", db, NULL};
    run_sql(OTHER_CLASS);
    CHECK_EQ(run(fa2i_cmd_gc, 3, gc), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "mended 1 value");
    CHECK_EQ(run(fa2i_cmd_check, 3, check), FA2I_EXIT_OK);
    run_sql("DELETE FROM image; " OTHER_CLASS);
    for (int again = 0; again < 2; again++) {
        CHECK_EQ(run(fa2i_cmd_gc, 3, gc), FA2I_EXIT_FAILED);
        CHECK_CONTAINS(output, "0 winners that could not serve");
        CHECK_EQ(run(fa2i_cmd_list, 3, list), FA2I_EXIT_OK);
        CHECK_CONTAINS(output, "measured  missing  fwd_sm80");
    }
    run_sql(OTHER_CLASS);
    CHECK_EQ(run(fa2i_cmd_gc, 3, gc), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "compiled 1 of 1 kernel of winners without code");
    CHECK_EQ(run(fa2i_cmd_check, 3, check), FA2I_EXIT_OK);
}

/* The table's declaration lost its types, so SQLite accepts any value. */
static void test_lost_types(void)
{
    char *json[] = {"list", "--json", "--db", db, NULL}, *check[] = {"check", "--db", db, NULL},
         *gc[] = {"gc", "--db", db, NULL};
    run_sql("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(replace(sql, 'INTEGER NOT NULL', ''), "
            "') STRICT', ')') WHERE name = 'problem'");
    run_sql("INSERT INTO problem SELECT * FROM (SELECT * FROM problem LIMIT 0)"); /* it can be read */
    damage_problem_row(db, "UPDATE problem SET alibi = x'', varlen = NULL");
    CHECK_EQ(run(fa2i_cmd_check, 3, check), FA2I_EXIT_FAILED);
    CHECK_CONTAINS(output, "its table 'problem' is not the one that this fa2 makes");
    CHECK_EQ(run(fa2i_cmd_list, 4, json), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "\"alibi\":null,");
    CHECK_EQ(run(fa2i_cmd_gc, 3, gc), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "the file was damaged, and was made anew");
    CHECK_CONTAINS(output, "mended 1 value");
    CHECK_EQ(run(fa2i_cmd_check, 3, check), FA2I_EXIT_OK);
    CHECK_EQ(run(fa2i_cmd_list, 4, json), FA2I_EXIT_OK);
    CHECK_CONTAINS(output, "\"alibi\":0,");
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    snprintf(db, sizeof db, "%s/fa2.db", folder);
    fake_install();
    fill_database();
    test_devices();
    test_doctor();
    test_explain();
    test_explain_damaged();
    test_explain_fails();
    test_list_and_show();
    test_other_view();
    test_lost_code();
    test_other_class();
    test_lost_types();
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
    unlink(db);
    CHECK_EQ(rmdir(folder), 0);
    return check_done();
}
