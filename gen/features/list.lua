-- The features that read arrays beside the tensors and that every family of an operation may have. A feature has
--   axis                     core/axes.lua
--   fp32_per_score(v)        optional: instructions that it adds for each score
--   registers(row_tiles, v)  optional: those that it keeps alive
--   own_registers            optional: those that backward counts by itself (ops/backward_block.lua)
--   bytes_per_score(v)       optional: what is read for each
--   forward_only             optional: true: other operations do without it
local M = {}

local alibi = require("features.alibi")
local append = require("features.append")
local axes_of = require("core.axes")
local bias = require("features.bias")
local cache = require("features.cache")
local dropout = require("features.dropout")
local lengths = require("features.lengths")
local paged = require("features.paged")
local sinks = require("features.sinks")

-- In the order of texts.
M.all = {
   alibi, sinks, bias, dropout, lengths, lengths.packed, paged, cache, cache.rows,
   append, append.rotary, append.rotary_dim,
}

-- Of the families of an operation.
function M.axes(op)
   local axes = {}
   for _, feature in ipairs(M.all) do
      if op == "forward" or not feature.forward_only then
         axes[#axes + 1] = feature.axis
      end
   end
   return axes
end

-- The same as {feature, name of its axis, the value without it}: surveys ask for every variant.
local asked = {}
for i, feature in ipairs(M.all) do
   asked[i] = {feature = feature, name = feature.axis.name, silent = axes_of.silent_value(feature.axis)}
end

-- Sum over the features that a variant has of what `of` says of each.
local function sum(v, of)
   local total = 0
   for _, each in ipairs(asked) do
      local value = v[each.name]
      if value ~= nil and value ~= each.silent then
         total = total + of(each.feature)
      end
   end
   return total
end

function M.fp32_per_score(v)
   return sum(v, function(feature)
      return feature.fp32_per_score and feature.fp32_per_score(v) or 0
   end)
end

function M.registers(v, row_tiles)
   return sum(v, function(feature)
      return feature.registers and feature.registers(row_tiles, v) or 0
   end)
end

-- What is added to abi: dropout's mask became another function twice, what becomes of keys that a number hides once,
-- and so what becomes of rows that no packed sequence has.
-- fa2i_recipe_revision says the same in C, and what for (runtime/base/recipe.h): both are raised together, and
-- tests/test_variants.c compares them.
function M.revision(v)
   return 2 * v.dropout + (v.varlen or 0) + (v.bias ~= "none" and v.bias ~= "bool" and 1 or 0)
end

function M.bytes_per_score(v)
   return sum(v, function(feature)
      return feature.bytes_per_score and feature.bytes_per_score(v) or 0
   end)
end

-- What templates see: whether kernels have parameters of features (templates/features/params.def); whether
-- terms are added to scores, whether scores begin as these, whether warps skip tiles by what these say;
-- the type of a bias, whether it is numbers, what a row's maximum begins with therefore, whether behind a tile one may
-- still say that no key was seen, and whether the bias' gradient is wanted; which keys of a tile a lane has: whether
-- eight neighbours of 32, and the key of column tile n, counted from the lane's first one; what O (forward) or dV
-- (backward) is multiplied by behind dropout.
function M.names(v, op)
   local kept = op == "backward" and "1.0f" or ""
   if v.dropout == 1 then
      kept = (op == "backward" and "" or " * ") .. "keep_scale(p)"
   end
   local terms = axes_of.has(alibi.axis, v) or axes_of.has(bias.axis, v)
   -- A lane has eight neighbouring keys, to read their bias at once; dropout wants two.
   local divided = op == "forward" and v.parts > 1 -- each of the warps that share rows would add them
   local bias_type, has_gradient = bias.type_of(v)
   local numbers = bias_type ~= "none" and bias_type ~= "bool"
   local wide = op == "forward" and v.bias ~= "none" and v.dropout == 0 and v.bc % 32 == 0
   return {
      bias = bias_type ~= "none" and bias_type,
      numbers = numbers,
      least = numbers and "least" or "minus_infinity()", takes_least = numbers and ", float least" or "",
      gives_least = numbers and ", kLeastScore * p.features.inverse_scale" or "",
      unseen = numbers and "false" or bias_type == "bool" and "true" or "kMasked",
      dbias = has_gradient,
      wide = wide,
      lane_keys = wide and 8 or 2,
      column = wide and "(n / 4 * 32 + n % 4 * 2)" or "n * 8",
      features = sum(v, function()
         return 1
      end) > 0,
      terms = terms,
      bias_ahead = op == "forward" and bias.is_ahead(v),
      -- What comes through shared memory beside K and V: on wgmma alone.
      bias_staged = false, begun = false,
      guessed = false, -- P by the maxima so far: on wgmma alone
      terms_first = terms and v.softcap == 0 and not divided and not bias.is_ahead(v),
      kept = kept,
      -- Terms that all scores of a row share go into the softmax: on wgmma alone.
      offsets = false, sloped = false,
      takes_offset = "", gives_offset = "", offset = "", row_max = "row.max[m][h]",
      keyed = false, -- keys of dropout's columns come from a step before: on wgmma alone
      skips = v.bias == "bool" and v.softcap == 0 and not divided,
   }
end

return M
