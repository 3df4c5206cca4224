/*
 * The parameter block is built once, on the stack, and so are the recipe's tensor maps. For each step, the driver
 * copies only the parameters that the step's kernel declares.
 */
#include "runtime/cuda/launch.h"

#include "runtime/cuda/tensor_map.h"

/* Launches with attributes, because cuLaunchKernel supports neither clusters nor launches that overlap the one
 * before. */
static CUresult launch_with_attributes(const fa2i_cuda_table *cuda, const fa2i_loaded_step *step, unsigned blocks,
                                       CUstream stream, void **arguments)
{
    CUlaunchAttribute attributes[2];
    unsigned count = 0;
    if (step->cluster > 1)
        attributes[count++] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                                  .value.clusterDim = {.x = step->cluster, .y = 1, .z = 1}};
    if (step->early)
        attributes[count++] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                                  .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {.gridDimX = blocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = step->threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = step->smem_bytes,
                                   .hStream = stream,
                                   .attrs = attributes,
                                   .numAttrs = count};
    return cuda->launch_kernel_ex(&config, step->function, arguments, NULL);
}

fa2_status fa2i_launch(const fa2i_device *device, const fa2i_loaded *loaded, const fa2i_grid *grid,
                       const fa2_problem *problem, const void *args, CUstream stream)
{
    const fa2i_cuda_table *cuda = device->cuda;
    const fa2i_recipe *recipe = &loaded->variant.recipe;
    const fa2i_op *op = fa2i_op_of(problem);
    CUresult result = CUDA_SUCCESS;
    fa2i_params params;
    CUtensorMap maps[FA2I_RECIPE_MAPS];
    void *arguments[] = {&params, maps};
    op->fill(grid, problem, args, &params);
    if (recipe->map_count > 0) {
        const fa2_status st = fa2i_maps_get(cuda, loaded->maps, recipe, problem, &params, maps);
        if (st != FA2_OK)
            return st;
    }
    for (int i = 0; i < recipe->step_count && result == CUDA_SUCCESS; i++) {
        const fa2i_loaded_step *step = &loaded->steps[i];
        if (grid->blocks[i] == 0 || (op->does_without != NULL && op->does_without(recipe->steps[i].role, args)))
            continue;
        if (step->cluster == 1 && !step->early)
            result = cuda->launch_kernel(step->function, grid->blocks[i], 1, 1, step->threads, 1, 1, step->smem_bytes,
                                         stream, arguments, NULL);
        else
            result = launch_with_attributes(cuda, step, grid->blocks[i], stream, arguments);
    }
    return fa2i_cuda_check(cuda, result, "cuLaunchKernel");
}
