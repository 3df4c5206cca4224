-- paged: K and V lie in pages, which a table names for each sequence (templates/features/paged.cu.in).
local M = {}

M.forward_only = true

M.axis = {name = "paged", field = "paged", values = {0, 1}, feature = true}

-- The table's row and its end, while a tile is filled.
function M.registers()
   return 4
end

-- What is given first to find a row of K or V.
function M.names(v)
   return {key_from = v.paged == 1 and "pages, " or ""}
end

return M
