-- What was measured, as lines of CSV: variant, registers, median_us, then the problem's and the card's fields in
-- the order below. For the scripts here, by dofile.
local fa2 = fa2 -- luacheck: ignore 113 (tests/bench/run_lua.c)

local M = {problem_fields = fa2.fields}

local problem_fields = fa2.fields
local card_fields = {"arch", "sm_count", "smem_block_bytes", "smem_sm_bytes", "l2_bytes", "clock_khz",
                     "bandwidth_bytes", "name"}

-- The SQL that gives the lines.
function M.query()
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

-- {key, problem, card, rows = {{variant, registers, us, model_us}}} per problem and card, in the order of the lines of
-- standard input, and how many cards there are. key: the problem's fields. cost: that of gen/init.lua.
function M.read(cost)
   local list, by_line, cards, card_count = {}, {}, {}, 0
   for line in io.lines() do
      local f = split((line:gsub("\r$", "")))
      local both = table.concat(f, " ", 4) -- two cards were asked the same problems
      local entry = by_line[both]
      if not entry then
         entry = {key = table.concat(f, " ", 4, 3 + #problem_fields), problem = fa2.problem(take(f, 4, problem_fields)),
                  rows = {}, card = take(f, 4 + #problem_fields, card_fields)}
         by_line[both], list[#list + 1] = entry, entry
         local card = table.concat(f, " ", 4 + #problem_fields)
         card_count = card_count + (cards[card] and 0 or 1)
         cards[card] = true
      end
      local registers = math.tointeger(tonumber(f[2]))
      local model_us = assert(cost(f[1], entry.problem, entry.card, registers))
      entry.rows[#entry.rows + 1] = {variant = f[1], registers = registers, us = tonumber(f[3]), model_us = model_us}
   end
   return list, card_count
end

return M
