-- The methods that all families share: from axes to candidates.
--
-- An operation fills a family, which is a table, with
--   name       first word of its variants, and its entry point
--   op         the operation, which problem.op must equal
--   template   the root template, under templates/
--   axes       see axes.lua; the first axes are fields of the problem
--   path       its code path (paths/): {serves_sm(sm) ...}
--   selection  see select.lua
--   typical(problem, arch)    list of the sizes of typical problems of the problem's class, to select by
--   is_worth(problem, arch)   true, or nil and why the family is not worth trying on a problem; nil: always
--   fits(v, path, arch)       true, or nil and why an SM cannot run a variant well. The third result is true if the
--                             only reason is that the variant would spill
--   suits(v, problem, arch)   true, or nil and why a variant is not worth trying on a problem; nil: each is
--   cost(v, problem, arch, registers)   us by the model. registers: as the compiler reports them, or 0
--   recipe(v)                 a table as recipe.lua takes it. abi: nil, unless it is not the operation's
--   names(v)                  what its templates see besides the axes
-- M.new adds the methods below. v: a variant as variant.lua parses it. problem: as in init.lua. arch: as in arch.lua.
local axes_of = require("core.axes")
local host = require("host")
local recipe_text = require("core.recipe")
local select_from = require("core.select")
local variant_text = require("core.variant")

local methods = {}

-- Returns true if the family serves a problem; nil and the reason.
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

-- Returns true if a variant is a point; nil and the reason.
function methods.check(self, v)
   return axes_of.check(self.axes, v, self.path)
end

-- Returns typical problems of a problem's class, to select by.
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

-- Surveys the points of a problem's class on a card. Returns a table: fitting (list of the points that fit), rejected
-- (list of {variant, reason} for the others), chosen (set of the texts of chosen points). spilling: points that would
-- only spill fit, too.
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

-- Returns the chosen variants of a class, in the order of points.
local function choose(self, problem, arch, spilling)
   local found, chosen = survey(self, problem, arch, spilling), {}
   for _, v in ipairs(found.fitting) do
      if found.chosen[v.text] then
         chosen[#chosen + 1] = v
      end
   end
   return chosen
end

-- Returns the same as another generator of this process kept it; nil if none did.
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

-- Returns the chosen variants of a problem's class that suit the problem. Choosing takes long, and gives the same for
-- all problems of a class, so a process does it once. spilling: see survey.
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

-- Returns a list of {text, reason} of all points that are no candidates.
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

-- Returns a variant's recipe, a text, and its kind (see init.lua). v keeps them, because the candidates of a class are
-- asked for again and again.
function methods.launch(self, v)
   if not v.recipe then
      local recipe = self.recipe(v)
      recipe.abi = recipe.abi or host.abi(self.op, variant_text.format(v, self.axes))
      v.recipe, v.kind = recipe_text.format(recipe), axes_of.kind(self.axes, v)
      v.kind.op = self.op
   end
   return v.recipe, v.kind
end

-- Returns the steps before and after the main one.
local function other_steps(recipe)
   local list = {}
   for _, step in ipairs(recipe.steps) do
      if step.role ~= "main" then
         list[#list + 1] = step
      end
   end
   return list
end

-- Returns the names that the template sees. They say nothing about the launch, except for the steps besides the main
-- one.
function methods.environment(self, v)
   local names = axes_of.add_names(axes_of.names(self.axes, v), self.names(v))
   names.family, names.op = self.name, self.op
   names.products = self.path.products
   names.steps = other_steps(self.recipe(v))
   return names
end

local M = {}

local function always()
   return true
end

function M.new(family)
   family.chosen = {}
   family.is_worth, family.suits = family.is_worth or always, family.suits or always
   for name, method in pairs(methods) do
      family[name] = method
   end
   return family
end

return M
