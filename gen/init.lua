-- What the runtime calls. Every function returns nil and a message for bad input; errors are bugs.
--
-- problem: the fields of runtime/base/problem.def by name, enumerations as words; class: the text that
--          is equal for problems that may share a kernel; asked: the list of the names of the features
--          that the problem asks for.
-- card:    name, arch, sm_count, smem_block_bytes, smem_sm_bytes, l2_bytes, clock_khz,
--          bandwidth_bytes (runtime/base/record.h).
local arch_of = require("core.arch")
local families = require("core.families")
local template = require("core.template")
local variant_text = require("core.variant")

local M = {}

-- Calls visit(family, arch) for each family that serves the problem. Returns the
-- arch and a list of "family: why it does not serve"; nil and all these reasons when none does.
local function visit_families(problem, card, visit)
   local arch, message = arch_of.describe(card)
   if not arch then
      return nil, message
   end
   local reasons = {}
   for _, family in ipairs(families) do
      local ok, reason = family:serves(problem, arch)
      if ok then
         visit(family, arch)
      else
         reasons[#reasons + 1] = family.name .. ": " .. reason
      end
   end
   if #families == 0 then
      return nil, "there are no families"
   elseif #reasons == #families then
      return nil, table.concat(reasons, "; ")
   end
   return arch, reasons
end

-- List of {text, recipe, kind, cost_us}, cheapest first, ties in the order of their texts; nil and the
-- reason when no family serves the problem. recipe: a text (core/recipe.lua). kind: the fields of a
-- problem that are compiled into the variant, by name; those that are 0 may be left out.
function M.candidates(problem, card)
   local list = {}
   local arch, message = visit_families(problem, card, function(family, arch)
      for _, v in ipairs(family:candidates(problem, arch)) do
         local recipe, kind = family:launch(v)
         list[#list + 1] = {
            text = v.text, recipe = recipe, kind = kind, cost_us = family.cost(v, problem, arch, 0),
         }
      end
   end)
   if not arch then
      return nil, message
   elseif #list == 0 then
      return nil, "no variant of head_dim " .. problem.head_dim .. " fits this card"
   end
   table.sort(list, function(a, b)
      if a.cost_us ~= b.cost_us then
         return a.cost_us < b.cost_us
      end
      return a.text < b.text
   end)
   return list
end

-- Lines "variant: why it is no candidate", then lines "family: why it has none".
function M.rejected(problem, card)
   local lines = {}
   local arch, reasons = visit_families(problem, card, function(family, arch)
      for _, entry in ipairs(family:rejected(problem, arch)) do
         lines[#lines + 1] = entry.text .. ": " .. entry.reason .. "\n"
      end
   end)
   if not arch then
      return nil, reasons
   end
   for _, reason in ipairs(reasons) do
      lines[#lines + 1] = reason .. "\n"
   end
   return table.concat(lines)
end

-- The family and the variant of a canonical text.
local function parse(text)
   local name = variant_text.family(text)
   for _, family in ipairs(families) do
      if family.name == name then
         local v, message = variant_text.parse(text, family.axes)
         if not v then
            return nil, message
         end
         local ok, reason = family:check(v)
         if not ok then
            return nil, "'" .. text .. "': " .. reason
         end
         return family, v
      end
   end
   return nil, "'" .. text .. "': there is no family '" .. name .. "'"
end

-- {text, recipe, kind} of a canonical text.
function M.variant(text)
   local family, v = parse(text)
   if not family then
      return nil, v
   end
   local recipe, kind = family:launch(v)
   return {text = text, recipe = recipe, kind = kind}
end

-- The CUDA text of a variant. read(file): the text of templates/FILE, or nil.
function M.source(text, read)
   local family, v = parse(text)
   if not family then
      return nil, v
   end
   return template.expand(family.template, family:environment(v), read)
end

-- us; registers as the compiler reports them, or 0.
function M.cost(text, problem, card, registers)
   local family, v = parse(text)
   if not family then
      return nil, v
   end
   local arch, message = arch_of.describe(card)
   if not arch then
      return nil, message
   end
   return family.cost(v, problem, arch, registers)
end

M.card = arch_of.reference_card

return M
