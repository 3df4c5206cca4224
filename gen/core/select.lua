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

-- Lists of variants that cost the same.
local function groups_of(variants, alike)
   local groups, known = {}, {}
   for _, variant in ipairs(variants) do
      local key = alike and alike(variant) or variant
      local group = known[key]
      if group then
         group[#group + 1] = variant
      else
         known[key] = {variant}
         groups[#groups + 1] = known[key]
      end
   end
   return groups
end

-- The scores of the groups.
local function scores_of(groups, typical, cost)
   local scores = {}
   for _, problem in ipairs(typical) do
      local costs, best = {}, math.huge
      for i, group in ipairs(groups) do
         local us = cost(group[1], problem)
         costs[i], best = us, us < best and us or best
      end
      for i, us in ipairs(costs) do
         local score, least = us / best, scores[i]
         scores[i] = least and least < score and least or score
      end
   end
   return scores
end

-- The variants, best score first; ties in the order of the texts. Numbers and texts are sorted apart: what compares
-- them is no function of ours then, which thousands of comparisons would call.
local function by_score(variants, typical, cost, alike)
   local groups = groups_of(variants, alike)
   local by_text, of_score, order, sorted = {}, {}, {}, {}
   for i, score in ipairs(scores_of(groups, typical, cost)) do
      if not of_score[score] then
         of_score[score], order[#order + 1] = {}, score
      end
      local texts = of_score[score]
      for _, variant in ipairs(groups[i]) do
         by_text[variant.text], texts[#texts + 1] = variant, variant.text
      end
   end
   table.sort(order)
   for _, score in ipairs(order) do
      table.sort(of_score[score])
      for _, text in ipairs(of_score[score]) do
         sorted[#sorted + 1] = by_text[text]
      end
   end
   return sorted
end

local function value_on(axes, variant)
   local words = {}
   for i, axis in ipairs(axes) do
      words[i] = axis .. "=" .. variant[axis]
   end
   return table.concat(words, " ")
end

-- Whether these values are the first of their kind. seen: trees of tables by them, of those before.
local function is_first(seen, axes, variant)
   local last = #axes
   for i = 1, last - 1 do
      local value = variant[axes[i]]
      seen[value] = seen[value] or {}
      seen = seen[value]
   end
   local value = variant[axes[last]]
   local first = not seen[value]
   seen[value] = true
   return first
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
         if is_first(seen, axes, variant) and not list.chosen[variant.text] then
            take(list, variant, selection)
         end
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
