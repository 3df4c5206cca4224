-- paged: K and V lie in pages, which a table names for each sequence (templates/features/paged.cu.in).
local M = {}

M.forward_only = true

M.axis = {name = "paged", field = "paged", values = {0, 1}, feature = true}

-- The table's row and its end, while a tile is filled.
function M.registers()
   return 4
end

-- What is given first to find a row of K or V; whether lanes tell each other where rows begin (not, unless is_told is
-- asked); behind padding, the place in a sequence's pages where its keys begin; whether a tile lies in one page.
function M.names(v)
   local padded = v.leftpad == 1
   return {
      key_from = v.paged == 1 and "pages, " or "", pages_told = false,
      padding = padded and "place.sequence.first_k + " or "",
      page_from = padded and "first_key + " or "",
      one_page = padded and "false" or "(kBc & (kBc - 1)) == 0 && kBc >> p.features.page_shift <= 1",
   }
end

-- Whether the lanes that copy a row divide the look-ups of a fill: they are as many as divide a warp, and part only in
-- a fill through registers. names: what templates see of the other features.
function M.is_told(v, names, path)
   local chunks = (v.d + 15) // 16 * 2
   return v.paged == 1 and not path.register_staging and not names.wide and not names.values and 32 % chunks == 0
end

return M
