-- dropout: some of P is 0, the rest is larger (templates/features/dropout.cu.in).
local M = {}

M.axis = {name = "dropout", field = "dropout", values = {0, 1}, feature = true}

-- Philox makes bytes for 16 scores in some 34 instructions, for half of them where tiles do not begin with a
-- multiple of 32 keys; and two instructions mask each score.
function M.fp32_per_score(v)
   return (v.bc % 32 == 0 and 2.1 or 4.2) + 1.8
end

-- What is kept, for each row tile; the seed, and what of the rounds is the same for all tiles.
function M.registers(row_tiles)
   return 6 * row_tiles + 12
end

return M
