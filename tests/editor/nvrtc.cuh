// What NVRTC knows without a header, as far as the templates use it: with this clang and clangd need no CUDA toolkit.
// It declares, so what is compiled with it is checked, and cannot run.
#pragma once

#define __device__          __attribute__((device))
#define __global__          __attribute__((global))
#define __shared__          __attribute__((shared))
#define __forceinline__     inline __attribute__((always_inline))
#define __align__(bytes)    __attribute__((aligned(bytes)))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__

struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
struct uint3 { unsigned x, y, z; };
extern const __device__ uint3 threadIdx, blockIdx, gridDim;

template <class T> __device__ T min(T a, T b);
template <class T> __device__ T max(T a, T b);
__device__ float expf(float value);
__device__ float fabsf(float value);
__device__ float fmaf(float a, float b, float c);
__device__ float fmaxf(float a, float b);
__device__ float fminf(float a, float b);
__device__ float logf(float value);
__device__ float __fmaf_ru(float a, float b, float c);
__device__ float __saturatef(float);
__device__ float __fmul_rn(float a, float b);
__device__ float __int_as_float(int bits);
__device__ float __uint_as_float(unsigned bits);
__device__ unsigned __float_as_uint(float value);
__device__ unsigned __byte_perm(unsigned a, unsigned b, unsigned selector);
__device__ int __clz(int bits);
__device__ int __popc(unsigned bits);

template <class T> __device__ T __ldg(const T *at);
template <class T> __device__ T atomicAdd(T *at, T value);
__device__ unsigned long long __cvta_generic_to_shared(const void *at);

template <class T> __device__ T __shfl_sync(unsigned mask, T value, int lane, int width = 32);
template <class T> __device__ T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32);
template <class T> __device__ T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32);
__device__ int __all_sync(unsigned mask, int predicate);
__device__ int __any_sync(unsigned mask, int predicate);
__device__ unsigned __ballot_sync(unsigned mask, int predicate);
__device__ void __syncwarp(unsigned mask = 0xffffffff);
__device__ void __syncthreads();
