-- Forward for Turing: mma m16n8k8, no cp.async (tiles pass through registers), no bf16.
local fwd = require("fwd")

return fwd.family("fwd_sm75", {
   serves_sm = function(sm)
      if sm == 75 then
         return true
      end
      return nil, "it is for sm_75; fwd_sm80 serves newer ones"
   end,
   pipelines = {{1, 1}, {2, 2}},
   k8 = true,
   register_staging = true,
   bf16 = false,
})
