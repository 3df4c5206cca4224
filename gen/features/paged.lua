-- paged: K and V are in pages, which a table names for each sequence (templates/forward/keys.cuh).
local kv8 = require("features.kv8")

local M = {}

M.forward_only, M.fp32 = true, true

M.axis = {name = "paged", says = "K and V lie in pages, which a table names"}

-- Registers while a tile is filled: the table's row and its end.
function M.registers()
   return 4
end

-- Returns true if the lanes that copy a row divide the look-ups of a fill (templates/forward/page_numbers.cuh). Their
-- number must divide a warp, and fills through registers let lanes diverge. wide: a lane has eight neighbouring keys.
function M.is_exchanged(v, wide, path)
   local chunks = kv8.row_columns(v, v.d, (v.d + 15) // 16 * 16) // 8
   local own_form = v.dv > 0 or v.v_in_k == 1 or v.parts > 1
   return v.paged == 1 and not path.register_staging and not wide and not own_form and 32 % chunks == 0
end

return M
