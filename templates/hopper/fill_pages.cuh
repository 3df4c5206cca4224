#pragma once
#include "lib/cp_async.cuh"
#include "lib/ptx.cuh"

// ---- copies of rows by threads, in the layout of TMA ------------------------------------------------------------

// Starts copying kRows rows into pages. Rows from valid_rows on, and columns after the last, become zeros.
// address(row): start of a row in global memory. kCount threads share the work; eight lanes copy 128 bytes of a row.
template <int kRows, int kCount, class Address>
__device__ __forceinline__ void fill_pages(uint32 smem, int valid_rows, Address address)
{
    const int thread = thread_index() % kCount, chunk = thread % 8, first_row = thread / 8;
    constexpr int kRowStep = kCount / 8;
    const uint32 first = smem + first_row * kPageRowBytes + (chunk ^ first_row % 8) * 16;
#pragma unroll
    for (int pass = 0; pass < kRows / kRowStep; pass++) {
        const int row = first_row + pass * kRowStep;
        const char *src = address(row) + chunk * 16;
#pragma unroll
        for (int page = 0; page < kPages; page++)
            cp_async_16_or_zero(first + (page * kRows + pass * kRowStep) * kPageRowBytes, src + page * kPageRowBytes,
                                true, row < valid_rows && (kHeadDim % 64 == 0 || page * 64 + chunk * 8 < kHeadDim));
    }
}
