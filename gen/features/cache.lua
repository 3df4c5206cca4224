-- cache: what device memory says of a cache of K and V that is padded (templates/features/cache.cuh).
-- leftpad: how many of a sequence's first keys are padding; cache_rows: which row of K and V it has.
local M = {}

M.forward_only = true
M.axis = {name = "leftpad", field = "leftpad", values = {0, 1}, feature = true}

-- Of a cache whose rows do not stand in the order of the sequences.
M.rows = {forward_only = true, axis = {name = "cache_rows", field = "cache_rows", values = {0, 1}, feature = true}}

return M
