-- How evenly row tiles are divided among blocks that stay (fwd_sm90, persistent=1; templates/hopper/work.cuh):
-- each takes its own of every round, and every other round goes backwards through the blocks. What a block has to do is
-- known before the launch, and the launch takes as long as the busiest SM.
local M = {}

-- Rounds that are looked at: what comes behind them goes on likewise.
local most_rounds = 32

-- The tiles that the first row tiles visit, in the order in which blocks take them, at most so many. section: of how
-- many heads the row tiles are ordered by weight; nil: those of a head lie together.
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

-- What each block visits in so many rounds.
local function sums_of_blocks(tiles, blocks, rounds, total)
   local sums = {}
   for block = 1, blocks do
      sums[block] = 0
   end
   for round = 0, rounds - 1 do -- this is most of the model's time
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

-- Clocks of an SM whose blocks have these tiles to visit, ascending; clocks: of so many blocks that do one each.
local function clocks_of(tiles, clocks)
   local sum, done = 0, 0
   for i, each in ipairs(tiles) do
      sum = sum + (each - done) * clocks[#tiles - i + 1]
      done = each
   end
   return sum
end

-- What the blocks of each SM visit, a list of each, ascending; SMs whose blocks visit the same stand there once.
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

-- Variants that differ in nothing but their pipeline divide alike, and so do those of other classes: what was found for
-- the last divisions, by all that they depend on.
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

-- The same by the list itself, which is one for a problem and a tile and must not change: a text of it takes long.
local of_list = setmetatable({}, {__mode = "k"})

local function visits_of(weights, heads, section, sm_count, resident)
   local known = of_list[weights] or {}
   local key = ("%d %s %d %d"):format(heads, section, sm_count, resident)
   of_list[weights] = known
   known[key] = known[key] or visits_kept(weights, heads, section, sm_count, resident)
   return known[key]
end

-- Clocks of the busiest SM. weights: list of the tiles that the row tiles of a head visit, the heaviest first; heads:
-- of all batches; resident: blocks of an SM; clocks(count): those of an SM in which so many do one tile each.
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
