-- bias: a number is added to each score, or a boolean mask hides keys (templates/features/bias.cuh). In backward, the
-- gradient of the numbers may be wanted, too (templates/backward/dbias.cuh).
local M = {}

M.axis = {
   name = "bias",
   values = {"none", "fp16", "bf16", "fp32", "bool", "fp16_gradient", "bf16_gradient", "fp32_gradient"},
}

local bytes = {fp16 = 2, bf16 = 2, fp32 = 4, bool = 1}

-- Returns the type of the bias's elements, and true if their gradient is wanted.
function M.type_of(v)
   local word = v.bias or "none" -- some families have no bias
   local base = word:match("^(%w+)_gradient$")
   return base or word, base ~= nil
end

-- Rows of a block of the clear step, which fills the gradient with zeros. Each row has a warp.
M.clear_rows = 8

M.adds, M.by_head, M.fp32 = true, true, true

-- Returns the fp32 instructions for each score. A score takes a conversion and a multiplication, or a selection, and a
-- share of a load and its address. That is 2.3 if eight neighbouring scores are loaded at once, and 6 if two are. The
-- gradient adds 8. keys: of a tile.
function M.fp32_per_score(v, keys)
   local _, has_gradient = M.type_of(v)
   return (keys % 32 == 0 and v.dropout == 0 and 2.3 or 6) + (has_gradient and 8 or 0)
end

-- Returns true if the bias is read before the product and added after it.
function M.is_ahead(v)
   return v.bias == "fp16" or v.bias == "bf16"
end

-- Registers: addresses of rows, for each row tile, and the stride of keys. If the bias is read before the product, its
-- elements, two in a register.
function M.registers(row_tiles, v)
   return 4 * row_tiles + 4 + (M.is_ahead(v) and row_tiles * v.bc // 4 or 0)
end

-- Returns the step that fills the gradient with zeros, if it is wanted.
function M.backward_step(v)
   if select(2, M.type_of(v)) then
      return {role = "clear", threads = 32 * M.clear_rows, blocks = "score_rows/" .. M.clear_rows}
   end
end

function M.bytes_per_score(v)
   local base, has_gradient = M.type_of(v)
   return bytes[base] + (has_gradient and 4 or 0)
end

return M
