/*
 * fa2-tune doctor: one page about fa2 on this machine, for its user and for a bug report.
 *
 * Each part prints what it sees, and notes what is wrong. The notes come last, as a numbered list. Something wrong is
 * never an error of the command. The trial call uses the database that the user's programs would use, for reading.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "cache/content/report.h"
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/base/shown.h"
#include "runtime/base/text.h"
#include "runtime/plan/layers.h"
#include "runtime/plan/share.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/commands/machine.h"
#include "tuner/commands/manual.h"

typedef struct doctor {
    fa2i_options options;
    fa2i_machine machine;
    char *database;     /* the path; owned. NULL: there is none */
    bool database_runs; /* the trial call may use it */
    fa2i_text wrong;    /* the notes, a line each */
    int wrong_count;
} doctor;

static void doctor_done(doctor *d)
{
    fa2i_text_done(&d->wrong);
    fa2i_free(d->database);
    fa2i_machine_done(&d->machine);
    fa2i_options_done(&d->options);
}

/* Notes that something is wrong, escaped like everything that is shown. */
static void note(doctor *d, const char *what, const char *help)
{
    fa2i_text_add(&d->wrong, "  %d. ", ++d->wrong_count);
    fa2i_shown_add(&d->wrong, what);
    fa2i_text_add(&d->wrong, "%s%s\n", help[0] == '\0' ? "" : ". ", help);
}

/* ---- system, CUDA ---- */

static void look_at_system(void)
{
    struct utsname name;
    printf("fa2     %d.%d.%d\n", FA2_VERSION_MAJOR, FA2_VERSION_MINOR, FA2_VERSION_PATCH);
    if (uname(&name) == 0)
        fa2i_shown_print(stdout, "system  %s %s %s\n", name.sysname, name.release, name.machine);
}

static fa2_status look_at_cuda(doctor *d)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_machine_look(&d->machine));
    FA2_TRY(fa2i_machine_print(&d->machine));
    if (d->machine.driver.status != FA2_OK)
        note(d, d->machine.driver.message, "Install NVIDIA's driver, 525 or newer");
    else if (d->machine.usable == 0)
        note(d, "no device can be used", "The table above says why");
    if (d->machine.nvrtc.status != FA2_OK)
        note(d, d->machine.nvrtc.message,
             "Without NVRTC only kernels run that the database holds. The package nvidia-cuda-nvrtc has it");
done:
    return st;
}

/* ---- environment, shipped times ---- */

static void print_variable(const char *name)
{
    const char *value = fa2i_environment_given(name);
    if (value != NULL)
        fa2i_shown_print(stdout, "        %s=%s\n", name, value);
}

static void look_at_environment(void)
{
    char names[128], *rest = NULL;
    fputs("\nenvironment\n", stdout);
    for (const fa2i_variable *v = fa2i_variables; v->names != NULL; v++) {
        if (strcmp(v->names, "PATH") == 0)
            continue; /* it is long, and says much about the user */
        snprintf(names, sizeof names, "%s", v->names);
        for (char *name = strtok_r(names, ", ", &rest); name != NULL; name = strtok_r(NULL, ", ", &rest))
            print_variable(name);
    }
}

static fa2_status look_at_share(doctor *d)
{
    char *folder = NULL;
    struct stat info;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_share_find(&folder));
    fa2i_shown_print(stdout, "\ntimes   %s\n", folder != NULL ? folder : "none: this fa2 is not installed");
    const bool is_file = folder != NULL && stat(folder, &info) == 0 && !S_ISDIR(info.st_mode);
    if (is_file || (folder != NULL && access(folder, R_OK | X_OK) != 0)) {
        char text[FA2I_MESSAGE_BYTES];
        snprintf(text, sizeof text, "%s: %s", folder, is_file ? "is no folder" : strerror(errno));
        note(d, text,
             "Without these times choices rest on the cost model alone. Install fa2 whole, or unset FA2_SHARE");
    }
done:
    fa2i_free(folder);
    return st;
}

/* ---- the database ---- */

static void print_file(const char *path)
{
    struct stat info;
    fa2i_shown_print(stdout, "\ndatabase %s\n", path);
    if (stat(path, &info) == 0)
        printf("        %.1f MB, mode %03o\n", (double)info.st_size / 1e6, (unsigned)(info.st_mode & 07777));
}

static void print_content(const fa2i_cache_health *health)
{
    printf("        kernels %zu, with code %zu; measurements %zu; winners %zu\n", health->kernels, health->images,
           health->measurements, health->winners);
}

/* Gets the disk of a file, or of the folder where a missing file would be made. Shortens path. */
static bool find_disk(char *path, struct statvfs *ret_disk)
{
    while (statvfs(path, ret_disk) != 0) {
        char *slash = strrchr(path, '/');
        if (slash == NULL || slash == path)
            return statvfs(slash == NULL ? "." : "/", ret_disk) == 0;
        *slash = '\0';
    }
    return true;
}

static void look_at_disk(doctor *d)
{
    static const double enough = 16e6; /* for some kernels with code, and SQLite's journal of them */
    struct statvfs disk;
    char text[FA2I_MESSAGE_BYTES], *path = fa2i_strdup(d->database);
    if (path != NULL && find_disk(path, &disk) && (double)disk.f_bavail * (double)disk.f_frsize < enough) {
        snprintf(text, sizeof text, "%s: its disk is full: %.1f MB are left", d->database,
                 (double)disk.f_bavail * (double)disk.f_frsize / 1e6);
        note(d, text, "Make room there, or nothing new is stored");
    }
    fa2i_free(path);
}

/* A database that is not there yet is nothing wrong, unless it cannot be made. */
static void look_at_missing(doctor *d)
{
    puts("        not there yet; it is made when something is tuned, built or compiled");
    if (fa2i_cache_check_writable(d->database) != FA2_OK)
        note(d, fa2_last_message(), "");
}

static fa2_status look_at_content(doctor *d, fa2i_cache *cache)
{
    fa2i_cache_health health = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_cache_check(cache, &health));
    print_content(&health);
    d->database_runs = true;
    if (!fa2i_cache_is_healthy(&health))
        note(d, health.first_problem, "");
    if (fa2i_cache_check_writable(d->database) != FA2_OK)
        note(d, fa2_last_message(), "Until then nothing new is stored");
done:
    return st;
}

static fa2_status look_at_database(doctor *d)
{
    fa2i_cache *cache = NULL;
    fa2_status st = FA2_OK;
    if (fa2i_database_path(d->options.db, &d->database) != FA2_OK) {
        puts("\ndatabase none");
        note(d, fa2_last_message(), "");
        return FA2_OK;
    }
    print_file(d->database);
    const fa2_status opened = fa2i_database_open(d->database, FA2I_CACHE_READ, &cache);
    if (opened == FA2_OK)
        FA2_TRY(look_at_content(d, cache));
    else if (opened == FA2_E_NOT_FOUND)
        look_at_missing(d);
    else
        note(d, fa2_last_message(), "");
    look_at_disk(d);
done:
    fa2i_cache_close(cache);
    return st;
}

/* ---- databases of the system ---- */

/* Called for each of them that cannot be used. */
static void note_passed_over(void *user, const char *message)
{
    note(user, message, "");
}

static fa2_status look_at_system_database(doctor *d, fa2i_cache *cache)
{
    fa2i_cache_health health = {0};
    fa2i_shown_print(stdout, "\nsystem database %s\n", fa2i_cache_path(cache));
    const fa2_status st = fa2i_cache_check(cache, &health);
    if (st == FA2_E_MEMORY)
        return st;
    if (st == FA2_OK)
        print_content(&health);
    if (st != FA2_OK || !fa2i_cache_is_healthy(&health))
        note(d, st != FA2_OK ? fa2_last_message() : health.first_problem, "");
    return FA2_OK;
}

/* Looks at what calls read below the user's database. */
static fa2_status look_at_system_databases(doctor *d)
{
    char *share = NULL;
    fa2i_layers system = {.count = 0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_share_find(&share));
    FA2_TRY(fa2i_layers_open(share, note_passed_over, d, &system));
    for (size_t i = 0; i < system.count; i++)
        FA2_TRY(look_at_system_database(d, system.caches[i]));
done:
    fa2i_layers_close(&system);
    fa2i_free(share);
    return st;
}

/* ---- a call ---- */

enum { HEADS = 8, ROWS = 512, COLUMNS = 64, ELEMENTS = HEADS * ROWS * COLUMNS, FP16_ONE = 0x3c00 };

typedef struct trial {
    fa2i_device device;
    bool entered;
    fa2_context *context;
    CUdeviceptr zeros, ones, out, workspace; /* ELEMENTS of fp16 each, but the last */
    size_t workspace_bytes;
    double prepare_ms;
    fa2_explanation choice;
} trial;

static void trial_done(trial *t)
{
    const CUdeviceptr memory[] = {t->zeros, t->ones, t->out, t->workspace};
    for (size_t i = 0; t->entered && i < sizeof memory / sizeof *memory; i++)
        if (memory[i] != 0)
            t->device.cuda->mem_free(memory[i]);
    fa2_context_destroy(t->context);
    if (t->entered)
        fa2i_device_leave(&t->device);
    fa2i_device_close(&t->device);
}

/* Allocates a tensor whose elements are this fp16 number. */
static fa2_status fill(const trial *t, unsigned element, CUdeviceptr *ret_memory)
{
    const fa2i_cuda_table *cuda = t->device.cuda;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_cuda_check(cuda, cuda->mem_alloc(ret_memory, ELEMENTS * 2), "cuMemAlloc"));
    FA2_TRY(fa2i_cuda_check(cuda, cuda->memset_d32_async(*ret_memory, element << 16 | element, ELEMENTS / 2, NULL),
                            "cuMemsetD32Async"));
done:
    return st;
}

static fa2_status open_trial(const doctor *d, const fa2_problem *problem, trial *t)
{
    const int ordinal = d->options.device < 0 ? 0 : d->options.device;
    const fa2_config config = {.struct_bytes = sizeof config,
                               .database = d->database_runs ? d->database : "",
                               .device_plus_one = ordinal + 1,
                               .read_only = 1};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_device_open(ordinal + 1, &t->device));
    FA2_TRY(fa2i_device_enter(&t->device));
    t->entered = true;
    FA2_TRY(fa2_context_create(&config, &t->context));
    const double start_s = fa2i_now_s();
    FA2_TRY(fa2_workspace_size(t->context, problem, &t->workspace_bytes));
    t->prepare_ms = (fa2i_now_s() - start_s) * 1e3;
    t->choice.struct_bytes = sizeof t->choice;
    FA2_TRY(fa2_explain(t->context, problem, &t->choice));
done:
    return st;
}

static fa2_tensor tensor_at(CUdeviceptr data)
{
    return (fa2_tensor){(void *)(uintptr_t)data, (int64_t)ELEMENTS, (int64_t)HEADS * COLUMNS, COLUMNS};
}

/* All scores are equal, and every value is 1: so is every element of O. Other elements are FA2_E_CUDA. */
static fa2_status run_trial(const fa2_problem *problem, trial *t)
{
    static uint16_t found[ELEMENTS];
    const fa2i_cuda_table *cuda = t->device.cuda;
    fa2_status st = FA2_OK;
    FA2_TRY(fill(t, 0, &t->zeros));
    FA2_TRY(fill(t, FP16_ONE, &t->ones));
    FA2_TRY(fill(t, 0, &t->out));
    if (t->workspace_bytes > 0)
        FA2_TRY(fa2i_cuda_check(cuda, cuda->mem_alloc(&t->workspace, t->workspace_bytes), "cuMemAlloc"));
    const fa2_forward_args args = {.struct_bytes = sizeof args,
                                   .q = tensor_at(t->zeros),
                                   .k = tensor_at(t->zeros),
                                   .v = tensor_at(t->ones),
                                   .o = tensor_at(t->out),
                                   .workspace = (void *)(uintptr_t)t->workspace,
                                   .workspace_bytes = t->workspace_bytes};
    FA2_TRY(fa2_forward(t->context, problem, &args, NULL));
    FA2_TRY(fa2i_cuda_check(cuda, cuda->ctx_synchronize(), "the kernel"));
    FA2_TRY(fa2i_cuda_check(cuda, cuda->memcpy_dtoh(found, t->out, sizeof found), "cuMemcpyDtoH"));
    for (int i = 0; i < ELEMENTS; i++)
        if (found[i] != FP16_ONE)
            return fa2i_fail(FA2_E_CUDA, "the call's result is wrong: element %d is 0x%04x, expected 0x%04x", i,
                             found[i], FP16_ONE);
done:
    return st;
}

static void try_call(doctor *d)
{
    const fa2_problem problem = {.struct_bytes = sizeof problem,
                                 .batch = 1,
                                 .heads_q = HEADS,
                                 .heads_kv = HEADS,
                                 .seq_q = ROWS,
                                 .seq_k = ROWS,
                                 .head_dim = COLUMNS};
    trial t = {0};
    if (d->machine.usable == 0)
        return;
    printf("\na call  B=1 Hq=%d Sq=%d D=%d fp16", HEADS, ROWS, COLUMNS);
    fa2_status st = open_trial(d, &problem, &t);
    if (st == FA2_OK)
        st = run_trial(&problem, &t);
    if (st == FA2_OK)
        fa2i_shown_print(stdout, ": right; %.0f ms to prepare\n        %s\n        by the rule %s: %s\n", t.prepare_ms,
                         t.choice.variant, fa2_rule_string(t.choice.rule), t.choice.reason);
    else
        puts(": failed");
    if (st != FA2_OK)
        note(d, fa2_last_message(), "");
    trial_done(&t);
}

int fa2i_cmd_doctor(int argc, char **argv)
{
    doctor d = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_DEVICE | FA2I_OPT_DB, &d.options));
    look_at_system();
    FA2_TRY(look_at_cuda(&d));
    look_at_environment();
    FA2_TRY(look_at_share(&d));
    FA2_TRY(look_at_database(&d));
    FA2_TRY(look_at_system_databases(&d));
    try_call(&d);
    if (d.wrong.failed)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "out of memory"));
    printf("\n%s\n%s", d.wrong_count == 0 ? "nothing is wrong" : "wrong here", d.wrong_count == 0 ? "" : d.wrong.data);
done:;
    const bool healthy = d.wrong_count == 0, usable = d.machine.usable > 0;
    doctor_done(&d);
    if (st != FA2_OK)
        return fa2i_report_failure(st);
    return healthy ? FA2I_EXIT_OK : usable ? FA2I_EXIT_FAILED : FA2I_EXIT_NO_DEVICE;
}
