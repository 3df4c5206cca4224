-- The element types of Q, K, V, P and O (templates/lib/elements.cuh). Functions take a variant or a problem.
local M = {}

-- bytes   of an element
-- sm      the first SM that multiplies the type
-- ptx     its name in instructions
local types = {
   fp16 = {bytes = 2, sm = 75, ptx = "f16"},
   bf16 = {bytes = 2, sm = 80, ptx = "bf16"},
   fp32 = {bytes = 4, sm = 75, ptx = "tf32"},
}

-- The types of 16 bits, in the order in which texts name them.
M.names = {"fp16", "bf16"}

function M.bytes(v)
   return types[v.dtype].bytes
end

function M.ptx(v)
   return types[v.dtype].ptx
end

-- Returns why an SM lacks the type; false if it has it. sm: the SM, or the first one that a code path is for.
function M.lacks(sm, v)
   local first = types[v.dtype].sm
   return sm < first and ("%s needs compute capability %d.%d"):format(v.dtype, first // 10, first % 10)
end

return M
