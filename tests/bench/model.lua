-- How well the cost model ranks what was measured: per problem Spearman's rank correlation of model and
-- measurement, the place of the measured winner in the model's order, and what is lost when only the model's
-- first 1 or 12 candidates are measured.
--
--   model="build/tests/run_lua tests/bench/model.lua"
--   sqlite3 -csv fa2.db "$($model query)" | $model
--
-- from the top of the source tree; the card is the one measured. Lines are variant, registers, median_us, then
-- the problem's and the card's fields in the order below.
local fa2 = fa2 -- luacheck: ignore 113 (tests/bench/run_lua.c)
local problem_fields = fa2.fields
local card_fields = {"arch", "sm_count", "smem_block_bytes", "smem_sm_bytes", "l2_bytes", "clock_khz",
                     "bandwidth_bytes", "name"}

local function query()
   local function of(prefix, fields)
      return prefix .. "." .. table.concat(fields, ", " .. prefix .. ".")
   end
   return "SELECT k.variant, k.registers, m.median_us, " .. of("p", problem_fields) .. ", "
      .. of("d", card_fields) .. " FROM measurement m JOIN kernel k ON k.id = m.kernel"
      .. " JOIN problem p ON p.id = m.problem JOIN device d ON d.id = m.device"
      .. " WHERE m.outcome = 'ok' AND m.n > 0 ORDER BY p.id, k.id"
end

-- Fields of a CSV line without embedded quotes.
local function split(line)
   local fields = {}
   for quoted, plain in (line .. ","):gmatch('"?([^",]*)"?,()') do
      fields[#fields + 1] = plain and quoted
   end
   return fields
end

local function take(fields, first, names)
   local record = {}
   for i, name in ipairs(names) do
      record[name] = math.tointeger(tonumber(fields[first + i - 1])) or fields[first + i - 1]
   end
   return record
end

-- {key, problem, card, rows = {{variant, us, model_us}}} per problem, in the order of the lines.
local function read_problems(cost)
   local list, by_key = {}, {}
   for line in io.lines() do
      local f = split((line:gsub("\r$", "")))
      local key = table.concat(f, " ", 4, 3 + #problem_fields)
      local entry = by_key[key]
      if not entry then
         entry = {key = key, problem = fa2.problem(take(f, 4, problem_fields)), rows = {},
                  card = take(f, 4 + #problem_fields, card_fields)}
         by_key[key], list[#list + 1] = entry, entry
      end
      local model_us = assert(cost(f[1], entry.problem, entry.card, math.tointeger(tonumber(f[2]))))
      entry.rows[#entry.rows + 1] = {variant = f[1], us = tonumber(f[3]), model_us = model_us}
   end
   return list
end

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
   local list = read_problems(require("init").cost)
   local rhos, within, worst, sum = {}, 0, 0, 0
   print(table.concat(problem_fields, " ") .. ": variants, rank correlation, place of the best, loss with first 1, 12")
   for _, entry in ipairs(list) do
      local measured, by_time = places(entry.rows, "us")
      local modelled, by_model = places(entry.rows, "model_us")
      local best = by_time[1]
      local lost = loss(by_model, best.us, 12)
      rhos[#rhos + 1] = spearman(entry.rows, measured, modelled)
      within = within + (modelled[best] <= 12 and 1 or 0)
      worst, sum = math.max(worst, lost), sum + lost
      print(("%s: %d, %.2f, %d, %.1f %%, %.1f %%"):format(entry.key, #entry.rows, rhos[#rhos], modelled[best],
                                                         loss(by_model, best.us, 1), lost))
   end
   print(("%d problems: median rank correlation %.2f; best among the first 12 on %d; measuring only those loses "
          .. "%.1f %% on average, %.1f %% at worst"):format(#list, median(rhos), within, sum / #list, worst))
end

if arg[1] == "query" then
   print(query())
else
   main()
end
