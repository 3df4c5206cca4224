-- cache: device memory describes a K/V cache with padding (templates/features/cache.cuh). leftpad: how many of the
-- first keys of a sequence are padding. cache_rows: the row of K and V that a sequence has.
local M = {}

M.forward_only = true
M.axis = {name = "leftpad", says = "the first keys of a sequence are padding"}

-- For a cache whose rows are not in the order of the sequences.
M.rows = {forward_only = true, axis = {name = "cache_rows", says = "a table names each sequence's row of K and V"}}

return M
