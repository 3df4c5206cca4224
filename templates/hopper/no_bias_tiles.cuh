#pragma once
#include "hopper/fwd_barriers.cuh"
#include "hopper/fwd_maps.cuh"

struct ScoreUnit {
    __device__ __forceinline__ explicit ScoreUnit(const Params &) {}
};

// The empty policy: no bias in shared memory.
struct NoBiasTiles {
    __device__ __forceinline__ NoBiasTiles(uint32, int) {}

    __device__ __forceinline__ void begin(float (&)[kRowTiles][kColTiles][4], const ScoreUnit &, bool) const {}

    __device__ __forceinline__ void add(float (&)[kRowTiles][kColTiles][4], const ScoreUnit &) const {}

    __device__ __forceinline__ void read(uint32 (&)[kRowTiles][2][kColTiles]) const {}

    __device__ __forceinline__ void release() const {}
};

using BiasStages = NoBiasTiles;

__device__ __forceinline__ void init_bias_tiles(const Params &, uint32) {}

__device__ __forceinline__ void produce_bias(const Params &, const TensorMaps &, const Barriers &) {}
