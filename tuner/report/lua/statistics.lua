-- Statistics of measurements. Pure.
local M = {}

-- Returns nil without values.
function M.geometric_mean(values)
   local sum = 0
   for _, value in ipairs(values) do
      sum = sum + math.log(value)
   end
   return #values > 0 and math.exp(sum / #values) or nil
end

-- Returns the value below which this share of the values lies, interpolated between neighbours; nil without values.
function M.quantile(values, share)
   local sorted = table.move(values, 1, #values, 1, {})
   table.sort(sorted)
   local place = 1 + share * (#sorted - 1)
   local low = math.floor(place)
   if #sorted == 0 then
      return nil
   elseif low >= #sorted then
      return sorted[#sorted]
   end
   return sorted[low] + (place - low) * (sorted[low + 1] - sorted[low])
end

function M.median(values)
   return M.quantile(values, 0.5)
end

-- Returns ranks from 1. Equal values share the mean of their ranks.
local function ranks(values)
   local order, rank = {}, {}
   for i = 1, #values do
      order[i] = i
   end
   table.sort(order, function(a, b)
      return values[a] < values[b] or values[a] == values[b] and a < b
   end)
   local first = 1
   while first <= #order do
      local last = first
      while last < #order and values[order[last + 1]] == values[order[first]] do
         last = last + 1
      end
      for i = first, last do
         rank[order[i]] = (first + last) / 2
      end
      first = last + 1
   end
   return rank
end

-- Returns Spearman's rank correlation. Returns nil for fewer than three pairs, or if one side is constant.
function M.rank_correlation(a, b)
   local x, y, mean = ranks(a), ranks(b), (#a + 1) / 2
   local xy, xx, yy = 0, 0, 0
   for i = 1, #a do
      xy = xy + (x[i] - mean) * (y[i] - mean)
      xx = xx + (x[i] - mean) ^ 2
      yy = yy + (y[i] - mean) ^ 2
   end
   return #a >= 3 and xx > 0 and yy > 0 and xy / math.sqrt(xx * yy) or nil
end

return M
