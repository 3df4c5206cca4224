-- The cost model of the families that divide the keys. It uses the units of forward_plain_cost.lua. Three times
-- overlap: a team's for its tiles, one after the other; an SM's for the tiles of all its teams; the memory's. Teams run
-- independently, so none of the three waits long for another. Then the model adds the time of a block before and after
-- its tiles, its teams' merge, and the combine step.
local columns = require("features.columns")
local cost = require("ops.forward_plain_cost")
local elements = require("core.elements")
local host = require("host")
local partial = require("features.partial")
local window = require("features.window")

-- The most blocks that may divide the keys of a row tile.
local M = {max_splits = 256}

local ceil_div = cost.ceil_div

-- Fitted together with the constants of forward_plain_cost.lua, which says to what.
local fit = {
   -- Clocks of a warp for its own instructions on a tile of 16 rows, which nothing hides. tile: products, for bc * d =
   -- 2048 (d is the mean of the columns of K and V). key: everything else, for each key. row_tile: each further row
   -- tile costs this share of the first one.
   tile = 602,
   key = 2.7,
   row_tile = 0.351,
   -- Share of the clocks of a team's copies that nothing hides.
   copies = 0.138,
   -- Clocks of a wait for a tile from DRAM; and from L2, if other blocks read the same tile.
   dram_latency = 1400,
   l2_latency = 1400,
   -- Waits per tile of a team with one stage: K and V come separately, and nothing runs meanwhile. From 100 problems on
   -- an H200, the mean of the fits to the two halves.
   single = 2.6,
   -- Share of the peak DRAM bandwidth that is reached.
   dram = 1.09,
   -- The same for L2, if several row tiles read the same keys.
   l2 = 0.85,
   -- Exponent p of (a^p + b^p + c^p)^(1/p): how well the longest of the three times hides the others.
   overlap = 1.6,
   -- us of a block before its first tile and after its last.
   edges = 2.09,
   -- Clocks per row and team of a merge.
   merge = 16.3,
   -- us of the combine step, and for each split that it reads. The latter is 0.11 since that step starts early (107
   -- problems on an H200). But with 0.11 the candidates of D = 64 lack the winner at S = 512.
   combine = 5.4,
   combine_split = 0.276,
   -- The same for short kernels (see forward_plain_cost.lua): edges in us, a wait for any tile in clocks, combine in
   -- us.
   warm_edges = 1.05, warm_latency = 1400, warm_combine = 0.285,
}

M.fit = fit -- for tests/bench/fit.lua

-- Returns the row tiles of all key heads, which are the blocks if no keys are divided. It is a float, because some
-- products with it exceed 64 bits.
function M.row_tiles(v, problem)
   local rows = problem.seq_q * (problem.heads_q // problem.heads_kv)
   return 1.0 * ceil_div(rows, v.br) * problem.heads_kv * problem.batch
end

-- Results of host.splits, which reads the whole problem each time; by problem, then by its other arguments.
local splits_of = cost.of_problem(function()
   return {}
end)

-- Returns the number of blocks that divide the keys of a row tile, and the number of keys that the rows of a tile see.
-- The launch computes them in the same way.
function M.splits(v, problem, arch, waves)
   local known, keys = splits_of(problem), v.bc * v.teams
   local key = ((arch.sm_count * 1024 + waves) * 4096 + keys) * 4096 + v.br
   local found = known[key]
   if not found then
      found = {host.splits(problem, arch.sm_count, v.br, keys, waves, M.max_splits)}
      known[key] = found
   end
   return found[1], found[2]
end

-- Returns the clocks of a team for one tile. With one stage, K and V are loaded separately, which costs more than two
-- waits of `latency` clocks. With more stages, less of one wait is left.
local function team_clocks(v, facts, latency)
   local of_warp = (facts.d_pad + facts.dv_pad) / (2 * facts.parts)
   local clocks = v.bc * (fit.tile * of_warp / 2048 + fit.key) * (1 + fit.row_tile * (facts.row_tiles - 1))
   clocks = clocks + fit.copies * cost.copy_clocks(v, facts)
   local waits = v.kstages == 1 and fit.single or 1 / (v.kstages - 1)
   return clocks + waits * latency
end

-- Facts of a problem:
--   of_key     bytes of K and V of one key
--   queries    bytes of Q and O
--   part       bytes of a part of O in fp32, written and read
--   keys       bytes of all K and V that are seen
--   visible    keys that the mean row sees / keys that the last row sees
-- With or without a causal mask, the last row sees all keys. Under a window, all rows see about as many.
local sizes_of = cost.of_problem(function(problem)
   local of_key, columns_v = columns.key_bytes(problem), columns.of_problem(problem)
   local rows = problem.batch * problem.heads_q * problem.seq_q
   return {
      of_key = of_key,
      queries = (elements.bytes(problem) * problem.head_dim + partial.out_bytes(problem) * columns_v) * rows,
      part = 8 * rows * columns_v,
      keys = 1.0 * of_key * window.seen_keys(problem) * problem.heads_kv * problem.batch,
      visible = 1 - problem.causal * math.min(problem.seq_q, problem.seq_k) / 2 / problem.seq_k,
   }
end)

-- Returns us that the memory system needs, and the same if everything that L2 can keep is in L2 already. Each row tile
-- reads the K and V that it sees, `keys` keys in the mean. All row tiles but the first read them from L2.
function M.memory_us(v, facts, problem, arch, tiles, keys)
   local sizes = sizes_of(problem)
   local dram = sizes.queries + sizes.keys
   local l2 = sizes.queries + (sizes.of_key + facts.bytes_per_score * v.br) * keys * tiles
   local l2_us = l2 / (fit.l2 * arch.l2)
   local from_dram = 1 / (fit.dram * arch.dram)
   local all_us, beyond_us = dram * from_dram, (dram - arch.l2_bytes) * from_dram
   return all_us > l2_us and all_us or l2_us, beyond_us > l2_us and beyond_us or l2_us
end

-- Returns us of the combine step. The parts of O are written and read again in fp32. warm: for a short kernel.
function M.combine_us(problem, arch, splits, warm)
   if splits == 1 then
      return 0
   end
   local us = splits * sizes_of(problem).part / arch.dram
   return (warm and fit.warm_combine or fit.combine) + fit.combine_split * splits + us
end

local function card_of(v, facts, arch)
   return {
      resident = cost.resident_blocks(facts, arch),
      busy_clocks = cost.kept(function(blocks)
         return cost.busy_clocks(v, facts, arch, blocks)
      end),
      team_clocks = cost.kept(function(latency)
         return team_clocks(v, facts, latency)
      end),
   }
end

-- Returns us in which the teams' chains, the SMs and the memory are done. Each hides most of the others' time.
local function body_us(chain_us, sm_us, memory_us)
   local p = fit.overlap
   return (chain_us ^ p + sm_us ^ p + memory_us ^ p) ^ (1 / p)
end

-- Returns us for a problem; math.huge if no SM can hold a block. v: br, bc, teams, kstages, waves, q. facts: as for
-- cost.forward.
function M.forward(v, facts, problem, arch)
   local card = cost.on_card(v, facts, arch, card_of)
   local resident = card.resident
   if resident < 1 then
      return math.huge
   end
   local splits, keys = M.splits(v, problem, arch, v.waves)
   local bc, teams, sm_count = v.bc, v.teams, arch.sm_count
   local tiles = M.row_tiles(v, problem)
   local blocks = tiles * splits
   local steps = (((keys + bc - 1) // bc + splits - 1) // splits + teams - 1) // teams
   local rounds = (blocks + sm_count * resident - 1) // (sm_count * resident)
   local of_sm = (blocks + sm_count - 1) // sm_count
   local together = of_sm < resident and of_sm or resident
   local shared = tiles > problem.heads_kv * problem.batch
   -- In the last round the longest block counts. In earlier rounds blocks are as long as the mean.
   local share = keys < problem.seq_k and 1 or sizes_of(problem).visible
   local sm_us = rounds * steps * card.busy_clocks(together) * share / arch.clock
   local memory, kept = M.memory_us(v, facts, problem, arch, tiles, keys * share)
   local merge_us = fit.merge * v.teams * v.br / arch.clock
   local chain_steps = ((rounds - 1) * share + 1) * steps
   local function total(launch_us, edges, latency, memory_us, combine_us)
      local chain_us = chain_steps * card.team_clocks(latency) / arch.clock
      return launch_us + rounds * (edges + merge_us) + body_us(chain_us, sm_us, memory_us) + combine_us
   end
   return cost.blend(
      total(cost.fit.warm_launch, fit.warm_edges, fit.warm_latency, kept, M.combine_us(problem, arch, splits, true)),
      total(arch.launch_us, fit.edges, shared and fit.l2_latency or fit.dram_latency, memory,
            M.combine_us(problem, arch, splits)))
end

return M
