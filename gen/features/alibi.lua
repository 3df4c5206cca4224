-- alibi: scores get -slope |p - j|, p the query's position and j the key (templates/features/alibi.cuh).
local M = {}

M.axis = {name = "alibi", field = "alibi", values = {0, 1}, feature = true}

-- What it adds to the work on each score: where all keys are on one side of the query it is one
-- instruction, else two, and one more behind a cap.
function M.fp32_per_score(v)
   return (v.causal == 1 and 1.2 or 2) + v.softcap
end

-- Slope and position of a row, for each row tile, and where the tile begins.
function M.registers(row_tiles)
   return 4 * row_tiles + 2
end

return M
