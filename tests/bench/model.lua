-- How well the cost model ranks what was measured: per problem Spearman's rank correlation of model and
-- measurement, the place of the measured winner in the model's order, and what is lost when only the model's
-- first 1 or 12 candidates are measured.
--
--   model="build/tests/run_lua tests/bench/model.lua"
--   sqlite3 -csv fa2.db "$($model query)" | $model
--
-- from the top of the source tree; the card is the one measured, and of several each counts for itself.
local lines = dofile("tests/bench/measured.lua")

-- row → place from 1, by a field.
local function places(rows, field)
   local sorted, place = table.move(rows, 1, #rows, 1, {}), {}
   table.sort(sorted, function(a, b)
      if a[field] ~= b[field] then
         return a[field] < b[field]
      end
      return a.variant < b.variant
   end)
   for i, row in ipairs(sorted) do
      place[row] = i
   end
   return place, sorted
end

local function spearman(rows, a, b)
   local sum, n = 0, #rows
   for _, row in ipairs(rows) do
      sum = sum + (a[row] - b[row]) ^ 2
   end
   return 1 - 6 * sum / (n * (n * n - 1))
end

-- Per cent by which the best of the model's first `count` is slower than the best of all.
local function loss(by_model, best_us, count)
   local us = math.huge
   for i = 1, math.min(count, #by_model) do
      us = math.min(us, by_model[i].us)
   end
   return (us / best_us - 1) * 100
end

local function median(values)
   table.sort(values)
   return values[(#values + 1) // 2]
end

local function main()
   local list, cards = lines.read(require("init").cost)
   local rhos, within, worst, sum = {}, 0, 0, 0
   print(table.concat(lines.problem_fields, " ")
         .. ": variants, rank correlation, place of the best, loss with first 1, 12")
   for i = #list, 1, -1 do
      if #list[i].rows < 2 then -- nothing to rank
         table.remove(list, i)
      end
   end
   if #list == 0 then
      error("no problem with two variants that were timed", 0)
   end
   for _, entry in ipairs(list) do
      local measured, by_time = places(entry.rows, "us")
      local modelled, by_model = places(entry.rows, "model_us")
      local best = by_time[1]
      local lost = loss(by_model, best.us, 12)
      rhos[#rhos + 1] = spearman(entry.rows, measured, modelled)
      within = within + (modelled[best] <= 12 and 1 or 0)
      worst, sum = math.max(worst, lost), sum + lost
      print(("%s%s: %d, %.2f, %d, %.1f %%, %.1f %%"):format(
         entry.key, cards > 1 and " on " .. entry.card.name or "", #entry.rows, rhos[#rhos], modelled[best],
         loss(by_model, best.us, 1), lost))
   end
   print(("%d problems: median rank correlation %.2f; best among the first 12 on %d; measuring only those loses "
          .. "%.1f %% on average, %.1f %% at worst"):format(#list, median(rhos), within, sum / #list, worst))
end

if arg[1] == "query" then
   print(lines.query())
else
   main()
end
