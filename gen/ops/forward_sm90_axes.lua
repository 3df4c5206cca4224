-- The tuning space of fwd_sm90: its axes, and which of their values go together. forward_sm90.lua says what they mean.
local axes_of = require("core.axes")
local bias = require("features.bias")
local features = require("features.list")
local kinds = require("ops.kinds")
local partial = require("features.partial")
local precision = require("features.precision")

local M = {}

local function cannot_pingpong(v)
   return v.pingpong == 1 and v.groups == 1 and "one warpgroup has nobody to take turns with"
end

-- A tile of a bias consists of whole boxes of 64 keys.
local function cuts_boxes(v)
   return v.bc % 64 ~= 0 and bias.is_ahead(v) and "a bias comes in boxes of 64 keys"
end

local function has_no_place(v)
   return v.stages > 2 and bias.is_ahead(v) and "a bias has the place of a third tile"
end

-- Accepts bias_in_accumulator=1 only for a bias in 16 bits, and without anything that must come between product and
-- bias.
local function cannot_begin(v)
   return v.bias_in_accumulator == 1 and not (bias.is_ahead(v) and features.modifiers(v) == 1)
      and "scores begin as a bias in 16 bits that nothing comes before"
end

-- Accepts alibi_mma=1 (a term as a step of Q K^T) only in two conditions. Each key of a tile without a mask must have
-- its own number, which a bias has not. Nothing may come between product and term.
local function cannot_multiply(v)
   local alone = features.terms(v) == 1 and features.modifiers(v) == 1
   return v.alibi_mma == 1 and not (alone and v.bias == "none" and v.causal == 1)
      and "a causal term alone, without memory, is a product"
end

-- A block of packed sequences searches for its own sequence among all of them, once, so it is not persistent. Partial
-- results are for rings, whose communication holds some SMs for as long as a quarter of the kernel takes. A block that
-- begins so late must not have a fixed share of the rows.
local function cannot_stay(v)
   return v.persistent > 0 and v.varlen == 1 and "packed sequences have blocks of their own"
      or v.persistent == 1 and partial.from_registers(v) and "beside communication some blocks begin late"
end

local function has_no_order(v)
   return v.order == "weight" and (v.causal == 0 or v.window > 0 or v.varlen == 1) and "all row tiles weigh the same"
end

-- If a block has rows of several heads, features that use the block's head do not work.
local function cannot_pack(v)
   return v.pack == 1 and (v.persistent > 0 or v.order ~= "heads")
         and "where rows are packed, there are too few to be ordered"
      or v.pack == 1 and (features.is_by_head(v) or v.varlen == 1)
         and "a feature is by head, or sequences are packed"
end

local own_axes = {
   precision.axes[1], precision.axes[2], precision.axes[3], partial.carry.axis, partial.axis,
   {name = "groups", values = {1, 2, 3}},
   {name = "bc", values = {64, 80, 96, 112, 128, 176}, unless = cuts_boxes},
   {name = "stages", values = {2, 3}, unless = has_no_place},
   {name = "pingpong", values = {0, 1}, unless = cannot_pingpong},
   {name = "alibi_mma", values = {0, 1}, unless = cannot_multiply, quiet = true},
   {name = "bias_in_accumulator", values = {0, 1}, unless = cannot_begin, quiet = true},
   {name = "persistent", values = {0, 1, 2}, quiet = true, unless = cannot_stay},
   {name = "order", values = {"heads", "weight"}, unless = has_no_order, quiet = true},
   {name = "pack", values = {0, 1}, unless = cannot_pack, quiet = true},
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
