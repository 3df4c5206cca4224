-- Compares two databases: the problems for which both have a winner.
local figures = require("tuner.report.lua.figures")
local format = require("tuner.report.lua.format")
local statistics = require("tuner.report.lua.statistics")

local M = {}

local function time_of(row)
   return row.median_us or row.model_us
end

local function names_of(facts)
   local names = {}
   for _, row in ipairs(facts.winners) do
      names[row.device .. " " .. row.arch] = true
   end
   return names
end

local function key_of(row, devices)
   return (devices and row.device .. " " .. row.arch .. "\0" or "") .. row.group.shape
end

-- Indexes winners by problem; with `devices`, by device and problem.
local function index(facts, devices)
   local by = {}
   for _, row in ipairs(facts.winners) do
      local key = key_of(row, devices)
      by[key] = by[key] or row
   end
   return by
end

-- Returns how many keys of an index were not matched, and how many were.
local function count(by, matched)
   local rest, found = 0, 0
   for key in pairs(by) do -- only counts, so the order does not matter
      rest, found = rest + (matched[key] and 0 or 1), found + (matched[key] and 1 or 0)
   end
   return rest, found
end

-- Returns a table for the templates. Times are texts.
--   path           of the other database
--   same_devices   true: both have a common device, and each device is compared with itself. false: problems are
--                  compared across devices
--   both, missing, only_there   numbers of problems in both, only here, only there
--   rows           {shape, device, here, there, ratio, changed, ...}. ratio is the other time / this time; false if one
--                  is measured and the other modelled
--   compared       number of rows with a ratio; the mean and the figure are over these
--   mixed          number of rows without a ratio
function M.view(host, facts, other)
   local names, common = names_of(facts), false
   for name in pairs(names_of(other)) do
      common = common or names[name] == true
   end
   local mine, theirs = index(facts, common), index(other, common)
   local rows, ratios, matched = {}, {}, {}
   for _, row in ipairs(facts.winners) do
      local key = key_of(row, common)
      local there = theirs[key]
      local a, b = time_of(row), there and time_of(there)
      if a and b and a > 0 then
         local ratio = row.source == there.source and b / a or nil
         ratios[#ratios + 1] = ratio
         matched[key] = true
         rows[#rows + 1] = {shape = row.group.shape, device = row.device, other_device = there.device,
                            here = format.time(row), there = format.time(there), ratio = ratio or false,
                            changed = row.brief ~= there.brief, brief = row.brief, other_brief = there.brief,
                            source = row.source or "", other_source = there.source or ""}
      end
   end
   table.sort(rows, function(a, b) -- rows without a ratio come last
      local x, y = a.ratio or -1, b.ratio or -1
      return x > y or x == y and a.shape < b.shape
   end)
   local missing, both = count(mine, matched)
   return {
      path = other.path, rows = rows, same_devices = common, both = both, missing = missing,
      only_there = (count(theirs, matched)), compared = #ratios, mixed = #rows - #ratios,
      mean = statistics.geometric_mean(ratios) or false,
      figure = figures.gains(host, ratios, {
         title = "Time in the other database over time here, by problem",
         order = format.plural(#ratios, "problem") .. ", the greatest ratio first",
         ratio = "time there / time here",
      }) or false,
   }
end

return M
