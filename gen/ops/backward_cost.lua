-- The cost model of backward. As in forward_plain_cost.lua, it counts clocks of four units of an SM for one tile of
-- queries of one key block. Additions to dQ, or dQ itself, take shared memory's time. Then come barriers, the prologue
-- and epilogue of a block, and the kernels before and after it. The model ranks variants.
local columns = require("features.columns")
local elements = require("core.elements")
local forward = require("ops.forward_plain_cost")
local lengths = require("features.lengths")
local window = require("features.window")

local M = {resident_blocks = forward.resident_blocks}

local ceil_div = forward.ceil_div

-- Fitted to 835 timings of 52 problems on an H200, D = 16 to 256, S = 32 to 16384. Each constant is between the fits to
-- parts of the problems. Where these disagree, it is as an earlier fit to 90 timings had it.
local fit = {
   -- Share of the other units' clocks that is added to the busiest unit's, with one warp per scheduler; at least
   -- exposed_least.
   exposed = 0.6,
   exposed_least = 0.2,
   -- Clocks for a barrier, per four warps of a block. alone: factor of these if no other block runs meanwhile.
   barrier = 35,
   alone = 2,
   -- The least clocks that the chain of a tile's products takes, per k16 step of a warp.
   chain = 18,
   -- fp32 instructions per score: scale, subtract, exponent, delta, product, two conversions.
   fp32_per_score = 7,
   -- Time with padded rows / time with swizzled rows.
   padded = 1.02,
   -- Bytes per clock of an SM's additions to dQ in memory.
   red_rate = 32,
   -- Clocks to compute LSE and delta of a tile in the block that needs them: two loads, one after the other.
   computed_rows = 1800,
   -- Clocks of a block before its first tile and after its last.
   edges = 7500,
   -- us of a launch after another one.
   step = 1.5,
   -- Tiles by which each end of a mask costs more.
   masked = 0.16,
   -- Share of the mean block that runs alone at the end, if blocks differ in length.
   tail = 0.2,
   -- Share of L2 that holds what blocks of a group's heads share, if they drift apart; and the exponent by which the
   -- clocks of memory and of the SMs are joined.
   drift_l2 = 0.5,
   drift = 4,
   -- Clocks per score for a bias, whose values lanes read one by one.
   bias = 0.15,
}
M.fit = fit -- for tests/bench/fit.lua

-- Returns the clocks of all units together. units: clocks of each. With more warps, more of the other units' clocks are
-- hidden by the busiest unit's.
local function overlap(units, warps)
   local busiest, sum = 0, 0
   for _, clocks in ipairs(units) do
      busiest, sum = math.max(busiest, clocks), sum + clocks
   end
   local exposed = math.max(fit.exposed / math.max(warps / 4, 0.5), fit.exposed_least)
   return busiest + math.min(exposed, 1) * (sum - busiest)
end

-- Returns the fragments (512 bytes) that a warp reads and writes for a tile.
local function fragments(v, f)
   local rows = v.parts * f.query_steps
   local scores = v.parts * (f.depth + f.value_depth) * (f.key_tiles + f.query_steps)
   local own = rows * (f.out_pairs + f.value_pairs)
   local theirs = (v.qwarps - 1) * rows * (2 * f.key_tiles + f.out_pairs + f.value_pairs)
   local stores = rows * f.key_tiles * ((v.qwarps > 1 and 1 or 0) + (v.dq ~= "separate" and 1 or 0))
   local dq = v.dq ~= "separate" and v.bc // 16 * (f.dq_row_tiles + f.dq_pairs) or 0
   return scores + own + theirs + stores + dq
end

-- Returns the clocks in which `blocks` key blocks on an SM do one tile each.
local function tile_clocks(v, f, arch, blocks)
   local scores = v.br * v.bc
   local of_keys = v.dq == "separate" and 2 or 3 -- products with rows of Q or K; two more have rows of O or V
   local tensor = 2 * scores * (of_keys * f.d_pad + 2 * f.dv_pad) / (f.k8 and arch.tensor_k8 or arch.tensor)
   local filled = elements.bytes(v) * v.br * (f.d_pad + f.dv_pad) * f.fill_ways
   local smem = (512 * fragments(v, f) * v.warps + filled) / arch.smem_rate
   local sums = 4 * v.br * f.d_pad
   if v.dq == "atomic" then
      smem = smem + sums / fit.red_rate
   elseif v.dq == "block" then
      smem = smem + sums / 2 / fit.red_rate
   end
   local units = {
      tensor, smem, f.ex2_per_score * scores / arch.ex2,
      scores * (fit.fp32_per_score + f.more_fp32_per_score) / arch.fp32,
   }
   local busy = blocks * (overlap(units, blocks * v.warps) + f.biased * fit.bias * scores)
   local third = v.stages == 1 and v.qwarps > 1 and 1 or 0
   local barrier = fit.barrier * v.warps / 4 * (blocks == 1 and fit.alone or 1)
   local steps = v.parts * (2 * f.depth + 2 * f.query_steps * v.qwarps) + v.bc // 16
   local clocks = busy + blocks * barrier * (v.barriers + third) + fit.chain * steps
   clocks = v.layout == "pad" and fit.padded * clocks or clocks
   return clocks + (v.rows == "computed" and fit.computed_rows or 0)
end

-- The same for query blocks of 16 rows per warp (dq=separate), and one tile of keys each.
local function query_tile_clocks(v, f, arch, blocks)
   local scores = 16 * v.warps * v.dqbc
   local steps = v.dqbc // 16
   local reads = ((f.depth + f.value_depth) * (1 + steps) + steps * f.depth) * v.warps
   local units = {
      scores * (4 * f.d_pad + 2 * f.dv_pad) / (f.k8 and arch.tensor_k8 or arch.tensor), 512 * reads / arch.smem_rate,
      f.ex2_per_score * scores / arch.ex2,
      scores * (fit.fp32_per_score + f.more_fp32_per_score) / arch.fp32,
   }
   return blocks * (overlap(units, blocks * v.warps) + fit.barrier * v.warps / 4 + f.biased * fit.bias * scores)
end

-- Blocks that an SM holds, and the clocks in which this many blocks do one tile each.
local function card_of(v, facts, arch)
   return {
      resident = M.resident_blocks(facts, arch),
      tile_clocks = forward.kept(function(blocks)
         return tile_clocks(v, facts, arch, blocks)
      end),
      query_tile_clocks = forward.kept(function(blocks)
         return query_tile_clocks(v, facts, arch, blocks)
      end),
   }
end

-- Returns the clocks of `count` blocks. Each does `most` tiles; or, if blocks differ, `mean` of them in the mean.
local function busy_clocks(count, most, mean, arch, resident, clocks)
   local sm_count = arch.sm_count
   local slots = sm_count * resident
   local waves, rest = count // slots, count % slots
   if most ~= mean and waves > 0 then
      return clocks(resident) * (mean * count / slots + fit.tail * mean)
         + fit.edges * (waves + (rest > 0 and 1 or 0))
   elseif rest == 0 then
      return most * (waves * clocks(resident)) + fit.edges * waves
   end
   local last = clocks((rest + sm_count - 1) // sm_count)
   return most * (waves * (waves > 0 and clocks(resident) or 0) + last) + fit.edges * (waves + 1)
end

-- Facts of a problem:
--   heads, kv_heads    query heads and key heads of all batches
--   group              query heads that share a key head
--   seen               queries that see a key; nil without a left window
--   visible            share of the keys that the mean query sees; nil if that is all
local sizes_of = forward.of_problem(function(problem)
   local left, right = window.ends(problem)
   local sizes = {
      heads = problem.batch * problem.heads_q, kv_heads = problem.batch * problem.heads_kv,
      group = problem.heads_q // problem.heads_kv,
   }
   if left < window.unbounded then
      sizes.seen = left + math.min(right, problem.seq_k) + 1
   elseif right ~= window.unbounded then
      sizes.visible = 1 - math.min(problem.seq_q, problem.seq_k) / (2 * problem.seq_k)
   end
   return sizes
end)

-- Returns the mean number of tiles of `tile` rows that a block of `rows` rows does. all: tiles without a mask, of
-- `heads` heads.
local function mean_tiles(all, heads, tile, rows, sizes)
   if sizes.seen then
      return math.min(all, heads * ((sizes.seen + rows) / tile + 1 + 2 * fit.masked))
   end
   return sizes.visible and all * sizes.visible + fit.masked or all
end

-- Returns how many blocks share the queries of a tile of keys, as in runtime/ops/backward_grid.c. waves: blocks for
-- each SM, unless v.waves says another number. v.heads: query heads of a block (split=2).
M.waves, M.most_splits = 2, 16

function M.splits(v, problem, arch)
   if v.split == 2 then
      return ceil_div(problem.heads_q // problem.heads_kv, v.heads)
   end
   local key_blocks = ceil_div(problem.seq_k, v.bc) * problem.batch * problem.heads_kv
   local tiles = ceil_div(problem.seq_q, v.br) * (problem.heads_q // problem.heads_kv)
   return math.max(1, math.min((v.waves or M.waves) * arch.sm_count // key_blocks, M.most_splits, tiles))
end

-- Tiles of keys, over several heads, that are interleaved, and the least such heads (templates/hopper/bwd_shape.cuh,
-- templates/backward/coord.cuh).
local interleaved, least_heads = 128, 8

-- Returns the us that memory takes for Q, dO and dQ if blocks of different keys drift apart, so that L2 does not hold
-- what they share. A mask hides more tiles from later keys: per head of a group, such a block gains on the others.
-- heads: query heads of a block.
local function drift_us(v, sizes, arch, heads, tiles, k_tiles, columns_padded)
   if not sizes.visible then
      return 0
   end
   local together = math.max(least_heads, interleaved // k_tiles)
   local side_by_side = math.min(k_tiles, arch.sm_count / together)
   local span = math.min(heads * side_by_side * v.bc / v.br, tiles / sizes.kv_heads)
   local inputs, dq = 2 * elements.bytes(v), 4 -- bytes of Q and dO, and of dQ, which is read and written
   local bytes = together * span * v.br * columns_padded * (inputs + dq)
   local missed = math.max(0, 1 - fit.drift_l2 * arch.l2_bytes / bytes)
   return missed * tiles * k_tiles * sizes.visible * v.br * columns_padded * (inputs + 2 * dq) / arch.dram
end

-- Returns us for sequences of one length; math.huge if no SM can hold a block. If blocks should share queries and none
-- are shared, the variant with split=0 does the same and must be chosen. So the result is twice the time.
local function us_of(v, facts, problem, arch)
   local splits = v.split > 0 and M.splits(v, problem, arch) or 1
   local card, sizes = forward.on_card(v, facts, arch, card_of), sizes_of(problem)
   local resident = card.resident
   if resident < 1 then
      return math.huge
   end
   local heads, kv_heads, group = sizes.heads, sizes.kv_heads, sizes.group
   local br, bc, dq = v.br, v.bc, v.dq
   local q_tiles = (problem.seq_q + br - 1) // br
   local visited = q_tiles * group
   local k_tiles = (problem.seq_k + bc - 1) // bc
   local in_turn = dq == "block" and k_tiles or 1 -- tiles of keys that a block has
   local parts, added = splits, 0 -- parts of dK and dV; tiles in whose time a block adds to them
   if v.split == 2 and splits > 1 then
      parts, added = 1, 8 * bc * facts.d_pad / fit.red_rate / card.tile_clocks(resident)
   end
   local clocks = busy_clocks(k_tiles * kv_heads * splits // in_turn,
                              in_turn * ((visited + splits - 1) // splits) + added,
                              in_turn * mean_tiles(visited, group, br, bc, sizes) / splits + added, arch, resident,
                              card.tile_clocks) + (in_turn - 1) * fit.edges
   if v.heads then
      local memory = arch.clock * drift_us(v, sizes, arch, group / splits, visited * kv_heads, k_tiles, facts.d_pad)
      clocks = (clocks ^ fit.drift + memory ^ fit.drift) ^ (1 / fit.drift)
   end
   local us = arch.launch_us
   if dq == "separate" then
      local tiles = ceil_div(problem.seq_k, v.dqbc)
      local count = ceil_div(problem.seq_q, 16 * v.warps) * heads
      local queries = busy_clocks(count, tiles, mean_tiles(tiles, 1, v.dqbc, 16 * v.warps, sizes),
                                  arch, resident, card.query_tile_clocks)
      -- Both kinds of blocks run together. If there are few of them, they run at the same time.
      local together = k_tiles * kv_heads * splits + count <= arch.sm_count * resident
      clocks = together and math.max(clocks, queries) or clocks + queries
   elseif dq == "atomic" or dq == "block" and k_tiles > 1 then
      local elems = heads * q_tiles * br * facts.d_pad
      us = us + fit.step + elems * 6 / arch.dram -- the convert step
      us = us + elems * 4 / arch.dram -- filling dQ with zeros
   end
   if splits > 1 then
      us = us + fit.step + 16 * parts * k_tiles * kv_heads * bc * facts.d_pad / arch.dram
   end
   if v.rows == "prepared" then
      us = us + fit.step + heads * problem.seq_q * columns.of_problem(problem) * 4 / arch.dram
   end
   us = us + clocks / arch.clock
   return splits == 1 and v.split > 0 and 2 * us or us
end

-- Returns us for a problem. facts: backward_block.lua makes them.
function M.backward(v, facts, problem, arch)
   return lengths.sum_of_parts(problem, function(part) return us_of(v, facts, part, arch) end)
end

return M
