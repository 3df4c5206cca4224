#pragma once
#include "hopper/bytes_tiles.cuh"
// It uses what bytes_tiles.cuh defines, so it comes after it.
#include "forward/fp8_values.cuh"
