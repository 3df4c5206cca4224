-- kv8: K and V in 8 bits, with a scale for each row (templates/forward/kv8_scores.cuh, kv8_values.cuh). Elements are
-- made in registers, between ldmatrix and the products.
local elements = require("core.elements")

local M = {}

M.forward_only = true
M.axis = {name = "kv", values = {"dtype", "int8", "fp8"}}

-- The type of the scales. In shared memory they are fp32.
M.scales = {forward_only = true, axis = {name = "kv_scales", values = {"fp32", "fp16"}}}

function M.is_on(v)
   return v.kv ~= nil and v.kv ~= "dtype"
end

-- The axis q of a family, with what 8 bits need: Q is read once, in the order of K's columns.
M.q_axis = {
   name = "q", values = {"smem", "reg"},
   unless = function(v)
      return v.q == "smem" and M.is_on(v) and "with K in 8 bits, Q is in registers"
   end,
}

-- Returns the columns of a row of K or V in shared memory, as if they were elements. columns: of the row; padded: the
-- same in whole k16 steps.
function M.row_columns(v, columns, padded)
   return M.is_on(v) and (columns + 31) // 32 * 32 // elements.bytes(v) or padded
end

-- Returns bytes of shared memory for the scales of a tile of K or V. A gap follows each 32: of as many scales as the
-- rows that a warp copies at once, at least 4.
function M.scale_bytes(v)
   if not M.is_on(v) then
      return 0
   end
   local chunks = M.row_columns(v, v.d) // 8
   local gap = math.max((32 // chunks + 3) // 4 * 4, 4)
   return 4 * (v.bc + (v.bc - 1) // 32 * gap)
end

-- Returns registers: elements of a fragment, and the scales of its keys.
function M.registers()
   return 8
end

-- Instructions for an element in fp16 and in bf16 (templates/lib/bytes.cuh).
local per_element = {int8 = {fp16 = 1.25, bf16 = 2}, fp8 = {fp16 = 2, bf16 = 2.5}}

-- Returns what templates see (features/config.cu.in).
function M.type_of(v)
   local kind = v.kv == "fp8" and 2 or v.kv == "int8" and 1 or 0
   return v.kv_scales == "fp16" and kind + 2 or kind
end

-- Returns the fp32 instructions for each score. Each warp makes the elements of its team's tiles, so a row tile of 16
-- rows shares them. Scales take two multiplications.
function M.fp32_per_score(v)
   local columns = v.d + (v.dv and v.dv > 0 and v.dv or v.d)
   local rows = v.br * (v.teams or 1) * v.parts // v.warps
   return 2 + per_element[v.kv][v.dtype] * columns / rows
end

function M.element_bytes(problem)
   return problem.kv == "dtype" and elements.bytes(problem) or 1
end

-- Returns the bytes of a key's scales.
function M.key_scales(problem)
   return problem.kv == "dtype" and 0 or problem.kv_scales == "fp16" and 4 or 8
end

return M
