-- alibi: -slope |p - j| is added to scores; p is the query's position and j the key (templates/features/alibi.cuh).
local M = {}

M.axis = {name = "alibi", says = "-slope * |distance of query and key| is added to scores"}

M.adds, M.fp32 = true, true

-- Returns the fp32 instructions that it adds for each score: about one if all keys are on one side of the query, else
-- up to two.
function M.fp32_per_score(v)
   return v.causal == 1 and 1.2 or 2
end

-- Registers: slope and position of a row, for each row tile, and the position of the tile of keys.
function M.registers(row_tiles)
   return 4 * row_tiles + 2
end

return M
