/*
 * A folder for one test's databases, and records to store in them. check.h counts failures.
 */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "put_measurement.h"
#include "cache/internal.h"
#include "cache/content/report.h"
#include "check.h"
#include "recipe_fixture.h"

enum { ABI = 2 }; /* the ABI of the recipes in recipe_fixture.h */

typedef struct fixture {
    char folder[64];
    char path[96]; /* of a database that does not exist yet */
} fixture;

static inline void fixture_begin_in(fixture *f, const char *parent)
{
    snprintf(f->folder, sizeof f->folder, "%s/fa2-cache-XXXXXX", parent);
    CHECK(mkdtemp(f->folder) != NULL);
    snprintf(f->path, sizeof f->path, "%s/fa2.db", f->folder);
}

static inline void fixture_begin(fixture *f)
{
    fixture_begin_in(f, "/tmp");
}

/* Removes the folder and its files. The databases must be closed. */
static inline void fixture_end(const fixture *f)
{
    char file[400];
    chmod(f->folder, 0700);
    DIR *folder = opendir(f->folder);
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        snprintf(file, sizeof file, "%s/%s", f->folder, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            CHECK_EQ(remove(file), 0);
    }
    closedir(folder);
    CHECK_EQ(rmdir(f->folder), 0);
}

/* Runs tests, each with its own folder. They take the whole fixture, the path of a database, or two paths. */
static inline void fixture_each(void (*const tests[])(fixture *), size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fixture f;
        fixture_begin(&f);
        tests[i](&f);
        fixture_end(&f);
    }
}

static inline void fixture_each_path(void (*const tests[])(const char *), size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fixture f;
        fixture_begin(&f);
        tests[i](f.path);
        fixture_end(&f);
    }
}

static inline void fixture_each_pair(void (*const tests[])(const char *, const char *), size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fixture from, to;
        fixture_begin(&from);
        fixture_begin(&to);
        tests[i](from.path, to.path);
        fixture_end(&from);
        fixture_end(&to);
    }
}

/* Opens a device on which every write fails. If there is none, says so and returns NULL. Never creates a file. */
static inline FILE *open_full_disk(const char *what)
{
    struct stat info;
    FILE *full = NULL;
    const int descriptor = open("/dev/full", O_WRONLY);
    if (descriptor >= 0 && fstat(descriptor, &info) == 0 && S_ISCHR(info.st_mode))
        full = fdopen(descriptor, "w");
    if (full != NULL)
        return full;
    if (descriptor >= 0)
        close(descriptor);
    fprintf(stderr, "skipped, there is no device /dev/full: %s\n", what);
    return NULL;
}

/* Opens for writing. Must succeed. */
static inline fa2i_cache *fixture_open(const char *path)
{
    fa2i_cache *cache = NULL;
    CHECK_EQ(fa2i_cache_open(path, FA2I_CACHE_WRITE, NULL, NULL, &cache), FA2_OK);
    if (cache == NULL) {
        fprintf(stderr, "%s\n", fa2_last_message());
        exit(1);
    }
    return cache;
}

/* Checks that opening fails with this status, and with a message that contains `part` and the file's name. */
static inline void check_refused(const char *path, fa2i_cache_mode mode, fa2_status status, const char *part)
{
    fa2i_cache *cache = NULL;
    CHECK_EQ(fa2i_cache_open(path, mode, NULL, NULL, &cache), status);
    CHECK(cache == NULL);
    CHECK_CONTAINS(fa2_last_message(), part);
    if (path[0] != '\0')
        CHECK_CONTAINS(fa2_last_message(), path);
    fa2i_cache_close(cache);
}

static inline fa2i_card sample_card(void)
{
    return (fa2i_card){.name = "Sample RTX",
                       .arch = 86,
                       .sm_count = 28,
                       .smem_block_bytes = 101376,
                       .smem_sm_bytes = 102400,
                       .l2_bytes = 2359296,
                       .clock_khz = 1777000,
                       .bandwidth_bytes = 360000000000};
}

static inline fa2_problem sample_problem(int seq)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .dtype = FA2_FP16,
                         .batch = 2,
                         .heads_q = 8,
                         .heads_kv = 4,
                         .seq_q = seq,
                         .seq_k = seq,
                         .head_dim = 64,
                         .causal = 1};
}

static inline fa2i_key sample_key(int number)
{
    fa2i_key key;
    fa2i_part part = {&number, sizeof number};
    fa2i_key_of(&part, 1, &key);
    return key;
}

/* The image is static: do not free it. Kernels of different numbers have images of different lengths. */
static inline fa2i_kernel sample_kernel(int number)
{
    static char image[5000] = "the code of a kernel";
    fa2i_kernel kernel = {.key = sample_key(number),
                          .variant.recipe = split_recipe("fwd_sm80", 128, 64, 32, 49152, 2),
                          .target = "sm_86",
                          .nvrtc = 13000,
                          .generator = "0123456789abcdef",
                          .registers = 168,
                          .compile_ms = 812.5,
                          .image = {image, sizeof image - (size_t)number % 1000}};
    snprintf(kernel.variant.text, sizeof kernel.variant.text, "fwd_sm80 d=64 dtype=fp16 causal=1 br=64 bc=%d",
             8 * number);
    const fa2_problem problem = sample_problem(512);
    fa2i_problem_class(&problem, kernel.variant.class_key);
    return kernel;
}

/* The ids of a device, a session on it, and a problem. */
typedef struct ids {
    int64_t device, session, problem;
} ids;

static inline ids sample_ids(fa2i_cache *cache, int seq)
{
    ids found = {0};
    const fa2i_card card = sample_card();
    const fa2_problem problem = sample_problem(seq);
    CHECK_EQ(fa2i_cache_device(cache, &card, true, &found.device), FA2_OK);
    CHECK_EQ(fa2i_cache_problem(cache, &problem, &found.problem), FA2_OK);
    const fa2i_session session = {
        .device = found.device, .driver = 13000, .nvrtc = 13000, .generator = "0123456789abcdef", .origin = "tune"};
    CHECK_EQ(fa2i_cache_session_begin(cache, &session, &found.session), FA2_OK);
    return found;
}

/* Stores a kernel with a verification and a measurement of median_us. winner: makes it the winner. */
static inline void store_result(fa2i_cache *cache, const ids *to, int number, double median_us, bool winner)
{
    const fa2i_kernel kernel = sample_kernel(number);
    const fa2i_verification verification = {.max_error = 0.5, .detail = "S=130"};
    const fa2i_measurement measurement = {.settled = true,
                                          .n = 20,
                                          .min_us = median_us - 2,
                                          .q1_us = median_us - 1,
                                          .median_us = median_us,
                                          .q3_us = median_us + 1,
                                          .max_error = 0.25};
    const fa2i_winner won = {.kernel = kernel.key,
                             .measured = true,
                             .median_us = median_us,
                             .default_us = 2 * median_us,
                             .model_us = median_us / 2};
    CHECK_EQ(fa2i_cache_put_kernel(cache, &kernel), FA2_OK);
    CHECK_EQ(fa2i_cache_put_verification(cache, to->device, &kernel.key, &verification), FA2_OK);
    CHECK_EQ(put_measurement(cache, to->session, to->device, to->problem, &kernel.key, &measurement), FA2_OK);
    if (winner)
        CHECK_EQ(fa2i_cache_put_winner(cache, to->session, to->device, to->problem, &won), FA2_OK);
}

/* Returns an export of the database; the caller frees it. ret_counts may be NULL. */
static inline char *exported(fa2i_cache *cache, fa2i_export_counts *ret_counts)
{
    static char *text; /* static, because gcc's analysis does not see that the stream writes through this pointer */
    static size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out != NULL);
    CHECK_EQ(fa2i_cache_export(cache, out, ret_counts), FA2_OK);
    fclose(out);
    return text;
}

static inline fa2_status import_text(fa2i_cache *cache, const char *text, size_t bytes, fa2i_import_counts *ret_counts)
{
    FILE *in = tmpfile();
    CHECK(in != NULL && fwrite(text, 1, bytes, in) == bytes);
    rewind(in);
    const fa2_status st = fa2i_cache_import(cache, in, "shared.jsonl", NULL, NULL, ret_counts);
    fclose(in);
    return st;
}

/* Returns the first number of the first row. */
static inline int64_t fixture_number(fa2i_cache *cache, const char *sql)
{
    int64_t value = -1;
    CHECK_EQ(fa2i_sql_number(cache, sql, NULL, 0, &value), FA2_OK);
    return value;
}

/* Stores two problems, three kernels and two winners. */
static inline void fixture_fill(fa2i_cache *cache)
{
    const ids first = sample_ids(cache, 512), second = sample_ids(cache, 1024);
    store_result(cache, &first, 1, 100, false);
    store_result(cache, &first, 2, 50, true);
    store_result(cache, &second, 3, 190, true);
    /* sessions are distinguished by the second in which they started */
    CHECK_EQ(fa2i_sql_script(cache, "UPDATE session SET started_at = '2026-01-02T03:04:05Z', modelled = 1 "
                                    "WHERE id = (SELECT max(id) FROM session)"),
             FA2_OK);
}

/* Returns the text with the first occurrence of `part` replaced. The caller frees it. */
static inline char *replaced(const char *text, const char *part, const char *by)
{
    const char *at = strstr(text, part);
    CHECK(at != NULL);
    if (at == NULL)
        exit(1);
    char *copy = malloc(strlen(text) + strlen(by) + 1);
    CHECK(copy != NULL);
    if (copy == NULL)
        exit(1);
    sprintf(copy, "%.*s%s%s", (int)(at - text), text, by, at + strlen(part));
    return copy;
}

static inline int number_of_lines(const char *text, size_t bytes)
{
    int lines = 0;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    return lines;
}

/* Returns a changed export with a correct last line. Frees the text. */
static inline char *sealed(char *text)
{
    char hash[SHA256_DIGEST_STRING_LENGTH];
    const char *end = strstr(text, "{\"type\":\"end\"");
    CHECK(end != NULL);
    const size_t bytes = (size_t)(end - text);
    char *copy = malloc(bytes + 200);
    CHECK(copy != NULL);
    sprintf(copy, "%.*s{\"type\":\"end\",\"rows\":%d,\"sha256\":\"%s\"}\n", (int)bytes, text,
            number_of_lines(text, bytes) - 1, SHA256Data((const uint8_t *)text, bytes, hash));
    free(text);
    return copy;
}
