#pragma once
#include "features/params.cuh"

struct Params {
#include "merge/params.def"
};
static_assert(sizeof(Params) == 112, "what the runtime passes");
