-- sinks: one more column in the softmax, without a value (templates/features/sinks.cuh). It costs something once per
-- row, and nothing for each score.
local M = {}

M.axis = {name = "sinks", field = "sinks", values = {0, 1}, feature = true}

return M
