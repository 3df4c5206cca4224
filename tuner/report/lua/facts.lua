-- Orders the rows of a database for a page: texts become numbers, and measurements are grouped by problem.
--
-- An invalid row (from a damaged database) is left out and counted.
local statistics = require("tuner.report.lua.statistics")

local M = {}

local function key_of(row, shape)
   return (row.device or "") .. "\0" .. (row.arch or "") .. "\0" .. shape
end

local function set_numbers(row, names)
   for name in names:gmatch("%S+") do
      row[name] = tonumber(row[name])
   end
end

local card_numbers = "arch sm_count smem_block_bytes smem_sm_bytes l2_bytes clock_khz bandwidth_bytes real"

-- Lists devices, and indexes them by name and SM. If several share these, the first one stands for all.
local function read_devices(rows)
   local by_key, list = {}, {}
   for _, row in ipairs(rows) do
      row.device = row.name
      local key = key_of(row, "")
      set_numbers(row, card_numbers)
      for name in card_numbers:gmatch("%S+") do
         row[name] = math.tointeger(row[name])
      end
      row.key, row.problems, row.timed = key, {}, {}
      list[#list + 1] = row
      by_key[key] = by_key[key] or row
   end
   return list, by_key
end

-- Parses a variant's text into {family, axes}. axes is the list of names, and has the value under each name.
local function parse_variant(text)
   local family, rest = text:match("^(%S+)%s*(.*)$")
   local axes = {}
   for name, value in rest:gmatch("(%S-)=(%S+)") do
      axes[#axes + 1] = name
      axes[name] = value
   end
   return {family = family or text, axes = axes}
end

-- Returns a variant's text without the axes that repeat the problem.
local function brief(variant, problem)
   local words = {variant.family}
   for _, name in ipairs(variant.axes) do
      if name ~= "d" and name ~= "dv" and problem[name] == nil then
         words[#words + 1] = name .. "=" .. variant.axes[name]
      end
   end
   return table.concat(words, " ")
end

-- Returns the group of a row's problem on its device, and makes it if it is new. Returns nil for an invalid row.
local function group_of(facts, row)
   local ok, shape = pcall(facts.host.shape, row)
   if not ok or not shape then
      facts.left_out = facts.left_out + 1
      return nil
   end
   local key = key_of(row, shape)
   local group = facts.by_key[key]
   if not group then
      local device = facts.device_by_key[key_of(row, "")]
      if not device then
         facts.left_out = facts.left_out + 1
         return nil
      end
      group = {device = device, problem = facts.host.describe(row), fields = row, shape = shape, rows = {}, ok = {},
               failed = {}, spared = 0, timed = {}}
      group.problem.shape = shape
      facts.by_key[key] = group
      facts.groups[#facts.groups + 1] = group
      device.problems[#device.problems + 1] = group
   end
   return group
end

-- Returns the group of a row, and turns the row's fields of these names into numbers.
local function place(facts, row, numbers)
   local group = group_of(facts, row)
   if group then
      set_numbers(row, numbers)
   end
   return group
end

local measured_numbers = "n min_us q1_us median_us q3_us tflops max_error registers spill_bytes smem_bytes threads"

local function add_measurement(facts, row)
   local group = place(facts, row, measured_numbers)
   if not group then
      return
   end
   local timed = row.outcome == "ok" and (row.median_us or 0) > 0
   if row.outcome == "left_out" or row.outcome == "ok" and not timed then -- an older database has no outcome left_out
      group.spared, facts.spared = group.spared + 1, facts.spared + 1
      return
   end
   local variant = facts.variants[row.variant]
   if not variant then
      variant = parse_variant(row.variant or "")
      facts.variants[row.variant or ""] = variant
   end
   row.family, row.axes = variant.family, variant.axes
   row.best = row.winner == "1"
   group.rows[#group.rows + 1] = row
   local list = timed and group.ok or group.failed
   list[#list + 1] = row
   for _, whole in ipairs(timed and {facts, group, group.device} or {}) do
      whole.timed[row.source == "modelled" and "modelled" or "measured"] = true
   end
   if row.best and not timed and group.winner and not group.winner.refuted then
      group.winner.failed = row.outcome
   end
   facts.measurements = facts.measurements + 1
end

-- Returns why a call cannot use a winner as it is, in the words of `fa2-tune list`; nil if it can.
local function state_of(row)
   return row.other_version == "1" and "other version" or row.has_image == "0" and "missing"
      or row.damaged == "1" and "damaged" or nil
end

local winner_numbers = "median_us model_us tflops speedup_vs_default default_us registers smem_bytes threads"

local function add_winner(facts, row)
   local group = place(facts, row, winner_numbers)
   if not group then
      return
   end
   row.group, group.winner = group, row
   row.state = state_of(row)
   row.brief = brief(parse_variant(row.variant or ""), group.problem)
   facts.winners[#facts.winners + 1] = row
end

-- Adds measurements from a benchmark's file (tuner/report/benchmark_file.c): each device gets its ceilings (rates by
-- name), each winner the time of naive attention.
local function add_benchmark(facts, data)
   for _, device in ipairs(facts.devices) do
      device.ceilings = {}
      for _, row in ipairs(data.ceilings) do
         if row.device == device.name then
            device.ceilings[row.name] = tonumber(row.rate)
         end
      end
   end
   local naive = {}
   for _, row in ipairs(data.naive) do
      naive[(row.device or "") .. "\0" .. (row.shape or "")] = tonumber(row.median_us)
   end
   for _, row in ipairs(facts.winners) do
      local us = naive[(row.device or "") .. "\0" .. row.group.shape]
      row.naive_us, row.gain_over_naive = us, us and (row.median_us or 0) > 0 and us / row.median_us or nil
   end
end

-- Adds the model's times of a group's variants, their rank correlation with the measured times, and the rank that the
-- model gives the fastest variant.
local function add_model(group, cost)
   local measured, modelled = {}, {}
   for _, row in ipairs(group.ok) do
      local ok, us = pcall(cost, row.variant, group.problem, group.device, row.registers or 0)
      row.model_us = ok and us or nil
      if row.model_us then
         measured[#measured + 1], modelled[#modelled + 1] = row.median_us, row.model_us
      end
   end
   group.modelled = #modelled
   group.correlation = statistics.rank_correlation(measured, modelled)
   local fastest = group.ok[1]
   if fastest and fastest.model_us then
      group.fastest_rank = 1
      for _, us in ipairs(modelled) do
         group.fastest_rank = group.fastest_rank + (us < fastest.model_us and 1 or 0)
      end
   end
end

-- Reads the rows of a database. tools.host has shape and describe (tuner/report/page.c). tools.cost returns the model's
-- time, or nil. Returns a table:
--   path       the file's name; its folders are private
--   devices    each with ceilings (by name)
--   sessions
--   winners    rows with group and brief. Also naive_us and gain_over_naive if that was timed; state; and the outcome
--              by which it was refuted or failed
--   left_out   number of invalid rows
--   timed      how times were taken: booleans measured and modelled (by a software device). Devices and groups have
--              it, too
--   measurements, spared   numbers of variants that were tried, and that the tuner left out without running them
--   groups     per device and problem: device, problem, shape, winner (or nil); rows, divided into ok (timed, fastest
--              first) and failed; spared; correlation, fastest_rank, modelled (number of rows with a model's time)
function M.read(tools, data)
   local facts = {host = tools.host, path = data.path:match("[^/]+$") or data.path, sessions = data.sessions,
                  winners = {}, groups = {}, by_key = {}, variants = {}, left_out = 0, measurements = 0, spared = 0,
                  timed = {}}
   facts.devices, facts.device_by_key = read_devices(data.devices)
   for _, row in ipairs(data.winners) do
      add_winner(facts, row)
   end
   for _, row in ipairs(data.measurements) do
      add_measurement(facts, row)
   end
   add_benchmark(facts, data)
   for index, group in ipairs(facts.groups) do
      group.index = index
      table.sort(group.ok, function(a, b)
         return a.median_us < b.median_us or a.median_us == b.median_us and a.variant < b.variant
      end)
      add_model(group, tools.cost)
   end
   return facts
end

return M
