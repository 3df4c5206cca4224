-- paged: K and V lie in pages, which a table names for each sequence (templates/forward/keys.cuh).
local M = {}

M.forward_only = true

M.axis = {name = "paged", field = "paged", values = {0, 1}, feature = true}

-- The table's row and its end, while a tile is filled.
function M.registers()
   return 4
end

-- Whether the lanes that copy a row divide the look-ups of a fill: they are as many as divide a warp, and part only in
-- a fill through registers. wide: a lane has eight neighbouring keys.
function M.is_told(v, wide, path)
   local chunks = (v.d + 15) // 16 * 2
   local own_form = v.dv > 0 or v.v_in_k == 1 or v.parts > 1
   return v.paged == 1 and not path.register_staging and not wide and not own_form and 32 % chunks == 0
end

return M
