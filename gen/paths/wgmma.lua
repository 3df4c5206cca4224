-- The code path with SM 9.0's own products and loads. mma_sync.lua describes the fields.
local M = {}

M.sm90 = {
   serves_sm = function(sm)
      if sm == 90 then
         return true
      end
      return nil, "it needs compute capability 9.0, and no newer one"
   end,
   sm = 90,
   products = "wgmma",
}

return M
