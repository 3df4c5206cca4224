-- Selects the variants of a class of problems that are worth compiling and measuring.
--
-- The choice is made for the class and the card, not for the problem. All problems of a class choose from one list, so
-- that one compilation serves all sequence lengths. A few problems are typical of a class. A variant's score is its
-- cost / the best cost, on the typical problem for which that is least. Two rounds fill the list. The first takes the
-- best variant for each value of each axis, because the model may be wrong about an axis. The second takes the best of
-- the others. Several axes may be taken together.
--
-- A family's selection has
--   limit    the most variants of a class
--   covered  lists of names of axes; for each list, the best variant of each combination of values is taken
--   crowds   list of {axes, most [, value] [, concerns]}. So many variants that agree in these axes (and have that
--            value) may be in the list when the second round ends, so that no crowd fills the list. concerns(head_dim):
--            returns true if the crowd counts for that head dimension
--   alike    alike(variant): returns a text; variants with equal texts have the same cost. nil: none are known to
local M = {}

-- Returns lists of variants that have the same cost.
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

-- Returns the variants, best score first, equal scores in the order of the texts. Numbers and texts are sorted
-- separately, so that thousands of comparisons do not call a Lua function.
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

-- Returns true if no variant before had these values. seen: trees of tables by the values of earlier variants.
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

-- Returns an empty list: the texts that are in it, and how many of each crowd.
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

-- Selects from variants of a class. Returns the set of the chosen texts.
--   variants                 tables with a text
--   typical                  list of problems of the class
--   cost(variant, problem)   returns us
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
