-- The methods that all families share: from axes to candidates.
--
-- An operation fills a family, which is a table, with
--   name       first word of its variants, and its entry point
--   op         the operation, which problem.op must equal
--   template   the root template, under templates/
--   axes       see axes.lua; the first axes are fields of the problem
--   path       its code path (paths/): {refuses_sm(sm) ...}
--   selection  see select.lua
--   typical(problem, arch)    list of the sizes of typical problems of the problem's class, to select by
--   useless(problem, arch)      why the family is not worth trying on a problem
--   smem_bytes(v)               bytes of shared memory; the template asserts the same sum. nil: none
--   unfit(v, path, arch)        why an SM cannot run a variant well. The second result is true if the only reason is
--                               that the variant would spill
--   unsuited(v, problem, arch)  why a variant is not worth trying on a problem
--   cost(v, problem, arch, registers)   us by the model. registers: as the compiler reports them, or 0
--   recipe(v)                 a table as recipe.lua takes it; complete_steps adds to its steps. abi: nil, unless it is
--                             not the operation's
--   names(v)                  what its templates see besides the axes; nil: nothing
-- A function that says why returns nil or false if there is no such reason; without the function there never is. M.new
-- adds the methods below. v: a variant as variant.lua parses it. problem: as in init.lua. arch: as in arch.lua.
local axes_of = require("core.axes")
local host = require("host")
local recipe_text = require("core.recipe")
local select_from = require("core.select")
local variant_text = require("core.variant")

local methods = {}

-- Returns why the family does not serve a problem.
function methods.refuses(self, problem, arch)
   local reason = self.path.refuses_sm(arch.family_sm)
      or problem.op ~= self.op and "it is a " .. self.op .. " kernel"
      or axes_of.missing(self.axes, problem.asked)
   local v = {}
   for _, axis in ipairs(self.axes) do
      if axis.field and not reason then
         v[axis.name] = problem[axis.field]
         reason = axes_of.misfit({axis}, v, self.path)
      end
   end
   return reason or self.useless(problem, arch)
end

-- Returns why a variant is no point.
function methods.misfit(self, v)
   return axes_of.misfit(self.axes, v, self.path)
end

-- Fields of problems that a family without their axes serves.
local unasked = {head_dim_v = 0, window = 0, causal = 0, kv = "dtype", kv_scales = "fp32"}

-- Returns typical problems of a problem's class, to select by.
local function typical_problems(self, problem, arch)
   local list = {}
   for i, sizes in ipairs(self.typical(problem, arch)) do
      list[i] = axes_of.add_names({op = problem.op}, unasked, axes_of.kind(self.axes, problem, "field"), sizes)
   end
   return list
end

-- Returns what unfit of core/family.lua does. Shared memory is asked for first: many points of sm_75 have too much.
local function unfit(self, v, arch)
   local bytes = self.smem_bytes and self.smem_bytes(v) or 0
   if bytes > arch.smem_block then
      return ("%d bytes of shared memory, a block has %d"):format(bytes, arch.smem_block)
   end
   return self.unfit(v, self.path, arch)
end

-- Surveys the points of a problem's class on a card. Returns a table: fitting (list of the points that fit), rejected
-- (list of {variant, reason} for the others), chosen (set of the texts of chosen points). spilling: points that would
-- only spill fit, too.
local function survey(self, problem, arch, spilling)
   local found = {fitting = {}, rejected = {}}
   axes_of.each_point(self.name, self.axes, self.path, problem, function(v)
      local reason, spills = unfit(self, v, arch)
      if not reason or spilling and spills then
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
      if not self.unsuited(v, problem, arch) then
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
      local reason = self.unsuited(v, problem, arch)
      if not found.chosen[v.text] then
         reason = "others of its class cost less by the model"
      end
      if reason then
         list[#list + 1] = {text = v.text, reason = reason}
      end
   end
   return list
end

-- Returns a recipe whose steps are complete. The main step's entry point has the family's name. The others' names add
-- the step's suffix, or else "_" and its role. smem: bytes of shared memory, 0 unless the step or the family says them.
local function complete_steps(self, recipe, v)
   for _, step in ipairs(recipe.steps) do
      local is_main = step.role == "main"
      step.entry = self.name .. (step.suffix or is_main and "" or "_" .. step.role)
      step.smem = step.smem or is_main and self.smem_bytes and self.smem_bytes(v) or 0
   end
   return recipe
end

-- Returns a variant's recipe, a text, and its kind (see init.lua). v keeps them, because the candidates of a class are
-- asked for again and again.
function methods.launch(self, v)
   if not v.recipe then
      local recipe = complete_steps(self, self.recipe(v), v)
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
   local names = axes_of.add_names(axes_of.names(self.axes, v), self.names(v) or {})
   names.family, names.op = self.name, self.op
   names.products, names.smem_bytes = self.path.products, self.smem_bytes and self.smem_bytes(v)
   names.steps = other_steps(complete_steps(self, self.recipe(v), v))
   return names
end

local M = {}

local function never()
end

function M.new(family)
   family.chosen = {}
   for _, name in ipairs({"unfit", "useless", "unsuited", "names"}) do
      family[name] = family[name] or never
   end
   return axes_of.add_names(family, methods)
end

return M
