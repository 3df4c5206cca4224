-- Which variants of a class (family, head_dim, dtype, causal) are worth compiling and measuring.
--
-- The choice is made for the class and the card, not for the problem: all problems of a class
-- choose from one list, so that one compilation serves every sequence length. A variant's score is
-- its cost over the best cost, on whichever of a few typical problems suits it most. Two rounds
-- fill the list: the best variant for each value of each axis, because the model may be wrong about
-- an axis; then the best ones left.
local M = {}

local limit = 40
-- How many of one kind the second round may take, so that no kind fills the list: the model is
-- least sure of the order of block shapes, and sees little difference between pipelines.
local crowds = {
   {axis = {"br", "warps"}, most = 8},
   {axis = {"br", "warps", "bc"}, most = 3},
}
-- The same for twins: variants which the model can hardly tell from a cheaper one.
local limit_twins = 8

-- Long sequences that fill the card evenly, ordinary ones, and too few blocks for the card.
local function typical_problems(problem, arch)
   local list = {}
   for _, size in ipairs({{arch.sm_count, 4096}, {32, 1024}, {8, 256}}) do
      list[#list + 1] = {
         batch = 1, heads_q = size[1], heads_kv = size[1], seq_q = size[2], seq_k = size[2],
         head_dim = problem.head_dim, dtype = problem.dtype, causal = problem.causal,
      }
   end
   return list
end

-- The texts of the variants, best score first; ties in the order of the texts.
local function by_score(variants, problem, arch, cost)
   local scores = {}
   for _, typical in ipairs(typical_problems(problem, arch)) do
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

-- The list under construction: which texts are in it, and how many of each kind.
local function new_list()
   return {chosen = {}, count = 0, twins = 0, crowd = {}}
end

local function take(list, variant, is_twin)
   list.chosen[variant.text], list.count = true, list.count + 1
   list.twins = list.twins + (is_twin(variant) and 1 or 0)
   for _, kind in ipairs(crowds) do
      local value = value_on(kind.axis, variant)
      list.crowd[value] = (list.crowd[value] or 0) + 1
   end
end

local function has_room(list, variant, is_twin)
   for _, kind in ipairs(crowds) do
      if (list.crowd[value_on(kind.axis, variant)] or 0) >= kind.most then
         return false
      end
   end
   return list.count < limit and (list.twins < limit_twins or not is_twin(variant))
end

-- variants: tables with a text; axes: lists of field names; is_twin(variant): of a cheaper variant;
-- cost(variant, problem): us. Returns the set of the texts that are chosen.
function M.for_class(variants, axes, is_twin, problem, arch, cost)
   local sorted = by_score(variants, problem, arch, cost)
   local list = new_list()
   for _, axis in ipairs(axes) do
      local seen = {}
      for _, variant in ipairs(sorted) do
         local value = value_on(axis, variant)
         if not seen[value] and not list.chosen[variant.text] then
            take(list, variant, is_twin)
         end
         seen[value] = true
      end
   end
   for _, variant in ipairs(sorted) do
      if not list.chosen[variant.text] and has_room(list, variant, is_twin) then
         take(list, variant, is_twin)
      end
   end
   return list.chosen
end

return M
