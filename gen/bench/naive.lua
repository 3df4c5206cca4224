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

local function step(entry, role, threads, blocks)
   return {entry = entry, role = role, threads = threads, smem = 0, blocks = blocks}
end

return families.new({
   name = "naive", op = "forward", template = "bench/naive.cu.in", path = anywhere, axes = kinds.axes(256),

   recipe = function()
      return {
         op = "forward", rows = rows, keys = 64, workspace = "scores",
         steps = {
            step("naive_scores", "prepare", 256, "row_tiles"),
            step("naive_softmax", "prepare", 32 * softmax_rows, "rows/" .. softmax_rows),
            step("naive_product", "main", 256, "row_tiles"),
         },
      }
   end,

   names = function()
      return {rows = rows, softmax_rows = softmax_rows}
   end,
})
