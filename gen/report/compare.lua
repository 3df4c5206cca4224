-- Two databases side by side: problems that both have a winner for.
local figures = require("report.figures")
local format = require("report.format")
local statistics = require("report.statistics")

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

-- Winners by problem; with `devices` by device and problem.
local function index(facts, devices)
   local by = {}
   for _, row in ipairs(facts.winners) do
      local key = (devices and row.device .. " " .. row.arch .. "\0" or "") .. row.group.shape
      by[key] = by[key] or row
   end
   return by
end

-- path, devices (are they told apart?), rows: {shape, device, here, there, ratio, changed}; ratio is the other's
-- time over this one's. Devices that both have are compared with themselves; where there is none, problems are
-- compared whatever the device.
function M.view(host, facts, other)
   local mine, common = names_of(facts), false
   for name in pairs(names_of(other)) do
      common = common or mine[name] == true
   end
   local theirs, rows, ratios, missing = index(other, common), {}, {}, 0
   for _, row in ipairs(facts.winners) do
      local there = theirs[(common and row.device .. " " .. row.arch .. "\0" or "") .. row.group.shape]
      local a, b = time_of(row), there and time_of(there)
      if a and b and a > 0 then
         ratios[#ratios + 1] = b / a
         rows[#rows + 1] = {shape = row.group.shape, device = row.device, other_device = there.device, here = a,
                            there = b, ratio = b / a, changed = row.brief ~= there.brief, brief = row.brief,
                            other_brief = there.brief}
      else
         missing = missing + 1
      end
   end
   table.sort(rows, function(a, b)
      return a.ratio > b.ratio or a.ratio == b.ratio and a.shape < b.shape
   end)
   return {
      path = other.path, rows = rows, same_devices = common, missing = missing,
      only_there = #other.winners - #rows > 0 and #other.winners - #rows or 0,
      mean = statistics.geometric_mean(ratios) or false,
      figure = figures.gains(host, ratios, {
         title = "Time in the other database over time here, by problem",
         order = format.plural(#ratios, "problem") .. ", the greatest ratio first",
         ratio = "time there / time here",
      }) or false,
   }
end

return M
