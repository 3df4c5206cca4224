-- What time kernels take on a problem: as measured there, else by the cost model, corrected by what was
-- measured nearby.
--
-- Evidence is what a database knows, of one operation on one SM (init.lua says how it comes):
--   kernels  list of {text, class, registers, spilled, code}: spilled and code (it is there) are booleans
--   sets     list of {problem, card, here, shipped, kernels, us}: on one problem and card, the times in us of
--            kernels, by their index; here: the card is the one that is asked about; shipped: it came with fa2
--
-- A set says by which factors the model is wrong there (factors.lua). A kernel's is the mean over the sets that
-- have it, weighted by how near they are, and drawn to the model by `prior`. So what was measured far away changes
-- nothing, and a kernel that was measured nowhere near is judged by the model like the others.
--
-- From another class, at a distance that the classes add, two things are taken over: the family's factor, and
-- that of a kernel with the same tile and pipeline, as far as it goes beyond `chance`. Smaller ones do not hold for
-- other head dimensions, nor for bf16 instead of fp16: replayed on an H200, the choice was worse with them than with
-- nothing tuned. Where the model is far off, on another card, it is still corrected.
--
-- What the compiler made of a kernel (its registers) is drawn in as measurements of it are: else a kernel
-- that happens to be stored would be judged by other facts than one that is not.
local factors = require("core.factors")

local M = {}

-- Fitted on an H200 (tests/bench/untuned.py, 180 random problems with all candidates timed), with factors.lua's.
local fit = {
   -- What the model counts for, in measurements of this very problem.
   prior = 0.35,
   -- What a family's factor in another class counts for, as a share.
   family = 0.5,
   -- The logarithm of a kernel's factor that says nothing about other classes.
   chance = 0.15,
   -- Standard deviation of the logarithm of an estimate, beyond what all kernels of a problem share: what
   -- measurements nearby leave of it, and what the model alone has more.
   doubt = 0.045,
   model_doubt = 0.045,
}

-- What a kernel that must be compiled has to gain over one whose code is there and that was measured on this very
-- problem; the less, the farther away that was, and nothing over one that was measured nowhere near: that its code
-- happens to be there says nothing for it.
M.compile = 1.02

-- What an estimate must gain over that of the model's first choice, and what more, as a logarithm, where no
-- measurement of the kernel is near: a single one that is far away, or off by chance, is no reason to leave it.
M.stay = 1.01
local unheard = 0.015

-- What a kernel that spills is worse by, where it was not measured; one that suits the problem badly; one
-- of a family that does not serve it.
local spilled, unsuited, unserved = 1.5, 1.05, 1.5

-- Methods of what M.new returns.
local methods = {near = factors.near}

-- us of a kernel by the model; nil where no SM can hold it. text; registers: as the compiler said, or 0. One
-- that another generator made, of which the model knows nothing, has the time of the best candidate.
function methods.price(self, text, registers, problem, arch)
   local parsed = self.parse(text)
   local us = parsed and parsed.family.cost(parsed.v, problem, arch, registers)
      or self.least_us(problem, arch)
   return us < math.huge and us or nil
end

-- How many kernels of a set this generator could make.
local function count_made(self, set)
   local count = 0
   for _, index in ipairs(set.kernels) do
      count = count + (self.parse(self.kernels[index].text) and 1 or 0)
   end
   return count
end

-- Whether every family that serves a problem has a kernel among those of its class that are known: a database may
-- be older than a family.
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

-- Whether a set has measured what is worth trying on a problem this near. What was shipped was not tuned here.
function methods.is_familiar(self, problem, arch, near)
   for _, item in ipairs(near) do
      if item.same and item.set.here and not item.set.shipped and item.distance <= 0.7
         and count_made(self, item.set) >= 8 then
         return knows_families(self, problem, arch)
      end
   end
   return false
end

-- By what the model is wrong for all kernels, as a logarithm.
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

-- What a set of another class says about a kernel: the logarithm of a factor and its weight, nil if nothing; and
-- whether it has the kernel's like.
local function kin_factor(item, family, likeness)
   local set = item.set
   local own = set.alike[likeness]
   if own and math.abs(own) > fit.chance then
      return own - (own > 0 and fit.chance or -fit.chance), item.weight, true
   end
   return set.families[family], fit.family * item.weight, own ~= nil
end

-- The time of a kernel: index (nil for one that is in no set), text, price (the model's, with the registers that
-- are known), plain (the same without them). Returns us, what it rests on ("measured", "nearby", "elsewhere",
-- "model"), the nearest set of its class that has it, the weight of the measurements of it and its like, the
-- nearest set of another class that corrects it, and the weight of the measurements of its text alone.
local function estimate(self, near, common, kernel)
   local sum, own_weight, kin_weight, known, rests, from, kin = 0, 0, 0, 0, "model", nil, nil
   local family, likeness = factors.family_of(self, kernel.text), factors.likeness_of(self, kernel.text)
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
         local factor, weight, alike = kin_factor(item, family, likeness)
         if factor then
            sum, kin_weight, kin = sum + weight * factor, kin_weight + weight, kin or item
         end
         known = known + (alike and item.weight or 0)
      end
   end
   local drawn = sum + own_weight * math.log(kernel.price / kernel.plain)
   return kernel.plain * math.exp(common + drawn / (fit.prior + own_weight + kin_weight)), rests, from,
      own_weight + known, kin, own_weight
end

-- Of each of these kernels, by their texts: {us, doubt, known}; false where no SM can hold it. doubt: how far us
-- may be off, but for what it has in common with the others, as the standard deviation of a logarithm; known:
-- how many measurements of this very problem those that were taken are worth.
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

-- What is added to the order, beyond the estimate, as a factor.
local function handicap(self, option, problem, arch)
   local factor = 1
   local parsed = self.parse(option.text)
   if option.rests == "measured" or not parsed then
      return factor
   elseif option.spilled then
      factor = factor * spilled
   end
   if not option.candidate then
      if not parsed.family:serves(problem, arch) then
         factor = factor * unserved
      elseif not parsed.family.suits(parsed.v, problem, arch) then
         factor = factor * unsuited
      end
   end
   return factor
end

-- Whether a stored kernel can be had for a problem. One that another generator made can only be loaded; and
-- what a kernel says of itself has to be what it is stored as.
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

-- The stored kernels of a class and the candidates as options, each text once: {text, kernel (index),
-- registers, spilled, compile, candidate}.
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

-- Of the stored kernels with one text, which differ in what made them, the best one; and the estimate.
local function settle(self, option, near, problem, arch, common)
   local best
   for _, index in ipairs(option.twins) do
      local kernel = self.kernels[index]
      local price = self:price(kernel.text, kernel.registers, problem, arch)
      if price then
         local plain = option.candidate and option.candidate.cost_us or self:price(kernel.text, 0, problem, arch)
         local us, rests, from, _, kin, own = estimate(self, near, common, {
            index = index, text = kernel.text, price = price, plain = plain or price,
         })
         local one = {
            kernel = index, us = us, rests = rests, from = from, kin = kin, model_us = price, plain = plain or price,
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
      local us, _, _, _, kin = estimate(self, near, common, {text = option.text, price = price, plain = price})
      best = {us = us, rests = "model", kin = kin, model_us = price, plain = price, compile = true, trust = 0}
   end
   if not best then
      return nil
   end
   best.text, best.candidate = option.text, option.candidate
   local factor = handicap(self, best, problem, arch)
   best.order = best.us * factor / (best.compile and 1 or M.compile ^ best.trust)
   best.first_order = best.plain * factor
   return best
end

-- The model's first choice, where it puts one before all others and the problem itself was measured on no card, is
-- replaced only by what gains. Kernels of another generator are all alike to the model: it prefers none of them.
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

-- List of {text, kernel, us, model_us, rests, from, kin, compile, order, candidate}, the best choice first.
-- near: self:near(problem); candidates: list of {text, cost_us}.
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

-- More evidence, whose kernels are counted from 1.
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

-- evidence: as above. model: what the estimates are made with:
--   parse(text)               {family, v, likeness, kind}, or nil
--   describe(card)            arch.lua's
--   least_us(problem, arch)   of the candidates; math.huge if there are none
--   serving(problem, arch)    list of the names of the families that serve the problem
function M.new(evidence, model)
   local self = {kernels = evidence.kernels, sets = evidence.sets}
   for name, value in pairs(model) do
      self[name] = value
   end
   for name, method in pairs(methods) do
      self[name] = method
   end
   return self
end

return M
