-- Attention exactly by its formula, for comparison. Scores, softmax and product are three kernels. S x S is in memory
-- between them. Products are fp32 multiplications without tensor cores. There are no features.
local families = require("core.family")
local kinds = require("ops.kinds")

-- Query rows of a block, and rows of a block of the softmax, with one warp for each row.
local rows, softmax_rows = 64, 4

-- It serves every SM for which it compiles. Below SM 8.0 bf16 does not compile.
local anywhere = {
   refuses_sm = function()
      return "it is there to be compared with"
   end,
   sm = 80,
}

return families.new({
   name = "naive", op = "forward", template = "bench/naive.cu.in", path = anywhere, axes = kinds.axes(256),

   recipe = function()
      return {
         op = "forward", rows = rows, keys = 64, workspace = "scores",
         steps = {
            {suffix = "_scores", role = "prepare", threads = 256, blocks = "row_tiles"},
            {suffix = "_softmax", role = "prepare", threads = 32 * softmax_rows, blocks = "rows/" .. softmax_rows},
            {suffix = "_product", role = "main", threads = 256, blocks = "row_tiles"},
         },
      }
   end,

   names = function()
      return {rows = rows, softmax_rows = softmax_rows}
   end,
})
