-- How evenly persistent blocks divide the row tiles (fwd_sm90, persistent=1; templates/hopper/work.cuh). Each block
-- takes one row tile of every round, and every other round goes through the blocks backwards. So the work of each block
-- is known before the launch. The launch takes as long as the busiest SM.
local M = {}

-- Rounds that are computed. Later rounds are taken to be like these.
local most_rounds = 32

-- Returns the numbers of K/V tiles of the first row tiles, in the order in which blocks take the row tiles; at most
-- about `most`. section: number of heads whose row tiles are ordered together by weight. nil: heads come one after the
-- other.
local function tiles_in_order(weights, heads, section, most)
   local tiles, count, before = {}, 0, 0
   local whole = math.min(section or 1, heads) -- heads of each section but the last
   while before < heads and count < most do
      local here = math.min(whole, heads - before)
      local added = here * #weights
      if here == 1 then
         table.move(weights, 1, added, count + 1, tiles)
      elseif here == whole and before > 0 then
         table.move(tiles, 1, added, count + 1)
      else
         for row, weight in ipairs(weights) do
            local place = count + (row - 1) * here
            for head = 1, here do
               tiles[place + head] = weight
            end
         end
      end
      count, before = count + added, before + here
   end
   return tiles
end

-- Returns the number of K/V tiles of each block in this many rounds.
local function sums_of_blocks(tiles, blocks, rounds, total)
   local sums = {}
   for block = 1, blocks do
      sums[block] = 0
   end
   for round = 0, rounds - 1 do -- most of the model's time is spent here
      local before = round * blocks
      if round % 2 == 0 then
         for block = 1, math.min(blocks, total - before) do
            sums[block] = sums[block] + tiles[before + block]
         end
      else
         local behind = before + blocks + 1
         for block = math.max(behind - total, 1), blocks do
            sums[block] = sums[block] + tiles[behind - block]
         end
      end
   end
   return sums
end

-- Returns the clocks of an SM. tiles: the K/V tiles of each of its blocks, ascending. clocks[n]: clocks in which n
-- blocks do one tile each.
local function clocks_of(tiles, clocks)
   local sum, done = 0, 0
   for i, each in ipairs(tiles) do
      sum = sum + (each - done) * clocks[#tiles - i + 1]
      done = each
   end
   return sum
end

-- Returns for each SM the list of its blocks' K/V tiles, ascending. SMs with equal lists appear once.
local function visits_of_sms(weights, heads, section, sm_count, resident)
   local total = heads * #weights
   local blocks = math.min(sm_count * resident, total)
   local rounds = (total + blocks - 1) // blocks
   local looked = math.min(rounds, most_rounds)
   local tiles = tiles_in_order(weights, heads, section, looked * blocks)
   local sums, list, known = sums_of_blocks(tiles, blocks, looked, total), {}, {}
   for sm = 1, math.min(sm_count, blocks) do
      local own = {}
      for block = sm, blocks, sm_count do
         own[#own + 1] = sums[block] * rounds / looked
      end
      table.sort(own)
      local key = table.concat(own, " ")
      if not known[key] then
         known[key], list[#list + 1] = true, own
      end
   end
   return list
end

-- The last divisions, by everything that they depend on. Variants that differ only in their pipeline divide alike, and
-- so do variants of other classes.
local kept, kept_count, most_kept = {}, 0, 256

local function visits_kept(weights, heads, section, sm_count, resident)
   local key = ("%d %s %d %d "):format(heads, section, sm_count, resident) .. table.concat(weights, " ")
   if not kept[key] then
      if kept_count == most_kept then
         kept, kept_count = {}, 0
      end
      kept[key], kept_count = visits_of_sms(weights, heads, section, sm_count, resident), kept_count + 1
   end
   return kept[key]
end

-- The same by the list of weights itself, because making a text of it takes long. There is one list for a problem and a
-- tile, and it must not change.
local of_list = setmetatable({}, {__mode = "k"})

local function visits_of(weights, heads, section, sm_count, resident)
   local known = of_list[weights] or {}
   local key = ("%d %s %d %d"):format(heads, section, sm_count, resident)
   of_list[weights] = known
   known[key] = known[key] or visits_kept(weights, heads, section, sm_count, resident)
   return known[key]
end

-- Returns the clocks of the busiest SM.
--   weights          list of the K/V tiles of a head's row tiles, the heaviest first
--   heads            of all batches
--   section          see tiles_in_order
--   sm_count
--   resident         blocks of an SM
--   clocks(count)    clocks of an SM in which this many blocks do one tile each
function M.busiest(weights, heads, section, sm_count, resident, clocks)
   local by_count, most = {}, 0
   for count = 1, resident do
      by_count[count] = clocks(count)
   end
   for _, own in ipairs(visits_of(weights, heads, section, sm_count, resident)) do
      most = math.max(most, clocks_of(own, by_count))
   end
   return most
end

return M
