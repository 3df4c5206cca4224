#include "tuner/commands/machine.h"

#include <stdio.h>
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"
#include "tuner/report/table.h"

enum { OLDEST_ARCH = 75, DEVICES_MAX = 64 };

static void keep(fa2i_found *found, fa2_status status)
{
    found->status = status;
    if (status != FA2_OK)
        snprintf(found->message, sizeof found->message, "%s", fa2_last_message());
}

static void look_for_nvrtc(fa2i_machine *m)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    int major = 0, minor = 0, count = 0;
    keep(&m->nvrtc, fa2i_nvrtc_get(&nvrtc));
    if (m->nvrtc.status != FA2_OK)
        return;
    if (nvrtc->version(&major, &minor) == NVRTC_SUCCESS)
        m->nvrtc_version = 1000 * major + 10 * minor;
    if (nvrtc->get_num_supported_archs(&count) == NVRTC_SUCCESS && count <= FA2I_MACHINE_ARCHS_MAX &&
        nvrtc->get_supported_archs(m->archs) == NVRTC_SUCCESS)
        m->arch_count = count;
}

static void look_at_device(const fa2i_cuda_table *cuda, int ordinal, fa2i_machine_device *found)
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

static fa2_status look_for_devices(fa2i_machine *m)
{
    const fa2i_cuda_table *cuda = NULL;
    int count = 0;
    keep(&m->driver, fa2i_cuda_get(&cuda));
    if (m->driver.status != FA2_OK)
        return FA2_OK;
    cuda->driver_get_version(&m->driver_version);
    if (cuda->device_get_count(&count) != CUDA_SUCCESS || count < 0)
        count = 0;
    if (count > DEVICES_MAX)
        count = DEVICES_MAX;
    m->devices = fa2i_alloc_array((size_t)count, sizeof *m->devices);
    if (m->devices == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %d devices", count);
    m->device_count = count;
    for (int i = 0; i < count; i++) {
        look_at_device(cuda, i, &m->devices[i]);
        m->usable += m->devices[i].state.status == FA2_OK;
    }
    return FA2_OK;
}

fa2_status fa2i_machine_look(fa2i_machine *ret_machine)
{
    *ret_machine = (fa2i_machine){0};
    look_for_nvrtc(ret_machine);
    return look_for_devices(ret_machine);
}

void fa2i_machine_done(fa2i_machine *machine)
{
    fa2i_free(machine->devices);
}

/* ---- text ---- */

static void print_version(int version)
{
    printf("%d.%d", version / 1000, version % 1000 / 10);
}

static void print_libraries(const fa2i_machine *m)
{
    if (m->driver.status == FA2_OK) {
        fputs("driver  CUDA ", stdout);
        print_version(m->driver_version);
        fa2i_shown_print(stdout, ", %s\n", fa2i_cuda_path());
    } else {
        printf("driver  missing: %s\n", m->driver.message);
    }
    if (m->nvrtc.status != FA2_OK) {
        printf("NVRTC   missing: %s\n", m->nvrtc.message);
        return;
    }
    fputs("NVRTC   ", stdout);
    print_version(m->nvrtc_version);
    fa2i_shown_print(stdout, ", %s\n        compiles for", fa2i_nvrtc_path());
    for (int i = 0; i < m->arch_count; i++)
        printf(" sm_%d", m->archs[i]);
    putchar('\n');
}

static void add_device(fa2i_table *table, int ordinal, const fa2i_machine_device *d)
{
    fa2i_table_row(table, "%d\t%s\tsm_%d\t%d\t%d\t%.1f\t%.1f\t%d\t%s", ordinal, d->card.name, d->card.arch,
                   d->card.sm_count, d->card.smem_block_bytes / 1024, (double)d->card.l2_bytes / 0x1p20,
                   (double)d->memory_bytes / 0x1p30, d->card.clock_khz / 1000,
                   d->state.status == FA2_OK ? "yes" : d->state.message);
}

static fa2_status print_devices(const fa2i_machine *m)
{
    static const char *const titles[] = {"device", "name",       "SM",  "SMs",   "smem/block KiB",
                                         "L2 MiB", "memory GiB", "MHz", "usable"};
    fa2i_table table;
    if (m->device_count == 0)
        return FA2_OK;
    fa2i_table_init(&table, "rllrrrrrl", titles);
    for (int i = 0; i < m->device_count; i++)
        add_device(&table, i, &m->devices[i]);
    putchar('\n');
    return fa2i_table_end(&table, stdout);
}

fa2_status fa2i_machine_print(const fa2i_machine *machine)
{
    print_libraries(machine);
    return print_devices(machine);
}
