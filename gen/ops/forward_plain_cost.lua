-- The cost model: the time of a forward variant on a problem, from clocks per tile.
--
-- One K/V tile of one block keeps four units of its SM busy: tensor cores, shared memory, ex2 and fp32. The busiest
-- unit is never idle for long while there are other warps to run. It hides the work of the other units, and more of it
-- if a scheduler has more warps. Barriers are added, and the part of the load latency that the pipeline does not cover.
-- The time is clocks per tile, times tiles per block, times waves of blocks.
--
-- The model ranks variants. Its constants and forward_splitkv_cost.lua's were fitted together by tests/bench/fit.lua.
-- The data are 7400 timings on an H200: all candidates of 182 problems (D = 16 to 256; prefill, decode, chunked
-- prefill; S = 32 to 65536). The model's first choice takes 1.03 times as long as the fastest measured variant in the
-- geometric mean. It takes at most 1.08 times as long on nine of ten problems. On other SMs the model uses the rates in
-- arch.lua.
local columns = require("features.columns")
local elements = require("core.elements")
local partial = require("features.partial")
local precision = require("features.precision")
local window = require("features.window")

local M = {}

-- Constants that no data sheet gives, fitted together.
local fit = {
   -- Share of the other units' clocks that is added to the busiest unit's, with one warp per scheduler. With n warps it
   -- is 1/n of that, but at least exposed_least.
   exposed = 0.516,
   exposed_least = 0.103,
   -- Clocks for a barrier, per tile and per four warps of a block, because warps wait for the last one.
   barrier = 158,
   -- Factor of these if the SM has no other block that can run meanwhile.
   alone = 2.75,
   -- Share of the bytes of a fill (copying a tile to shared memory) that competes with loads of fragments.
   fill = 0.235,
   -- Clocks of a warp for each of its copies of 16 bytes per lane, as far as other warps do not hide them. issue_whole:
   -- all copies are issued at once. issue_spread: they are spread over Q K^T.
   issue_whole = 23.9, issue_spread = 37.6,
   -- Clocks per copy that are added if the threads do not divide the rows evenly. condition: each copy then has a
   -- condition. address: in a swizzled tile each copy then has its own address.
   condition = 56.4, address = 36.8,
   -- Clocks per tile of the chain of products and row statistics, with one warp per scheduler, which hides nothing.
   chain = 61.4,
   -- Share by which two row tiles per warp cost more, because the products of both wait for the same fragments.
   pair = 0.0468,
   -- How many times more a fill of a padded tile competes with fragment loads than a fill of a swizzled tile. Rows
   -- begin in other banks. pad_lines: rows are whole lines (d is a multiple of 64), and no line is copied as a whole.
   -- pad: other d.
   pad_lines = 5.95, pad = 3.33,
   -- Exponent p of (sm_us^p + memory_us^p)^(1/p): how well the longer of the two times hides the other.
   overlap = 2.08,
   -- Clocks from issuing a tile's loads to its arrival from L2 while all SMs load.
   load_latency = 643,
   -- fp32 instructions per score: scale and subtract, maximum, sum, half a packed conversion, and two for the rest of
   -- the loop. They are counted in the inner loop.
   fp32_per_score = 6.92,
   -- Clocks per score for reading a bias, besides its instructions, because nothing hides these loads. From three
   -- problems, compared with the same problems with other features.
   number = 0.09,
   -- Share of the tiles that rescale O: they do only if a maximum grows by more than 8 (log2).
   rescaled = 0.0261,
   -- Share of the time that each register too many costs. Spills of 100 bytes cost 10 to 30 %.
   spill = 0.004,
   -- Clocks of a block before its first product (Q and K from DRAM) and after its last (O is written).
   prologue = 3070,
   -- If blocks differ in length (causal): the share of the mean block that runs alone at the end.
   tail = 0.825,
   -- Share by which a tile with a causal mask costs more than a tile without.
   masked = 0.0529,
   -- Short kernels are timed in batches of launches (tuner/search). warm_launch: us of one that does nothing.
   -- warm_prologue: share of the prologue that remains, because inputs are in L2 and launches overlap. short: us up to
   -- which a kernel is short. sharp: how sharp that limit is (blend).
   warm_launch = 0.89, warm_prologue = 0.68, short = 13.7, sharp = 6,
   -- Share of the time per byte of shared memory. It orders variants that are equal otherwise: what blocks leave is L1
   -- cache.
   footprint = 1e-9,
}

M.fit = fit -- for tests/bench/fit.lua

function M.ceil_div(a, b)
   return (a + b - 1) // b
end

-- Returns the blocks per SM that shared memory, registers and warps allow.
function M.resident_blocks(facts, arch)
   local function up(value, unit)
      return (value + unit - 1) // unit * unit
   end
   local smem = up(facts.smem_bytes + arch.reserved, arch.grain)
   -- A warp gets registers in units of 256. Warps are given to the four schedulers in turn.
   local warps_by_regs = arch.regs // 4 // up(32 * facts.registers, 256) * 4
   return math.min(arch.smem_sm // smem, warps_by_regs // facts.warps, arch.warps // facts.warps,
                   arch.blocks)
end

-- Returns the function `compute` of a number, with results kept, because it is called again and again.
function M.kept(compute)
   local known = {}
   return function(number)
      known[number] = known[number] or compute(number)
      return known[number]
   end
end

-- Returns the table that make(variant, facts, arch) makes: what holds for a kernel on a card, for all problems. It is
-- kept in facts, because a survey asks about many problems.
function M.on_card(variant, facts, arch, make)
   local card = facts.card
   if not card or card.arch ~= arch then
      card = make(variant, facts, arch)
      card.arch, facts.card = arch, card
   end
   return card
end

-- Returns the function `compute` of a problem, with results kept. The problem must not change. A survey calls it for
-- thousands of variants.
function M.of_problem(compute)
   local known = setmetatable({}, {__mode = "k"})
   return function(problem)
      local found = known[problem]
      if not found then
         found = compute(problem)
         known[problem] = found
      end
      return found
   end
end

-- Returns how often the bytes of a fill count.
local function fill_ways(variant, facts)
   if variant.layout ~= "pad" then
      return 1
   end
   return facts.d_pad % 64 == 0 and fit.pad_lines or fit.pad
end

-- Returns the clocks for which the tensor cores compute both products of this many scores.
local function tensor_clocks(variant, facts, arch, scores)
   local d, dv = facts.d_pad, facts.dv_pad
   local rate = facts.k8 and arch.tensor_k8 or arch.tensor
   local rate_pv = rate
   if variant.pv == "fp16" then
      rate_pv = facts.k8 and arch.tensor_fp16_k8 or arch.tensor_fp16
   end
   if variant.pv == "fp8" then
      dv, rate_pv = dv + precision.sum_columns, arch.fp8
   end
   if facts.int8 then -- k_pad counts pairs of columns
      return 2 * scores * (2 * facts.k_pad / arch.int8 + dv / rate_pv)
   elseif rate_pv ~= rate then
      return 2 * scores * (d / rate + dv / rate_pv)
   end
   return 2 * scores * (d + dv) / rate
end

-- Returns the clocks for which a block keeps each unit of its SM busy, for one tile of each of its teams.
local function unit_clocks(variant, facts, arch)
   local bc, d, dv, parts = variant.bc, facts.k_pad, facts.v_pad, facts.parts
   local rows = variant.br * facts.teams
   local scores, row_bytes = rows * bc, elements.bytes(variant) * (d + dv)
   local filled = variant.v_in_k == 1 and d / (d + dv) or 1 -- share of the columns that are copied
   -- Each warp reads the K and V tiles of its team, or its part of their columns. It reads Q again for each tile unless
   -- Q stays in registers.
   local fills = fit.fill * facts.teams * fill_ways(variant, facts) * filled
   local smem = bc * row_bytes * (facts.warps / parts + fills)
   if variant.q == "smem" then
      smem = smem + rows * elements.bytes(variant) * facts.d_pad
   end
   if parts > 1 then -- each warp writes its S, reads the other warps' S, and computes all P
      smem = smem + 4 * scores * parts * parts
   end
   local fp32_per_score = fit.fp32_per_score + facts.more_fp32_per_score
   local fp32 = scores * parts * fp32_per_score + (fit.rescaled + facts.fp32_per_sum) * rows * facts.dv_pad
   return {
      tensor_clocks(variant, facts, arch, scores),
      smem / arch.smem_rate,
      facts.ex2_per_score * scores * parts / arch.ex2,
      fp32 / arch.fp32,
   }
end

-- Returns the share of the other units' clocks that is not hidden, with `blocks` blocks on the SM.
local function exposed_share(facts, blocks)
   local warps_per_scheduler = math.max(blocks * facts.warps / 4, 0.5)
   return math.min(math.max(fit.exposed / warps_per_scheduler, fit.exposed_least), 1)
end

-- Returns the clocks for which `blocks` blocks keep an SM busy with one tile of each of their teams.
function M.busy_clocks(variant, facts, arch, blocks)
   local busiest, sum = 0, 0
   local idle = math.max(4 / (blocks * facts.warps), 1) -- each scheduler has its own units, except shared memory
   for unit, clocks in ipairs(unit_clocks(variant, facts, arch)) do
      clocks = unit == 2 and clocks or clocks * idle
      busiest, sum = math.max(busiest, clocks), sum + clocks
   end
   local added = facts.numbers * fit.number * variant.br * facts.teams * variant.bc
   local clocks = blocks * (busiest + exposed_share(facts, blocks) * (sum - busiest) + added)
   return clocks * (1 + fit.spill * facts.spilled)
end

-- Returns the clocks of a warp for issuing its copies of a tile whose rows have this many columns. A thread copies one
-- chunk of 16 bytes of every n-th row.
local function copy_clocks(variant, facts, row_columns)
   local chunks, threads = row_columns // 8, 32 * facts.warps // facts.teams
   local rows = math.max(threads // chunks, 1)
   local each = facts.fill == "spread" and fit.issue_spread or fit.issue_whole
   if rows * chunks ~= threads or variant.bc % rows ~= 0 then
      each = each + fit.condition
   end
   if variant.layout == "swizzle" and rows % 8 ~= 0 then
      each = each + fit.address
   end
   return each * ((variant.bc + rows - 1) // rows)
end

-- Returns these clocks for a tile of K and a tile of V.
function M.copy_clocks(variant, facts)
   local clocks = copy_clocks(variant, facts, facts.k_pad)
   return variant.v_in_k == 1 and clocks or clocks + copy_clocks(variant, facts, facts.v_pad)
end

-- Returns the clocks in which `blocks` blocks on an SM do one tile each.
local function tile_clocks(variant, facts, arch, blocks)
   local barrier = fit.barrier * facts.warps / 4 * (blocks == 1 and fit.alone or 1)
   local issue = M.copy_clocks(variant, facts) * facts.warps / 4 * exposed_share(facts, blocks)
   local clocks = M.busy_clocks(variant, facts, arch, blocks)
      + blocks * (barrier * facts.barriers + issue)
      + fit.chain / math.max(1, blocks * facts.warps / 4)
   -- Each wait of a tile comes `ahead` tile times after the loads that it waits for.
   local covered = clocks
   for _, ahead in ipairs(facts.ahead) do
      clocks = clocks + math.max(fit.load_latency - ahead * covered, 0)
   end
   return clocks
end

-- The most row tiles that are counted one by one. If there are more, only every second, third, ... one is counted.
local most_counted = 16384

-- Counts the K/V tiles of the row tiles of one head, the last rows first. Tiles with a mask, at the ends of what the
-- rows see, count for more. Returns
--   sum       of all row tiles; a float, because products with it may exceed 64 bits
--   most      of one row tile
--   differ    true: row tiles may have different numbers
--   each      list of the numbers of the row tiles that were counted
--   share     row tiles for each element of that list
local function count_tiles(br, bc, problem)
   local seq_q, seq_k = problem.seq_q, problem.seq_k
   local q_tiles = (seq_q + br - 1) // br
   local step = (q_tiles + most_counted - 1) // most_counted
   local offset = seq_k - seq_q
   local all = (seq_k + bc - 1) // bc
   local left, right = window.ends(problem)
   local ends = (left < window.unbounded and 1 or 0) + (right < window.unbounded and 1 or 0)
   local each = {}
   if ends == 0 then
      for _ = 1, q_tiles, step do
         each[#each + 1] = all
      end
      return {sum = 1.0 * q_tiles * all, most = all, differ = false, each = each, share = q_tiles / #each}
   end
   local sum, most = 0, 0
   local masked = ends * fit.masked * math.max(br // bc, 1)
   for row = (q_tiles - 1) * br, 0, -br * step do -- no math.min and math.max: most of the model's time is spent here
      local rows_end = row + br < seq_q and row + br or seq_q
      local first, behind = row + offset - left, rows_end + offset + right
      first = first > 0 and first or 0
      behind = behind < seq_k and behind or seq_k
      local tiles = behind > first and (behind + bc - 1) // bc - first // bc + masked or 0
      sum = sum + tiles
      most = tiles > most and tiles or most
      each[#each + 1] = tiles
   end
   local share = q_tiles / #each
   return {sum = sum * share, most = most, differ = true, each = each, share = share}
end

-- Facts of a problem:
--   rows_q     bytes of a column of all rows of Q or O
--   rows_k     bytes of a column of all rows of K or V that are seen
--   both       columns of Q and O together; in fp32, columns of O count more
--   of_key     share of their bytes that are the bytes of K and V that are read for a key
--   visited    results of count_tiles by tile size
local sizes_of = M.of_problem(function(problem)
   local bytes = elements.bytes(problem)
   local both = problem.head_dim + columns.of_problem(problem) * (partial.out_bytes(problem) // bytes)
   return {
      rows_q = bytes * problem.batch * problem.heads_q * problem.seq_q,
      rows_k = bytes * problem.batch * problem.heads_kv * window.seen_keys(problem),
      both = both, of_key = columns.key_bytes(problem) / (bytes * both), visited = {},
   }
end)

local function visited_tiles(variant, problem, sizes)
   local key = variant.br * 4096 + variant.bc
   local visited = sizes.visited[key]
   if not visited then
      visited = count_tiles(variant.br, variant.bc, problem)
      sizes.visited[key] = visited
   end
   return visited
end

-- Returns three times in us: of DRAM for all bytes, of L2, and of DRAM for the bytes that L2 cannot keep.
local function memory_us(variant, facts, sizes, arch, tiles)
   local rows_q, both = sizes.rows_q * (facts.heads_together or 1), sizes.both
   local of_key = sizes.of_key * (facts.key_share or 1)
   local dram = both * (rows_q + of_key * sizes.rows_k)
   local l2 = both * (rows_q + of_key * 2 * variant.bc * tiles)
      + facts.bytes_per_score * variant.br * variant.bc * tiles
   local beyond = dram - arch.l2_bytes
   return dram / arch.dram, l2 / arch.l2, (beyond > 0 and beyond or 0) / arch.dram
end

-- Returns us until SMs and memory are done. Each hides most of the other's time.
local function both_us(sm_us, dram_us, l2_us)
   local p = fit.overlap
   local us = (sm_us ^ p + dram_us ^ p) ^ (1 / p)
   return us < l2_us and l2_us or us
end

-- Returns us of a kernel that takes warm_us if its inputs are in L2, and cold_us if they are not. Short kernels are
-- timed with their inputs in L2, long ones without.
function M.blend(warm_us, cold_us)
   local share = 1 / (1 + (cold_us / fit.short) ^ -fit.sharp)
   return warm_us + (cold_us - warm_us) * share
end

-- Returns us for a problem whose blocks are spread over the card.
--   variant           br, bc
--   facts             smem_bytes, bytes_per_score; heads_together if that many query heads are taken for one
--   resident          blocks that an SM holds
--   clocks(count)     clocks of an SM in which this many blocks do one tile each
--   prologue          clocks of a block besides its tiles
--   slower            factor of the SMs' time
--   shares(weights)   if row tiles are divided among blocks before the launch (forward_shares.lua), else nil. Returns
--                     the clocks of the busiest SM, from the K/V tiles of each row tile of a head
function M.spread(variant, facts, problem, arch, resident, clocks, prologue, slower, shares)
   local heads = problem.batch * problem.heads_q
   local blocks = heads * ((problem.seq_q + variant.br - 1) // variant.br)
   local sizes = sizes_of(problem)
   local visited = visited_tiles(variant, problem, sizes)
   local sum, most = visited.sum, visited.most
   local slots = arch.sm_count * resident
   local waves, rest = blocks // slots, blocks % slots
   local last = rest > 0 and (rest + arch.sm_count - 1) // arch.sm_count or 0
   local busy = most * (waves * clocks(resident) + (last > 0 and clocks(last) or 0))
   if shares then
      busy = shares(visited.each) * visited.share
   elseif visited.differ and waves > 0 and sum > 0 then
      -- If blocks differ, the longest start first, so the SMs end at nearly the same time. In a late chunk of a prompt
      -- blocks hardly differ, and run in waves.
      local mean = sum * heads / blocks
      local differing = math.min(2 * (most / mean - 1), 1)
      local even = clocks(resident) * (sum * heads / slots + fit.tail * mean)
      busy = busy + differing * (even - busy)
   end
   local edges = prologue * (waves + (last > 0 and 1 or 0))
   local dram_us, l2_us, beyond_us = memory_us(variant, facts, sizes, arch, sum * heads)
   local warm_us = both_us((busy + fit.warm_prologue * edges) / arch.clock * slower, beyond_us, l2_us)
   local cold_us = both_us((busy + edges) / arch.clock * slower, dram_us, l2_us)
   local footprint = 1 + fit.footprint * facts.smem_bytes
   return M.blend(fit.warm_launch + warm_us * footprint, arch.launch_us + cold_us * footprint)
end

local function card_of(variant, facts, arch)
   return {
      resident = M.resident_blocks(facts, arch),
      clocks = M.kept(function(count)
         return tile_clocks(variant, facts, arch, count)
      end),
   }
end

-- Returns us for a problem; math.huge if no SM can hold a block. variant: br, bc, layout, q, v_in_k. facts: find_facts
-- in forward.lua makes them.
function M.forward(variant, facts, problem, arch)
   local card = M.on_card(variant, facts, arch, card_of)
   if card.resident < 1 then
      return math.huge
   end
   return M.spread(variant, facts, problem, arch, card.resident, card.clocks, fit.prologue,
                   facts.row_tiles > 1 and 1 + fit.pair or 1)
end

return M
