/*
 * fa2-tune devices: lists the CUDA parts of this machine, and the consequences of missing ones, as text or as JSON.
 */
#include <stdio.h>
#include "runtime/base/shown.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/machine.h"

/* Says what the user can do with this machine. */
static const char *conclusion(const fa2i_machine *m)
{
    const bool compiler = m->nvrtc.status == FA2_OK;
    if (m->usable > 0 && compiler)
        return "Everything is here: fa2-tune --device 0";
    if (m->usable > 0)
        return "Tuned kernels run; tune and build need NVRTC.";
    if (compiler)
        return "No usable device: tune needs one. build works without: fa2-tune build --arch sm_86";
    return "No usable device and no NVRTC: only list, show, explain --arch, source --arch, export, "
           "import, check and gc work here.";
}

/* ---- JSON ---- */

/* Leaves the object open. */
static void print_part_json(const char *name, const fa2i_found *found, const char *path, int version)
{
    const bool ok = found->status == FA2_OK;
    fa2i_json_write(stdout, "%s:{'found':%i,'path':%s,'version':%d,'missing':%s", name, ok, ok ? path : fa2i_json_null,
                    version, ok ? fa2i_json_null : found->message);
}

static void print_device_json(int ordinal, const fa2i_machine_device *d)
{
    fa2i_json_write(stdout,
                    "{'device':%d,'name':%s,'sm':%d,'sm_count':%d,'smem_block_bytes':%d,'smem_sm_bytes':%d,"
                    "'l2_bytes':%lld,'memory_bytes':%lld,'clock_khz':%d,'unusable':%s}",
                    ordinal, d->card.name, d->card.arch, d->card.sm_count, d->card.smem_block_bytes,
                    d->card.smem_sm_bytes, (long long)d->card.l2_bytes, (long long)d->memory_bytes, d->card.clock_khz,
                    d->state.status == FA2_OK ? fa2i_json_null : d->state.message);
}

static void print_json(const fa2i_machine *m)
{
    putchar('{');
    print_part_json("driver", &m->driver, fa2i_cuda_path(), m->driver_version);
    fputs("},", stdout);
    print_part_json("nvrtc", &m->nvrtc, fa2i_nvrtc_path(), m->nvrtc_version);
    fputs(",\"sms\":[", stdout);
    for (int i = 0; i < m->arch_count; i++)
        printf("%s%d", i == 0 ? "" : ",", m->archs[i]);
    fputs("]},\"devices\":[", stdout);
    for (int i = 0; i < m->device_count; i++) {
        fputs(i == 0 ? "\n" : ",\n", stdout);
        print_device_json(i, &m->devices[i]);
    }
    fa2i_json_write(stdout, "],'usable':%d,'conclusion':%s}\n", m->usable, conclusion(m));
}

int fa2i_cmd_devices(int argc, char **argv)
{
    fa2i_options options = {0};
    fa2i_machine machine = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(argc, argv, FA2I_OPT_JSON, &options));
    FA2_TRY(fa2i_machine_look(&machine));
    if (options.json) {
        print_json(&machine);
    } else {
        FA2_TRY(fa2i_machine_print(&machine));
        printf("\n%s\n", conclusion(&machine));
    }
done:
    fa2i_options_done(&options);
    const bool usable = machine.usable > 0;
    fa2i_machine_done(&machine);
    if (st != FA2_OK)
        return fa2i_report_failure(st);
    return usable ? FA2I_EXIT_OK : FA2I_EXIT_NO_DEVICE;
}
