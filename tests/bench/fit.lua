-- Fits the constants of the cost models to measurements of one card or of several, by coordinate search. What is made
-- small is, over the problems, the mean of what is lost by taking the model's first choices (weighted by how much they
-- are preferred), and half of how much the model's errors differ among the kernels of a problem. Prints the constants;
-- it changes no file. With FOLDS, says before what that makes of problems that were not fitted to: each part of as
-- many is left out once, from the constants as they are.
--
--   model="build/tests/run_lua tests/bench/model.lua"; fit="build/tests/run_lua tests/bench/fit.lua"
--   sqlite3 -csv fa2.db "$($model query)" | $fit [ROUNDS [FOLDS]]
--
-- from the top of the source tree. Random problems with all candidates timed: tests/bench/untuned.py, or
-- `fa2-tune field-report` on each card and `fa2-tune import` of all of them into one database.
local measured = dofile("tests/bench/measured.lua")
local arch_of = require("core.arch")
local variant_text = require("core.variant")

local tables = {
   {name = "plain", fit = require("ops.forward_plain_cost").fit},
   {name = "sm90", fit = require("ops.forward_sm90_cost").fit},
   {name = "splitkv", fit = require("ops.forward_splitkv_cost").fit},
   {name = "backward", fit = require("ops.backward_cost").fit},
   {name = "backward_sm90", fit = require("ops.backward_sm90").fit},
}
local preference = 0.03 -- a kernel that the model puts behind by this share counts 1/e
local slow, close = math.log(2), 0.4 -- kernels that are considered, and whose errors are, by the log of their factor

local families = {}
for _, family in ipairs(require("families")) do
   families[family.name] = family
end

-- The rows of a problem that say something: {family, v, registers, lost}, lost being the log of us over the best.
local function select_rows(entry)
   local best, list = math.huge, {}
   for _, row in ipairs(entry.rows) do
      best = math.min(best, row.us)
   end
   for _, row in ipairs(entry.rows) do
      local family = families[variant_text.family(row.variant)]
      local lost = math.log(row.us / best)
      if lost < slow and row.model_us < math.huge then
         list[#list + 1] = {family = family, v = assert(variant_text.parse(row.variant, family.axes)),
                            registers = row.registers, lost = lost}
      end
   end
   return list
end

-- What is lost on a problem, and the variance of the model's errors.
local function judge(entry)
   local least, errors, count = math.huge, 0, 0
   for _, row in ipairs(entry.rows) do
      row.log = math.log(row.family.cost(row.v, entry.problem, entry.arch, row.registers))
      least = math.min(least, row.log)
      if row.lost < close then
         errors, count = errors + row.lost - row.log, count + 1
      end
   end
   local weights, lost, variance = 0, 0, 0
   for _, row in ipairs(entry.rows) do
      local weight = math.exp(-(row.log - least) / preference)
      weights, lost = weights + weight, lost + weight * row.lost
      if row.lost < close then
         variance = variance + (row.lost - row.log - errors / count) ^ 2
      end
   end
   return lost / weights, variance / count
end

local function loss(list)
   local lost, variance = 0, 0
   for _, entry in ipairs(list) do
      local one, errors = judge(entry)
      lost, variance = lost + one, variance + errors
   end
   return lost / #list + 0.5 * (variance / #list) ^ 0.5
end

-- Names of a table's numbers, sorted.
local function names_of(fit)
   local names = {}
   for name, value in pairs(fit) do
      names[#names + 1] = type(value) == "number" and name or nil
   end
   table.sort(names)
   return names
end

local function improve(list, best, step)
   for _, model in ipairs(tables) do
      for _, name in ipairs(names_of(model.fit)) do
         local old = model.fit[name]
         for _, value in ipairs({old * (1 + step), old / (1 + step)}) do
            model.fit[name] = value
            local now = loss(list)
            if now < best - 1e-6 then
               best, old = now, value
               break
            end
         end
         model.fit[name] = old
      end
   end
   return best
end

local function fit_to(list, rounds, say)
   local best, step = loss(list), 0.3
   for round = 1, rounds do
      local before = best
      best = improve(list, best, step)
      say(("round %d: %.5f"):format(round, best))
      step = before - best < 0.0005 and step / 2 or step
   end
end

-- The constants, to be put back.
local function save()
   local saved = {}
   for i, model in ipairs(tables) do
      saved[i] = {}
      for _, name in ipairs(names_of(model.fit)) do
         saved[i][name] = model.fit[name]
      end
   end
   return saved
end

local function restore(saved)
   for i, model in ipairs(tables) do
      for name, value in pairs(saved[i]) do
         model.fit[name] = value
      end
   end
end

local function validate(list, rounds, folds)
   local before, after = 0, 0
   local saved = save()
   for fold = 1, folds do
      local fitted, left = {}, {}
      for i, entry in ipairs(list) do
         table.insert(i % folds + 1 == fold and left or fitted, entry)
      end
      before = before + loss(left) / folds
      fit_to(fitted, rounds, function() end)
      after = after + loss(left) / folds
      restore(saved)
   end
   print(("left out of %d fits: %.5f as it is, %.5f fitted"):format(folds, before, after))
end

local function main()
   local all, cards = measured.read(require("init").cost)
   local rounds, folds = tonumber(arg[1]) or 10, tonumber(arg[2]) or 0
   local list = {} -- of problems with something to choose
   for _, entry in ipairs(all) do
      entry.arch = assert(arch_of.describe(entry.card))
      entry.rows = select_rows(entry)
      list[#list + 1] = #entry.rows > 1 and entry or nil
   end
   assert(#list > 0, "no problem with two variants that were timed")
   print(("%d problems, cards: %d: %.5f"):format(#list, cards, loss(list)))
   if folds > 1 then
      validate(list, rounds, folds)
   end
   fit_to(list, rounds, print)
   for _, model in ipairs(tables) do
      for _, name in ipairs(names_of(model.fit)) do
         print(("%s %s = %.4g"):format(model.name, name, model.fit[name]))
      end
   end
end

main()
