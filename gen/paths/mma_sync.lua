-- The code paths of the templates: what a range of SMs can do. Fields:
--   refuses_sm(sm)    why it is not for an SM; false if it is
--   pipelines         list of {kstages, vstages}
--   sm                the first of these SMs
--   products          a word of templates/features/config.cu.in: mma_k8, mma_k16 or wgmma
--   k8                true: products are m16n8k8
--   register_staging  true: tiles pass through registers (there is no cp.async)
local M = {}

M.sm75 = {
   refuses_sm = function(sm)
      return sm ~= 75 and "it is for sm_75; the sm80 families serve newer ones"
   end,
   pipelines = {{1, 1}, {2, 2}},
   k8 = true,
   register_staging = true,
   sm = 75,
   products = "mma_k8",
}

M.sm80 = {
   refuses_sm = function(sm)
      return sm < 80 and "it needs compute capability 8.0"
   end,
   pipelines = {{1, 1}, {2, 1}, {2, 2}, {3, 3}},
   k8 = false,
   register_staging = false,
   sm = 80,
   products = "mma_k16",
}

-- The products of sm80, and those of e4m3 numbers, which SM 9.0 to 11.0 have on wgmma and tcgen05 alone: there ptxas
-- makes fp16 products of mma.sync.
M.sm89 = {
   refuses_sm = function(sm)
      return (sm < 89 or sm >= 90 and sm < 120) and "it needs the e4m3 products of compute capability 8.9 or 12.x"
   end,
   pipelines = M.sm80.pipelines,
   k8 = false,
   register_staging = false,
   sm = 89,
   products = "mma_k16",
}

return M
