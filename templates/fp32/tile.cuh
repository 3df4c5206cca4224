#pragma once
#include "fp32/shape.cuh"
#include "lib/form.cuh"

// ---- areas of shared memory: Q, a tile of K, a tile of V --------------------------------------------------------
//
// After each row comes a chunk of 16 bytes that is not used, so its pitch is an odd number of chunks. Then eight rows
// that are read together lie in different banks, and so do the rows 2 t of four lanes.
constexpr int kValuePitch = FormOf<kHeadDimV>::kPitch;  // bytes of a row of V; kPitch: of Q and K
constexpr int kKArea = kBr * kPitch;
constexpr int kVArea = kKArea + kBc * kPitch;
constexpr int kSmemBytes = kVArea + kBc * kValuePitch;

static_assert(!kSwizzle, "products read padded rows");
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");
static_assert(kThreads >= kChunks, "a pass copies at least one row");
