/*
 * Named time ranges for Nsight Systems. libnvToolsExt is loaded when the first range begins (FA2_NVTX_LIBRARY may name
 * it). Without it these functions do nothing. Not thread-safe.
 */
#pragma once

void fa2i_nvtx_begin(const char *name); /* copied */
void fa2i_nvtx_end(void);
