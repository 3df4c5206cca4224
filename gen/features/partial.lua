-- partial: O of forward, or the gradients of backward, are fp32 (fa2_partial in fa2.h). 1: they are written. 2: they
-- are merged with what is in memory, or added to it (templates/forward/merge.cuh, templates/backward/gradient.cuh).
--
-- carry: O is in the dtype, and merged with a result in fp32 that lies elsewhere.
local elements = require("core.elements")

local M = {}

M.axis = {name = "partial", field = "partial", values = {0, 1, 2}, feature = true, unless = function(v)
   return v.partial > 0 and v.carry == 1 and "O is in fp32, so nothing is carried on to 16 bits"
end}

M.carry = {
   forward_only = true, axis = {name = "carry", says = "O is merged with a result in fp32 over other keys"},
}

-- Returns the bytes that an element of O or of a gradient moves. Merging reads it, too.
function M.out_bytes(problem)
   return ({[0] = elements.bytes(problem), 4, 8})[problem.partial or 0] + 4 * (problem.carry or 0)
end

-- Returns true if O is written from registers: in fp32, or merged.
function M.from_registers(v)
   return v.partial > 0 or v.carry == 1
end

-- Returns the bytes of shared memory for a row's LSE before, where several warps have columns of a row.
function M.row_bytes(v)
   return (v.partial == 2 or v.carry == 1) and 4 or 0
end

-- Names for templates.
function M.names(v)
   return {partial = v.carry == 1 and 3 or v.partial or 0}
end

return M
