/*
 * A kernel without races, for tools that look for races. Like the teams of fwd_splitkv, teams of two warps run loops of
 * different length, each with a named barrier. They meet at __syncthreads() and exchange their results.
 *
 *     compute-sanitizer --tool racecheck named_barriers     version 2025.3.1 on an H200 reported a hazard in two of
 *         three runs, but none in similar kernels with four teams
 *     named_barriers                                        runs it, and checks the results
 *     named_barriers race                                   leaves out one barrier, which is a race
 *
 * The software device follows named barriers: it reports nothing for the kernel, and finds the race. Exit status: 0
 * right; 1 wrong or stopped; 77 no usable device.
 */
#include <string.h>
#include "runtime/cuda/compile.h"
#include "tests/check.h"
#include "tests/gpu.h"

enum { TEAMS = 8, TEAM_THREADS = 64, THREADS = TEAMS * TEAM_THREADS };

static const char source[] = "constexpr int kTeams = 8, kTeamThreads = 64;\n"
                             "__device__ void team_sync(int team)\n"
                             "{\n"
                             "    asm volatile(\"bar.sync %0, 64;\" :: \"r\"(1 + team) : \"memory\");\n"
                             "}\n"
                             "extern \"C\" __global__ void named_barriers(int *out)\n"
                             "{\n"
                             "    __shared__ int area[kTeams][kTeamThreads];\n"
                             "    const int team = threadIdx.x / kTeamThreads, i = threadIdx.x % kTeamThreads;\n"
                             "    int sum = 0;\n"
                             "    for (int round = 0; round <= team; round++) {\n"
                             "        area[team][i] = i + round;\n"
                             "        team_sync(team);                        // the team has written\n"
                             "        sum += area[team][kTeamThreads - 1 - i];\n"
                             "#ifndef RACE\n"
                             "        team_sync(team);                        // the team has read\n"
                             "#endif\n"
                             "    }\n"
                             "    __syncthreads();                            // all teams have read\n"
                             "    area[(team + 1) % kTeams][i] = sum;\n"
                             "    __syncthreads();                            // all teams have written\n"
                             "    for (int t = 0; t < kTeams; t++)\n"
                             "        out[threadIdx.x] += area[t][i];\n"
                             "}\n";

static int expected(int thread)
{
    const int i = thread % TEAM_THREADS;
    int sum = 0;
    for (int team = 0; team < TEAMS; team++)
        for (int round = 0; round <= team; round++)
            sum += TEAM_THREADS - 1 - i + round;
    return sum;
}

static void compile(const fa2i_device *device, bool race, fa2i_kernel *ret_kernel)
{
    const fa2i_variant variant = {.text = "named_barriers"};
    char text[sizeof source + sizeof "#define RACE\n"];
    fa2i_target target;
    snprintf(text, sizeof text, "%s%s", race ? "#define RACE\n" : "", source);
    gpu_must_fa2(fa2i_target_for(device->card.arch, device->cuda->sim_version != NULL, &target), "the target");
    gpu_must_fa2(fa2i_compile(&variant, text, &target, "", ret_kernel), "the kernel");
}

static void launch(const fa2i_device *device, const fa2i_kernel *kernel)
{
    const fa2i_cuda_table *cuda = device->cuda;
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr out = 0;
    int results[THREADS] = {0};
    void *arguments[] = {&out};
    gpu_must(device, cuda->module_load_data_ex(&module, kernel->image.data, 0, NULL, NULL), "load");
    gpu_must(device, cuda->module_get_function(&function, module, "named_barriers"), "find");
    gpu_must(device, cuda->mem_alloc(&out, sizeof results), "cuMemAlloc");
    gpu_must(device, cuda->memcpy_htod(out, results, sizeof results), "cuMemcpyHtoD");
    gpu_must(device, cuda->launch_kernel(function, 1, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel");
    gpu_must(device, cuda->ctx_synchronize(), "the kernel");
    gpu_must(device, cuda->memcpy_dtoh(results, out, sizeof results), "cuMemcpyDtoH");
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(results[i], expected(i));
    gpu_must(device, cuda->mem_free(out), "cuMemFree");
    gpu_must(device, cuda->module_unload(module), "cuModuleUnload");
}

int main(int argc, char **argv)
{
    fa2i_device device = {0};
    fa2i_kernel kernel = {0};
    const bool race = argc == 2 && strcmp(argv[1], "race") == 0;
    if (argc > 1 && !race) {
        fprintf(stderr, "usage: named_barriers [race]\n");
        return 2;
    }
    const int opened = gpu_open(&device);
    if (opened != 0)
        return opened;
    compile(&device, race, &kernel);
    launch(&device, &kernel);
    fa2i_kernel_done(&kernel);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return check_done();
}
