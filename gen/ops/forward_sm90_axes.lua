-- The tuning space of fwd_sm90: its axes, and which of their values go together. forward_sm90.lua says what they mean.
local axes_of = require("core.axes")
local bias = require("features.bias")
local features = require("features.list")
local kinds = require("ops.kinds")
local partial = require("features.partial")
local precision = require("features.precision")

local M = {}

local function may_pingpong(v)
   if v.pingpong == 0 or v.groups > 1 then
      return true
   end
   return nil, "one warpgroup has nobody to take turns with"
end

-- A tile of a bias consists of whole boxes of 64 keys.
local function may_tile(v)
   if v.bc % 64 == 0 or not bias.is_ahead(v) then
      return true
   end
   return nil, "a bias comes in boxes of 64 keys"
end

local function may_stage(v)
   if v.stages == 2 or not bias.is_ahead(v) then
      return true
   end
   return nil, "a bias has the place of a third tile"
end

-- Accepts bias_in_accumulator=1 only for a bias in 16 bits, and without anything that must come between product and
-- bias.
local function may_begin(v)
   if v.bias_in_accumulator == 0 or bias.is_ahead(v) and features.modifiers(v) == 1 then
      return true
   end
   return nil, "scores begin as a bias in 16 bits that nothing comes before"
end

-- Accepts alibi_mma=1 (a term as a step of Q K^T) only in two conditions. Each key of a tile without a mask must have
-- its own number, which a bias has not. Nothing may come between product and term.
local function may_use_alibi_mma(v)
   local alone = features.terms(v) == 1 and features.modifiers(v) == 1
   if v.alibi_mma == 0 or alone and v.bias == "none" and v.causal == 1 then
      return true
   end
   return nil, "a causal term alone, without memory, is a product"
end

-- A block of packed sequences searches for its own sequence among all of them, once, so it is not persistent. Partial
-- results are for rings, whose communication holds some SMs for as long as a quarter of the kernel takes. A block that
-- begins so late must not have a fixed share of the rows.
local function may_stay(v)
   if v.persistent > 0 and v.varlen == 1 then
      return nil, "packed sequences have blocks of their own"
   elseif v.persistent == 1 and partial.from_registers(v) then
      return nil, "beside communication some blocks begin late"
   end
   return true
end

local function may_order(v)
   if v.order == "heads" or v.causal == 1 and v.window == 0 and v.varlen == 0 then
      return true
   end
   return nil, "all row tiles weigh the same"
end

-- If a block has rows of several heads, features that use the block's head do not work.
local function may_pack(v)
   if v.pack == 0 then
      return true
   elseif v.persistent > 0 or v.order ~= "heads" then
      return nil, "where rows are packed, there are too few to be ordered"
   elseif features.is_by_head(v) or v.varlen == 1 then
      return nil, "a feature is by head, or sequences are packed"
   end
   return true
end

local own_axes = {
   precision.axes[1], precision.axes[2], partial.carry.axis, partial.axis,
   {name = "groups", values = {1, 2, 3}},
   {name = "bc", values = {64, 80, 96, 112, 128, 176}, when = may_tile},
   {name = "stages", values = {2, 3}, when = may_stage},
   {name = "pingpong", values = {0, 1}, when = may_pingpong},
   {name = "alibi_mma", values = {0, 1}, when = may_use_alibi_mma, quiet = true},
   {name = "bias_in_accumulator", values = {0, 1}, when = may_begin, quiet = true},
   {name = "persistent", values = {0, 1, 2}, quiet = true, when = may_stay},
   {name = "order", values = {"heads", "weight"}, when = may_order, quiet = true},
   {name = "pack", values = {0, 1}, when = may_pack, quiet = true},
}

-- Boolean masks are for the other families, whose warps skip tiles that a mask hides.
M.all = axes_of.joined(kinds.axes(256), features.wgmma_axes({"none", "fp16", "bf16", "fp32"}), own_axes)

M.selection = {
   limit = 19,
   covered = {
      {"groups", "persistent"}, {"groups", "pack"}, {"groups", "alibi_mma"}, {"groups", "bias_in_accumulator"}, {"bc"},
      {"order"},
   },
   crowds = {
      {axes = {"groups", "bc", "pack"}, most = 4}, {axes = {"groups", "pack"}, most = 7},
      {axes = {"persistent", "pack"}, most = 9},
      {axes = {"order"}, most = 6, value = "order=weight"}, {axes = {"stages"}, most = 2, value = "stages=3"},
      {axes = {"pack"}, most = 3, value = "pack=1"}, {axes = {"stages", "pack"}, most = 0, value = "stages=3 pack=1"},
   },
}

return M
