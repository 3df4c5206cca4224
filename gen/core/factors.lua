-- By which factors the cost model is wrong where kernels were measured, and how far such a measurement is from a
-- problem.
--
-- A set of measurements (estimate.lua) gives three kinds of factors:
--   level       of all its kernels
--   families    of the kernels of a family, beyond the level
--   own         of each kernel, beyond the level; it includes the family's factor
-- Problems share these factors with the weight exp(-distance / reach).
local M = {}

-- Fitted on an H200 (tests/bench/untuned.py, 180 random problems with all candidates timed).
local fit = {
   -- Distance at which a measurement has the weight 1/e. Distances are in units of ln, as in fa2i_problem_distance.
   reach = 1.0,
   -- The most sets that are used, and the least weight of a set.
   most = 16,
   least = 0.02,
   -- The level is the mean over the kernels that take at most this many times the best time.
   level = 1.6,
   -- Distances between classes. head_dim: per unit of ln of the head dimension. uneven: if threads divide only one of
   -- the two head dimensions evenly. field: for each other field that differs.
   head_dim = 1.5,
   uneven = 1.0,
   field = 0.5,
   -- Weight of the model against a family's factor, in kernels of the family.
   family_prior = 2,
   -- Distance that is added if a set was measured on another card of the SM, or only ranked by the model.
   elsewhere = 0.7,
}

local function words_of(class)
   local words = {}
   for key, value in class:gmatch("([^ =]+)=([^ ]+)") do
      words[key] = value
   end
   return words
end

-- Returns true if threads divide rows of this many elements evenly. Copies cost more if they do not.
local function is_even(head_dim)
   return head_dim & (head_dim - 1) == 0
end

-- Returns the distance between two classes, given as tables of their words.
local function class_distance(a, b)
   local sum = 0
   for key, value in pairs(a) do -- a sum, so the order does not matter
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

-- Returns the distance between the sizes of two problems, like fa2i_problem_distance.
local function size_distance(a, b)
   local sum = 0
   for i, product in ipairs(a.products) do
      local other = b.products[i]
      sum = sum + math.log(product > other and product / other or other / product)
   end
   return sum
end

-- Returns true if two problems are equal.
local function is_same(a, b)
   for field, value in pairs(a) do
      if type(value) ~= "table" and b[field] ~= value then
         return false
      end
   end
   return true
end

-- Returns the name of a kernel's family. self is an estimate (estimate.lua). A kernel of another generator is a family
-- of its own.
function M.family_of(self, text)
   local parsed = self.parse(text)
   return parsed and parsed.family.name or text
end

-- Returns what is the same for a kernel in other classes: its family, tile and pipeline.
function M.similarity_of(self, text)
   local parsed = self.parse(text)
   return parsed and parsed.similarity or text
end

-- Returns the factors of the families of a set, from its kernels' factors. Each is a mean in which slow kernels count
-- as 0, and so does the model (family_prior). So it is near 0 if most kernels are slow, because the model then merely
-- held the few fast ones for too slow.
local function family_factors(self, set, slowest)
   local sums, counts, factors = {}, {}, {}
   for i, index in ipairs(set.kernels) do
      if set.own[index] then
         local name = M.family_of(self, self.kernels[index].text)
         local own = set.us[i] <= slowest and set.own[index] or 0
         sums[name], counts[name] = (sums[name] or 0) + own, (counts[name] or 0) + 1
      end
   end
   for name, count in pairs(counts) do -- fills a table, so the order does not matter
      factors[name] = sums[name] / (count + fit.family_prior)
   end
   return factors
end

-- Keeps the least factor of a name. Kernels of one text differ in what made them, and the best one is taken.
local function keep_least(factors, name, factor)
   if not factors[name] or factor < factors[name] then
      factors[name] = factor
   end
end

-- Computes the factors of a set as logarithms, once: level; own (by kernel), texts (by text), alike (by similarity),
-- families (by name).
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
         keep_least(set.alike, M.similarity_of(self, text), set.own[index])
      end
   end
   set.families = family_factors(self, set, fit.level * best)
end

-- Returns a list of {set, index, distance, weight, same, exact} of the sets that are near enough, the nearest first.
-- same: the set is of the problem's class. exact: it is for this problem on this card.
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
