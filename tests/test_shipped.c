/*
 * Results shipped with fa2: a database that is read as a copy in memory. It must give the same results as a database
 * that is opened. A damaged file is refused or read in part, and causes no other harm.
 */
#include <math.h>
#include "cache/shipped/shipped.h"
#include "cache_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/lua/generator.h"
#include "runtime/plan/share.h"

static fixture folder;
static char file[128];

static void write_file(const char *path, const unsigned char *data, size_t bytes)
{
    FILE *out = fopen(path, "wb");
    CHECK(out != NULL);
    CHECK_EQ(fwrite(data, 1, bytes, out), bytes);
    fclose(out);
}

/* Writes the content of a database into a file. The caller owns the bytes (sqlite3_free). */
static unsigned char *ship(fa2i_cache *cache, const char *path, size_t *ret_bytes)
{
    sqlite3_int64 bytes = 0;
    unsigned char *data = sqlite3_serialize(cache->db, "main", &bytes, 0);
    CHECK(data != NULL);
    write_file(path, data, (size_t)bytes);
    *ret_bytes = (size_t)bytes;
    return data;
}

/* Makes a database with two problems and three kernels. One kernel was found wrong later. A winner has no measurement,
 * and a kernel spilled. */
static unsigned char *make_database(size_t *ret_bytes)
{
    fa2i_cache *cache = fixture_open(folder.path);
    for (int seq = 512; seq <= 1024; seq *= 2) {
        const ids to = sample_ids(cache, seq);
        store_result(cache, &to, 1, 20 + seq / 100.0, false);
        store_result(cache, &to, 2, 10 + seq / 128.0, true);
        store_result(cache, &to, 3, 3 + 1e-3 * seq, false);
    }
    const ids to = sample_ids(cache, 2048);
    const fa2i_kernel kernel = sample_kernel(1), failed = sample_kernel(3);
    const fa2i_winner won = {.kernel = kernel.key, .measured = false, .model_us = 123.25};
    const fa2i_verification wrong = {.outcome = FA2I_OUTCOME_WRONG, .max_error = 7, .detail = "S=1"};
    CHECK_EQ(fa2i_cache_put_winner(cache, to.session, to.device, to.problem, &won), FA2_OK);
    CHECK_EQ(fa2i_cache_put_verification(cache, to.device, &failed.key, &wrong), FA2_OK);
    fa2i_kernel spilled = sample_kernel(4);
    spilled.outcome = FA2I_OUTCOME_SPILLED;
    spilled.spill_bytes = 64;
    CHECK_EQ(fa2i_cache_put_kernel(cache, &spilled), FA2_OK);
    unsigned char *data = ship(cache, file, ret_bytes);
    fa2i_cache_close(cache);
    return data;
}

static const char *text_of(const fa2i_evidence *e, size_t time)
{
    return e->kernels[e->times[time].kernel].text;
}

static double time_of(const fa2i_evidence *e, const fa2i_known_set *set, const char *text)
{
    for (size_t i = set->first; i < set->first + set->count; i++)
        if (strcmp(text_of(e, i), text) == 0)
            return e->times[i].us;
    return 0;
}

/* Reads a card's evidence from the database, and from the shipped file. */
static void read_both(const fa2i_card *card, fa2i_evidence *theirs, fa2i_evidence *ours)
{
    fa2i_cache *cache = NULL;
    CHECK_EQ(fa2i_cache_open(folder.path, FA2I_CACHE_READ, NULL, NULL, &cache), FA2_OK);
    CHECK_EQ(fa2i_cache_evidence(cache, card, FA2_OP_FORWARD, ABI, theirs), FA2_OK);
    CHECK_EQ(fa2i_shipped_read(file, card, FA2_OP_FORWARD, ABI, ours), FA2_OK);
    fa2i_cache_close(cache);
}

static void test_same_as_database(void)
{
    fa2i_evidence theirs = {0}, ours = {0};
    const fa2i_card card = sample_card();
    read_both(&card, &theirs, &ours);
    CHECK_EQ(ours.set_count, 3);
    CHECK_EQ(ours.set_count, theirs.set_count);
    CHECK_EQ(ours.time_count, 5); /* without the wrong kernel */
    CHECK_EQ(ours.time_count, theirs.time_count);
    for (size_t i = 0; i < ours.set_count && i < theirs.set_count; i++) {
        const fa2i_known_set *a = &ours.sets[i], *b = &theirs.sets[i];
        CHECK(memcmp(&a->problem, &b->problem, sizeof a->problem) == 0);
        CHECK(fa2i_card_is_same(&a->card, &b->card));
        CHECK_EQ(a->card.clock_khz, b->card.clock_khz);
        CHECK_EQ(a->measured, b->measured);
        CHECK(a->shipped && !b->shipped && a->real && b->real);
        CHECK_EQ(a->count, b->count);
        for (size_t t = b->first; t < b->first + b->count; t++)
            CHECK(fabs(time_of(&ours, a, text_of(&theirs, t)) / theirs.times[t].us - 1) < 1e-14);
    }
    CHECK_EQ(ours.kernel_count, 3);
    CHECK(ours.kernels[2].spilled && !ours.kernels[0].spilled && !ours.kernels[1].spilled);
    CHECK(fa2i_shipped_knows(&ours, &card, &theirs.sets[0].problem));
    CHECK(!fa2i_shipped_knows(&theirs, &card, &theirs.sets[0].problem));
    fa2i_evidence_done(&theirs);
    fa2i_evidence_done(&ours);
}

/* If a database has these problems, the file adds nothing. To another card's database it adds everything. */
static void test_merge(void)
{
    fa2i_evidence theirs = {0}, ours = {0}, merged = {0};
    const fa2i_card card = sample_card();
    fa2i_card other = card;
    read_both(&card, &theirs, &ours);
    const size_t before = theirs.set_count;
    CHECK_EQ(fa2i_shipped_merge(&ours, &card, &theirs), FA2_OK);
    CHECK_EQ(theirs.set_count, before);
    other.sm_count = 30;
    CHECK_EQ(fa2i_shipped_merge(&ours, &other, &theirs), FA2_OK);
    CHECK_EQ(theirs.set_count, 2 * before);
    CHECK_EQ(theirs.kernel_count, 3); /* kernels in both keep the database's record, with the code */
    CHECK(time_of(&theirs, &theirs.sets[before], text_of(&ours, 0)) > 0);
    CHECK(!theirs.kernels[theirs.times[theirs.sets[before].first].kernel].shipped);
    CHECK_EQ(fa2i_shipped_merge(&ours, &card, &merged), FA2_OK);
    CHECK_EQ(merged.set_count, before);
    CHECK_EQ(merged.kernel_count, 3);
    CHECK(merged.kernels[2].spilled && merged.kernels[2].shipped);
    CHECK(merged.kernels[0].shipped && !merged.kernels[0].has_code);
    /* One problem of a class that was tuned here does not hide results for the class's other problems. */
    theirs.set_count = before;
    theirs.sets[0].problem.batch++;
    CHECK_EQ(fa2i_shipped_merge(&ours, &card, &theirs), FA2_OK);
    CHECK_EQ(theirs.set_count, before + 1);
    CHECK(theirs.sets[before].shipped);
    fa2i_evidence_done(&merged);
    fa2i_evidence_done(&theirs);
    fa2i_evidence_done(&ours);
}

/* It adds nothing for another SM, operation or version, or if the card cannot run the kernel. */
static void test_of_others(void)
{
    const fa2i_card card = sample_card();
    fa2i_evidence none = {0};
    fa2i_card other = card;
    other.arch = 89;
    CHECK_EQ(fa2i_shipped_read(file, &other, FA2_OP_FORWARD, ABI, &none), FA2_OK);
    CHECK_EQ(fa2i_shipped_read(file, &card, FA2_OP_BACKWARD, ABI, &none), FA2_OK);
    CHECK_EQ(fa2i_shipped_read(file, &card, FA2_OP_FORWARD, ABI + 1, &none), FA2_OK);
    other = card;
    other.smem_block_bytes = 1024;
    CHECK_EQ(fa2i_shipped_read(file, &other, FA2_OP_FORWARD, ABI, &none), FA2_OK);
    CHECK_EQ(none.set_count + none.kernel_count + none.time_count, 0);
    fa2i_evidence_done(&none);
}

/* Reads damaged bytes. Returns whether they were refused. */
static bool is_refused(const unsigned char *data, size_t bytes)
{
    const fa2i_card card = sample_card();
    fa2i_evidence e = {0};
    write_file(file, data, bytes);
    const fa2_status st = fa2i_shipped_read(file, &card, FA2_OP_FORWARD, ABI, &e);
    CHECK(st == FA2_OK || (e.kernel_count == 0 && strstr(fa2_last_message(), file) != NULL));
    for (size_t i = 0; i < e.time_count; i++)
        CHECK(e.times[i].us > 0 && e.times[i].kernel < e.kernel_count);
    for (size_t i = 0; i < e.set_count; i++)
        CHECK_EQ(fa2i_problem_check(&e.sets[i].problem), FA2_OK);
    fa2i_evidence_done(&e);
    return st != FA2_OK;
}

static void test_damage(const unsigned char *data, size_t bytes)
{
    unsigned char *copy = fa2i_alloc(bytes);
    size_t refused = 0, cut = 0;
    for (size_t at = 0; at < bytes - 4096; at += 1237, cut++)
        refused += is_refused(data, at);
    CHECK_EQ(refused, cut);
    refused = 0;
    for (size_t at = 1; at < bytes; at += 131) {
        memcpy(copy, data, bytes);
        copy[at] ^= (unsigned char)(1u << at % 8);
        refused += is_refused(copy, bytes);
    }
    CHECK(refused > 0);
    CHECK(is_refused((const unsigned char *)"{\"fa2_export\":2,\"schema\":4}\n", 29));
    CHECK_CONTAINS(fa2_last_message(), "not a database");
    remove(file);
    CHECK_EQ(fa2i_shipped_read(file, &(fa2i_card){.arch = 86}, FA2_OP_FORWARD, ABI, NULL), FA2_E_IO);
    CHECK_CONTAINS(fa2_last_message(), file);
    fa2i_free(copy);
}

static void test_memory(const unsigned char *data, size_t bytes)
{
    const fa2i_card card = sample_card();
    fa2_status st = FA2_E_MEMORY;
    write_file(file, data, bytes);
    for (long nth = 1; st == FA2_E_MEMORY && nth < 1000; nth++) {
        fa2i_evidence e = {0}, own = {0};
        fa2i_alloc_fail_at(nth);
        st = fa2i_shipped_read(file, &card, FA2_OP_FORWARD, ABI, &e);
        if (st == FA2_OK)
            st = fa2i_shipped_merge(&e, &card, &own);
        fa2i_alloc_fail_at(0);
        CHECK(st == FA2_E_MEMORY || own.set_count == 3);
        fa2i_evidence_done(&e);
        fa2i_evidence_done(&own);
    }
    CHECK_EQ(st, FA2_OK);
}

static void note(void *user, const char *message)
{
    snprintf(user, 512, "%.500s", message);
}

static void test_folder(const unsigned char *data, size_t bytes)
{
    const fa2i_card card = sample_card();
    fa2i_evidence e = {0};
    char said[512] = "", other[160];
    char *path = NULL;

    setenv("FA2_SHARE", "", 1);
    CHECK_EQ(fa2i_share_find(&path), FA2_OK);
    CHECK(path == NULL);
    CHECK_EQ(fa2i_share_read(NULL, &card, FA2_OP_FORWARD, note, said, &e), FA2_OK);
    setenv("FA2_SHARE", folder.folder, 1);
    CHECK_EQ(fa2i_share_find(&path), FA2_OK);
    CHECK(strcmp(path, folder.folder) == 0);
    write_file(file, data, bytes);
    CHECK_EQ(fa2i_share_read(path, &card, FA2_OP_FORWARD, note, said, &e), FA2_OK);
    CHECK_STR(said, "");
    CHECK_EQ(e.set_count, 3);
    fa2i_evidence_done(&e);
    write_file(file, data, bytes / 2);
    CHECK_EQ(fa2i_share_read(path, &card, FA2_OP_FORWARD, note, said, &e), FA2_OK);
    CHECK_CONTAINS(said, "shipped.db: database disk image is malformed");
    /* A pipe without a writer must not block a call. */
    CHECK(remove(file) == 0 && mkfifo(file, 0600) == 0);
    CHECK_EQ(fa2i_share_read(path, &card, FA2_OP_FORWARD, note, said, &e), FA2_OK);
    CHECK_CONTAINS(said, "shipped.db: cannot be read (is no regular file)");
    /* Other databases are the system's (layers.h), and a folder without times has none. */
    CHECK_EQ(remove(file), 0);
    snprintf(other, sizeof other, "%s/a.db", folder.folder);
    write_file(other, data, bytes);
    said[0] = '\0';
    CHECK_EQ(fa2i_share_read(path, &card, FA2_OP_FORWARD, note, said, &e), FA2_OK);
    CHECK_STR(said, "");
    CHECK_EQ(e.set_count, 0);
    CHECK_EQ(remove(other), 0);
    fa2i_free(path);
    fa2i_evidence_done(&e);
    CHECK_EQ(fa2i_share_read("/nonexistent/fa2", &card, FA2_OP_FORWARD, note, said, &e), FA2_OK);
    CHECK_CONTAINS(said, "/nonexistent/fa2: No such file");
    write_file(file, data, bytes);
    CHECK_EQ(fa2i_share_read(file, &card, FA2_OP_FORWARD, note, said, &e), FA2_OK);
    CHECK_CONTAINS(said, "shipped.db: Not a directory");
    unsetenv("FA2_SHARE");
    CHECK_EQ(fa2i_share_find(&path), FA2_OK);
    CHECK(path == NULL || strstr(path, "share") != NULL); /* NULL: nothing is installed */
    fa2i_free(path);
}

/* Does the generator still make the kernel as it was timed? Steps beside the main one may be launched in another way.
 * */
static bool is_made(fa2i_generator *generator, const char *text, const char *class_key, const char *recipe_text)
{
    fa2i_recipe was;
    fa2i_variant now;
    if (fa2i_recipe_parse(recipe_text, &was) != FA2_OK || fa2i_generator_variant(generator, text, &now) != FA2_OK)
        return false;
    const fa2i_step *then = fa2i_recipe_main(&was), *main_step = fa2i_recipe_main(&now.recipe);
    return strcmp(class_key, now.class_key) == 0 && was.abi == now.recipe.abi && was.rows == now.recipe.rows &&
           was.keys == now.recipe.keys && was.map_count == now.recipe.map_count &&
           memcmp(was.maps, now.recipe.maps, sizeof was.maps) == 0 && strcmp(then->entry, main_step->entry) == 0 &&
           then->threads == main_step->threads && then->smem_bytes == main_step->smem_bytes &&
           then->blocks == main_step->blocks && then->block_rows == main_step->block_rows;
}

/* The generator must still make each kernel as it was, because a time of another kernel misleads. */
static void check_kernels(fa2i_cache *cache)
{
    fa2i_generator *generator = NULL;
    sqlite3_stmt *stmt = NULL;
    size_t kernels = 0, stale = 0;
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    CHECK_EQ(sqlite3_prepare_v2(cache->db, "SELECT variant, class, recipe FROM kernel", -1, &stmt, NULL), SQLITE_OK);
    for (; sqlite3_step(stmt) == SQLITE_ROW; kernels++) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        if (!is_made(generator, text, (const char *)sqlite3_column_text(stmt, 1),
                     (const char *)sqlite3_column_text(stmt, 2)))
            fprintf(stderr, "%zu stale kernels; runtime/share/README.md says how to drop them\nstale: %s\n", ++stale,
                    text);
    }
    sqlite3_finalize(stmt);
    fa2i_generator_destroy(generator);
    CHECK_EQ(stale, 0);
    CHECK(kernels >= 500);
}

/* Imports the exports in the tree, as the build does. Returns their size. */
static long import_exports(fa2i_cache *cache)
{
    char path[512], one[800];
    long bytes = 0;
    snprintf(path, sizeof path, "%s/runtime/share", getenv("FA2_SOURCE_DIR"));
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        const char *end = strrchr(entry->d_name, '.');
        if (end == NULL || strcmp(end, ".jsonl") != 0)
            continue;
        snprintf(one, sizeof one, "%s/%s", path, entry->d_name);
        FILE *in = fopen(one, "r");
        CHECK(in != NULL);
        CHECK_EQ(fa2i_cache_import(cache, in, one, NULL, NULL, NULL), FA2_OK);
        bytes += ftell(in);
        fclose(in);
    }
    closedir(dir);
    return bytes;
}

/* The exports in the tree are valid and small. */
static void test_what_is_shipped(void)
{
    const fa2i_card card = {.arch = 90, .smem_block_bytes = 232448};
    fa2i_evidence e = {0};
    fa2i_cache *cache = NULL;
    char said[512] = "";
    size_t sets = 0, kernels = 0, bytes = 0;
    CHECK_EQ(fa2i_cache_open_empty(file, &cache), FA2_OK);
    CHECK(import_exports(cache) <= 3200 * 1000);
    check_kernels(cache);
    sqlite3_free(ship(cache, file, &bytes));
    fa2i_cache_close(cache);
    CHECK(bytes <= 2 * 1000 * 1000);
    for (int op = 0; op < FA2I_OPS; op++) {
        CHECK_EQ(fa2i_share_read(folder.folder, &card, (fa2_op)op, note, said, &e), FA2_OK);
        sets += e.set_count;
        kernels += e.kernel_count;
        fa2i_evidence_done(&e);
    }
    CHECK_STR(said, "");
    CHECK(sets >= 90 && kernels >= 500);
}

int main(void)
{
    size_t bytes = 0;
    fixture_begin(&folder);
    snprintf(file, sizeof file, "%s/shipped.db", folder.folder);
    unsigned char *data = make_database(&bytes);
    test_same_as_database();
    test_merge();
    test_of_others();
    test_damage(data, bytes);
    test_memory(data, bytes);
    test_folder(data, bytes);
    sqlite3_free(data);
    fixture_end(&folder);
    fixture_begin(&folder);
    snprintf(file, sizeof file, "%s/shipped.db", folder.folder);
    test_what_is_shipped();
    fixture_end(&folder);
    return check_done();
}
