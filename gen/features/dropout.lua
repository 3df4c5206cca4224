-- dropout: some of P is 0, the rest is larger (templates/features/dropout.cu.in).
local M = {}

M.axis = {name = "dropout", field = "dropout", values = {0, 1}, feature = true}

-- Philox makes keys for 64 columns in some 40 instructions, where tiles do not begin with such more often; a product of
-- bytes and three instructions for two neighbours say what is kept of 16 scores and multiply them.
function M.fp32_per_score(v)
   return 80 / v.bc * (v.bc % 64 == 0 and v.bc // 64 or v.bc // 64 + 1.5) + 1.7
end

-- Keys of two rows and, for each row tile, four products; keys of columns, what is not kept.
function M.registers(row_tiles)
   return 6 * row_tiles + 6
end

return M
