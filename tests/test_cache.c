/* Rows of the tuning database: stored rows are found, others are not. */
#include <math.h>
#include "put_measurement.h"
#include "cache/internal.h"
#include "cache_fixture.h"
#include "runtime/base/alloc.h"

static void test_identities(fa2i_cache *cache)
{
    fa2i_card card = sample_card();
    fa2_problem problem = sample_problem(512);
    int64_t first = 0, again = 0, offline = 0, other = 0;

    CHECK_EQ(fa2i_cache_device(cache, &card, true, &first), FA2_OK);
    card.clock_khz++; /* not part of the identity */
    CHECK_EQ(fa2i_cache_device(cache, &card, true, &again), FA2_OK);
    CHECK_EQ(fa2i_cache_device(cache, &card, false, &offline), FA2_OK);
    card.l2_bytes++;
    CHECK_EQ(fa2i_cache_device(cache, &card, true, &other), FA2_OK);
    CHECK_EQ(again, first);
    CHECK(offline != first && other != first && other != offline);

    CHECK_EQ(fa2i_cache_problem(cache, &problem, &first), FA2_OK);
    CHECK_EQ(fa2i_cache_problem(cache, &problem, &again), FA2_OK);
    CHECK_EQ(again, first);
    problem.heads_kv = 8;
    CHECK_EQ(fa2i_cache_problem(cache, &problem, &other), FA2_OK);
    CHECK(other != first);
    problem.head_dim = 7;
    CHECK_EQ(fa2i_cache_problem(cache, &problem, &other), FA2_E_INVALID);
}

static void test_sessions(fa2i_cache *cache)
{
    const ids to = sample_ids(cache, 512);
    const fa2i_sql_value values[] = {fa2i_sql_int(to.session)};
    int64_t ended = -1;
    const char *sql = "SELECT ended_at IS NOT NULL AND ended_at >= started_at FROM session "
                      "WHERE id = ? AND origin = 'tune' AND started_at LIKE '____-__-__T__:__:__Z'";
    CHECK_EQ(fa2i_sql_number(cache, sql, FA2I_SQL_VALUES(values), &ended), FA2_OK);
    CHECK_EQ(ended, 0);
    CHECK_EQ(fa2i_cache_session_end(cache, to.session), FA2_OK);
    CHECK_EQ(fa2i_sql_number(cache, sql, FA2I_SQL_VALUES(values), &ended), FA2_OK);
    CHECK_EQ(ended, 1);

    const fa2i_session nowhere = {.device = 987654, .origin = "tune"};
    int64_t id = 0;
    CHECK_EQ(fa2i_cache_session_begin(cache, &nowhere, &id), FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "FOREIGN KEY");
}

static void check_kernel(const fa2i_kernel *found, const fa2i_kernel *expected)
{
    CHECK(memcmp(&found->key, &expected->key, sizeof found->key) == 0);
    CHECK_STR(found->variant.text, expected->variant.text);
    CHECK_STR(found->variant.class_key, expected->variant.class_key);
    CHECK_STR(found->variant.recipe.text, expected->variant.recipe.text);
    CHECK_STR(found->target, expected->target);
    CHECK_EQ(found->nvrtc, expected->nvrtc);
    CHECK_STR(found->generator, expected->generator);
    CHECK_EQ(found->outcome, expected->outcome);
    CHECK_EQ(found->registers, expected->registers);
    CHECK_EQ(found->spill_bytes, expected->spill_bytes);
    CHECK(found->compile_ms == expected->compile_ms);
    CHECK_EQ(found->image.bytes, expected->image.bytes);
    CHECK(found->image.bytes == 0 || memcmp(found->image.data, expected->image.data, found->image.bytes) == 0);
}

static void test_kernels(fa2i_cache *cache)
{
    fa2i_kernel kernel = sample_kernel(1);
    fa2i_kernel found = {0};

    CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, ABI, true, &found), FA2_E_NOT_FOUND);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, ABI, true, &found), FA2_OK);
    check_kernel(&found, &kernel);
    CHECK(found.log == NULL);
    fa2i_kernel_done(&found);
    CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, ABI + 1, true, &found), FA2_E_NOT_FOUND);
    CHECK_CONTAINS(fa2_last_message(), "knows how to launch");

    /* replaced: a kernel that no longer compiles loses its image */
    char log[] = "error: no\nsecond line";
    kernel.image = (fa2i_blob){0};
    kernel.outcome = FA2I_OUTCOME_COMPILE_ERROR;
    kernel.log = log;
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, ABI, true, &found), FA2_E_NOT_FOUND);
    CHECK_EQ(fa2i_cache_get_kernel(cache, &kernel.key, ABI, false, &found), FA2_OK);
    check_kernel(&found, &kernel);
    CHECK_STR(found.log, log);
    fa2i_kernel_done(&found);
}

static void test_verifications(fa2i_cache *cache)
{
    const ids to = sample_ids(cache, 512);
    const fa2i_kernel kernel = sample_kernel(2);
    fa2i_verification put = {.outcome = FA2I_OUTCOME_WRONG, .max_error = 1.75, .detail = "S=129"};
    fa2i_verification got = {0};

    CHECK_EQ(fa2i_cache_put_verification(cache, to.device, &kernel.key, &put), FA2_E_NOT_FOUND);
    CHECK_CONTAINS(fa2_last_message(), "there is no kernel");
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    CHECK_EQ(fa2i_cache_get_verification(cache, to.device, &kernel.key, &got), FA2_E_NOT_FOUND);
    CHECK_EQ(fa2i_cache_put_verification(cache, to.device, &kernel.key, &put), FA2_OK);
    CHECK_EQ(fa2i_cache_get_verification(cache, to.device, &kernel.key, &got), FA2_OK);
    CHECK_EQ(got.outcome, FA2I_OUTCOME_WRONG);
    CHECK(got.max_error == 1.75);
    CHECK_STR(got.detail, "S=129");
    put.max_error = (double)NAN; /* a kernel that writes NaN is beyond any bound */
    CHECK_EQ(fa2i_cache_put_verification(cache, to.device, &kernel.key, &put), FA2_OK);
    CHECK_EQ(fa2i_cache_get_verification(cache, to.device, &kernel.key, &got), FA2_OK);
    CHECK(isinf(got.max_error) && got.max_error > 0);
    CHECK_EQ(fa2i_cache_put_verification(cache, 987654, &kernel.key, &put), FA2_E_DATABASE);
}

static void test_measurements(fa2i_cache *cache)
{
    const ids to = sample_ids(cache, 512);
    const fa2i_kernel kernel = sample_kernel(3);
    fa2i_measurement got = {0};

    CHECK_EQ(fa2i_cache_get_measurement(cache, to.device, to.problem, &kernel.key, &got), FA2_E_NOT_FOUND);
    store_result(cache, &to, 3, 100.125, false);
    CHECK_EQ(fa2i_cache_get_measurement(cache, to.device, to.problem, &kernel.key, &got), FA2_OK);
    CHECK_EQ(got.outcome, FA2I_OUTCOME_OK);
    CHECK(got.settled && got.n == 20 && got.min_us == 98.125 && got.q1_us == 99.125);
    CHECK(got.median_us == 100.125 && got.q3_us == 101.125 && got.max_error == 0.25);

    /* one row per device, problem and kernel */
    const fa2i_measurement hang = {.outcome = FA2I_OUTCOME_HANG, .detail = "10 s"};
    CHECK_EQ(put_measurement(cache, to.session, to.device, to.problem, &kernel.key, &hang), FA2_OK);
    CHECK_EQ(fa2i_cache_get_measurement(cache, to.device, to.problem, &kernel.key, &got), FA2_OK);
    CHECK_EQ(got.outcome, FA2I_OUTCOME_HANG);
    CHECK(!got.settled && got.n == 0);
    CHECK_STR(got.detail, "10 s");

    const fa2i_measurement endless = {.median_us = (double)INFINITY};
    CHECK_EQ(put_measurement(cache, to.session, to.device, to.problem, &kernel.key, &endless), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "is not stored: its times are not all from 0 to");
    CHECK_EQ(fa2i_cache_get_measurement(cache, to.device, to.problem, &kernel.key, &got), FA2_OK);
    CHECK_EQ(got.outcome, FA2I_OUTCOME_HANG); /* as before the call */
}

static void test_winners(fa2i_cache *cache)
{
    const ids to = sample_ids(cache, 4096);
    const fa2i_kernel kernel = sample_kernel(4);
    fa2i_winner got = {0};

    CHECK_EQ(fa2i_cache_get_winner(cache, to.device, to.problem, &got), FA2_E_NOT_FOUND);
    store_result(cache, &to, 5, 300, true);
    store_result(cache, &to, 4, 200, true);
    CHECK_EQ(fa2i_cache_get_winner(cache, to.device, to.problem, &got), FA2_OK);
    CHECK(memcmp(&got.kernel, &kernel.key, sizeof got.kernel) == 0);
    CHECK(got.measured && got.median_us == 200 && got.default_us == 400 && got.model_us == 100);
    got.kernel = sample_key(999);
    CHECK_EQ(fa2i_cache_put_winner(cache, to.session, to.device, to.problem, &got), FA2_E_NOT_FOUND);
}

/* Checks the sequence lengths of the choices' problems, in order: "512 4096 ". */
static void check_choices(fa2i_cache *cache, int arch, const fa2_problem *problem, int abi, const char *expected)
{
    fa2i_choice *choices = NULL;
    size_t count = 0;
    char seen[128] = "";
    CHECK_EQ(fa2i_cache_choices(cache, arch, problem, abi, &choices, &count), FA2_OK);
    for (size_t i = 0; i < count; i++)
        snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%d%s%s ", choices[i].problem.seq_q,
                 choices[i].winner.measured ? "" : "m", choices[i].fault != NULL ? "x" : "");
    CHECK_STR(seen, expected);
    if (count > 0) {
        CHECK_STR(choices[0].device, "Sample RTX");
        CHECK_EQ(choices[0].arch, arch);
        CHECK_EQ(choices[0].sm_count, 28);
        CHECK_EQ(choices[0].smem_block_bytes, 101376);
        CHECK_EQ(choices[0].l2_bytes, 2359296);
        CHECK(choices[0].real && choices[0].problem.heads_kv == 4 && choices[0].problem.batch == 2);
    }
    fa2i_free(choices);
}

/* Checks what other devices found wrong with kernels: only with this kernel. NULL: nothing. */
static void check_refuted(fa2i_cache *cache, int64_t device, const fa2i_key *kernel)
{
    fa2i_refutation *list = NULL;
    const fa2i_card card = sample_card();
    size_t count = 9;
    CHECK_EQ(fa2i_cache_refutations(cache, device, &list, &count), FA2_OK);
    CHECK_EQ(count, kernel != NULL);
    if (count == 1) {
        CHECK_EQ(memcmp(&list[0].kernel, kernel, sizeof *kernel), 0);
        CHECK_EQ(list[0].outcome, FA2I_OUTCOME_WRONG);
        CHECK_STR(list[0].device, card.name);
    }
    fa2i_free(list);
}

/* A winner that spills stays a winner. One that failed its verification on any card does not. */
static void test_spilled_and_refuted(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    const fa2_problem asked = sample_problem(777);
    const fa2i_verification right = {.max_error = 0.5}, wrong = {.outcome = FA2I_OUTCOME_WRONG};
    const fa2i_key first = sample_key(1), second = sample_key(2);
    fa2i_card card = sample_card();
    int64_t other = 0;
    fa2i_outcome outcome = FA2I_OUTCOME_OK;
    const ids slow = sample_ids(cache, 4096), quick = sample_ids(cache, 512);
    store_result(cache, &slow, 1, 400, true);
    store_result(cache, &quick, 2, 50, true);
    CHECK_EQ(fa2i_sql_script(cache, "UPDATE kernel SET outcome = 'spilled'"), FA2_OK);
    check_choices(cache, 86, &asked, ABI, "512 4096 ");

    card.sm_count = 82;
    CHECK_EQ(fa2i_cache_device(cache, &card, true, &other), FA2_OK);
    CHECK_EQ(fa2i_cache_put_verification(cache, other, &first, &right), FA2_OK);
    CHECK_EQ(fa2i_cache_put_verification(cache, other, &second, &wrong), FA2_OK);
    check_choices(cache, 86, &asked, ABI, "512x 4096 ");
    CHECK_EQ(fa2i_cache_refutation(cache, &first, &outcome), FA2_OK);
    CHECK_EQ(outcome, FA2I_OUTCOME_OK);
    CHECK_EQ(fa2i_cache_refutation(cache, &second, &outcome), FA2_OK);
    CHECK_EQ(outcome, wrong.outcome);
    check_refuted(cache, other + 1, &second);
    check_refuted(cache, other, NULL); /* a device's own verdict is not another device's */
    CHECK_EQ(fa2i_cache_put_verification(cache, other, &second, &right), FA2_OK);
    check_refuted(cache, other + 1, NULL);
    check_choices(cache, 86, &asked, ABI, "512 4096 "); /* verified again, and right */
    fa2i_cache_close(cache);
}

static void test_choices(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    fa2_problem asked = sample_problem(777);
    const ids slow = sample_ids(cache, 4096), quick = sample_ids(cache, 512), modelled = sample_ids(cache, 128),
              bare = sample_ids(cache, 64);
    store_result(cache, &slow, 1, 400, true);
    store_result(cache, &quick, 2, 20, true);
    store_result(cache, &modelled, 3, 20, true);
    store_result(cache, &bare, 4, 20, true);
    const fa2i_winner guess = {.kernel = sample_key(3), .model_us = 9};
    const double bad_us[] = {-9.9e9, 0, NAN, INFINITY, 1e300};
    for (size_t i = 0; i < sizeof bad_us / sizeof bad_us[0]; i++) {
        const fa2i_winner bad = {.kernel = sample_key(3), .model_us = bad_us[i]};
        CHECK_EQ(fa2i_cache_put_winner(cache, modelled.session, modelled.device, modelled.problem, &bad),
                 FA2_E_INVALID);
    }
    CHECK_EQ(fa2i_cache_put_winner(cache, modelled.session, modelled.device, modelled.problem, &guess), FA2_OK);
    fa2i_kernel without = sample_kernel(4);
    without.image.bytes = 0;
    CHECK_EQ(fa2i_cache_put_kernel(cache, &without), FA2_OK);

    check_choices(cache, 86, &asked, ABI, "64 512 4096 128m ");
    check_choices(cache, 80, &asked, ABI, "");
    check_choices(cache, 86, &asked, ABI + 1, "64x 512x 4096x 128mx ");
    asked.causal = 0;
    check_choices(cache, 86, &asked, ABI, "");
    asked = sample_problem(777);
    asked.dtype = FA2_BF16;
    check_choices(cache, 86, &asked, ABI, "");
    asked = sample_problem(777);
    asked.head_dim = 128;
    check_choices(cache, 86, &asked, ABI, "");

    asked = sample_problem(777);
    fa2i_kernel broken = sample_kernel(2);
    broken.outcome = FA2I_OUTCOME_COMPILE_ERROR;
    CHECK_EQ(fa2i_cache_put_kernel(cache, &broken), FA2_OK);
    check_choices(cache, 86, &asked, ABI, "64 512 4096 128m "); /* the loader is told */
    fa2i_cache_close(cache);
}

/* More choices than one allocation holds. */
static void test_many_choices(const char *path)
{
    fa2i_cache *cache = fixture_open(path);
    const fa2_problem asked = sample_problem(1);
    fa2i_choice *choices = NULL;
    size_t count = 0;
    for (int i = 0; i < 40; i++) {
        const ids to = sample_ids(cache, 8 * (40 - i));
        store_result(cache, &to, i, 10 + i, true);
    }
    CHECK_EQ(fa2i_cache_choices(cache, 86, &asked, ABI, &choices, &count), FA2_OK);
    CHECK_EQ(count, 40);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(choices[i].problem.seq_q, 8 * ((int)i + 1));
    fa2i_free(choices);
    fa2i_cache_close(cache);
}

/* A cache opened for reading reads, and refuses to write. */
static void test_reading(const char *path)
{
    fa2i_cache *cache = NULL;
    const fa2i_card card = sample_card();
    const fa2i_kernel kernel = sample_kernel(1);
    fa2_problem problem = sample_problem(512);
    int64_t id = 0;

    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    CHECK_STR(fa2i_cache_path(cache), path);
    CHECK_EQ(fa2i_cache_device(cache, &card, true, &id), FA2_OK);
    CHECK_EQ(fa2i_cache_problem(cache, &problem, &id), FA2_OK);
    problem.seq_q = 31;
    CHECK_EQ(fa2i_cache_problem(cache, &problem, &id), FA2_E_NOT_FOUND);
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_E_DATABASE);
    CHECK_CONTAINS(fa2_last_message(), "reading only");
    CHECK_EQ(fa2i_sql_script(cache, "DELETE FROM kernel"), FA2_E_DATABASE);
    fa2i_cache_close(cache);
}

/* Each allocation fails in turn: an error, no leak, and the database is unchanged. */
static void test_allocations(const char *path)
{
    const fa2_problem asked = sample_problem(512);
    const fa2i_key key = sample_key(1);
    long nth = 0;
    fa2_status st = FA2_E_MEMORY;
    fa2i_cache *cache = fixture_open(path);
    const ids to = sample_ids(cache, 512);
    store_result(cache, &to, 1, 10, true);
    char log[] = "warning";
    fa2i_kernel kernel = sample_kernel(1);
    kernel.log = log;
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    fa2i_cache_close(cache);

    while (st == FA2_E_MEMORY && ++nth < 1000) {
        fa2i_choice *choices = NULL;
        size_t count = 0;
        fa2i_kernel found = {0};
        cache = NULL;
        fa2i_alloc_fail_at(nth);
        st = fa2i_cache_open(path, FA2I_CACHE_WRITE, NULL, NULL, &cache);
        if (st == FA2_OK)
            st = fa2i_cache_get_kernel(cache, &key, ABI, true, &found);
        if (st == FA2_OK)
            st = fa2i_cache_choices(cache, 86, &asked, ABI, &choices, &count);
        fa2i_alloc_fail_at(0);
        fa2i_kernel_done(&found);
        fa2i_free(choices);
        fa2i_cache_close(cache);
    }
    CHECK_EQ(st, FA2_OK); /* no other error occurred before */
    CHECK(nth > 5);
}

int main(void)
{
    static void (*const on_rows[])(fa2i_cache *) = {test_identities,    test_sessions,     test_kernels,
                                                    test_verifications, test_measurements, test_winners};
    fixture f;
    fixture_begin(&f);
    fa2i_cache *cache = fixture_open(f.path);
    for (size_t i = 0; i < sizeof on_rows / sizeof on_rows[0]; i++)
        on_rows[i](cache);
    fa2i_cache_close(cache);
    test_reading(f.path);
    fixture_end(&f);

    static void (*const on_paths[])(const char *) = {test_choices, test_many_choices, test_spilled_and_refuted,
                                                     test_allocations};
    fixture_each_path(on_paths, sizeof on_paths / sizeof on_paths[0]);
    return check_done();
}
