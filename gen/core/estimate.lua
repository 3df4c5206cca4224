-- Estimates how long kernels take on a problem. A time that was measured on this problem is used as it is. Any other
-- estimate is the cost model's time, corrected by what was measured on similar problems.
--
-- Evidence is what a database knows about one operation on one SM (init.lua says how it gets here):
--   kernels  list of {text, class, registers, spilled, code}. spilled and code are booleans; code: the database has the
--            kernel's code
--   sets     list of {problem, card, here, shipped, kernels, us}. Each set has the times, in us, of some kernels (by
--            index) on one problem and one card. here: it is the card that is asked about. shipped: it came with fa2
--
-- Each set gives the factors by which the model is wrong there (factors.lua). The factor of a kernel is the mean over
-- the sets that have it. Sets of more similar problems weigh more, and the model itself has the weight `prior`. A
-- measurement of a distant problem therefore changes nothing. A kernel without measurements nearby is judged by the
-- model, like the others.
--
-- Sets of other classes are farther away (factors.lua). Two factors are taken from them: the factor of the family,
-- and the factor of a kernel with the same tile and pipeline, reduced by `chance`. Smaller factors do not hold for
-- other head dimensions, nor for bf16 instead of fp16. Replayed on an H200, the choice was worse with them than without
-- any tuning. Where the model is far off, for example on another card, these factors still correct it.
--
-- The effect of the register count that the compiler reported is weighted like measurements of the kernel. Otherwise a
-- kernel that happens to be stored would be judged by other facts than one that is not.
local axes_of = require("core.axes")
local factors = require("core.factors")

local M = {}

-- Fitted on an H200 together with the constants of factors.lua (tests/bench/untuned.py: 180 random problems with all
-- candidates timed).
local fit = {
   -- Weight of the model. A measurement of this very problem has weight 1.
   prior = 0.35,
   -- Weight of a family's factor from another class, as a share of that set's weight.
   family = 0.5,
   -- Logarithm of the greatest factor of a kernel that says nothing about other classes.
   chance = 0.15,
   -- Standard deviation of the logarithm of an estimate, without the error that all kernels of a problem share. doubt:
   -- what remains with measurements nearby. model_doubt: what is added where only the model is known.
   doubt = 0.045,
   model_doubt = 0.045,
}

-- A kernel that must be compiled must gain this factor over a kernel whose code is there and that was measured on this
-- very problem. The factor is smaller if that measurement is farther away. It is 1 if nothing was measured nearby: that
-- a kernel's code happens to be there does not make it better.
M.compile = 1.02

-- An estimate must gain the factor `stay` over the estimate of the model's first choice. `unheard` is the logarithm of
-- a further factor, for a kernel without measurements nearby. A single measurement that is far away, or wrong by
-- chance, is no reason to leave the first choice.
M.stay = 1.01
local unheard = 0.015

-- Factors by which kernels without a measurement are ranked worse. spilled: the kernel spills. unsuited: it suits the
-- problem badly. unserved: its family does not serve the problem. untimed: others were timed on this very problem. It
-- is two standard deviations of an estimate by the model, because among many kernels some have a low one by chance.
local spilled, unsuited, unserved = 1.5, 1.05, 1.5
local untimed = math.exp(2 * math.sqrt(fit.doubt ^ 2 + fit.model_doubt ^ 2))

-- The methods of the object that M.new returns.
local methods = {near = factors.near}

-- Returns a kernel's time by the model, in us; nil if no SM can hold the kernel. registers: as the compiler reported
-- them, or 0. The model knows nothing about a kernel of another version of the generator. Such a kernel has the time of
-- the best candidate.
function methods.price(self, text, registers, problem, arch)
   local parsed = self.parse(text)
   local us = parsed and parsed.family.cost(parsed.v, problem, arch, registers)
      or self.least_us(problem, arch)
   return us < math.huge and us or nil
end

-- Returns how many kernels of a set this generator could make.
local function count_made(self, set)
   local count = 0
   for _, index in ipairs(set.kernels) do
      count = count + (self.parse(self.kernels[index].text) and 1 or 0)
   end
   return count
end

-- Returns true if every family that serves a problem has a known kernel of the problem's class. A database may be older
-- than a family.
local function knows_families(self, problem, arch)
   local known = {}
   for _, kernel in ipairs(self.kernels) do
      if kernel.class == problem.class then
         known[factors.family_of(self, kernel.text)] = true
      end
   end
   for _, name in ipairs(self.serving(problem, arch)) do
      if not known[name] then
         return false
      end
   end
   return true
end

-- Returns true if a nearby set has measured everything that is worth trying on this problem. Shipped sets do not count,
-- because they were not tuned here.
function methods.is_familiar(self, problem, arch, near)
   for _, item in ipairs(near) do
      if item.same and item.set.here and not item.set.shipped and item.distance <= 0.7
         and count_made(self, item.set) >= 8 then
         return knows_families(self, problem, arch)
      end
   end
   return false
end

-- Returns the logarithm of the factor by which the model is wrong for all kernels of a problem.
local function level(near)
   local sum, weight = 0, fit.prior
   for _, item in ipairs(near) do
      if item.exact then
         return item.set.level
      end
      sum, weight = sum + item.weight * item.set.level, weight + item.weight
   end
   return sum / weight
end

-- Returns what a set of another class says about a kernel: the logarithm of a factor (or nil) and its weight. The third
-- result is true if the set has a kernel of the same similarity.
local function neighbour_factor(item, family, similarity)
   local set = item.set
   local own = set.alike[similarity]
   if own and math.abs(own) > fit.chance then
      return own - (own > 0 and fit.chance or -fit.chance), item.weight, true
   end
   return set.families[family], fit.family * item.weight, own ~= nil
end

-- Estimates the time of a kernel, a table {index, text, price, plain}. index is nil if the kernel is not stored. price:
-- the model's time with the known number of registers. plain: the model's time without that number. Returns
--   1. us
--   2. what that rests on: "measured", "nearby", "elsewhere" or "model"
--   3. the nearest set of the kernel's class that has it
--   4. the weight of the measurements of it and of kernels of the same similarity
--   5. the nearest set of another class that corrects it
--   6. the weight of the measurements of its text alone
local function estimate(self, near, common, kernel)
   local sum, own_weight, neighbour_weight, known, rests, from, neighbour = 0, 0, 0, 0, "model", nil, nil
   local family, similarity = factors.family_of(self, kernel.text), factors.similarity_of(self, kernel.text)
   for _, item in ipairs(near) do
      local set = item.set
      local own = item.same and (set.own[kernel.index] or set.texts[kernel.text])
      if own and item.exact and kernel.index then
         return kernel.price * math.exp(set.level + own), "measured", item, 1, nil, 1
      elseif own then
         sum, own_weight = sum + item.weight * own, own_weight + item.weight
         if kernel.index and not from then
            rests, from = set.here and "nearby" or "elsewhere", item
         end
      elseif not item.same then
         local factor, weight, alike = neighbour_factor(item, family, similarity)
         if factor then
            sum, neighbour_weight, neighbour = sum + weight * factor, neighbour_weight + weight, neighbour or item
         end
         known = known + (alike and item.weight or 0)
      end
   end
   local drawn = sum + own_weight * math.log(kernel.price / kernel.plain)
   return kernel.plain * math.exp(common + drawn / (fit.prior + own_weight + neighbour_weight)), rests, from,
      own_weight + known, neighbour, own_weight
end

-- Returns {us, doubt, known} for each of these texts, or false if no SM can hold the kernel. doubt: the standard
-- deviation of the logarithm of us, without the error that all kernels share. known: the weight of the measurements. 1
-- is the weight of one measurement of this very problem.
function methods.judge(self, problem, arch, texts)
   local near, list = self:near(problem), {}
   local common = level(near)
   for i, text in ipairs(texts) do
      local price = self:price(text, 0, problem, arch)
      list[i] = false
      if price then
         local us, _, _, known = estimate(self, near, common, {text = text, price = price, plain = price})
         local doubt = fit.doubt + fit.model_doubt * fit.prior / (fit.prior + known)
         list[i] = {us = us, doubt = doubt, known = known}
      end
   end
   return list
end

-- Returns the factor by which the order of an option is worse than its estimated time.
local function handicap(self, option, near, problem, arch)
   local parsed = self.parse(option.text)
   if option.rests == "measured" or not parsed then
      return 1
   end
   local factor = near[1] and near[1].exact and untimed or 1
   if option.spilled then
      factor = factor * spilled
   end
   if not option.candidate then
      if parsed.family:refuses(problem, arch) then
         factor = factor * unserved
      elseif parsed.family.unsuited(parsed.v, problem, arch) then
         factor = factor * unsuited
      end
   end
   return factor
end

-- Returns true if a stored kernel can be used for a problem. A kernel of another version of the generator can only be
-- loaded. For the others, what the text says about the problem must agree with the problem.
local function can_serve(self, kernel, problem)
   local parsed = self.parse(kernel.text)
   if not parsed then
      return kernel.code
   end
   for field, value in pairs(parsed.kind) do
      if problem[field] ~= value then
         return false
      end
   end
   return true
end

-- Lists the stored kernels of a problem's class and the candidates. Kernels of the same text are one option: {text,
-- twins (the kernels' indices), candidate}.
local function gather(self, problem, candidates)
   local list, by_text = {}, {}
   for index, kernel in ipairs(self.kernels) do
      if kernel.class == problem.class and can_serve(self, kernel, problem) then
         local known = by_text[kernel.text]
         if not known then
            known = {text = kernel.text, twins = {}}
            list[#list + 1], by_text[kernel.text] = known, known
         end
         known.twins[#known.twins + 1] = index
      end
   end
   for _, candidate in ipairs(candidates) do
      local known = by_text[candidate.text]
      if known then
         known.candidate = candidate
      else
         list[#list + 1] = {text = candidate.text, candidate = candidate, twins = {}}
      end
   end
   return list
end

-- Returns an option with its estimate and order. Stored kernels of one text differ in what made them; the best one is
-- taken. Returns nil if no SM can hold the option.
local function settle(self, option, near, problem, arch, common)
   local best
   for _, index in ipairs(option.twins) do
      local kernel = self.kernels[index]
      local price = self:price(kernel.text, kernel.registers, problem, arch)
      if price then
         local plain = option.candidate and option.candidate.cost_us or self:price(kernel.text, 0, problem, arch)
         local us, rests, from, _, neighbour, own = estimate(self, near, common, {
            index = index, text = kernel.text, price = price, plain = plain or price,
         })
         local one = {
            kernel = index, us = us, rests = rests, from = from, neighbour = neighbour, model_us = price,
            plain = plain or price,
            compile = not kernel.code, spilled = kernel.spilled, trust = own / (fit.prior + own),
         }
         if not best or (one.compile and 1 or 0) < (best.compile and 1 or 0)
            or (one.compile == best.compile and one.us < best.us) then
            best = one
         end
      end
   end
   if not best and option.candidate then
      local price = option.candidate.cost_us
      local us, _, _, _, neighbour = estimate(self, near, common, {text = option.text, price = price, plain = price})
      best = {
         us = us, rests = "model", neighbour = neighbour, model_us = price, plain = price, compile = true, trust = 0,
      }
   end
   if not best then
      return nil
   end
   best.text, best.candidate = option.text, option.candidate
   local factor = handicap(self, best, near, problem, arch)
   best.order = best.us * factor / (best.compile and 1 or M.compile ^ best.trust)
   best.first_order = best.plain * factor
   return best
end

-- Handicaps all options but the model's first choice, so that only a gain replaces it. Does nothing if the first choice
-- is not unique, or if the problem itself was measured on some card. The model prefers no kernel of another generator,
-- because it gives them all the same time.
local function favour_first(list, near)
   local first, alone
   for _, option in ipairs(list) do
      if not first or option.first_order < first.first_order then
         first, alone = option, true
      elseif option.first_order == first.first_order then
         alone = false
      end
   end
   if not alone or (near[1] and near[1].distance == 0) then
      return
   end
   for _, option in ipairs(list) do
      if option ~= first then
         option.order = option.order * M.stay * math.exp(unheard * (1 - option.trust))
      end
   end
end

-- Returns a list of {text, kernel, us, model_us, rests, from, neighbour, compile, order, candidate}, the best choice
-- first.
-- near: self:near(problem). candidates: list of {text, cost_us}.
function methods.rank(self, problem, arch, near, candidates)
   local list, common = {}, level(near)
   for _, option in ipairs(gather(self, problem, candidates)) do
      list[#list + 1] = settle(self, option, near, problem, arch, common)
   end
   favour_first(list, near)
   table.sort(list, function(a, b)
      local of_a, of_b = a.from and a.from.distance or math.huge, b.from and b.from.distance or math.huge
      if a.order ~= b.order then
         return a.order < b.order
      elseif a.compile ~= b.compile then
         return not a.compile
      elseif of_a ~= of_b then
         return of_a < of_b
      end
      return a.text < b.text
   end)
   return list
end

-- Adds evidence. Its sets count its kernels from 1.
function methods.add(self, evidence)
   local before = #self.kernels
   table.move(evidence.kernels, 1, #evidence.kernels, before + 1, self.kernels)
   for _, set in ipairs(evidence.sets) do
      for i, index in ipairs(set.kernels) do
         set.kernels[i] = before + index
      end
      self.sets[#self.sets + 1] = set
   end
end

-- Makes an estimate. evidence: as described at the top. model: what the estimates are made with:
--   parse(text)               {family, v, similarity, kind}, or nil
--   describe(card)            as in arch.lua
--   least_us(problem, arch)   the least time of the candidates; math.huge without candidates
--   serving(problem, arch)    list of the names of the families that serve the problem
function M.new(evidence, model)
   return axes_of.add_names({kernels = evidence.kernels, sets = evidence.sets}, model, methods)
end

return M
