-- The functions that the runtime calls. Every function returns nil and a message for bad input. Errors (error()) are
-- bugs.
--
-- Arguments:
--   problem  the fields of runtime/base/problem.def by name, enumerations as words. Also class: a text that is equal
--            for problems that may share a kernel; asked: list of the names of the features that the problem asks for;
--            products: list of the products by which problems are compared
--   card     name, arch, sm_count, smem_block_bytes, smem_sm_bytes, l2_bytes, clock_khz, bandwidth_bytes, generic
--            (runtime/base/record.h)
local arch_of = require("core.arch")
local axes_of = require("core.axes")
local baselines = require("baselines")
local elements = require("core.elements")
local estimate = require("core.estimate")
local families = require("families")
local template = require("core.template")
local variant_text = require("core.variant")

local M = {}

-- Returns why no family serves a problem: what the SM lacks for all of them, or each family's reason.
local function why_unserved(problem, arch, reasons)
   local missing = elements.lacks(arch.sm, problem)
   if missing then
      return ("%s, and this is %d.%d"):format(missing, arch.sm // 10, arch.sm % 10)
   end
   return #reasons > 0 and table.concat(reasons, "; ") or "there are no families of " .. problem.op .. " kernels"
end

-- Calls visit(family) for each family that serves the problem. Returns a list of "family: why it does not serve"; nil
-- and the reason if no family serves.
local function visit_families(problem, arch, visit)
   local reasons, serving = {}, 0
   for _, family in ipairs(families) do
      if family.op == problem.op then
         local reason = family:refuses(problem, arch)
         if reason then
            reasons[#reasons + 1] = family.name .. ": " .. reason
         else
            visit(family)
            serving = serving + 1
         end
      end
   end
   if serving > 0 then
      return reasons
   end
   return nil, why_unserved(problem, arch, reasons)
end

-- Returns the candidates of all families, unsorted, each with its text, the results of family:launch, and cost_us.
-- Returns nil and the reason if no family serves the problem. spilling: include candidates that would spill.
local function candidates_of(problem, arch, spilling)
   local list = {}
   local reasons, message = visit_families(problem, arch, function(family)
      for _, v in ipairs(family:candidates(problem, arch, spilling)) do
         local recipe, kind = family:launch(v)
         list[#list + 1] = {
            text = v.text, recipe = recipe, kind = kind, cost_us = family.cost(v, problem, arch, 0),
         }
      end
   end)
   return reasons and list, message
end

-- Returns the same, and true as the third result if they spill. If no kernel has registers for all features that a
-- problem asks for, one that spills is better than none.
local function find_candidates(problem, arch)
   local list, message = candidates_of(problem, arch, false)
   if not list or #list > 0 then
      return list, message, false
   end
   return candidates_of(problem, arch, true), nil, true
end

-- Returns a list of {text, recipe, kind, cost_us}, the cheapest first, equal ones in the order of their texts. Returns
-- nil and the reason if no family serves the problem. recipe: a text (core/recipe.lua). kind: the fields of a problem
-- that are compiled into the variant, by name; fields that are 0 may be missing.
function M.candidates(problem, card)
   local arch, message = arch_of.describe(card)
   if not arch then
      return nil, message
   end
   local list
   list, message = find_candidates(problem, arch)
   if not list then
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

-- Returns lines "variant: why it is no candidate", then lines "family: why it has none".
function M.rejected(problem, card)
   local lines = {}
   local arch, message = arch_of.describe(card)
   if not arch then
      return nil, message
   end
   local list, spilling
   list, message, spilling = find_candidates(problem, arch)
   if not list then
      return nil, message
   end
   local reasons = visit_families(problem, arch, function(family)
      for _, entry in ipairs(family:rejected(problem, arch, spilling)) do
         lines[#lines + 1] = entry.text .. ": " .. entry.reason .. "\n"
      end
   end)
   for _, reason in ipairs(reasons) do
      lines[#lines + 1] = reason .. "\n"
   end
   return table.concat(lines)
end

-- Returns the family of a variant's text; nil and what is wrong with the text.
local function family_of(text)
   local name = variant_text.family(text)
   for _, list in ipairs({families, baselines}) do
      for _, family in ipairs(list) do
         if family.name == name then
            return family
         end
      end
   end
   return nil, "'" .. text .. "': there is no family '" .. name .. "'"
end

-- Returns the family and the variant of a canonical text; nil and what is wrong with it.
local function parse(text)
   local family, message = family_of(text)
   if not family then
      return nil, message
   end
   local v
   v, message = variant_text.parse(text, family.axes)
   if not v then
      return nil, message
   end
   local reason = family:misfit(v)
   if reason then
      return nil, "'" .. text .. "': " .. reason
   end
   return family, v
end

-- Returns {text, recipe, kind} of a canonical text.
function M.variant(text)
   local family, v = parse(text)
   if not family then
      return nil, v
   end
   local recipe, kind = family:launch(v)
   return {text = text, recipe = recipe, kind = kind}
end

-- The same for a text that a person gives. With a problem, the text may leave out the problem's fields. With a card,
-- the variant's family must serve the card's SM. The message names all words that are missing.
function M.named_variant(text, problem, card)
   local family, message = family_of(text)
   if not family then
      return nil, message
   end
   if card and family.cost then -- kernels for comparison run anywhere
      local arch, reason = arch_of.describe(card)
      if not arch then
         return nil, reason
      end
      reason = family.path.refuses_sm(arch.family_sm)
      if reason then
         return nil, ("sm_%d has no %s kernels: %s"):format(card.arch, family.name, reason)
      end
   end
   text = problem and variant_text.complete(text, problem, family.axes) or text
   local missing = variant_text.missing(text, family.axes)
   if missing then
      return nil, ("'%s' lacks %s"):format(text, missing)
   end
   return M.variant(text)
end

-- Returns the CUDA text of a variant. read(file): returns the text of templates/FILE, or nil.
function M.source(text, read)
   local family, v = parse(text)
   if not family then
      return nil, v
   end
   return template.expand(family.template, family:environment(v), read)
end

-- Returns us by the model. registers: as the compiler reports them, or 0.
function M.cost(text, problem, card, registers)
   local family, v = parse(text)
   if not family then
      return nil, v
   end
   if not family.cost then
      return nil, "'" .. text .. "' is there to be compared with: it has no model"
   end
   local arch, message = arch_of.describe(card)
   if not arch then
      return nil, message
   end
   return family.cost(v, problem, arch, registers)
end

-- The knowledge of databases about each operation's kernels (estimate.lua). A later M.learn replaces it.
local known = {}

-- Returns the least time of the candidates by the model; math.huge without candidates.
local function least_us(problem, arch)
   local least = math.huge
   for _, candidate in ipairs(find_candidates(problem, arch) or {}) do
      least = math.min(least, candidate.cost_us)
   end
   return least
end

-- Returns the names of the families that serve the problem.
local function find_serving(problem, arch)
   local names = {}
   visit_families(problem, arch, function(family)
      names[#names + 1] = family.name
   end)
   return names
end

function M.learn(op, evidence)
   local parsed = {}
   known[op] = estimate.new(evidence, {
      parse = function(text)
         if parsed[text] == nil then
            local family, v = parse(text)
            parsed[text] = family and family.cost and {
               family = family, v = v, similarity = family.name .. axes_of.similarity(family.axes, v),
               kind = axes_of.kind(family.axes, v),
            } or false
         end
         return parsed[text] or nil
      end,
      describe = arch_of.describe,
      least_us = least_us,
      serving = find_serving,
   })
   return true
end

-- Adds evidence: what was measured since.
function M.learn_more(op, evidence)
   if not known[op] then
      return M.learn(op, evidence)
   end
   known[op]:add(evidence)
   return true
end

-- Returns a card's architecture, and the estimate for a problem's operation; nil and the reason.
local function calibrated(problem, card)
   local arch, message = arch_of.describe(card)
   if not arch then
      return nil, message
   end
   if not known[problem.op] then
      M.learn(problem.op, {kernels = {}, sets = {}})
   end
   return arch, known[problem.op]
end

-- Returns a list of {us, doubt, known} for kernels of the problem's class, by their texts (estimate.lua's judge). us =
-- 0 if no SM can hold the kernel.
function M.judge(problem, card, texts)
   local arch, model = calibrated(problem, card)
   if not arch then
      return nil, model
   end
   local list = model:judge(problem, arch, texts)
   for i, one in ipairs(list) do
      list[i] = one or {us = 0, doubt = 0, known = 0}
   end
   return list
end

-- Returns the kernels that the runtime can use for a problem, the best choice first: the learnt kernels of the
-- problem's class, and the model's candidates. Each has
--   text, us               the kernel, and its estimated time
--   rests                  what the estimate rests on: "measured" (on this problem), "nearby", "elsewhere" (on another
--                          card, or ranked for one) or "model"
--   set, distance          index of the nearest measurement that it rests on, and its distance; set is 0 if there is
--                          none
--   neighbour              index of the nearest measurement of another class that corrects the model, or 0
--   kernel                 index of the learnt kernel, or 0
--   compile                1: there is no code of it; else 0
--   recipe, kind, cost_us  as for a candidate; recipe and kind only if kernel is 0
-- Returns nil and the reason if no kernel can be used.
function M.rank(problem, card)
   local arch, model = calibrated(problem, card)
   if not arch then
      return nil, model
   end
   local near = model:near(problem)
   local options, reason = {}, nil
   if model:is_familiar(problem, arch, near) then
      options = model:rank(problem, arch, near, {})
   end
   if #options == 0 then
      local candidates
      candidates, reason = M.candidates(problem, card)
      options = model:rank(problem, arch, near, candidates or {})
   end
   local list = {}
   for _, option in ipairs(options) do
      local new = not option.kernel and option.candidate or {}
      list[#list + 1] = {
         text = option.text, us = option.us, rests = option.rests, kernel = option.kernel or 0,
         set = option.from and option.from.index or 0,
         distance = option.from and option.from.distance or 0,
         neighbour = option.neighbour and option.neighbour.index or 0,
         compile = option.compile and 1 or 0, recipe = new.recipe, kind = new.kind,
         cost_us = option.model_us,
      }
   end
   if #list == 0 then
      return nil, reason or "no kernel of this class fits this card"
   end
   return list
end

-- Returns a function like M.cost, for many texts and cards: it parses each text and describes each card only once. It
-- returns nil if the model has no time: the text is of no family, or the kernel cannot run there.
function M.costs()
   local parsed, archs = {}, {}
   return function(text, problem, card, registers)
      if parsed[text] == nil then
         local family, v = parse(text)
         parsed[text] = family and {family = family, v = v} or false
      end
      archs[card] = archs[card] or arch_of.describe(card)
      local arch = parsed[text] and archs[card]
      local us = arch and parsed[text].family.cost(parsed[text].v, problem, arch, registers)
      return us and us < math.huge and us or nil
   end
end

M.card = arch_of.reference_card

return M
