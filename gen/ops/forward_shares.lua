-- How evenly row tiles are divided among blocks that stay (fwd_sm90, persistent=1; templates/hopper/work.cu.in):
-- each takes its own of every round, and every other round goes backwards through the blocks. What a block has to do is
-- known before the launch, and the launch takes as long as the busiest SM.
local M = {}

-- Rounds that are looked at: what comes behind them goes on likewise.
local most_rounds = 32

-- The tiles that the row tile of an index visits. section: of how many heads the row tiles are ordered by weight; nil:
-- those of a head lie together.
local function weight_of(weights, heads, section)
   local count = #weights
   if not section then
      return function(index)
         return weights[index % count + 1]
      end
   end
   return function(index)
      local before = index // (section * count) * section
      local here = section < heads - before and section or heads - before
      return weights[(index - before * count) // here + 1]
   end
end

-- Clocks of an SM whose blocks have these tiles to visit, ascending.
local function clocks_of(tiles, clocks)
   local sum, done = 0, 0
   for i, each in ipairs(tiles) do
      sum = sum + (each - done) * clocks(#tiles - i + 1)
      done = each
   end
   return sum
end

-- Clocks of the busiest SM. weights: list of the tiles that the row tiles of a head visit, the heaviest first; heads:
-- of all batches; resident: blocks of an SM; clocks(count): those of an SM in which so many do one tile each.
function M.busiest(weights, heads, section, sm_count, resident, clocks)
   local total = heads * #weights
   local blocks = math.min(sm_count * resident, total)
   local rounds = (total + blocks - 1) // blocks
   local looked = math.min(rounds, most_rounds)
   local weight, sums = weight_of(weights, heads, section), {}
   for block = 0, blocks - 1 do
      local sum = 0
      for round = 0, looked - 1 do
         local index = round * blocks + (round % 2 == 1 and blocks - 1 - block or block)
         if index < total then
            sum = sum + weight(index)
         end
      end
      sums[block] = sum * rounds / looked
   end
   local most = 0
   for sm = 0, math.min(sm_count, blocks) - 1 do
      local tiles = {}
      for block = sm, blocks - 1, sm_count do
         tiles[#tiles + 1] = sums[block]
      end
      table.sort(tiles)
      most = math.max(most, clocks_of(tiles, clocks))
   end
   return most
end

return M
