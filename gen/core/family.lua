-- What all families share: from axes to candidates.
--
-- A family is a table that its operation fills with
--   name       first word of its variants, and its entry point
--   op         the operation: what problem.op must be
--   template   the root template, under templates/
--   axes       axes.lua; the first of them are fields of the problem
--   path       its code path (paths/): {serves_sm(sm) ...}
--   selection  select.lua
--   typical(problem, arch)    list of the sizes of problems to select by, for the problem's class
--   is_worth(problem, arch)   true, or nil and why it is not worth trying on a problem
--   fits(v, path, arch)       true, or nil and why an SM cannot run a variant well; a third result, true: it would
--                             spill, and nothing else
--   suits(v, problem, arch)   true, or nil and why a variant is not worth trying on a problem
--   cost(v, problem, arch, registers)   us; registers as the compiler reports them, or 0
--   recipe(v)                 a table as recipe.lua takes it
--   names(v)                  what its templates see besides the axes
-- and that M.new makes complete with the methods below. v: a variant as variant.lua parses it; problem:
-- as init.lua gets it; arch: from arch.lua.
local axes_of = require("core.axes")
local host = require("host")
local recipe_text = require("core.recipe")
local select_from = require("core.select")
local variant_text = require("core.variant")

local methods = {}

-- true, or nil and the reason.
function methods.serves(self, problem, arch)
   local ok, reason = self.path.serves_sm(arch.family_sm)
   if not ok then
      return nil, reason
   elseif problem.op ~= self.op then
      return nil, "it is a " .. self.op .. " kernel"
   end
   ok, reason = axes_of.knows(self.axes, problem.asked)
   if not ok then
      return nil, reason
   end
   local v = {}
   for _, axis in ipairs(self.axes) do
      if axis.field then
         v[axis.name] = problem[axis.field]
         ok, reason = axes_of.check({axis}, v, self.path)
         if not ok then
            return nil, reason
         end
      end
   end
   return self.is_worth(problem, arch)
end

-- true, or nil and the reason.
function methods.check(self, v)
   return axes_of.check(self.axes, v, self.path)
end

-- Problems of the class of a problem, to select by.
local function typical_problems(self, problem, arch)
   local list = {}
   for _, sizes in ipairs(self.typical(problem, arch)) do
      local typical = {op = problem.op}
      for _, axis in ipairs(self.axes) do
         if axis.field then
            typical[axis.field] = problem[axis.field]
         end
      end
      for name, value in pairs(sizes) do
         typical[name] = value
      end
      list[#list + 1] = typical
   end
   return list
end

-- Of the class of a problem, on a card: the points that fit, which of them are chosen (a set of texts),
-- and {variant, reason} of those that do not fit. spilling: those that would
-- spill fit, too.
local function survey(self, problem, arch, spilling)
   local found = {fitting = {}, rejected = {}}
   axes_of.each_point(self.name, self.axes, self.path, problem, function(v)
      local ok, reason, spills = self.fits(v, self.path, arch)
      if ok or spilling and spills then
         found.fitting[#found.fitting + 1] = v
      else
         found.rejected[#found.rejected + 1] = {variant = v, reason = reason}
      end
   end)
   found.chosen = select_from.for_class(found.fitting, self.selection,
                                        typical_problems(self, problem, arch),
                                        function(v, typical)
      return self.cost(v, typical, arch, 0)
   end)
   return found
end

-- The chosen variants of a class, in the order of points.
local function choose(self, problem, arch, spilling)
   local found, chosen = survey(self, problem, arch, spilling), {}
   for _, v in ipairs(found.fitting) do
      if found.chosen[v.text] then
         chosen[#chosen + 1] = v
      end
   end
   return chosen
end

-- The same from what another generator of this process kept; nil if none did.
local function recall(self, key)
   local texts = host.recall(self.name .. " " .. key)
   if not texts then
      return nil
   end
   local chosen = {}
   for text in texts:gmatch("[^\n]+") do
      local v = variant_text.parse(text, self.axes)
      v.text, chosen[#chosen + 1] = text, v
   end
   return chosen
end

local function keep(self, key, chosen)
   local texts = {}
   for i, v in ipairs(chosen) do
      texts[i] = v.text
   end
   host.keep(self.name .. " " .. key, table.concat(texts, "\n"))
end

-- List of the chosen variants of a problem's class that suit the problem. Choosing is what takes time,
-- and it is the same for all problems of a class: a process does it once. spilling: see survey.
function methods.candidates(self, problem, arch, spilling)
   local key = problem.class .. " " .. arch.key .. (spilling and " spilling" or "")
   local chosen = self.chosen[key] or recall(self, key)
   if not chosen then
      chosen = choose(self, problem, arch, spilling)
      keep(self, key, chosen)
   end
   self.chosen[key] = chosen
   local suited = {}
   for _, v in ipairs(chosen) do
      if self.suits(v, problem, arch) then
         suited[#suited + 1] = v
      end
   end
   return suited
end

-- List of {text, reason}: every point that is no candidate.
function methods.rejected(self, problem, arch, spilling)
   local found = survey(self, problem, arch, spilling)
   local list = {}
   for i, entry in ipairs(found.rejected) do
      list[i] = {text = entry.variant.text, reason = entry.reason}
   end
   for _, v in ipairs(found.fitting) do
      local _, reason = self.suits(v, problem, arch)
      if not found.chosen[v.text] then
         reason = "others of its class cost less by the model"
      end
      if reason then
         list[#list + 1] = {text = v.text, reason = reason}
      end
   end
   return list
end

-- What the runtime is told of a variant: its recipe, a text, and its kind, see init.lua. Kept in v: the
-- candidates of a class are asked for again and again.
function methods.launch(self, v)
   if not v.recipe then
      v.recipe, v.kind = recipe_text.format(self.recipe(v)), axes_of.kind(self.axes, v)
      v.kind.op = self.op
   end
   return v.recipe, v.kind
end

-- The names that the template sees; nothing of how a variant is launched.
function methods.environment(self, v)
   local names = axes_of.names(self.axes, v)
   for name, value in pairs(self.names(v)) do
      names[name] = value
   end
   names.family, names.op = self.name, self.op
   names.bf16, names.turing = v.dtype == "bf16", self.path.k8 == true
   return names
end

local M = {}

function M.new(family)
   family.chosen = {}
   for name, method in pairs(methods) do
      family[name] = method
   end
   return family
end

return M
