-- The cost model of the families that divide the keys: forward_plain_cost.lua's units, and three times that
-- overlap: what a team needs for its tiles, one after the other; what an SM needs for those of all
-- its teams; what the memory needs. Teams run apart, so none of the three has to wait for another
-- for long. On top come the edges of a block, its teams' merge and the combining kernel.
local columns = require("features.columns")
local cost = require("ops.forward_plain_cost")
local host = require("host")
local window = require("features.window")

-- The most blocks that may divide the keys of a row tile.
local M = {max_splits = 256}

-- Fitted with forward_plain_cost.lua's, where it says to what.
local fit = {
   -- Clocks of a warp for its own instructions on a tile of 16 rows, which nothing hides: products for bc * d = 2048,
   -- the rest for each key; and for each row tile more, the share of the first one's.
   tile = 602,
   key = 2.7,
   row_tile = 0.351,
   -- Share of the clocks of a team's copies that nothing hides.
   copies = 0.138,
   -- Clocks that a wait for a tile from DRAM costs, or from L2 when other blocks read it too.
   dram_latency = 1400,
   l2_latency = 1400,
   -- Waits for a tile where a team has room for one, K and V apart, and nothing is beside them. Of 100
   -- problems on an H200, the mean of the fits to either half.
   single = 2.6,
   -- Share of the peak bandwidth that is reached.
   dram = 1.09,
   -- The same of L2's, where several row tiles read the same keys.
   l2 = 0.85,
   -- How sharply the longest of the three times hides the others.
   overlap = 1.6,
   -- us of a block before its first tile and after its last.
   edges = 2.09,
   -- Clocks per row and team of a merge.
   merge = 16.3,
   -- us for the combining kernel, and for each split that it reads. The latter is 0.11 since that begins early, by 107
   -- problems on an H200; but then candidates of D = 64 lack what wins at S = 512.
   combine = 5.4,
   combine_split = 0.276,
   -- The same of short kernels (forward_plain_cost.lua): edges, a wait for a tile, as long as others, combining.
   warm_edges = 1.05, warm_latency = 1400, warm_combine = 0.285,
}

M.fit = fit -- for tests/bench/fit.lua

local function ceil_div(a, b)
   return (a + b - 1) // b
end

-- Row tiles of all key heads: the blocks if no keys were divided. No integer: 64 bits do not hold every product.
function M.row_tiles(v, problem)
   local rows = problem.seq_q * (problem.heads_q // problem.heads_kv)
   return 1.0 * ceil_div(rows, v.br) * problem.heads_kv * problem.batch
end

-- By problem, then by what they depend on: answers of host.splits, which reads the whole problem each time.
local splits_of = cost.of_problem(function()
   return {}
end)

-- Blocks among which the keys of a row tile are divided, as the launch does it; and how many keys the
-- rows of one see.
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

-- Clocks of a team for one tile. More than two waits if K and V are loaded apart; the deeper the pipeline,
-- the less is left of one.
local function team_clocks(v, facts, latency)
   local of_warp = (facts.d_pad + facts.dv_pad) / (2 * facts.parts)
   local clocks = v.bc * (fit.tile * of_warp / 2048 + fit.key) * (1 + fit.row_tile * (facts.row_tiles - 1))
   clocks = clocks + fit.copies * cost.copy_clocks(v, facts)
   local waits = v.kstages == 1 and fit.single or 1 / (v.kstages - 1)
   return clocks + waits * latency
end

-- Of a problem: bytes of a key, of the rows of Q and O, of all K and V, and of a part of O; and of a row tile that sees
-- all keys, the share that the mean row sees. The last row tile sees all keys, causal or not, unless a window ends:
-- then all see about as many.
local sizes_of = cost.of_problem(function(problem)
   local of_key, columns_v = 2 * columns.of_key(problem), columns.of_problem(problem)
   local rows = problem.batch * problem.heads_q * problem.seq_q
   return {
      of_key = of_key, queries = 2 * (problem.head_dim + columns_v) * rows, part = 8 * rows * columns_v,
      keys = 1.0 * of_key * window.seen_keys(problem) * problem.heads_kv * problem.batch,
      visible = 1 - problem.causal * math.min(problem.seq_q, problem.seq_k) / 2 / problem.seq_k,
   }
end)

-- us that the memory system needs: each row tile reads the K and V that it sees, `keys` of them in the mean, all
-- but the first from L2; and that it needs if all that L2 can keep is there.
function M.memory_us(v, facts, problem, arch, tiles, keys)
   local sizes = sizes_of(problem)
   local dram = sizes.queries + sizes.keys
   local l2 = sizes.queries + (sizes.of_key + facts.bytes_per_score * v.br) * keys * tiles
   local l2_us = l2 / (fit.l2 * arch.l2)
   local from_dram = 1 / (fit.dram * arch.dram)
   local all_us, beyond_us = dram * from_dram, (dram - arch.l2_bytes) * from_dram
   return all_us > l2_us and all_us or l2_us, beyond_us > l2_us and beyond_us or l2_us
end

-- us of the combining kernel; the parts of O are written and read again in fp32. warm: of a short one.
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

-- us in which teams' chains, SMs and memory are done, each of which hides most of the others.
local function body_us(chain_us, sm_us, memory_us)
   local p = fit.overlap
   return (chain_us ^ p + sm_us ^ p + memory_us ^ p) ^ (1 / p)
end

-- us for a problem. v: br, bc, teams, kstages, waves, q; facts: as for cost.forward, and teams,
-- row_tiles (forward.lua). math.huge when no SM can hold it.
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
   -- The longest block counts in the last round; before it, blocks are as long as the mean.
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
      total(cost.launch_us, fit.edges, shared and fit.l2_latency or fit.dram_latency, memory,
            M.combine_us(problem, arch, splits)))
end

return M
