-- The scales of figures: convert values to coordinates, and choose ticks. Pure.
local M = {}

-- Returns a function from a value to its coordinate, for values from `least` to `most`. Both are more than 0 if the
-- scale is logarithmic.
function M.new(least, most, from, to, logarithmic)
   local f = logarithmic and math.log or function(value) return value end
   local low, high = f(least), f(most)
   local span = high > low and high - low or 1
   return function(value)
      return from + (f(value) - low) / span * (to - from)
   end
end

local function label(value)
   if value >= 1e6 then
      return string.format("%.0fM", value / 1e6)
   elseif value >= 1e4 then
      return string.format("%.0fk", value / 1e3)
   end
   return string.format("%.10g", value)
end

-- Returns the powers of ten that enclose the values, and the ticks {value, text}. If there are few, 2 and 5 get ticks,
-- too.
function M.decades(least, most)
   local low, high = math.floor(math.log(least, 10) + 1e-9), math.ceil(math.log(most, 10) - 1e-9)
   high = math.max(high, low + 1)
   local ticks, steps = {}, high - low <= 2 and {1, 2, 5} or {1}
   for power = low, high do
      for _, step in ipairs(steps) do
         local value = step * 10.0 ^ power
         if power < high or step == 1 then
            ticks[#ticks + 1] = {value = value, text = label(value)}
         end
      end
   end
   return 10.0 ^ low, 10.0 ^ high, ticks
end

-- Returns least, most, and about `count` round ticks that enclose the values.
function M.linear(least, most, count)
   local raw = math.max(most - least, 1e-9) / count
   local power = 10.0 ^ math.floor(math.log(raw, 10))
   local step = power
   for _, factor in ipairs({1, 2, 5, 10}) do
      step = factor * power
      if step >= raw * 0.999 then
         break
      end
   end
   local first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
   local ticks = {}
   for i = first, math.max(last, first + 1) do
      ticks[#ticks + 1] = {value = i * step, text = string.format("%.10g", i * step)}
   end
   return ticks[1].value, ticks[#ticks].value, ticks
end

return M
