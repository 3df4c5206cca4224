-- Forward for Ampere and everything after it: mma m16n8k16, cp.async, bf16.
local fwd = require("fwd")

return fwd.family("fwd_sm80", {
   serves_sm = function(sm)
      if sm >= 80 then
         return true
      end
      return nil, "it needs compute capability 8.0"
   end,
   pipelines = {{1, 1}, {2, 1}, {2, 2}, {3, 3}},
   k8 = false,
   register_staging = false,
   bf16 = true,
})
