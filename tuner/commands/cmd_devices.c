/*
 * fa2-tune devices: lists the CUDA parts of this machine, and the consequences of missing ones.
 *
 * It looks everything up first and prints it afterwards, as text or as JSON. If something cannot be found, that is a
 * finding: its message is kept and shown.
 */
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/cuda/device.h"
#include "tuner/commands/commands.h"
#include "tuner/report/table.h"

enum { ARCHS_MAX = 64, OLDEST_ARCH = 75, DEVICES_MAX = 64 };

typedef struct finding {
    fa2_status status;
    char message[FA2I_MESSAGE_BYTES]; /* why it is missing */
} finding;

typedef struct device {
    fa2i_card card;
    int64_t memory_bytes;
    finding state; /* FA2_OK and a new enough SM: usable */
} device;

typedef struct findings {
    finding driver, nvrtc;
    int driver_version; /* 1000 * major + 10 * minor of the CUDA version that it supports */
    int nvrtc_version;
    int archs[ARCHS_MAX]; /* those that NVRTC compiles for */
    int arch_count;
    device *devices;
    int device_count, usable;
} findings;

static void keep(finding *found, fa2_status status)
{
    found->status = status;
    if (status != FA2_OK)
        snprintf(found->message, sizeof found->message, "%s", fa2_last_message());
}

static void look_for_nvrtc(findings *f)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    int major = 0, minor = 0, count = 0;
    keep(&f->nvrtc, fa2i_nvrtc_get(&nvrtc));
    if (f->nvrtc.status != FA2_OK)
        return;
    if (nvrtc->version(&major, &minor) == NVRTC_SUCCESS)
        f->nvrtc_version = 1000 * major + 10 * minor;
    if (nvrtc->get_num_supported_archs(&count) == NVRTC_SUCCESS && count <= ARCHS_MAX &&
        nvrtc->get_supported_archs(f->archs) == NVRTC_SUCCESS)
        f->arch_count = count;
}

static void look_at_device(const fa2i_cuda_table *cuda, int ordinal, device *found)
{
    CUdevice handle = 0;
    size_t bytes = 0;
    keep(&found->state, fa2i_device_card(cuda, ordinal, &found->card));
    if (found->state.status == FA2_OK && cuda->device_get(&handle, ordinal) == CUDA_SUCCESS &&
        cuda->device_total_mem(&bytes, handle) == CUDA_SUCCESS)
        found->memory_bytes = (int64_t)bytes;
    if (found->state.status == FA2_OK && found->card.arch < OLDEST_ARCH)
        keep(&found->state, fa2i_fail(FA2_E_UNSUPPORTED, "fa2 needs sm_%d or newer", OLDEST_ARCH));
}

static fa2_status look_for_devices(findings *f)
{
    const fa2i_cuda_table *cuda = NULL;
    int count = 0;
    keep(&f->driver, fa2i_cuda_get(&cuda));
    if (f->driver.status != FA2_OK)
        return FA2_OK;
    cuda->driver_get_version(&f->driver_version);
    if (cuda->device_get_count(&count) != CUDA_SUCCESS || count < 0)
        count = 0;
    if (count > DEVICES_MAX)
        count = DEVICES_MAX;
    f->devices = fa2i_alloc_array((size_t)count, sizeof *f->devices);
    if (f->devices == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %d devices", count);
    f->device_count = count;
    for (int i = 0; i < count; i++) {
        look_at_device(cuda, i, &f->devices[i]);
        f->usable += f->devices[i].state.status == FA2_OK;
    }
    return FA2_OK;
}

/* ---- text ---- */

static void print_version(int version)
{
    printf("%d.%d", version / 1000, version % 1000 / 10);
}

static void print_libraries(const findings *f)
{
    if (f->driver.status == FA2_OK) {
        fputs("driver  CUDA ", stdout);
        print_version(f->driver_version);
        fa2i_shown_print(stdout, ", %s\n", fa2i_cuda_path());
    } else {
        printf("driver  missing: %s\n", f->driver.message);
    }
    if (f->nvrtc.status != FA2_OK) {
        printf("NVRTC   missing: %s\n", f->nvrtc.message);
        return;
    }
    fputs("NVRTC   ", stdout);
    print_version(f->nvrtc_version);
    fa2i_shown_print(stdout, ", %s\n        compiles for", fa2i_nvrtc_path());
    for (int i = 0; i < f->arch_count; i++)
        printf(" sm_%d", f->archs[i]);
    putchar('\n');
}

static void add_device(fa2i_table *table, int ordinal, const device *d)
{
    enum { CELLS = 9 };
    char texts[CELLS][32];
    const char *cells[CELLS];
    for (int i = 0; i < CELLS; i++)
        cells[i] = texts[i];
    snprintf(texts[0], sizeof *texts, "%d", ordinal);
    cells[1] = d->card.name;
    snprintf(texts[2], sizeof *texts, "sm_%d", d->card.arch);
    snprintf(texts[3], sizeof *texts, "%d", d->card.sm_count);
    snprintf(texts[4], sizeof *texts, "%d", d->card.smem_block_bytes / 1024);
    snprintf(texts[5], sizeof *texts, "%.1f", (double)d->card.l2_bytes / 0x1p20);
    snprintf(texts[6], sizeof *texts, "%.1f", (double)d->memory_bytes / 0x1p30);
    snprintf(texts[7], sizeof *texts, "%d", d->card.clock_khz / 1000);
    cells[8] = d->state.status == FA2_OK ? "yes" : d->state.message;
    fa2i_table_add(table, cells);
}

static fa2_status print_devices(const findings *f)
{
    static const char *const titles[] = {"device", "name",       "SM",  "SMs",   "smem/block KiB",
                                         "L2 MiB", "memory GiB", "MHz", "usable"};
    fa2i_table table;
    if (f->device_count == 0)
        return FA2_OK;
    fa2i_table_init(&table, "rllrrrrrl", titles);
    for (int i = 0; i < f->device_count; i++)
        add_device(&table, i, &f->devices[i]);
    putchar('\n');
    const fa2_status st = fa2i_table_print(&table, stdout);
    fa2i_table_done(&table);
    return st;
}

/* Says what the user can do with these findings. */
static const char *conclusion(const findings *f)
{
    const bool compiler = f->nvrtc.status == FA2_OK;
    if (f->usable > 0 && compiler)
        return "Everything is here: fa2-tune --device 0";
    if (f->usable > 0)
        return "Tuned kernels run; tune and build need NVRTC.";
    if (compiler)
        return "No usable device: tune needs one. build works without: fa2-tune build --arch sm_86";
    return "No usable device and no NVRTC: only list, show, explain --arch, export, import, check "
           "and gc work here.";
}

/* ---- JSON ---- */

static void print_part_json(const char *name, const finding *found, const char *path, int version)
{
    printf("\"%s\":{\"found\":%s,\"path\":", name, found->status == FA2_OK ? "true" : "false");
    fa2i_json_string(stdout, found->status == FA2_OK ? path : NULL);
    printf(",\"version\":%d,\"missing\":", version);
    fa2i_json_string(stdout, found->status == FA2_OK ? NULL : found->message);
}

static void print_device_json(int ordinal, const device *d)
{
    printf("{\"device\":%d,\"name\":", ordinal);
    fa2i_json_string(stdout, d->card.name);
    printf(",\"sm\":%d,\"sm_count\":%d,\"smem_block_bytes\":%d,\"smem_sm_bytes\":%d,"
           "\"l2_bytes\":%lld,\"memory_bytes\":%lld,\"clock_khz\":%d,\"unusable\":",
           d->card.arch, d->card.sm_count, d->card.smem_block_bytes, d->card.smem_sm_bytes, (long long)d->card.l2_bytes,
           (long long)d->memory_bytes, d->card.clock_khz);
    fa2i_json_string(stdout, d->state.status == FA2_OK ? NULL : d->state.message);
    putchar('}');
}

static void print_json(const findings *f)
{
    putchar('{');
    print_part_json("driver", &f->driver, fa2i_cuda_path(), f->driver_version);
    fputs("},", stdout);
    print_part_json("nvrtc", &f->nvrtc, fa2i_nvrtc_path(), f->nvrtc_version);
    fputs(",\"sms\":[", stdout);
    for (int i = 0; i < f->arch_count; i++)
        printf("%s%d", i == 0 ? "" : ",", f->archs[i]);
    fputs("]},\"devices\":[", stdout);
    for (int i = 0; i < f->device_count; i++) {
        fputs(i == 0 ? "\n" : ",\n", stdout);
        print_device_json(i, &f->devices[i]);
    }
    printf("],\"usable\":%d,\"conclusion\":", f->usable);
    fa2i_json_string(stdout, conclusion(f));
    fputs("}\n", stdout);
}

int fa2i_cmd_devices(int argc, char **argv)
{
    fa2i_options options = {0};
    findings f = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_JSON, &options));
    look_for_nvrtc(&f);
    FA2_TRY(look_for_devices(&f));
    if (options.json) {
        print_json(&f);
    } else {
        print_libraries(&f);
        FA2_TRY(print_devices(&f));
        printf("\n%s\n", conclusion(&f));
    }
done:
    fa2i_free(f.devices);
    fa2i_options_done(&options);
    if (st != FA2_OK)
        return fa2i_report_failure(st);
    return f.usable > 0 ? FA2I_EXIT_OK : FA2I_EXIT_NO_DEVICE;
}
