#pragma once
#include "forward/int8_scores.cuh"
#include "forward/quantise.cuh"
