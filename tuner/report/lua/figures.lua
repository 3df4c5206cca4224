-- The figures of a page, as SVG. This file computes coordinates; tuner/report/templates/*.svg.in draw. Each function
-- returns markup for a template, or nil if there is nothing to draw.
local format = require("tuner.report.lua.format")
local scale = require("tuner.report.lua.scale")
local template = require("core.template")

local M = {}

-- host.read returns the text of a template.
local function draw(host, file, values)
   values.f, values.pixel = format.place, format.pixel
   local text, message = template.expand("tuner/report/templates/" .. file, values, host.read, format.html)
   return format.markup(text or error(message, 0))
end

-- Makes one path from points, "M12 30h0M...". It is drawn with round ends.
local function points(list, x, y)
   local pieces = {}
   for _, point in ipairs(list) do
      pieces[#pieces + 1] = "M" .. format.place(x(point[1])) .. " " .. format.place(y(point[2])) .. "h0"
   end
   return table.concat(pieces)
end

local function range(list, index)
   local least, most = math.huge, -math.huge
   for _, point in ipairs(list) do
      least, most = math.min(least, point[index]), math.max(most, point[index])
   end
   return least, most
end

-- Returns the scale of an axis, its ticks (with text and at), and its ends, for a plot's template.
local function axis(least, most, from, to, logarithmic)
   local ticks
   if logarithmic then
      least, most, ticks = scale.decades(least, most)
   else
      least, most, ticks = scale.linear(least, most, 5)
   end
   local place = scale.new(least, most, from, to, logarithmic)
   for _, tick in ipairs(ticks) do
      tick.at = place(tick.value)
   end
   return place, ticks, least, most
end

local plot = {left = 52, right = 468, top = 14, bottom = 276}

-- Returns where the label of a line between these points goes: above its middle. If another line is above it (below),
-- the label goes under it; with a slope under its first part, where the lines that it meets are far.
local function label_place(x1, y1, x2, y2, below)
   local share = below and y1 ~= y2 and 0.22 or 0.5
   return {x = x1 + share * (x2 - x1), y = y1 + share * (y2 - y1), angle = math.deg(math.atan(y2 - y1, x2 - x1)),
           anchor = "mid", rise = below and 14 or -5}
end

-- Draws points and lines.
--   sets: list of {name, class, points: {x, y}}
--   lines: list of {name, class, through, label or false, below}
--   through({x_least, x_most, y_least, y_most}) returns the line's two ends inside these bounds, or nil if it has none
--   below: the label goes under the line
local function scatter(host, values, sets, lines, logarithmic_x, logarithmic_y)
   local all = {}
   for _, set in ipairs(sets) do
      table.move(set.points, 1, #set.points, #all + 1, all)
   end
   for _, point in ipairs(values.extent or {}) do
      all[#all + 1] = point
   end
   if #all == 0 then
      return nil
   end
   local x_least, x_most = range(all, 1)
   local y_least, y_most = range(all, 2)
   local x, y
   local frame = {}
   x, values.x_ticks, frame.x_least, frame.x_most = axis(x_least, x_most, plot.left, plot.right, logarithmic_x)
   y, values.y_ticks, frame.y_least, frame.y_most = axis(y_least, y_most, plot.bottom, plot.top, logarithmic_y)
   for _, set in ipairs(sets) do
      set.path = points(set.points, x, y)
   end
   values.sets, values.lines, values.plot = sets, {}, plot
   for _, line in ipairs(lines) do
      local ends = line.through(frame)
      if ends then
         local x1, y1, x2, y2 = x(ends[1][1]), y(ends[1][2]), x(ends[2][1]), y(ends[2][2])
         line.path = "M" .. format.place(x1) .. " " .. format.place(y1) .. "L" .. format.place(x2) .. " " ..
                     format.place(y2)
         line.at = label_place(x1, y1, x2, y2, line.below)
         values.lines[#values.lines + 1] = line
      end
   end
   return draw(host, "scatter.svg.in", values)
end

-- Draws the model's times over the real ones, for all variants of the groups. how: how the real ones were taken.
function M.model(host, groups, how)
   local list = {}
   for _, group in ipairs(groups) do
      for _, row in ipairs(group.ok) do
         if row.model_us then
            list[#list + 1] = {row.median_us, row.model_us}
         end
      end
   end
   local diagonal = {name = "equal", class = "guide", label = false, through = function(frame)
      return {{frame.x_least, frame.y_least}, {frame.x_most, frame.y_most}}
   end}
   local extent = {}
   for _, point in ipairs(list) do
      extent[#extent + 1] = {point[2], point[1]} -- equal ranges, so that the diagonal means equal times
   end
   return scatter(host, {
      title = "The cost model's time over the time " .. how .. ", of " .. format.plural(#list, "variant"),
      x_title = "\u{B5}s, " .. how, y_title = "cost model \u{B5}s", extent = extent,
   }, {{name = "variants", class = "cloud", points = list}}, {diagonal}, true, true)
end

-- A roof of roof.tflops: from the point where the steepest memory slope meets it, to the right.
local function flat_roof(roof, slope)
   return function(frame)
      local from = slope > 0 and math.max(roof.tflops * 1e3 / slope, frame.x_least) or frame.x_least
      return from < frame.x_most and {{from, roof.tflops}, {frame.x_most, roof.tflops}} or nil
   end
end

-- A roof of roof.gbps: a slope, up to the highest roof.
local function sloped_roof(roof, peak)
   return function(frame)
      local from = math.max(frame.x_least, frame.y_least * 1e3 / roof.gbps)
      local to = math.min(frame.x_most, math.min(frame.y_most, peak) * 1e3 / roof.gbps)
      return from < to and {{from, from * roof.gbps * 1e-3}, {to, to * roof.gbps * 1e-3}} or nil
   end
end

-- Draws winners over arithmetic intensity. roofs: list of {name, label, measured, tflops or gbps}, highest first within
-- each kind. The picture includes the points where roofs meet.
function M.roofline(host, winners, roofs)
   local list, lines, extent, peak, slope = {}, {}, {}, 0, 0
   for _, row in ipairs(winners) do
      local problem = row.group.problem
      local us = row.median_us or row.model_us
      if us and us > 0 and problem.flop > 0 and problem.bytes > 0 then
         list[#list + 1] = {problem.flop / problem.bytes, problem.flop / us * 1e-6}
      end
   end
   if #list == 0 then
      return nil
   end
   for _, roof in ipairs(roofs) do
      peak, slope = math.max(peak, roof.tflops or 0), math.max(slope, roof.gbps or 0)
   end
   local _, most = range(list, 1)
   for _, roof in ipairs(roofs) do
      local highest = roof.tflops == peak or roof.gbps == slope
      lines[#lines + 1] = {
         name = roof.name, class = roof.measured and "roof" or "roof given", label = roof.label, below = not highest,
         through = roof.tflops and flat_roof(roof, slope) or sloped_roof(roof, peak > 0 and peak or math.huge),
      }
      if roof.tflops then
         local ridge = slope > 0 and roof.tflops * 1e3 / slope or most
         extent[#extent + 1] = {math.max(most, 2 * ridge), roof.tflops} -- and a part of the roof beyond
      end
   end
   return scatter(host, {
      title = "TFLOPS over arithmetic intensity of " .. format.plural(#list, "winner"), extent = extent,
      x_title = "FLOP per byte that must be moved", y_title = "TFLOPS",
   }, {{name = "winners", class = "cloud", points = list}}, lines, true, true)
end

-- Draws ratios of times, one per problem, greatest first. texts: title; order and ratio, the texts below and above the
-- picture.
function M.gains(host, values, texts)
   if #values == 0 then
      return nil
   end
   local sorted = table.move(values, 1, #values, 1, {})
   table.sort(sorted, function(a, b) return a > b end)
   local least, most = math.min(1, sorted[#sorted]), math.max(1.05, sorted[1])
   local y, ticks = axis(least, most, plot.bottom, plot.top, false)
   local x = scale.new(0.5, #sorted + 0.5, plot.left, plot.right)
   local stems = {}
   for i, value in ipairs(sorted) do
      stems[i] = "M" .. format.place(x(i)) .. " " .. format.place(y(1)) .. "V" .. format.place(y(value))
   end
   return draw(host, "gains.svg.in", {
      title = texts.title, order = texts.order, ratio = texts.ratio, y_ticks = ticks, one = y(1),
      stems = table.concat(stems), plot = plot,
      width = math.max(1, math.min(8, (plot.right - plot.left) / #sorted * 0.62)),
   })
end

-- Draws the number of problems with a rank correlation in each tenth. correlated: names the two compared times.
function M.correlations(host, values, correlated)
   if #values == 0 then
      return nil
   end
   local bins, most, least_bin = {}, 0, 10
   for i = 1, 10 do
      bins[i] = {count = 0}
   end
   for _, value in ipairs(values) do
      local bin = math.max(1, math.min(10, math.floor(value * 10) + 1))
      bins[bin].count = bins[bin].count + 1
      most, least_bin = math.max(most, bins[bin].count), math.min(least_bin, bin)
   end
   local y, ticks = axis(0, most, plot.bottom, plot.top, false)
   local x = scale.new(0, 10, plot.left, plot.right)
   for i, bin in ipairs(bins) do
      bin.x, bin.width, bin.y, bin.height = x(i - 1) + 1.5, x(i) - x(i - 1) - 3, y(bin.count), y(0) - y(bin.count)
   end
   local x_ticks = {}
   for i = 0, 10, 2 do
      x_ticks[#x_ticks + 1] = {at = x(i), text = i == 0 and "\u{2264} 0" or string.format("%.1f", i / 10)}
   end
   return draw(host, "bars.svg.in", {
      title = "Rank correlation of " .. correlated .. ", by problem", bins = bins, x_ticks = x_ticks,
      y_ticks = ticks, plot = plot, x_title = "rank correlation", y_title = "problems",
   })
end

-- ---- of one problem ----

-- Splits rows by a function of them. Returns the lists by key, and the keys in order.
local function split(rows, key)
   local by, keys = {}, {}
   for _, row in ipairs(rows) do
      local k = key(row)
      if k and not by[k] then
         by[k], keys[#keys + 1] = {}, k
      end
      if k then
         table.insert(by[k], row)
      end
   end
   table.sort(keys, function(a, b)
      local x, y = tonumber(a), tonumber(b)
      if x and y then
         return x < y
      end
      return tostring(a) < tostring(b)
   end)
   return by, keys
end

local strip = {left = 112, right = 384, row = 18}

-- Draws all variants by family, as one stroke each. 1 is the fastest. Variants slower than four times that are at the
-- end.
function M.distribution(host, group)
   if #group.ok < 2 then
      return nil
   end
   local best = group.ok[1].median_us
   local most = math.min(4, group.ok[#group.ok].median_us / best)
   local x = scale.new(1, math.max(most, 1.02), strip.left, strip.right, true)
   local by, keys = split(group.ok, function(row) return row.family end)
   local lines, strokes, marks, grid = {}, {}, {}, {}
   for i, family in ipairs(keys) do
      local last
      for _, row in ipairs(by[family]) do
         local list = row.best and marks or strokes
         local stroke = "M" .. format.pixel(x(math.min(row.median_us / best, 4))) .. " " .. 10 + strip.row * (i - 1) ..
                        "v12"
         if row.best or stroke ~= last then -- strokes at the same place are drawn once
            list[#list + 1], last = stroke, stroke
         end
      end
      lines[i] = {name = family, y = 20 + strip.row * (i - 1)}
   end
   local ticks = {}
   for _, value in ipairs({1, 1.1, 1.25, 1.5, 2, 3, 4}) do
      if value <= math.max(most, 1.02) * 1.001 then
         ticks[#ticks + 1] = {at = x(value), text = string.format("%g\u{D7}", value)}
         grid[#grid + 1] = "M" .. format.pixel(x(value)) .. " 4V" .. 14 + strip.row * #keys
      end
   end
   return draw(host, "strip.svg.in", {lines = lines, ticks = ticks, strip = strip, height = 30 + strip.row * #keys,
                                      grid = table.concat(grid), strokes = table.concat(strokes),
                                      marks = table.concat(marks),
                                      title = format.plural(#group.ok, "variant") .. " by time over the fastest"})
end

-- Returns the axes in which a group's timed variants differ, in the order of their texts.
function M.varied_axes(rows)
   local first, varied, list = {}, {}, {}
   for _, row in ipairs(rows) do
      for _, name in ipairs(row.axes) do
         if first[name] == nil then
            first[name], list[#list + 1] = row.axes[name], name
         elseif first[name] ~= row.axes[name] then
            varied[name] = true
         end
      end
   end
   local names = {}
   for _, name in ipairs(list) do
      names[#names + 1] = varied[name] and name or nil
   end
   return names
end

-- Draws the fastest, the median and the slowest variant for each value of each axis.
function M.by_axis(host, group)
   local names = M.varied_axes(group.ok)
   if #names == 0 then
      return nil
   end
   local best = group.ok[1].median_us
   local most = math.max(1.02, math.min(4, group.ok[#group.ok].median_us / best))
   local x = scale.new(1, most, strip.left, strip.right, true)
   local lines, spans, middles, dots, bests, y = {}, {}, {}, {}, {}, 4
   for _, name in ipairs(names) do
      local by, keys = split(group.ok, function(row) return row.axes[name] end)
      y = y + 6
      for i, value in ipairs(keys) do
         local rows = by[value]
         local middle = rows[(#rows + 1) // 2].median_us
         local at, from = " " .. format.pixel(y + 8), format.pixel(x(math.min(rows[1].median_us / best, most)))
         lines[#lines + 1] = {name = i == 1 and name or "", value = value, y = y + 12}
         spans[#spans + 1] = "M" .. from .. at .. "H" .. format.pixel(x(math.min(rows[#rows].median_us / best, most)))
         middles[#middles + 1] = "M" .. format.pixel(x(math.min(middle / best, most))) .. " " ..
                                 format.pixel(y + 4) .. "v8"
         local list = rows[1] == group.ok[1] and bests or dots
         list[#list + 1] = "M" .. from .. at .. "h0"
         y = y + 15
      end
   end
   return draw(host, "axes.svg.in", {lines = lines, strip = strip, height = y + 6, spans = table.concat(spans),
                                     middles = table.concat(middles), dots = table.concat(dots),
                                     bests = table.concat(bests),
                                     title = "Time over the fastest, by value of each axis"})
end

local tile = {left = 44, top = 24, across = 46, down = 26, width = 44, height = 24}

-- Returns Br, which is an axis, or 64 rows per warpgroup; nil if a variant has neither.
local function br_of(row)
   local groups = tonumber(row.axes.groups)
   return row.axes.br or groups and tostring(64 * groups)
end

-- Returns the fastest of the rows with this Br and Bc. rows are sorted by time.
local function fastest_tile(rows, br, bc)
   for _, row in ipairs(rows) do
      if br_of(row) == br and row.axes.bc == bc then
         return row
      end
   end
end

-- Draws the fastest variant of a family for each Br and Bc, as shaded cells. Shade 8 is the fastest.
local function heat_map(host, rows, family)
   local _, down = split(rows, br_of)
   local _, across = split(rows, function(row) return row.axes.bc end)
   if #down * #across < 2 then
      return nil
   end
   local cells, shades = {}, {}
   for r, br in ipairs(down) do
      for c, bc in ipairs(across) do
         local row = fastest_tile(rows, br, bc)
         if row then
            local ratio = row.median_us / rows[1].median_us
            local shade = math.max(0, 8 - math.floor(30 * math.log(ratio) + 0.5)) -- 5 for a tenth more time
            local x, y = tile.left + tile.across * (c - 1), tile.top + tile.down * (r - 1)
            cells[#cells + 1] = {x = x + 22, y = y + 16, text = string.format("%.2f", ratio), dark = shade > 5}
            shades[shade] = (shades[shade] or "") .. "M" .. x .. " " .. y .. "h44v24h-44z"
         end
      end
   end
   local paths = {}
   for shade = 0, 8 do
      paths[#paths + 1] = shades[shade] and {shade = shade, path = shades[shade]}
   end
   return draw(host, "heat.svg.in", {
      down = down, across = across, cells = cells, paths = paths, tile = tile, width = 52 + tile.across * #across,
      height = 30 + tile.down * #down, title = "Fastest by tile, " .. family .. ": Br down, Bc across",
   })
end

function M.heat_maps(host, group)
   local by, keys = split(group.ok, function(row) return row.family end)
   local maps = {}
   for _, family in ipairs(keys) do
      local map = heat_map(host, by[family], family)
      maps[#maps + 1] = map and {map = map, family = family}
   end
   return maps
end

return M
