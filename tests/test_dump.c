/*
 * FA2_DUMP: compiled kernels are in the folder, complete, with one name per variant. If the folder cannot be written,
 * the log gets one line, and no call fails.
 */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include "fa2.h"
#include "runtime/base/file.h"
#include "runtime/cuda/dump.h"
#include "tuned_database.h"
#include "tuner/search/compile_all.h"

#include "compile_fixture.h" /* after headers that have their own `source` */

static char folder[64];

static void begin(void)
{
    fake_install();
    strcpy(folder, "/tmp/fa2-dump-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    setenv("FA2_DUMP", folder, 1);
}

/* Counts the files whose names end in this; "" means all. removes: also removes them. */
static int count_files(const char *ending, bool removes)
{
    int count = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        char path[400];
        const size_t length = strlen(entry->d_name), tail = strlen(ending);
        if (entry->d_name[0] == '.' || length < tail || strcmp(entry->d_name + length - tail, ending) != 0)
            continue;
        CHECK(strchr(entry->d_name, ' ') == NULL);
        count++;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (removes)
            remove(path);
    }
    if (entries != NULL)
        closedir(entries);
    return count;
}

static void end(void)
{
    (void)count_files("", true);
    CHECK_EQ(rmdir(folder), 0);
    unsetenv("FA2_DUMP");
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
}

/* Returns the text of a file in the folder, "" if it does not exist. Valid until the next call. */
static const char *text_of(const char *name)
{
    static char text[4096];
    char path[400];
    const char *why = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fa2i_file_open(path, &why);
    text[file == NULL ? 0 : fread(text, 1, sizeof text - 1, file)] = '\0';
    if (file != NULL)
        fclose(file);
    return text;
}

static fa2i_kernel compile(const fa2i_variant *of, const fa2i_target *target)
{
    fa2i_kernel kernel = {0};
    CHECK_EQ(fa2i_compile(of, source, target, "", &kernel), FA2_OK);
    return kernel;
}

static void test_files(void)
{
    begin();
    fa2i_kernel kernel = compile(&variant, &sm_86);
    unsetenv("FA2_DUMP");
    CHECK_EQ(fa2i_dump(&kernel, source), FA2_OK);
    CHECK_EQ(count_files("", false), 0);
    setenv("FA2_DUMP", folder, 1);
    CHECK_EQ(fa2i_dump(&kernel, source), FA2_OK);
    CHECK_STR(text_of("fwd_sm80,d=64,sm_86.cu"), source);
    CHECK_STR(text_of("fwd_sm80,d=64,sm_86.cubin"), (const char *)kernel.image.data);
    CHECK_EQ(count_files("", false), 2);

    /* A kernel that does not compile has no code, and code of an earlier source is removed. */
    fa2i_blob_done(&kernel.image);
    CHECK_EQ(fa2i_dump(&kernel, "an error"), FA2_OK);
    CHECK_STR(text_of("fwd_sm80,d=64,sm_86.cu"), "an error");
    CHECK_EQ(count_files("", false), 1);
    fa2i_kernel_done(&kernel);

    fa2i_variant suffixed = variant;
    strcpy(suffixed.recipe.suffix, "a");
    kernel = compile(&suffixed, &(fa2i_target){.name = "compute_90", .ptx = true});
    CHECK_EQ(fa2i_dump(&kernel, source), FA2_OK);
    CHECK_STR(text_of("fwd_sm80,d=64,compute_90a.ptx"), (const char *)kernel.image.data);
    fa2i_kernel_done(&kernel);
    end();
}

/* Names of files are cut, but two long variants still have two names. */
static void test_long_names(void)
{
    begin();
    for (char last = 'a'; last <= 'b'; last++) {
        fa2i_variant of = variant;
        memset(of.text + strlen(of.text), ' ', 1);
        memset(of.text + strlen(variant.text) + 1, 'x', FA2I_VARIANT_CHARS - strlen(variant.text) - 3);
        of.text[FA2I_VARIANT_CHARS - 2] = last;
        snprintf(of.recipe.text, sizeof of.recipe.text, "%c", last); /* gives another key, as another text does */
        fa2i_kernel kernel = compile(&of, &sm_86);
        CHECK_EQ(fa2i_dump(&kernel, source), FA2_OK);
        fa2i_kernel_done(&kernel);
    }
    CHECK_EQ(count_files(",sm_86.cu", false), 2);
    CHECK_EQ(count_files(",sm_86.cubin", false), 2);
    end();
}

/* A file is written completely or not at all, even on a full disk or at a limit of the process. */
static void test_full_disk(void)
{
    const struct rlimit small = {.rlim_cur = 16, .rlim_max = RLIM_INFINITY};
    struct rlimit usual;
    begin();
    fa2i_kernel kernel = compile(&variant, &sm_86);
    CHECK_EQ(fa2i_dump(&kernel, "short"), FA2_OK);
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const fa2_status st = fa2i_dump(&kernel, source);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &usual), 0);
    CHECK_EQ(st, FA2_E_IO);
    CHECK_CONTAINS(fa2_last_message(), "cannot write fwd_sm80,d=64,sm_86.cu (File too large)");
    CHECK_STR(text_of("fwd_sm80,d=64,sm_86.cu"), "short");
    CHECK_EQ(count_files("", false), 2);
    fa2i_kernel_done(&kernel);
    end();
}

static fa2_status take(void *user, size_t index, const fa2i_kernel *kernel, bool found)
{
    (void)user, (void)index, (void)kernel, (void)found;
    return FA2_OK;
}

/* The tuner's variants, including those that share code. */
static void test_tuner(void)
{
    fa2i_compile_job jobs[3];
    char text[sizeof source];
    begin();
    memcpy(text, source, sizeof text);
    for (int i = 0; i < 3; i++) {
        jobs[i] = (fa2i_compile_job){.variant = variant, .source = text, .target = sm_86};
        snprintf(jobs[i].variant.text, sizeof jobs[i].variant.text, "fwd_sm80 d=64 waves=%d", i);
        snprintf(jobs[i].variant.recipe.text, sizeof jobs[i].variant.recipe.text, "waves=%d", i);
    }
    CHECK_EQ(fa2i_compile_all(jobs, 3, NULL, 2, "", NULL, take, NULL), FA2_OK);
    CHECK_EQ(fake.compile_count, 1);
    CHECK_EQ(count_files(".cu", false), 3);
    CHECK_EQ(count_files(".cubin", false), 3);
    CHECK_STR(text_of("fwd_sm80,d=64,waves=2,sm_86.cu"), source);
    setenv("FA2_DUMP", "/nonexistent", 1);
    CHECK_EQ(fa2i_compile_all(jobs, 3, NULL, 2, "", NULL, take, NULL), FA2_OK);
    end();
}

static tuned_log log_of;

static fa2_context *create(void)
{
    const fa2_config config = {
        .struct_bytes = sizeof(fa2_config), .database = "", .log = tuned_log_add, .log_user = &log_of};
    fa2_context *context = NULL;
    log_of = (tuned_log){.count = 0};
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    return context;
}

static void prepare(fa2_context *context, int head_dim)
{
    fa2_problem problem = tuned_problem(1, 512);
    problem.head_dim = head_dim;
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
}

/* The runtime's kernels. If they cannot be written, a context logs it once, and its calls succeed. */
static void test_runtime(void)
{
    begin();
    setenv("FA2_SHARE", "", 1);
    fa2_context *context = create();
    prepare(context, 64);
    fa2_context_destroy(context);
    CHECK_EQ(count_files(",sm_86.cu", false), 1);
    CHECK_EQ(count_files(",sm_86.cubin", false), 1);
    CHECK(strstr(log_of.text, "FA2_DUMP") == NULL);

    setenv("FA2_DUMP", "/nonexistent", 1);
    context = create();
    prepare(context, 64);
    prepare(context, 128);
    fa2_context_destroy(context);
    const char *said = strstr(log_of.text, "FA2_DUMP=/nonexistent: cannot write fwd_");
    CHECK(said != NULL && strstr(said + 1, "FA2_DUMP") == NULL);
    CHECK_CONTAINS(log_of.text, "(No such file or directory)");
    end();
}

int main(void)
{
    test_files();
    test_long_names();
    test_full_disk();
    test_tuner();
    test_runtime();
    return check_done();
}
