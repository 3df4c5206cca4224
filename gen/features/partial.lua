-- partial: O of forward, or the gradients of backward, are fp32 (fa2_partial in fa2.h). 1: they are written. 2: they
-- are merged with what is in memory, or added to it (templates/forward/merge.cuh, templates/backward/gradient.cuh).
local elements = require("core.elements")

local M = {}

M.axis = {name = "partial", field = "partial", values = {0, 1, 2}, feature = true}

-- Returns the bytes that an element of O or of a gradient moves. Merging reads it, too.
function M.out_bytes(problem)
   return ({[0] = elements.bytes(problem), 4, 8})[problem.partial or 0]
end

-- Returns the bytes of shared memory for a row's LSE before, where several warps have columns of a row.
function M.row_bytes(v)
   return v.partial == 2 and 4 or 0
end

-- Names for templates.
function M.names(v)
   return {partial = v.partial or 0}
end

return M
