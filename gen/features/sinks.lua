-- sinks: a column more in the softmax, without a value (templates/features/sinks.cuh). Once per row, so
-- it adds nothing to the work on scores.
local M = {}

M.axis = {name = "sinks", field = "sinks", values = {0, 1}, feature = true}

return M
