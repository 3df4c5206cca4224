-- sinks: one more column in the softmax, without a value (templates/features/sinks.cuh). It costs something once per
-- row, and nothing for each score.
local M = {}

M.axis = {name = "sinks", says = "the softmax has one more column, without a value"}

M.by_head, M.fp32, M.reads_rows = true, true, true
M.step_file = "backward/sinks.cuh"

-- Returns the step that computes the gradient from prepared rows.
function M.backward_step()
   return {suffix = "_sinks", role = "head_sums", threads = 256, blocks = "heads"}
end

return M
