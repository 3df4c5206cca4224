-- The backward families: a block owns Bc key rows and walks over queries in tiles of Br.
--
-- Warps are (warps / qwarps) x qwarps over S^T, keys by queries, and over dK and dV, keys by columns;
-- over dQ, rows by columns, as reads the fewest fragments. parts: of a warp's queries in a tile, one of
-- which is in registers. stages: tiles of Q and dO in shared memory. barriers: per tile; one needs a
-- stage more. order: when dV is added to, before dP^T is computed (early) or behind (late).
-- dq: how dQ is gathered. red: by fp32 additions in memory; apart: by blocks of its own, with tiles of
-- dqbc keys, which compute S and dP again and sum in one order, so that every launch gives the same bits;
-- whole: a block has all keys of a head, one tile after the other, so that nobody else adds to its dQ, and
-- nobody at all where they are one tile: short sequences of many heads (whole.cu.in).
-- Where that is asked for, red takes turns at the tiles of dQ (turns.cu.in). rows: LSE and delta of a row
-- come from a preparing kernel (prepared), or each block computes them (computed: one launch, no
-- workspace). layout: rows of tiles are swizzled, or padded, which takes more memory and fewer registers:
-- 1 to 3 % slower on an H200, but a way without spills on Turing, where fills take many.
--
-- split: where there are few blocks, several share the queries of a tile of keys, and a step behind them sums their
-- parts of dK and dV in one order (split.cu.in).
--
-- A family is this scheme on a code path (paths/mma_sync.lua).
local columns = require("features.columns")
local cost = require("ops.backward_cost")
local families = require("core.family")
local features = require("features.list")
local kinds = require("ops.kinds")
local lengths = require("features.lengths")
local softcap = require("features.softcap")
local window = require("features.window")

local M = {}

-- Version of the parameter block, templates/backward/params.def.
local abi = 1

local prepare_threads, convert_rows = 256, 32

-- Columns in shared memory of rows of Q and K, and of V and O: each of the qwarps gets whole pairs of n8 tiles of dK
-- and dV.
local function padded(v)
   local step = 16 * v.qwarps
   return (v.d + step - 1) // step * step, (columns.of(v) + step - 1) // step * step
end

-- Warps that divide the rows of dQ, so that the fewest fragments are read; among equals so that a warp
-- has the most rows. nil: in no way does each warp get whole tiles.
local function row_warps(v)
   local best, least
   for _, rwarps in ipairs({1, 2, 4, 8}) do
      local col_warps, depth = v.warps // rwarps, (padded(v)) // 16
      if v.warps % rwarps == 0 and v.br % (16 * rwarps) == 0 and depth % col_warps == 0 then
         local reads = v.br // (16 * rwarps) + depth // col_warps
         if not least or reads < least then
            best, least = rwarps, reads
         end
      end
   end
   return best
end

-- What each warp has, in m16n8k16 tiles; as in templates/backward/config.cu.in.
local function shares(v)
   local key_warps, rwarps = v.warps // v.qwarps, row_warps(v)
   local d_pad, dv_pad = padded(v)
   local depth, value_depth = d_pad // 16, dv_pad // 16
   return {
      d_pad = d_pad, dv_pad = dv_pad,
      depth = depth, value_depth = value_depth, key_tiles = v.bc // (16 * key_warps),
      query_steps = v.br // (16 * v.qwarps * v.parts),
      out_pairs = depth // v.qwarps, value_pairs = value_depth // v.qwarps,
      dq_row_tiles = v.br // (16 * rwarps), dq_pairs = depth // (v.warps // rwarps),
   }
end

-- Bytes; the templates assert the same sum. A key block: K, V, stages of Q, dO, LSE and delta; dS^T, and
-- P^T where warps exchange it, twice with one barrier; dQ on its way. A query block: 16 rows of Q and
-- dO per warp, two tiles of K and V, LSE and delta.
local function smem_bytes(v)
   local padding = v.layout == "pad" and 8 or 0
   local d_pad, dv_pad = padded(v)
   local pitches = d_pad + dv_pad + 2 * padding -- of a row of Q or K, and of O or V
   local shared_p = v.qwarps > 1 and v.br * v.bc or 0
   local scores = (v.barriers == 1 and 2 or 1) * (v.bc * (v.br + padding) + shared_p)
   local bytes = 2 * ((v.bc + v.stages * v.br) * pitches + scores) + 8 * v.stages * v.br
   if v.dq == "apart" then
      return math.max(bytes, 2 * (16 * v.warps + 2 * v.dqbc) * pitches + 128 * v.warps)
   end
   return bytes
end

-- What a block that has all keys of a head takes for its rows' LSE and delta, and to write dQ.
local whole_registers = 36
-- What one takes to know its part of the queries.
local split_registers = 12

-- ptxas keeps about 40 registers beside those that are alive; it spills 0 to 20 bytes where 204 are.
local other_registers, most_alive = 40, 208

-- What spills below that limit, of 240 kernels for sm_75 and sm_90, D = 64, 128, 256: from so many alive on,
-- those of few warps, whose threads copy much, of few queries, and those where dQ takes many registers
-- while scores are computed late; where tiles pass through registers, all that need more than others.
local function spills_near_limit(v, path, alive, dq)
   if path.register_staging then
      return alive > 168 and v.bc > 16
         and (v.warps < 4 or v.layout == "swizzle" or v.order == "late" or v.bc >= 4 * v.br)
   end
   return alive > 196 and (v.warps < 4 or v.br < 64 or v.order == "late" and dq > 72)
end

-- Registers of two tiles of so many rows on their way to shared memory, and of the larger one.
local function staged(v, path, rows)
   local threads = 32 * v.warps
   local d_pad, dv_pad = padded(v)
   local function registers(row_columns)
      return path.register_staging and (rows * row_columns // 8 + threads - 1) // threads * 4 or 0
   end
   return registers(d_pad) + registers(dv_pad), registers(d_pad)
end

-- Registers per thread that are alive at once: dK and dV, beside them S^T and dP^T or dQ, and
-- fragments. Without cp.async Q and dO pass through registers while dQ is computed, or where these are
-- too many one after the other when it is done. Query blocks have dQ, S and dP, and K and V likewise.
-- Behind them: whether it is done later, and how many parts of its rows of dQ a warp computes one after
-- the other.
local function live_registers(v, path)
   local s = shares(v)
   local sums = 8 * s.key_tiles * (s.out_pairs + s.value_pairs) + (v.dq == "whole" and whole_registers or 0)
      + (v.split == 1 and split_registers or 0)
   local tiles = 2 + v.softcap -- S^T, dP^T and the cap's derivative
   local scores = 8 * tiles * s.key_tiles * s.query_steps + 4 * s.key_tiles + 4
      + features.registers(v, 1) + v.dropout * 4 * s.query_steps + v.varlen * lengths.packed.own_registers
   local dq_parts, dq = 1, 0
   if v.dq ~= "apart" then
      while dq_parts < s.dq_row_tiles
         and sums + (8 * s.dq_pairs + 4) * (s.dq_row_tiles // dq_parts) + 4 > most_alive do
         dq_parts = 2 * dq_parts
      end
      dq = (8 * s.dq_pairs + 4) * (s.dq_row_tiles // dq_parts) + 4
   end
   local ways, way = staged(v, path, v.br)
   local later = v.stages == 1 and sums + dq + ways > most_alive
   local alive = sums + math.max(scores, later and math.max(dq, way) or dq + ways)
   if v.dq == "apart" then
      alive = math.max(alive, s.d_pad // 2 + v.dqbc + 8 + staged(v, path, v.dqbc))
   end
   if spills_near_limit(v, path, alive, dq) then
      alive = math.max(alive, most_alive + 1)
   end
   return alive, path.register_staging and later, dq_parts
end

-- What the cost model wants to know. registers: the compiler's count, or 0 for the estimate, with which they are kept
-- in v: candidates are selected by many problems.
local function facts_of(v, path, registers)
   if registers == 0 and v.facts then
      return v.facts
   end
   local facts = shares(v)
   local alive = live_registers(v, path)
   -- Rows of a pad layout start 16 bytes apart modulo 128 only if they are a multiple of that long; else
   -- the 8 lanes of a store phase, which cross rows, meet in banks.
   facts.fill_ways = v.layout == "pad" and facts.d_pad % 64 + facts.dv_pad % 64 > 0 and 2 or 1
   facts.smem_bytes, facts.warps = smem_bytes(v), v.warps
   facts.k8 = path.k8
   facts.registers = registers > 0 and registers or math.min(alive + other_registers, 255)
   facts.spilled = math.max(alive - most_alive, 0)
   facts.ex2_per_score = 1 + v.softcap * softcap.ex2_per_score
   facts.more_fp32_per_score = v.softcap * (softcap.fp32_per_score + softcap.slope_per_score)
      + features.fp32_per_score(v)
   v.facts = registers == 0 and facts or v.facts
   return facts
end

-- ---- the space ----

local function divides_keys(v)
   if v.warps % v.qwarps ~= 0 then
      return nil, "qwarps does not divide the warps"
   end
   local key_warps = v.warps // v.qwarps
   if v.bc % (16 * key_warps) ~= 0 then
      return nil, "bc does not give each warp whole m16 tiles of keys"
   elseif v.bc > 32 * key_warps then
      return nil, "a warp would have more than two m16 tiles of keys"
   end
   return true
end

-- Longer rows of S^T only take registers; a row of tiles alone feeds too little.
local function divides_queries(v)
   local steps, rest = v.br // (16 * v.qwarps * v.parts), v.br % (16 * v.qwarps * v.parts)
   if rest ~= 0 then
      return nil, "br does not give each part whole k16 steps"
   elseif steps > 4 or v.parts > 1 and steps > 2 then
      return nil, "a part would be more than four k16 steps, or two where there are several"
   elseif not row_warps(v) then
      return nil, "br and d do not give each warp whole tiles of dQ"
   end
   return true
end

local function is_pipeline(v)
   if v.barriers == 2 and v.stages <= 2
      or v.barriers == 1 and v.stages == (v.qwarps > 1 and 3 or 2) then
      return true
   end
   return nil, "no such pair of stages and barriers"
end

local own_axes = {
   {name = "deterministic", field = "deterministic", values = {0, 1}, feature = true},
   {name = "br", values = {32, 64, 128}},
   {name = "bc", values = {16, 32, 64, 128, 256}},
   {
      name = "warps", values = {1, 2, 4, 8},
      when = function(v)
         if v.br > 64 * v.warps then
            return nil, "a thread copies LSE or delta of four rows at most"
         end
         return true
      end,
   },
   {name = "qwarps", values = {1, 2, 4, 8}, when = divides_keys},
   {name = "parts", values = {1, 2, 4}, when = divides_queries},
   {name = "stages", values = {1, 2, 3}},
   {name = "barriers", values = {1, 2}, when = is_pipeline},
   {name = "order", values = {"early", "late"}},
   {
      name = "dq", values = {"red", "apart", "whole"},
      when = function(v)
         if v.dq == "whole" and (v.varlen == 1 or v.sinks == 1) then
            return nil, "a block has all keys of a head where that is not packed, and has no sinks"
         elseif v.dq == "whole" and v.order == "late" then
            return nil, "a block that has all keys of a head has no registers for that order"
         elseif v.dq ~= "whole" and v.bc > 128 then
            return nil, "tiles of 256 keys are for blocks that have all of a head"
         end
         return true
      end,
   },
   {
      name = "dqbc", values = {0, 16, 32, 64},
      when = function(v)
         if (v.dq == "apart") ~= (v.dqbc > 0) then
            return nil, "dqbc is for dq=apart, which has tiles of its own"
         end
         return true
      end,
   },
   {
      name = "rows", values = {"prepared", "computed"},
      when = function(v)
         if v.rows == "computed" and v.dq == "red" then
            return nil, "dQ that is added to must be prepared"
         elseif v.rows == "prepared" and v.dq == "whole" then
            return nil, "a block that has all keys of a head computes each row's once"
         elseif v.rows == "computed" and v.sinks == 1 then
            return nil, "the gradient of sinks is of prepared rows"
         end
         return true
      end,
   },
   {
      name = "layout", values = {"pad", "swizzle"}, default = "swizzle",
      when = function(v, path)
         local d_pad, dv_pad = padded(v)
         if v.layout == "pad" and not path.register_staging and d_pad % 64 + dv_pad % 64 == 0 then
            return nil, "padded rows are for fills through registers, and rows that fill no banks"
         end
         return true
      end,
   },
}

own_axes[#own_axes + 1] = {
   name = "split", values = {0, 1}, quiet = true, default = 0,
   when = function(v)
      if v.split == 1 and (v.dq == "whole" or v.varlen == 1 or v.dv > 0) then
         return nil, "queries are shared where dQ has other blocks, and sequences and V are plain"
      elseif v.split == 1 and (v.order == "late" or v.layout == "pad" or v.bc < 32) then
         return nil, "queries are shared in one order, with swizzled rows, of at least 32 keys"
      end
      return true
   end,
}

local axes = {}
for _, list in ipairs({kinds.axes(256), {columns.axis, softcap.axis, window.axis}, features.axes("backward"),
                       own_axes}) do
   table.move(list, 1, #list, #axes + 1, axes)
end

local function fits(v, path, arch)
   local facts = facts_of(v, path, 0)
   if facts.smem_bytes > arch.smem_block then
      return nil, string.format("%d bytes of shared memory, a block has %d", facts.smem_bytes,
                                arch.smem_block)
   elseif facts.spilled > 0 then
      return nil, string.format("about %d registers too many", facts.spilled)
   elseif cost.resident_blocks(facts, arch) < 1 then
      return nil, "an SM cannot hold a block"
   end
   return true
end

-- The model is least sure of how warps divide the tiles, sees little difference between orders and
-- pipelines, and none between ways to gather dQ that add alike.
local selection = {
   limit = 50,
   covered = {{"br", "parts"}, {"bc", "warps", "qwarps"}, {"stages", "barriers"}, {"order"},
              {"dq", "rows"}, {"dq", "bc"}, {"layout"}, {"split", "dq"}, {"split", "bc"}},
   crowds = {
      {axes = {"bc", "warps", "qwarps"}, most = 10},
      {axes = {"br", "bc", "warps", "qwarps", "parts"}, most = 6},
      {axes = {"dq", "rows"}, value = "dq=apart rows=prepared", most = 4},
      {axes = {"dq", "rows"}, value = "dq=apart rows=computed", most = 10},
      {axes = {"dq"}, value = "dq=whole", most = 6},
      {axes = {"split"}, value = "split=1", most = 6},
   },
}

-- Long sequences that fill the card, ordinary ones, short ones, and too few blocks for the card.
local function typical(problem, arch)
   local list = {}
   for _, size in ipairs({{arch.sm_count, 4096}, {2 * arch.sm_count, 512}, {64, 256}, {32, 128},
                          {8, 512}, {1, 512}, {4 * arch.sm_count, 128}, {8, 4096, 1}}) do
      if problem.window == 0 or size[2] > 256 then  -- a window leaves little out of shorter ones
         list[#list + 1] = {
            batch = 1, heads_q = size[1], heads_kv = size[3] or size[1], seq_q = size[2], seq_k = size[2],
         }
      end
   end
   return window.typical(list, problem)
end

local function always()
   return true
end

-- Blocks that have all keys of a head are for one tile of them; queries are shared where blocks are few.
local function suits(v, problem, arch)
   if v.split == 1 and cost.splits(v, problem, arch) == 1 then
      return nil, "there are blocks enough"
   end
   if v.dq == "whole" and (problem.seq_k > v.bc or 2 * problem.seq_k <= v.bc) then
      return nil, "a head's keys are no tile of these"
   end
   return true
end

-- Lanes that share a row in the preparing kernel: a power of two.
local function row_lanes(d)
   local lanes = 1
   while lanes < d // 8 do
      lanes = 2 * lanes
   end
   return lanes
end

local function takes_turns(v)
   return v.deterministic == 1 and v.dq == "red"
end

local main_blocks = {red = "key_tiles", apart = "key_and_query_tiles", whole = "key_heads"}

-- Of a block of the kernel for the gradient of sinks.
local sink_threads = 256

local function recipe_of(name, v)
   local steps = {}
   if v.rows == "prepared" then
      steps[1] = {
         entry = name .. "_prepare", role = "prepare", threads = prepare_threads, smem = 0,
         blocks = "padded_rows/" .. prepare_threads // row_lanes(columns.of(v)),
      }
   end
   if v.sinks == 1 then
      steps[#steps + 1] = {
         entry = name .. "_sinks", role = "sinks", threads = sink_threads, smem = 0, blocks = "heads",
      }
   end
   steps[#steps + 1] = {
      entry = name, role = "main", threads = 32 * v.warps, smem = smem_bytes(v),
      blocks = main_blocks[v.dq] .. (v.dq == "apart" and "/" .. 16 * v.warps or ""),
   }
   if v.split == 1 then
      steps[#steps + 1] = {
         entry = name .. "_combine", role = "combine", threads = 32 * v.warps,
         smem = 2 * v.bc * (padded(v) + (v.layout == "pad" and 8 or 0)), blocks = "key_tile_sums",
      }
   end
   if v.dq ~= "apart" then
      steps[#steps + 1] = {
         entry = name .. "_convert", role = "convert", threads = math.min(2 * (padded(v)), 256),
         smem = 0, blocks = "padded_rows/" .. convert_rows,
      }
   end
   return {
      op = "backward", abi = abi, rows = v.br, keys = v.bc,
      waves = v.split == 1 and cost.waves or nil, splits = v.split == 1 and cost.most_splits or nil,
      workspace = takes_turns(v) and "rows_dq_and_turns" or v.dq == "red" and "rows_and_dq"
         or v.dq == "whole" and "dq_of_tiles" or v.rows == "prepared" and "rows" or nil,
      columns = (v.dq ~= "apart" or v.split == 1) and (padded(v)) or nil, steps = steps,
   }
end

-- What stands in the templates where queries are shared, and where not.
local function split_names(v)
   local own = v.split == 1
   local function either(of_shares, of_all)
      return own and of_shares or of_all
   end
   return {
      split = own,
      key_block = either("block / p.splits", "block"),
      range_is_some = either("range.has(range.begin)", "tiles.first < tiles.end(p)"),
      range_begin = either(" = range.begin", "{0, kTurns ? tiles.end(p) - 1 : tiles.first}"),
      has_ahead = either("range.has(ahead)", "ahead.head < p.group"),
      has_at = either("range.has(at)", "at.head < p.group"),
      is_masked = "at.tile < tiles.unmasked" .. (v.window > 0 and " || at.tile >= tiles.masked" or ""),
      times_splits = either(" * p.splits", ""),
   }
end

-- The family on a code path.
function M.family(name, path)
   return families.new({
      name = name, op = "backward", template = "backward/" .. name .. ".cu.in", path = path,
      axes = axes, selection = selection, fits = fits, typical = typical, is_worth = always,
      suits = suits,

      cost = function(v, problem, arch, registers)
         local facts, us = facts_of(v, path, registers), 0
         for _, part in ipairs(lengths.parts(problem)) do
            us = us + cost.backward(v, facts, part, arch)
         end
         return us
      end,

      recipe = function(v)
         return recipe_of(name, v)
      end,

      names = function(v)
         local _, later, dq_parts = live_registers(v, path)
         local names = {
            smem_bytes = smem_bytes(v), rwarps = row_warps(v), fill_later = later,
            turns = takes_turns(v), dq_parts = dq_parts, prepare_threads = prepare_threads,
            convert_rows = convert_rows, sink_threads = sink_threads,
         }
         for _, more in ipairs({features.names(v, "backward"), lengths.backward_names(v), window.names(v),
                                columns.backward_names(v), split_names(v)}) do
            for key, value in pairs(more) do
               names[key] = value
            end
         end
         return names
      end,
   })
end

return M
