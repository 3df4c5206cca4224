-- bias: scores get a number for each query and key, or a mask hides keys (templates/features/bias.cuh); in backward
-- the numbers' gradient may be wanted, too (templates/backward/dbias.cuh).
local M = {}

M.axis = {
   name = "bias", field = "bias", feature = true,
   values = {"none", "fp16", "bf16", "fp32", "bool", "fp16_gradient", "bf16_gradient", "fp32_gradient"},
}

local bytes = {fp16 = 2, bf16 = 2, fp32 = 4, bool = 1}

-- The type of its elements, and whether their gradient is wanted.
function M.type_of(v)
   local base = v.bias:match("^(%w+)_gradient$")
   return base or v.bias, base ~= nil
end

-- Of a block of the kernel that clears the gradient: rows, a warp each.
M.clear_rows = 8

-- A conversion and a multiplication, or a choice; a load and its address, for two neighbours or for eight; one
-- more behind a cap.
function M.fp32_per_score(v)
   local _, has_gradient = M.type_of(v)
   return (v.bc % 32 == 0 and v.dropout == 0 and 2.3 or 6) + v.softcap + (has_gradient and 8 or 0)
end

-- Whether it is read before the product, and added behind it.
function M.is_ahead(v)
   return v.bias == "fp16" or v.bias == "bf16"
end

-- Addresses of rows, for each row tile, and the stride of keys; what is read ahead, two numbers each.
function M.registers(row_tiles, v)
   return 4 * row_tiles + 4 + (M.is_ahead(v) and row_tiles * v.bc // 4 or 0)
end

function M.bytes_per_score(v)
   local base, has_gradient = M.type_of(v)
   return bytes[base] + (has_gradient and 4 or 0)
end

return M
