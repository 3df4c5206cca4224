-- Which variants of a class (family, head_dim, dtype, causal) are worth compiling and measuring.
--
-- The choice is made for the class and the card, not for the problem: all problems of a class
-- choose from one list, so that one compilation serves every sequence length. A variant's score is
-- its cost over the best cost, on whichever of a few typical problems suits it most. Two rounds
-- fill the list: the best variant for each value of each axis, because the model may be wrong about
-- an axis; then the best ones left.
local M = {}

-- A class is described by
--   limit         the most variants of it
--   axes          lists of field names; the best variant of each value is taken
--   crowds        list of {axis, most [, value] [, concerns]}: how many that agree in the fields of
--                 axis (and have that value) the second round may reach, so that no kind fills the
--                 list; concerns(head_dim): whether it holds there
--   typical(arch) list of the shapes {batch, heads_q, heads_kv, seq_q, seq_k} to judge by

-- The texts of the variants, best score first; ties in the order of the texts.
local function by_score(variants, class, problem, arch, cost)
   local scores = {}
   for _, typical in ipairs(class.typical(arch)) do
      typical.head_dim, typical.dtype = problem.head_dim, problem.dtype
      typical.causal = problem.causal
      local costs, best = {}, math.huge
      for _, variant in ipairs(variants) do
         costs[variant] = cost(variant, typical)
         best = math.min(best, costs[variant])
      end
      for _, variant in ipairs(variants) do
         scores[variant] = math.min(scores[variant] or math.huge, costs[variant] / best)
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

local function value_on(axis, variant)
   local words = {}
   for _, field in ipairs(axis) do
      words[#words + 1] = field .. "=" .. variant[field]
   end
   return table.concat(words, " ")
end

-- The list under construction: which texts are in it, and how many of each crowd.
local function new_list()
   return {chosen = {}, count = 0, crowd = {}}
end

local function take(list, variant, class)
   list.chosen[variant.text], list.count = true, list.count + 1
   for _, kind in ipairs(class.crowds) do
      local value = value_on(kind.axis, variant)
      list.crowd[value] = (list.crowd[value] or 0) + 1
   end
end

local function has_room(list, variant, class)
   for _, kind in ipairs(class.crowds) do
      local value = value_on(kind.axis, variant)
      local concerned = not kind.concerns or kind.concerns(variant.d)
      if concerned and (kind.value or value) == value
         and (list.crowd[value] or 0) >= kind.most then
         return false
      end
   end
   return list.count < class.limit
end

-- variants: tables with a text; class: see above; cost(variant, problem): us. Returns the set of
-- the texts that are chosen.
function M.for_class(variants, class, problem, arch, cost)
   local sorted = by_score(variants, class, problem, arch, cost)
   local list = new_list()
   for _, axis in ipairs(class.axes) do
      local seen = {}
      for _, variant in ipairs(sorted) do
         local value = value_on(axis, variant)
         if not seen[value] and not list.chosen[variant.text] then
            take(list, variant, class)
         end
         seen[value] = true
      end
   end
   for _, variant in ipairs(sorted) do
      if not list.chosen[variant.text] and has_room(list, variant, class) then
         take(list, variant, class)
      end
   end
   return list.chosen
end

return M
