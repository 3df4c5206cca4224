-- The plain kind of forward family: a block computes Br query rows of one head, against all keys.
-- What the fields mean: forward.lua.
local cost = require("ops.forward_plain_cost")

local M = {split = false}

M.keys = {
   {name = "d", integer = true}, {name = "dtype", one_of = {"fp16", "bf16"}},
   {name = "causal", integer = true}, {name = "br", integer = true}, {name = "bc", integer = true},
   {name = "warps", integer = true}, {name = "kstages", integer = true},
   {name = "vstages", integer = true}, {name = "layout", one_of = {"swizzle", "pad"}},
   {name = "q", one_of = {"smem", "reg"}},
   {name = "fill", one_of = {"whole", "spread"}, default = "whole"},
}

-- Br with the warps that it is split among: one or two m16 row tiles each.
local blocks = {{32, 2}, {64, 4}, {64, 2}, {128, 8}, {128, 4}, {256, 8}}
local bcs = {16, 32, 48, 64, 80, 96, 112, 128}

-- Rows of a swizzled layout are whole multiples of all banks.
local function fills_banks(head_dim)
   return head_dim % 64 == 0
end

M.class = {
   limit = 40,
   axes = {{"br", "warps", "q"}, {"bc"}, {"kstages", "vstages"}, {"layout"}, {"fill"}},
   -- The model is least sure of the order of block shapes and of Q's place, and sees little
   -- difference between pipelines and layouts. On an H200 three stages win by a hundredth at most; a
   -- spread fill where registers are left (D = 64, 256); a padded layout never at D = 64, 128 and
   -- 256, and mostly at D = 40, 72, 80, 112 and 160.
   crowds = {
      {axis = {"br", "warps"}, most = 10},
      {axis = {"br", "warps", "bc"}, most = 3},
      {axis = {"layout"}, value = "layout=pad", most = 1, concerns = fills_banks},
      {axis = {"layout"}, value = "layout=pad", most = 14},
      {axis = {"fill"}, value = "fill=spread", most = 5},
      {axis = {"kstages"}, value = "kstages=3", most = 8},
   },
}

-- Long and short sequences that fill the card evenly, ordinary ones, and too few blocks for the card.
function M.class.typical(arch)
   local list = {}
   for _, size in ipairs({{arch.sm_count, 4096}, {arch.sm_count, 512}, {64, 256}, {32, 1024},
                          {8, 256}}) do
      list[#list + 1] = {
         batch = 1, heads_q = size[1], heads_kv = size[1], seq_q = size[2], seq_k = size[2],
      }
   end
   return list
end

function M.each_point(path, add)
   for _, block in ipairs(blocks) do
      for _, bc in ipairs(bcs) do
         for _, pipeline in ipairs(path.pipelines) do
            for _, layout in ipairs({"swizzle", "pad"}) do
               for _, q in ipairs({"smem", "reg"}) do
                  for _, fill in ipairs({"whole", "spread"}) do
                     add({br = block[1], warps = block[2], bc = bc, kstages = pipeline[1],
                          vstages = pipeline[2], layout = layout, q = q, fill = fill})
                  end
               end
            end
         end
      end
   end
end

function M.check(v)
   if v.bc < 16 or v.bc > 128 or v.bc % 16 ~= 0 then
      return nil, "bc is not a multiple of 16 from 16 to 128"
   elseif v.fill == "spread" and (v.kstages ~= v.vstages or v.kstages == 1) then
      return nil, "V is waited for behind S: no time to spread its fill"
   elseif v.fill == "spread" and v.d <= 16 then
      return nil, "S is computed in one step"
   end
   for _, pair in ipairs(blocks) do
      if pair[1] == v.br and pair[2] == v.warps then
         return true
      end
   end
   return nil, "no such pair of br and warps"
end

function M.serves()
   return true
end

-- Half of a block's rows may be empty, not more, if there is a smaller block.
function M.suits(v, problem)
   local rows = math.max(problem.seq_q, 32)
   if v.br > 64 and v.br >= 2 * ((rows + 31) // 32 * 32) then
      return nil, "more than half of a block's rows would be empty"
   end
   return true
end

M.cost = cost.forward

return M
