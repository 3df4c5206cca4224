-- dropout: some of P is 0, the rest is larger (templates/features/dropout.cuh).
local M = {}

M.axis = {name = "dropout", field = "dropout", values = {0, 1}, feature = true}

-- A product of keys, and what makes masks of it and masks, are 13 instructions for 8 scores.
local masks_per_score = 1.6

-- A call of Philox makes keys of 64 columns, and a lane has 32 scores there, in some 42 instructions, for half of them
-- where tiles do not begin with a multiple of 64.
function M.fp32_per_score(v)
   return (v.bc % 64 == 0 and 1.3 or 2.6) + masks_per_score
end

-- Keys and their products, for each row tile; keys of columns, and the seed.
function M.registers(row_tiles)
   return 6 * row_tiles + 12
end

return M
