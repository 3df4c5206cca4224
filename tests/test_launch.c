/*
 * Launching on the fake driver: the driver calls, step by step; tensor maps, clusters, steps that begin early.
 */
#include <math.h>
#include "launch_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/cuda/tensor_map.h"

static void check_params(const fa2i_forward_params *p, const float *lse)
{
    CHECK_EQ(p->q, 0x1000000);
    CHECK_EQ(p->k, 0x2000000);
    CHECK_EQ(p->v, 0x3000000);
    CHECK_EQ(p->o, 0x4000000);
    CHECK_EQ(p->lse, (uintptr_t)lse);
    CHECK_EQ(p->q_stride[0], 51200);
    CHECK_EQ(p->q_stride[1], 512);
    CHECK_EQ(p->q_stride[2], 64);
    CHECK_EQ(p->k_stride[0], 25600);
    CHECK_EQ(p->v_stride[1], 128);
    CHECK_EQ(p->o_stride[2], 64);
    CHECK_EQ(p->seq_q, 100);
    CHECK_EQ(p->seq_k, 200);
    CHECK_EQ(p->heads_q, 8);
    CHECK_EQ(p->group, 4);
    CHECK_EQ(p->q_tiles, 2);
    CHECK_EQ(p->splits, 1);
    CHECK_EQ(p->batch, problem.batch);
    CHECK_EQ(p->partial, 0);
    CHECK(p->scale == 0.125f);
    CHECK(fabsf(p->scale_log2 - 0.18033688f) < 1e-7f);
}

static void test_launch(void)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    fa2i_grid grid;
    CUstream stream = NULL;
    fa2_forward_args args = good_args();
    float lse = 0;
    args.lse = &lse;
    fake_install();
    fa2i_kernel kernel = artifact("sm_86");
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_OK);
    CHECK_EQ(fa2i_device_enter(&device), FA2_OK);
    CHECK_EQ(device.cuda->stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(fa2i_op_of(&problem)->grid(&device.card, &loaded.variant.recipe, &problem, &grid), FA2_OK);
    fake_trace_clear();
    CHECK_EQ(fa2i_launch(&device, &loaded, &grid, &problem, &args, stream), FA2_OK);
    CHECK_STR(fake.trace, "launch_kernel ");

    const fake_launch *launch = &fake.launches[0];
    const fa2i_forward_params *p = &launch->params;
    CHECK_EQ(fake.launch_count, 1);
    CHECK_STR(launch->function, "fwd_sm80");
    CHECK_STR(launch->source, "text of the kernel");
    CHECK_EQ(launch->blocks, 2 * 8 * 2); /* two tiles of 64 rows for 100 rows */
    CHECK_EQ(launch->threads, 128);
    CHECK_EQ(launch->smem_bytes, 65536);
    CHECK_EQ(launch->cluster, 1);
    CHECK(launch->stream == stream);
    check_params(p, &lse);

    args.softmax_scale = 0.5f;
    CHECK_EQ(fa2i_launch(&device, &loaded, &grid, &problem, &args, stream), FA2_OK);
    CHECK(fake.launches[1].params.scale == 0.5f);
    CHECK(fabsf(fake.launches[1].params.scale_log2 - 0.72134752f) < 1e-6f);
    CHECK_EQ(device.cuda->stream_destroy(stream), CUDA_SUCCESS);
    fa2i_device_leave(&device);
    fa2i_unload(&device, &loaded);
    fa2i_device_close(&device);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

/* A family that splits: two kernels, and partial results in the workspace. */
static void test_split_launch(void)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    fa2i_grid grid;
    fa2_forward_args args = good_args();
    fake_install();
    fa2i_kernel kernel = artifact("sm_86");
    kernel.variant.recipe = split_recipe("fwd_sm80", 128, 64, 16, 65536, 4);
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_OK);
    CHECK(loaded.steps[1].function != NULL);
    CHECK_EQ(fa2i_op_of(&problem)->grid(&device.card, &loaded.variant.recipe, &problem, &grid), FA2_OK);
    CHECK(grid.splits > 1);
    args.workspace = (void *)0x100000;
    args.workspace_bytes = grid.workspace_bytes;
    CHECK_EQ(fa2i_device_enter(&device), FA2_OK);
    CHECK_EQ(fa2i_launch(&device, &loaded, &grid, &problem, &args, NULL), FA2_OK);
    CHECK_EQ(fake.launch_count, 2);
    CHECK_EQ(fake.launches[0].blocks, grid.blocks[0]);
    CHECK_EQ(fake.launches[0].params.splits, grid.splits);
    CHECK_EQ(fake.launches[0].params.partial, 0x100000);
    CHECK_EQ(fake.launches[0].params.partial_lse, 0x100000 + grid.partial_bytes);
    CHECK_STR(fake.launches[1].function, "fwd_sm80_combine");
    CHECK_EQ(fake.launches[1].blocks, grid.blocks[1]);
    CHECK_EQ(fake.launches[1].threads, 128);
    fa2i_device_leave(&device);
    fa2i_unload(&device, &loaded);
    fa2i_device_close(&device);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

/* Opens and enters the device, loads the kernel, and computes its grid for the problem. */
static void begin(fa2i_device *device, const fa2i_kernel *kernel, fa2i_loaded *loaded, fa2i_grid *ret_grid)
{
    CHECK_EQ(fa2i_device_open(0, device), FA2_OK);
    CHECK_EQ(fa2i_load(device, kernel, loaded, NULL), FA2_OK);
    CHECK_EQ(fa2i_op_of(&problem)->grid(&device->card, &loaded->variant.recipe, &problem, ret_grid), FA2_OK);
    CHECK_EQ(fa2i_device_enter(device), FA2_OK);
    fake_trace_clear();
}

/* A recipe with tensor maps: each operand's map is encoded from the parameters, unless the operand lies where it lay
 * before. */
static void test_tensor_maps(void)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    fa2i_grid grid;
    fa2_forward_args args = good_args();
    fa2_problem one = problem; /* its batch of 1 needs no stride */
    fake_install();
    fa2i_kernel kernel = artifact("sm_86");
    fa2i_recipe *recipe = &kernel.variant.recipe;
    recipe->map_count = 2;
    recipe->maps[0] = (fa2i_map){FA2I_MAPPED_Q, 64};
    recipe->maps[1] = (fa2i_map){FA2I_MAPPED_V, 176};
    begin(&device, &kernel, &loaded, &grid);
    CHECK_EQ(fa2i_launch(&device, &loaded, &grid, &problem, &args, NULL), FA2_OK);
    CHECK_STR(fake.trace, "tensor_map_encode_tiled tensor_map_encode_tiled launch_kernel ");
    const fake_map *q = &fake.maps[0], *v = &fake.maps[1];
    CHECK(q->type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && q->rank == 4 && q->address == 0x1000000);
    CHECK(q->extents[0] == 64 && q->extents[1] == 100 && q->extents[2] == 8 && q->extents[3] == 2);
    CHECK(q->strides[0] == 1024 && q->strides[1] == 128 && q->strides[2] == 102400);
    CHECK(q->box[0] == 64 && q->box[1] == 64 && q->box[2] == 1 && q->box[3] == 1);
    CHECK(v->address == 0x3000000 && v->extents[1] == 200 && v->extents[2] == 2 && v->box[1] == 176);
    CHECK_EQ(v->strides[0], 256);

    fake_trace_clear();
    CHECK_EQ(fa2i_launch(&device, &loaded, &grid, &problem, &args, NULL), FA2_OK);
    CHECK_STR(fake.trace, "launch_kernel ");
    fake.map_count = 2;

    one.batch = 1;
    one.dtype = FA2_BF16;
    args.q.stride_batch = -1;
    CHECK_EQ(fa2i_launch(&device, &loaded, &grid, &one, &args, NULL), FA2_OK);
    CHECK(fake.maps[2].extents[3] == 1 && fake.maps[2].strides[2] == 16);
    CHECK_EQ(fake.maps[2].type, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
    args.v.stride_head = 0; /* one head to the map, however many there are */
    CHECK_EQ(fa2i_launch(&device, &loaded, &grid, &one, &args, NULL), FA2_OK);
    CHECK_EQ(fake.map_count, 5); /* q did not move */
    CHECK(fake.maps[4].extents[2] == 1 && fake.maps[4].strides[1] == 16);
    args.v.stride_seq += 8;
    (void)fake_fail_driver(1, CUDA_ERROR_INVALID_VALUE);
    const long launched = fake.launch_count;
    CHECK_EQ(fa2i_launch(&device, &loaded, &grid, &one, &args, NULL), FA2_E_CUDA);
    CHECK_CONTAINS(fa2_last_message(), "a tensor map of v: cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE");
    CHECK_EQ(fake.launch_count, launched);
    CHECK_EQ(fa2i_launch(&device, &loaded, &grid, &one, &args, NULL), FA2_OK);
    fa2i_device_leave(&device);
    fa2i_unload(&device, &loaded);
    fa2i_device_close(&device);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

/* Without memory for kept maps, or if the driver cannot encode them, such a kernel is not loaded; nor is one without
 * code. */
static void test_refused(void)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    fake_install();
    fa2i_kernel kernel = artifact("sm_86");
    kernel.variant.recipe.map_count = 1;
    kernel.variant.recipe.maps[0] = (fa2i_map){FA2I_MAPPED_Q, 64};
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    (void)fa2i_alloc_fail_at(1);
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_E_MEMORY);
    CHECK(fa2i_alloc_fail_at(0) >= 1 && loaded.module == NULL);
    fake_without_optional(true);
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "fwd_sm80 reads tensor maps, and this driver has no cuTensorMapEncodeTiled");
    fake_without_optional(false);
    fa2i_blob_done(&kernel.image); /* as of a kernel that does not compile */
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_E_COMPILE);
    CHECK_CONTAINS(fa2_last_message(), "has no code: it was not compiled");
    fa2i_device_close(&device);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

/* A bias that no map can express costs no driver call, and the kernel's parameters are known. */
static void test_no_map(void)
{
    fa2i_recipe recipe = plain_recipe("fwd_sm80", 128, 64, 64, 65536);
    const fa2i_cuda_table *cuda = NULL;
    fa2i_params params = {.forward.features = {.bias = 4096, .bias_side = 2, .bias_query = 208}};
    CUtensorMap maps[FA2I_RECIPE_MAPS];
    static const CUtensorMap none;
    memset(maps, 0x77, sizeof maps);
    recipe.map_count = 1;
    recipe.maps[0] = (fa2i_map){FA2I_MAPPED_BIAS, 64};
    fake_install();
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_OK);
    CHECK_EQ(fa2i_maps_get(cuda, NULL, &recipe, &problem, &params, maps), FA2_OK);
    CHECK(memcmp(&maps[0], &none, sizeof none) == 0 && fake.map_count == 0);
    params.forward.features.bias_side = 8;
    CHECK_EQ(fa2i_maps_get(cuda, NULL, &recipe, &problem, &params, maps), FA2_OK);
    CHECK_EQ(fake.map_count, 1);
}

/* A kept map serves only exactly the same operands. The maps of a model's layers stay. */
static void test_kept_maps(void)
{
    enum { TENSORS = 1000, LAYERS = 36 }; /* more than are kept; far fewer than are kept */
    fa2i_recipe recipe = plain_recipe("fwd_sm80", 128, 64, 64, 65536);
    const fa2i_grid grid = {.row_tiles = 2, .splits = 1};
    const fa2i_cuda_table *cuda = NULL;
    fa2_forward_args args = good_args();
    fa2i_params params;
    CUtensorMap maps[FA2I_RECIPE_MAPS];
    fa2i_kept_maps *kept = fa2i_kept_maps_create();
    recipe.map_count = 1;
    recipe.maps[0] = (fa2i_map){FA2I_MAPPED_K, 128};
    fake_install();
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_OK);
    for (int i = 0; i < 4 * TENSORS; i++) {
        const uintptr_t at = 0x70000000 + (uintptr_t)(i / 2 % TENSORS) * 4096;
        uintptr_t found = 0;
        args.k.data = (void *)at;
        fa2i_op_of(&problem)->fill(&grid, &problem, &args, &params);
        CHECK_EQ(fa2i_maps_get(cuda, kept, &recipe, &problem, &params, maps), FA2_OK);
        memcpy(&found, &maps[0], sizeof found);
        CHECK_EQ(found, at);
    }
    CHECK(fake.map_count >= TENSORS && fake.map_count <= 2 * TENSORS);

    const long before = fake.map_count;
    recipe.maps[0].rows = 64;
    CHECK_EQ(fa2i_maps_get(cuda, kept, &recipe, &problem, &params, maps), FA2_OK);
    fa2_problem shorter = problem;
    shorter.seq_k--;
    CHECK_EQ(fa2i_maps_get(cuda, kept, &recipe, &shorter, &params, maps), FA2_OK);
    params.forward.k_stride[0] += 64;
    CHECK_EQ(fa2i_maps_get(cuda, kept, &recipe, &problem, &params, maps), FA2_OK);
    CHECK_EQ(fa2i_maps_get(cuda, kept, &recipe, &problem, &params, maps), FA2_OK);
    CHECK_EQ(fake.map_count, before + 3);

    fake.map_count = 0;
    for (int i = 0; i < 10 * LAYERS; i++) {
        params.forward.k = 0x7f0000000000 + (uintptr_t)(i % LAYERS) * (3 << 20);
        CHECK_EQ(fa2i_maps_get(cuda, kept, &recipe, &problem, &params, maps), FA2_OK);
    }
    CHECK_EQ(fake.map_count, LAYERS);
    CHECK_EQ(fa2i_maps_get(cuda, NULL, &recipe, &problem, &params, maps), FA2_OK);
    CHECK_EQ(fake.map_count, LAYERS + 1);
    fa2i_kept_maps_destroy(kept);
}

/* Clusters need another launch function, which older drivers lack. */
static void test_clusters(void)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    fa2i_grid grid;
    const fa2_forward_args args = good_args();
    fake_install();
    fa2i_kernel kernel = artifact("sm_86");
    kernel.variant.recipe.steps[0].cluster = 16;
    begin(&device, &kernel, &loaded, &grid);
    CHECK_EQ(fa2i_launch(&device, &loaded, &grid, &problem, &args, NULL), FA2_OK);
    CHECK_STR(fake.trace, "launch_kernel_ex ");
    CHECK_EQ(fake.launches[0].blocks, 32);
    CHECK_EQ(fake.launches[0].threads, 128);
    CHECK_EQ(fake.launches[0].smem_bytes, 65536);
    CHECK_EQ(fake.launches[0].cluster, 16);
    CHECK_EQ(fake.launches[0].params.q, 0x1000000);
    fa2_problem odd = problem; /* 30 blocks */
    odd.heads_q = odd.heads_kv = 15;
    odd.batch = 1;
    CHECK_EQ(fa2i_op_of(&odd)->grid(&device.card, &loaded.variant.recipe, &odd, &grid), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "fwd_sm80: 30 blocks cannot be divided into clusters of 16");
    fa2i_device_leave(&device);
    fa2i_unload(&device, &loaded);
    fa2i_device_close(&device);

    fake_without_optional(true);
    fake_install();
    CHECK_EQ(fa2i_device_open(0, &device), FA2_OK);
    CHECK_EQ(fa2i_load(&device, &kernel, &loaded, NULL), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "no cuLaunchKernelEx");
    CHECK(loaded.module == NULL);
    fa2i_device_close(&device);
    fake_without_optional(false);
    fa2i_kernel_done(&kernel);
    CHECK_EQ(fake_live(), 0);
}

/* Returns true if a step that may begin early does so. */
static bool begins_early(const char *target, int driver, bool without)
{
    fa2i_device device = {0};
    fa2i_loaded loaded = {0};
    fa2i_grid grid;
    fa2_forward_args args = good_args();
    fake_without_optional(without);
    fake_install();
    fake.driver_version = driver;
    fake.devices[0].arch = 90;
    fa2i_kernel kernel = artifact(target);
    kernel.variant.recipe = split_recipe("fwd_sm80", 128, 64, 16, 65536, 4);
    kernel.variant.recipe.steps[1].early = 1;
    begin(&device, &kernel, &loaded, &grid);
    args.workspace = (void *)0x100000;
    args.workspace_bytes = grid.workspace_bytes;
    CHECK_EQ(fa2i_launch(&device, &loaded, &grid, &problem, &args, NULL), FA2_OK);
    CHECK_EQ(fake.launch_count, 2);
    CHECK(!fake.launches[0].early);
    const bool early = fake.launches[1].early;
    CHECK_EQ(fake.launches[1].cluster, 1);
    CHECK_STR(fake.trace, early ? "launch_kernel launch_kernel_ex " : "launch_kernel launch_kernel ");
    fa2i_device_leave(&device);
    fa2i_unload(&device, &loaded);
    fa2i_device_close(&device);
    fa2i_kernel_done(&kernel);
    fake_without_optional(false);
    CHECK_EQ(fake_live(), 0);
    return early;
}

/* A step begins early if its code waits for the step before, and the driver supports this. */
static void test_early(void)
{
    CHECK(begins_early("sm_90", 13000, false));
    CHECK(begins_early("compute_90", 12030, false));
    CHECK(!begins_early("sm_90", 12020, false));
    CHECK(!begins_early("sm_90", 13000, true));
    CHECK(!begins_early("compute_80", 13000, false));
}

int main(void)
{
    test_launch();
    test_split_launch();
    test_tensor_maps();
    test_refused();
    test_no_map();
    test_kept_maps();
    test_clusters();
    test_early();
    fake_uninstall();
    return check_done();
}
