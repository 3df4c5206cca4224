-- The code path with SM 9.0's own products and loads. mma_sync.lua describes the fields.
local M = {}

M.sm90 = {
   refuses_sm = function(sm)
      return sm ~= 90 and "it needs compute capability 9.0, and no newer one"
   end,
   sm = 90,
   products = "wgmma",
}

-- Returns why the families on wgmma are of no use on a device.
function M.useless(arch)
   return arch.generic
      and "a device that plays another SM, or whose driver has no tensor maps, takes no code for sm_90a"
end

return M
