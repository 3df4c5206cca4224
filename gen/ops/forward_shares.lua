-- How evenly row tiles are divided among blocks that stay (fwd_sm90, persistent=1; templates/hopper/work.cu.in):
-- each takes its own of every round, and every other round goes backwards through the blocks. What a block has to do is
-- known before the launch, and the launch takes as long as the busiest SM.
local M = {}

-- Rounds that are looked at: what comes behind them goes on likewise.
local most_rounds = 32

-- The tiles that the first row tiles visit, in the order in which blocks take them, at most so many. section: of how
-- many heads the row tiles are ordered by weight; nil: those of a head lie together.
local function tiles_in_order(weights, heads, section, most)
   local tiles, count, before = {}, 0, 0
   while before < heads and count < most do
      local here = math.min(section or 1, heads - before)
      for _, weight in ipairs(weights) do
         for _ = 1, here do
            count = count + 1
            tiles[count] = weight
         end
      end
      before = before + here
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
      local place, step = round * blocks + 1, 1
      if round % 2 == 1 then
         place, step = place + blocks - 1, -1
      end
      for block = 1, blocks do
         if place <= total then
            sums[block] = sums[block] + tiles[place]
         end
         place = place + step
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

-- Variants that differ in nothing but their pipeline divide alike: what was found, by the list of weights, which is one
-- for a problem and a tile and must not change, and by all else that it depends on.
local kept = setmetatable({}, {__mode = "k"})

local function visits_kept(weights, heads, section, sm_count, resident)
   local known = kept[weights] or {}
   local key = ("%d %s %d %d"):format(heads, section, sm_count, resident)
   kept[weights] = known
   known[key] = known[key] or visits_of_sms(weights, heads, section, sm_count, resident)
   return known[key]
end

-- Clocks of the busiest SM. weights: list of the tiles that the row tiles of a head visit, the heaviest first; heads:
-- of all batches; resident: blocks of an SM; clocks(count): those of an SM in which so many do one tile each.
function M.busiest(weights, heads, section, sm_count, resident, clocks)
   local by_count, most = {}, 0
   for count = 1, resident do
      by_count[count] = clocks(count)
   end
   for _, own in ipairs(visits_kept(weights, heads, section, sm_count, resident)) do
      most = math.max(most, clocks_of(own, by_count))
   end
   return most
end

return M
