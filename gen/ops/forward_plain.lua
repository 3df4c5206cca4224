-- The plain scheme of the forward families: a block computes Br query rows of one head with all keys. forward.lua says
-- what the axes mean.
local axes_of = require("core.axes")
local columns = require("features.columns")
local cost = require("ops.forward_plain_cost")
local int8 = require("features.int8")
local kv8 = require("features.kv8")
local precision = require("features.precision")

local M = {splits = false, names = {}}

-- {Br, warps} by parts. Each warp has one or two m16 row tiles.
local blocks = {
   {{32, 2}, {64, 4}, {64, 2}, {128, 8}, {128, 4}, {256, 8}},
   [2] = {{32, 4}, {64, 8}},
   [4] = {{32, 8}, {64, 8}},
}

local function no_block(v)
   return not axes_of.has_pair(blocks[v.parts], v.br, v.warps) and "no such pair of br and warps"
end

local function no_pipeline(v, path)
   return not axes_of.has_pair(path.pipelines, v.kstages, v.vstages) and "no such pair of kstages and vstages"
      or columns.no_pipeline(v)
end

local function cannot_spread(v, path)
   if v.fill == "whole" then
      return nil
   end
   return path.register_staging and "tiles that pass through registers are loaded at once"
      or (v.kstages ~= v.vstages or v.kstages == 1) and "V is waited for behind S: no time to spread its fill"
      or v.d <= 16 and "S is computed in one step"
end

M.axes = {
   {name = "br", values = {32, 64, 128, 256}},
   {name = "bc", values = {16, 32, 48, 64, 80, 96, 128}},
   {name = "warps", values = {2, 4, 8}, unless = no_block},
   {name = "kstages", values = {1, 2, 3}},
   {name = "vstages", values = {1, 2, 3}, unless = no_pipeline},
   {name = "layout", values = {"swizzle", "pad"}},
   kv8.q_axis,
   {name = "fill", values = {"whole", "spread"}, unless = cannot_spread, default = "whole"},
   int8.axis,
   precision.pv,
}

-- Returns true if rows of a swizzled tile are whole multiples of all banks.
local function fills_banks(head_dim)
   return head_dim % 64 == 0
end

M.selection = {
   limit = 40,
   covered = {{"br", "warps", "q", "qk"}, {"bc", "qk"}, {"kstages", "vstages"}, {"layout"}, {"fill"}, {"qk", "pv"}},
   -- The model is least sure of the order of block shapes and of the place of Q. It sees little difference between
   -- pipelines and layouts. On an H200, three stages win by 1 % at most. A spread fill wins where registers are left (D
   -- = 64, 256). A padded layout never wins at D = 64, 128 and 256, and mostly wins at D = 40, 72, 80, 112 and 160.
   -- The model knows only by a card's name whether fp16 sums are faster, so a class that permits them tries both.
   crowds = {
      {axes = {"br", "warps"}, most = 10},
      {axes = {"br", "warps", "bc"}, most = 3},
      {axes = {"layout"}, value = "layout=pad", most = 1, concerns = fills_banks},
      {axes = {"layout"}, value = "layout=pad", most = 14},
      {axes = {"fill"}, value = "fill=spread", most = 5},
      {axes = {"qk"}, value = "qk=int8", most = 24},
      {axes = {"kstages"}, value = "kstages=3", most = 8},
      {axes = {"sums", "pv"}, value = "sums=fast pv=fp32", most = 24},
      {axes = {"sums", "pv"}, value = "sums=fast pv=fp16", most = 24},
   },
}

-- Returns long and short sequences that fill the card evenly, ordinary ones, and too few blocks for the card.
function M.typical(arch)
   local heads = arch.sm_count
   return {{heads, heads, 4096, 4096}, {heads, heads, 512, 512}, {64, 64, 256, 256}, {32, 32, 1024, 1024},
           {8, 8, 256, 256}}
end

-- At most half of a block's rows may be empty if there is a smaller block.
function M.unsuited(v, problem)
   local rows = math.max(problem.seq_q, 32)
   return v.br > 64 and v.br >= 2 * ((rows + 31) // 32 * 32) and "more than half of a block's rows would be empty"
end

function M.recipe()
end

M.cost = cost.forward

return M
