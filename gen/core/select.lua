-- Which variants of a class of problems are worth compiling and measuring.
--
-- The choice is made for the class and the card, not for the problem: all problems of a class
-- choose from one list, so that one compilation serves every sequence length. A variant's score is
-- its cost over the best cost, on whichever of a few typical problems suits it most. Two rounds
-- fill the list: the best variant for each value of each axis, because the model may be wrong about
-- an axis; then the best ones left. Axes may be taken together.
--
-- How a family wants it done is its selection:
--   limit    the most variants of a class
--   covered  lists of names of axes; the best variant of each value is taken
--   crowds   list of {axes, most [, value] [, concerns]}: how many that agree in these axes (and have
--            that value) the second round may reach, so that no crowd fills the list;
--            concerns(head_dim): whether it holds there
--   alike    alike(variant): a text; variants that have the same cost the same. nil: none is known to
local M = {}

-- The variants, best score first; ties in the order of the texts.
local function by_score(variants, typical, cost, alike)
   local scores, groups = {}, {}
   for i, variant in ipairs(variants) do
      groups[i] = alike and alike(variant) or i
   end
   for _, problem in ipairs(typical) do
      local costs, best = {}, math.huge
      for i, variant in ipairs(variants) do
         local us = costs[groups[i]]
         if not us then
            us = cost(variant, problem)
            costs[groups[i]] = us
            best = math.min(best, us)
         end
      end
      for i, variant in ipairs(variants) do
         scores[variant] = math.min(scores[variant] or math.huge, costs[groups[i]] / best)
      end
   end
   local sorted = table.move(variants, 1, #variants, 1, {})
   table.sort(sorted, function(a, b)
      if scores[a] ~= scores[b] then
         return scores[a] < scores[b]
      end
      return a.text < b.text
   end)
   return sorted
end

local function value_on(axes, variant)
   local words = {}
   for _, axis in ipairs(axes) do
      words[#words + 1] = axis .. "=" .. variant[axis]
   end
   return table.concat(words, " ")
end

-- The list under construction: which texts are in it, and how many of each crowd.
local function new_list()
   return {chosen = {}, count = 0, reached = {}}
end

local function take(list, variant, selection)
   list.chosen[variant.text], list.count = true, list.count + 1
   for _, crowd in ipairs(selection.crowds) do
      local value = value_on(crowd.axes, variant)
      list.reached[value] = (list.reached[value] or 0) + 1
   end
end

local function has_room(list, variant, selection)
   for _, crowd in ipairs(selection.crowds) do
      local value = value_on(crowd.axes, variant)
      local concerned = not crowd.concerns or crowd.concerns(variant.d)
      if concerned and (crowd.value or value) == value
         and (list.reached[value] or 0) >= crowd.most then
         return false
      end
   end
   return true
end

-- variants: of a class, tables with a text; typical: list of problems of the class; cost(variant,
-- problem): us. Returns the set of the texts that are chosen.
function M.for_class(variants, selection, typical, cost)
   local sorted = by_score(variants, typical, cost, selection.alike)
   local list = new_list()
   for _, axes in ipairs(selection.covered) do
      local seen = {}
      for _, variant in ipairs(sorted) do
         local value = value_on(axes, variant)
         if not seen[value] and not list.chosen[variant.text] then
            take(list, variant, selection)
         end
         seen[value] = true
      end
   end
   for _, variant in ipairs(sorted) do
      if list.count >= selection.limit then
         break
      end
      if not list.chosen[variant.text] and has_room(list, variant, selection) then
         take(list, variant, selection)
      end
   end
   return list.chosen
end

return M
