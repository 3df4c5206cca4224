-- dropout: some elements of P become 0, and the others larger (templates/features/dropout.cuh).
local M = {}

M.axis = {name = "dropout", says = "elements of P are dropped at random"}

M.by_head = true

-- fp32 instructions per score: 13 for 8 scores, for a product of keys, for making masks of it, and for applying them.
local masks_per_score = 1.6

-- Returns the fp32 instructions for each score. A call of Philox makes keys of 64 columns, in which a lane has 32
-- scores. It takes about 42 instructions. If tiles do not begin with a multiple of 64 columns, half of these keys are
-- not used. keys: of a tile.
function M.fp32_per_score(_, keys)
   return (keys % 64 == 0 and 1.3 or 2.6) + masks_per_score
end

-- Registers: keys and their products, for each row tile; keys of columns, and the seed.
function M.registers(row_tiles)
   return 6 * row_tiles + 12
end

return M
