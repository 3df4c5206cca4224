-- What the blocks of a backward variant have: shares of warps, shared memory, registers; as the templates have it
-- (templates/backward/shape.cuh, tile.cuh). v: a variant's axes (backward_axes.lua).
local bias = require("features.bias")
local columns = require("features.columns")
local features = require("features.list")
local lengths = require("features.lengths")
local softcap = require("features.softcap")

local M = {}

-- Columns in shared memory of rows of Q and K, and of V and O: each of the qwarps gets whole pairs of n8 tiles of dK
-- and dV.
function M.padded(v)
   local step = 16 * v.qwarps
   return (v.d + step - 1) // step * step, (columns.of(v) + step - 1) // step * step
end

local row_shares = {1, 2, 4, 8}

local function find_row_warps(br, warps, depth)
   local best, least
   for _, rwarps in ipairs(row_shares) do
      local col_warps = warps // rwarps
      if warps % rwarps == 0 and br % (16 * rwarps) == 0 and depth % col_warps == 0 then
         local reads = br // (16 * rwarps) + depth // col_warps
         if not least or reads < least then
            best, least = rwarps, reads
         end
      end
   end
   return best
end

-- By all that they depend on: false where there are none.
local row_warps = {}

-- Warps that divide the rows of dQ, so that the fewest fragments are read; among equals so that a warp
-- has the most rows. nil: in no way does each warp get whole tiles.
function M.row_warps(v)
   local depth = (M.padded(v)) // 16
   local key = (v.br * 64 + v.warps) * 1024 + depth
   local known = row_warps[key]
   if known == nil then
      known = find_row_warps(v.br, v.warps, depth) or false
      row_warps[key] = known
   end
   return known or nil
end

-- What each warp has, in m16n8k16 tiles; as in templates/backward/shape.cuh.
local function shares(v)
   local key_warps, rwarps = v.warps // v.qwarps, M.row_warps(v)
   local d_pad, dv_pad = M.padded(v)
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
function M.smem_bytes(v)
   local padding = v.layout == "pad" and 8 or 0
   local d_pad, dv_pad = M.padded(v)
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

-- Where tiles pass through registers, every kernel with more alive than this spills (130 kernels for sm_75, D = 32, 64,
-- 80, with each feature: tests/bench/spills.c).
local most_staged = 184
-- Beyond so many columns most_staged and of_features refuse nothing: with features no candidate would be left, and a
-- kernel that spills is better than none.
local most_columns = 128
-- Where tiles pass through registers ptxas keeps also what these features know beside everything.
local staged_varlen, staged_dropout = 25, 12

-- What a bias takes beside everything, and what one whose gradient is wanted does: as much as it takes to refuse the
-- kernels that were seen to spill with it, 208 alive without (116 bytes, a mask on sm_80) and 180 alive without (84
-- bytes, a gradient on sm_90).
local of_bias, of_gradient = 1, 29

-- Where V has fewer columns, which kernels spill: of 30 for sm_80, D = 160 to 192, 21 of 23 such, none of the others.
local function spills_with_columns(v)
   return v.dv > 0 and v.dq == "red" and v.parts == 2
      and (v.qwarps == 1 or v.br == 64 and v.bc == 128 and v.d > 160 and (v.causal == 0 or v.order == "early"))
end

-- With these features, too: of 18 kernels for sm_80 that know chunks, D = 64 and 128, 12 of 13 such spill, and none of
-- the others; of 18 causal ones for sm_80 and sm_90 with the gradient of a bias in fp32, D = 128, 15; of 14 causal ones
-- for sm_80 that give the same bits, D = 64, all.
local function spills_with_feature(v)
   return v.window == 3 and (v.parts > 1 or v.order == "early") or v.bias == "fp32_gradient" and v.causal == 1
      or v.deterministic == 1 and v.causal == 1 and v.d <= 64
end

-- Of a bias in fp32 all numbers of a part of the queries are read at once: of 48 kernels for sm_90, D = 40 to 96, with
-- 32 of them beside so much else, 44 spill.
local function spills_with_numbers(v, path, s, alive)
   return v.bias == "fp32" and not path.register_staging and v.d <= most_columns and s.key_tiles * s.query_steps >= 4
      and alive > 172 and (v.qwarps == 1 or v.order == "late")
end

-- Through registers, on sm_75: of 23 kernels with the gradient of a bias, D = 40 and 48, and four products of a warp's
-- queries, 21 spill, and none of 8 with D = 32; of packed sequences those whose rows fill no banks, where a tile takes
-- more than 64 registers on its way, D = 72 to 160: all of 18, and neither of two with D = 192.
local function spills_staged(v, s, alive, way)
   local has_gradient = select(2, bias.type_of(v))
   return has_gradient and v.dq == "red" and s.key_tiles * s.query_steps >= 4 and alive > 149
      or v.varlen == 1 and v.br > 32 and v.d % 64 > 0 and way > 64 and alive > 168
end

-- What spills although no more than most_alive are: of 240 kernels for sm_75 and sm_90, D = 64, 128, 256, those of few
-- warps, whose threads copy much, those of few queries, and those where dQ takes many registers while scores are
-- computed late; through registers also tiles of many keys.
local function spills_near_limit(v, path, alive, dq)
   if path.register_staging then
      return v.d <= most_columns and (alive > most_staged or alive == 168 and v.bc > 32 and v.parts == 1)
         or alive > 168 and v.bc > 16
         and (v.warps < 4 or v.layout == "swizzle" or v.order == "late" or v.bc >= 4 * v.br)
   end
   return alive > 196 and (v.warps < 4 or v.br < 64 or v.order == "late" and dq > 72 or spills_with_feature(v))
      or alive > 188 and spills_with_columns(v)
end

-- Registers of two tiles of so many rows on their way to shared memory, and of the larger one.
local function staged(v, path, rows)
   local threads = 32 * v.warps
   local d_pad, dv_pad = M.padded(v)
   local function registers(row_columns)
      return path.register_staging and (rows * row_columns // 8 + threads - 1) // threads * 4 or 0
   end
   return registers(d_pad) + registers(dv_pad), registers(d_pad)
end

-- What features take beside everything.
local function of_features(v, path)
   local of_all = v.bias == "none" and 0 or v.bias:find("_gradient") and of_gradient or of_bias
   return of_all + (path.register_staging and v.varlen * staged_varlen + v.dropout * staged_dropout or 0)
end

-- Registers per thread that are alive at once: dK and dV, beside them S^T and dP^T or dQ, and
-- fragments. Without cp.async Q and dO pass through registers while dQ is computed, or where these are
-- too many one after the other when it is done. Query blocks have dQ, S and dP, and K and V likewise.
-- Behind them: whether it is done later, and how many parts of its rows of dQ a warp computes one after
-- the other.
-- s: shares(v), if they are there.
function M.live_registers(v, path, s)
   s = s or shares(v)
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
   if v.d <= most_columns then
      alive = alive + of_features(v, path)
   end
   if spills_near_limit(v, path, alive, dq) or spills_with_numbers(v, path, s, alive)
      or path.register_staging and spills_staged(v, s, alive, way) then
      alive = math.max(alive, most_alive + 1)
   end
   return alive, path.register_staging and later, dq_parts
end

-- What the cost model wants to know. registers: the compiler's count, or 0 for the estimate, with which they are kept
-- in v: candidates are selected by many problems.
function M.facts(v, path, registers)
   if registers == 0 and v.facts then
      return v.facts
   end
   local facts = shares(v)
   local alive = M.live_registers(v, path, facts)
   -- Rows of a pad layout start 16 bytes apart modulo 128 only if they are a multiple of that long; else
   -- the 8 lanes of a store phase, which cross rows, meet in banks.
   facts.fill_ways = v.layout == "pad" and facts.d_pad % 64 + facts.dv_pad % 64 > 0 and 2 or 1
   facts.smem_bytes, facts.warps = M.smem_bytes(v), v.warps
   facts.k8 = path.k8
   facts.registers = registers > 0 and registers or math.min(alive + other_registers, 255)
   facts.spilled = math.max(alive - most_alive, 0)
   facts.ex2_per_score = 1 + v.softcap * softcap.ex2_per_score
   facts.biased = v.bias ~= "none" and 1 or 0
   facts.more_fp32_per_score = v.softcap * (softcap.fp32_per_score + softcap.slope_per_score)
      + features.fp32_per_score(v)
   v.facts = registers == 0 and facts or v.facts
   return facts
end

return M
