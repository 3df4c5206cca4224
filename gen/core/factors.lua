-- By which factors the cost model is wrong where kernels were measured, and how near that is to a problem.
--
-- A set of measurements (estimate.lua) says by which factor the model is wrong there: for all its kernels
-- together (level), for those of a family beyond that, and for each kernel (own, the family's included). Problems that
-- are near, by distance, share these factors, weighted by exp(-distance / reach).
local M = {}

-- Fitted on an H200 (tests/bench/untuned.py, 180 random problems with all candidates timed).
local fit = {
   -- Distance (base.problem's, in units of ln) at which a measurement counts for 1/e.
   reach = 1.0,
   -- Sets that are looked at, and the least weight of one.
   most = 16,
   least = 0.02,
   -- Kernels of a set whose mean is its level: those of at most so many times the best time.
   level = 1.6,
   -- What a class is away: per unit of ln of the head dimension, where only one of the two divides evenly among
   -- threads, and per other field that differs.
   head_dim = 1.5,
   uneven = 1.0,
   field = 0.5,
   -- Kernels of a family in a set that have the model's weight against them.
   family_prior = 2,
   -- Measured on another card of the SM, or ranked by the model alone.
   elsewhere = 0.7,
}

local function words_of(class)
   local words = {}
   for key, value in class:gmatch("([^ =]+)=([^ ]+)") do
      words[key] = value
   end
   return words
end

-- Whether threads divide rows of so many elements evenly: copies cost more where they do not.
local function is_even(head_dim)
   return head_dim & (head_dim - 1) == 0
end

-- Distance between classes, given as words.
local function class_distance(a, b)
   local sum = 0
   for key, value in pairs(a) do -- a sum: any order
      if key == "D" then
         local one, other = math.tointeger(value), math.tointeger(b.D)
         sum = sum + fit.head_dim * math.abs(math.log(one / other))
            + (is_even(one) == is_even(other) and 0 or fit.uneven)
      elseif b[key] ~= value then
         sum = sum + fit.field
      end
   end
   for key in pairs(b) do
      sum = sum + (a[key] and 0 or fit.field)
   end
   return sum
end

-- Distance between the sizes of problems: fa2i_problem_distance.
local function size_distance(a, b)
   local sum = 0
   for i, product in ipairs(a.products) do
      local other = b.products[i]
      sum = sum + math.log(product > other and product / other or other / product)
   end
   return sum
end

-- Whether two problems are one and the same.
local function is_same(a, b)
   for field, value in pairs(a) do
      if type(value) ~= "table" and b[field] ~= value then
         return false
      end
   end
   return true
end

-- The name of a kernel's family, self being an estimate (estimate.lua); what another generator made is alone.
function M.family_of(self, text)
   local parsed = self.parse(text)
   return parsed and parsed.family.name or text
end

-- What stays the same of a kernel in other classes.
function M.likeness_of(self, text)
   local parsed = self.parse(text)
   return parsed and parsed.likeness or text
end

-- Of the families in a set, from its kernels' factors: the mean over those that are not slow, drawn to 0, the more
-- the more of its kernels are slow: the few that are not are those that the model held for too slow.
local function family_factors(self, set, slowest)
   local sums, counts, factors = {}, {}, {}
   for i, index in ipairs(set.kernels) do
      if set.own[index] then
         local name = M.family_of(self, self.kernels[index].text)
         local own = set.us[i] <= slowest and set.own[index] or 0
         sums[name], counts[name] = (sums[name] or 0) + own, (counts[name] or 0) + 1
      end
   end
   for name, count in pairs(counts) do -- into a table: any order
      factors[name] = sums[name] / (count + fit.family_prior)
   end
   return factors
end

-- Keep the least factor of a name: kernels of one text differ in what made them, and the best is taken.
local function keep_least(factors, name, factor)
   if not factors[name] or factor < factors[name] then
      factors[name] = factor
   end
end

-- The factors of a set as logarithms, once: level, own (by kernel), texts (the same by text), alike (by what
-- stays the same of a kernel in other classes), families (by name).
local function find_factors(self, set)
   if set.own then
      return
   end
   local arch = self.describe(set.card)
   local best, sum, count = math.huge, 0, 0
   set.own, set.texts, set.alike = {}, {}, {}
   for _, us in ipairs(set.us) do
      best = math.min(best, us)
   end
   for i, index in ipairs(set.kernels) do
      local kernel = self.kernels[index]
      local price = self:price(kernel.text, kernel.registers, set.problem, arch)
      if price then
         set.own[index] = math.log(set.us[i] / price)
         if set.us[i] <= fit.level * best then
            sum, count = sum + set.own[index], count + 1
         end
      end
   end
   set.level = count > 0 and sum / count or 0
   for _, index in ipairs(set.kernels) do
      if set.own[index] then
         set.own[index] = set.own[index] - set.level
         local text = self.kernels[index].text
         keep_least(set.texts, text, set.own[index])
         keep_least(set.alike, M.likeness_of(self, text), set.own[index])
      end
   end
   set.families = family_factors(self, set, fit.level * best)
end

-- List of {set, index, distance, weight, same, exact} of the sets that count, the nearest first. same: it
-- is of the problem's class; exact: it is the problem, on this card.
function M.near(self, problem)
   local list, words = {}, words_of(problem.class)
   for index, set in ipairs(self.sets) do
      set.words = set.words or words_of(set.problem.class)
      local distance = size_distance(set.problem, problem) + class_distance(set.words, words)
      local weight = math.exp(-(distance + (set.here and 0 or fit.elsewhere)) / fit.reach)
      if weight >= fit.least then
         list[#list + 1] = {set = set, index = index, distance = distance, weight = weight,
                            same = set.problem.class == problem.class,
                            exact = set.here and is_same(set.problem, problem)}
      end
   end
   table.sort(list, function(a, b)
      if a.weight ~= b.weight then
         return a.weight > b.weight
      end
      return a.index < b.index
   end)
   for i = #list, fit.most + 1, -1 do
      list[i] = nil
   end
   for _, item in ipairs(list) do
      find_factors(self, item.set)
   end
   return list
end

return M
