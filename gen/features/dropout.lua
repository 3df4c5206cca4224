-- dropout: some of P is 0, the rest is larger (templates/features/dropout.cu.in).
local M = {}

M.axis = {name = "dropout", field = "dropout", values = {0, 1}, feature = true}

-- A call of Philox makes keys of 64 columns, and a lane has 32 scores there, in some 42 instructions; a product of keys
-- and what makes masks of it and masks, 13 for 8 scores.
function M.fp32_per_score(v)
   return (v.bc % 64 == 0 and 1.3 or 2.6) + M.masks_per_score
end

M.masks_per_score = 1.6

-- Keys and their products, for each row tile; keys of columns, and the seed.
function M.registers(row_tiles)
   return 6 * row_tiles + 12
end

return M
