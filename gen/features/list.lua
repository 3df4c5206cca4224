-- The features of all families. Families ask this module for axes and costs, and name a feature only where they treat
-- it otherwise than others. Cap and window are settings of the mainloop. The features in M.all read arrays besides the
-- tensors, and have
--   axis                     see core/axes.lua; the field of its name. If it `says` something, its values are 0 and 1,
--                            and kernels have a constant for it (kAlibi) with this comment
--   fp32_per_score(v, keys)  optional: instructions that it adds for each score; keys: of a tile
--   adds                     optional: true: it adds a term to scores
--   registers(row_tiles, v)  optional: registers that it keeps alive
--   own_registers            optional: registers that backward counts by itself (ops/backward_block.lua)
--   bytes_per_score(v)       optional: bytes that it reads for each score
--   forward_only             optional: true: only forward has it
--   fp32                     optional: true: families of fp32 have it
--   by_head                  optional: true: a block must know its head, for an array with an entry or plane for each
--   reads_rows               optional: true: a step of backward reads prepared rows
--   backward_step(v)         optional: a step of backward between the preparing and the main one, or nil
--   step_file                the template of this step
local M = {}

local alibi = require("features.alibi")
local append = require("features.append")
local axes_of = require("core.axes")
local bias = require("features.bias")
local cache = require("features.cache")
local dropout = require("features.dropout")
local kv8 = require("features.kv8")
local lengths = require("features.lengths")
local paged = require("features.paged")
local partial = require("features.partial")
local sinks = require("features.sinks")
local softcap = require("features.softcap")
local window = require("features.window")

-- In the order of texts.
M.all = {
   alibi, sinks, bias, dropout, lengths, lengths.packed, paged, cache, cache.rows,
   append, append.rotary, append.rotary_dim, kv8, kv8.scales, partial.carry,
}

-- The axes that every family has.
M.everywhere = {softcap.axis, window.axis}

-- The axes whose values are off and on, as {name, constant of the templates, comment}. All axes are completed.
local switched = {}

local function complete(axis)
   axis.field, axis.feature = axis.name, true
   if axis.says then
      axis.values = {0, 1}
      local constant = ("k_" .. axis.name):gsub("_(%l)", string.upper)
      switched[#switched + 1] = {name = axis.name, constant = constant, says = axis.says}
   end
end

complete(softcap.axis)
complete(window.axis)
for _, feature in ipairs(M.all) do
   complete(feature.axis)
end

-- Returns the axes of an operation's features.
function M.axes(op)
   local axes = table.move(M.everywhere, 1, #M.everywhere, 1, {})
   for _, feature in ipairs(M.all) do
      if op == "forward" or not feature.forward_only then
         axes[#axes + 1] = feature.axis
      end
   end
   return axes
end

-- Returns the axes of features on wgmma. added: the types of a bias that the family has.
function M.wgmma_axes(added)
   return {
      softcap.axis, window.axis, alibi.axis, sinks.axis,
      {name = "bias", field = "bias", values = added, feature = true}, dropout.axis, lengths.packed.axis,
   }
end

function M.fp32_axes(op)
   local axes = {softcap.none, window.axis}
   for _, feature in ipairs(M.all) do
      if feature.fp32 and (op == "forward" or not feature.forward_only) then
         axes[#axes + 1] = feature.axis
      end
   end
   return axes
end

-- All features as {feature, name of its axis, the value without it}, because surveys ask for every variant.
local asked = {}
for i, feature in ipairs(M.all) do
   asked[i] = {feature = feature, name = feature.axis.name, silent = axes_of.silent_value(feature.axis)}
end

-- Returns the list of the features that a variant has. v keeps it, because the functions below ask in turn.
local function features_of(v)
   local list = v.features
   if not list then
      list = {}
      for _, each in ipairs(asked) do
         local value = v[each.name]
         if value ~= nil and value ~= each.silent then
            list[#list + 1] = each.feature
         end
      end
      v.features = list
   end
   return list
end

-- Returns the sum of of(feature) over the features that a variant has.
local function sum(v, of)
   local total = 0
   for _, feature in ipairs(features_of(v)) do
      total = total + of(feature)
   end
   return total
end

-- A term that is added to capped scores takes one instruction more, because the product cannot begin with it.
function M.fp32_per_score(v, keys)
   return sum(v, function(feature)
      return (feature.fp32_per_score and feature.fp32_per_score(v, keys) or 0) + (feature.adds and v.softcap or 0)
   end)
end

-- Returns the fp32 instructions that a score takes besides the softmax, and how many times it takes ex2.
function M.work_per_score(v, keys, op)
   local fp32 = M.fp32_per_score(v, keys)
   if v.softcap == 0 then
      return fp32, 1
   end
   local slope = op == "backward" and softcap.slope_per_score or 0
   return softcap.fp32_per_score + slope + fp32, 1 + softcap.ex2_per_score
end

-- Returns how many tiles of fp32 backward keeps beside S and dP: the derivative of the cap.
function M.kept_tiles(v)
   return v.softcap
end

-- Returns registers that scores need on wgmma.
function M.wgmma_registers(v)
   return M.registers(v, 1) + v.softcap * softcap.wgmma_registers
end

-- Returns how many features of a variant have a flag.
local function count(v, flag)
   return sum(v, function(feature)
      return feature[flag] and 1 or 0
   end)
end

-- Returns how many features add a term to scores, and how many change scores before the softmax.
function M.terms(v)
   return count(v, "adds")
end

function M.modifiers(v)
   return v.softcap + M.terms(v)
end

-- Returns whether a block needs to know its head, and whether a step of backward reads prepared rows.
function M.is_by_head(v)
   return count(v, "by_head") > 0
end

function M.reads_rows(v)
   return count(v, "reads_rows") > 0
end

-- Adds the features' own steps of backward to a list.
function M.add_backward_steps(steps, v)
   for _, feature in ipairs(features_of(v)) do
      steps[#steps + 1] = feature.backward_step and feature.backward_step(v)
   end
end

function M.registers(v, row_tiles)
   return sum(v, function(feature)
      return feature.registers and feature.registers(row_tiles, v) or 0
   end)
end

function M.bytes_per_score(v)
   return sum(v, function(feature)
      return feature.bytes_per_score and feature.bytes_per_score(v) or 0
   end)
end

local function unknown(_, name)
   error("there is no feature '" .. name .. "'", 0)
end

-- Returns the features of a variant as a set of axis names, and how many of them are in M.all.
local function asked_of(v)
   local has, number = {softcap = v.softcap == 1, window = v.window ~= 0, terms = M.terms(v) > 0}, 0
   for _, each in ipairs(asked) do
      local value = v[each.name]
      has[each.name] = value ~= nil and value ~= each.silent
      number = number + (has[each.name] and 1 or 0)
   end
   return setmetatable(has, {__index = unknown}), number
end

-- Returns the templates of the steps that the features have in backward.
local function step_files_of(v, op)
   local files = {}
   for _, feature in ipairs(op == "backward" and features_of(v) or {}) do
      files[#files + 1] = feature.step_file
   end
   return files
end

-- Returns the constants that are true or false, as a list of {name, on, says}: kSoftcap, kCacheRows, ...
local function switches_of(v, has)
   local list = {}
   for i, axis in ipairs(switched) do
      list[i] = {name = axis.constant, on = has[axis.name], says = axis.says}
   end
   list[#list + 1] = {
      name = "kInterleaved", on = v.rotary == "interleaved", says = "rotary rotates pairs of neighbouring columns",
   }
   return list
end

-- Words of templates/features/config.cu.in.
local window_kinds = {[0] = "kNone", "kSliding", "kPrefix", "kChunks"}
local bias_kinds = {none = "kNone", fp16 = "kFp16", bf16 = "kBf16", fp32 = "kFp32", bool = "kBool"}

-- Returns the names for templates/features/config.cu.in. Also dbias: whether the gradient of a bias is wanted.
function M.names(v, op)
   local bias_type, has_gradient = bias.type_of(v)
   local has, number = asked_of(v)
   return {
      has = has, switches = switches_of(v, has), rotary_columns = has.rotary and v.rotary_dim or 0,
      window_kind = window_kinds[v.window], bias_kind = bias_kinds[bias_type],
      dbias = has_gradient, kv_type = kv8.type_of(v), step_files = step_files_of(v, op),
      -- A lane has eight neighbouring keys, so that it reads their bias at once. dropout needs two neighbouring keys.
      wide = op == "forward" and has.bias and not has.dropout and v.bc % 32 == 0,
      params_file = has.dropout and "features/dropout_params.cuh" or number > 0 and "features/feature_params.cuh"
         or "features/no_feature_params.cuh",
      score_params = number > 0 or has.softcap or v.window ~= 0,
      alibi_mma = false, -- a term is computed by the product: on wgmma alone
   }
end

return M
