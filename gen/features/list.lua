-- The features that read arrays beside the tensors and that every family of an operation may have. A feature has
--   axis                     core/axes.lua
--   ex2_per_score, fp32_per_score(v)   optional: instructions that it adds for each score
--   registers(row_tiles)     optional: those that it keeps alive
local M = {}

local alibi = require("features.alibi")
local lengths = require("features.lengths")
local sinks = require("features.sinks")

-- In the order of texts.
M.all = {alibi, sinks, lengths}

-- Sum over the features that a variant has of what `of` says of each.
local function sum(v, of)
   local total = 0
   for _, feature in ipairs(M.all) do
      if v[feature.axis.name] ~= 0 then
         total = total + of(feature)
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
      return feature.registers and feature.registers(row_tiles) or 0
   end)
end

-- What templates see: whether kernels have parameters of features (templates/features/params.def); whether
-- terms are added to scores, and whether scores begin as these.
function M.names(v)
   local terms = v.alibi == 1
   return {
      features = sum(v, function()
         return 1
      end) > 0,
      terms = terms,
      terms_first = terms and v.softcap == 0,
   }
end

return M
