#pragma once
#include "hopper/bytes_tiles.cuh"
// After what it uses.
#include "forward/fp8_values.cuh"
