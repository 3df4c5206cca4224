-- The code path of SM 9.0's own products and loads; the fields are those of mma_sync.lua.
local M = {}

M.sm90 = {
   serves_sm = function(sm)
      if sm == 90 then
         return true
      end
      return nil, "it needs compute capability 9.0, and no newer one"
   end,
   bf16 = true,
}

return M
