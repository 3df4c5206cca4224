-- Computes for a backward variant the shares of warps in a block, its shared memory and its registers. The templates
-- compute the same (templates/backward/shape.cuh, tile.cuh). v: the axes of a variant (backward_axes.lua).
local bias = require("features.bias")
local columns = require("features.columns")
local elements = require("core.elements")
local features = require("features.list")
local lengths = require("features.lengths")

local M = {}

-- Returns the columns in shared memory of a row of Q or K, and of a row of V or O. Each of the qwarps gets whole pairs
-- of n8 tiles of dK and dV.
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

-- Results of find_row_warps by its arguments; false if no division is possible.
local row_warps = {}

-- Returns the number of warps among which the rows of dQ are divided, so that the fewest fragments are read. If several
-- numbers are equal, a warp gets the most rows. Returns nil if no division gives each warp whole tiles.
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

-- Returns what each warp has, in m16n8k16 tiles, as in templates/backward/shape.cuh.
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

-- Returns bytes of shared memory; the templates assert the same sum. A key block has K and V; `stages` tiles of Q, dO,
-- LSE and delta; dS^T; and P^T if warps exchange it. With one barrier it has dS^T and P^T twice. A query block has 16
-- rows of Q and dO per warp, two tiles of K and V, and LSE and delta.
function M.smem_bytes(v)
   local padding = v.layout == "pad" and 8 or 0
   local d_pad, dv_pad = M.padded(v)
   local pitches = d_pad + dv_pad + 2 * padding -- elements of a row of Q or K plus a row of O or V
   local shared_p = v.qwarps > 1 and v.br * v.bc or 0
   local scores = (v.barriers == 1 and 2 or 1) * (v.bc * (v.br + padding) + shared_p)
   local of_element = elements.bytes(v)
   local bytes = of_element * ((v.bc + v.stages * v.br) * pitches + scores) + 8 * v.stages * v.br
   if v.dq == "separate" then
      return math.max(bytes, of_element * (16 * v.warps + 2 * v.dqbc) * pitches + 128 * v.warps)
   end
   return bytes
end

-- Registers of a block that has all keys of a head, for LSE and delta of its rows and for writing dQ.
local whole_registers = 36
-- Registers of a block with split=1, for its part of the queries.
local split_registers = 12

-- ptxas uses about 40 registers besides those that are alive. It spills 0 to 20 bytes if 204 are alive.
local other_registers, most_alive = 40, 208

-- If tiles pass through registers, every kernel with more alive registers than this spills. Measured with 130 kernels
-- for sm_75, D = 32, 64, 80, with each feature (tests/bench/spills.c).
local most_staged = 184
-- With more columns than this, most_staged and of_features reject nothing. With features no candidate would remain, and
-- a kernel that spills is better than none.
local most_columns = 128
-- If tiles pass through registers, ptxas also keeps registers for these features throughout.
local staged_varlen, staged_dropout = 25, 12

-- Registers that a bias takes throughout: one without a gradient, and one with it. The numbers are just large enough to
-- reject the kernels that were seen to spill. Those were a boolean mask with 208 registers alive without it (116 bytes,
-- sm_80), and a gradient with 180 alive without it (84 bytes, sm_90).
local of_bias, of_gradient = 1, 29

-- Returns true for kernels that spill if V has fewer columns. Measured with 30 kernels for sm_80, D = 160 to 192: 21 of
-- these 23 spill, and none of the others.
local function spills_with_columns(v)
   return v.dv > 0 and v.dq == "atomic" and v.parts == 2
      and (v.qwarps == 1 or v.br == 64 and v.bc == 128 and v.d > 160 and (v.causal == 0 or v.order == "early"))
end

-- Returns true for kernels that spill with these features. Measured:
--   18 kernels with chunks for sm_80, D = 64 and 128: 12 of these 13 spill, and none of the others
--   18 causal kernels with the gradient of an fp32 bias for sm_80 and sm_90, D = 128: 15 spill
--   14 causal deterministic kernels for sm_80, D = 64: all spill
local function spills_with_feature(v)
   return v.window == 3 and (v.parts > 1 or v.order == "early") or v.bias == "fp32_gradient" and v.causal == 1
      or v.deterministic == 1 and v.causal == 1 and v.d <= 64
end

-- Returns true for kernels that spill because all values of an fp32 bias for a part of the queries are read at once.
-- Measured with 48 such kernels for sm_90, D = 40 to 96, 32 values at once: 44 spill.
local function spills_with_numbers(v, path, s, alive)
   return v.bias == "fp32" and not path.register_staging and v.d <= most_columns and s.key_tiles * s.query_steps >= 4
      and alive > 172 and (v.qwarps == 1 or v.order == "late")
end

-- Returns true for kernels for sm_75 that spill because tiles pass through registers. Measured:
--   gradient of a bias, four products of a warp's queries: 21 of 23 spill with D = 40 and 48, none of 8 with D = 32
--   packed sequences, rows that fill no banks, more than 64 registers for a tile, D = 72 to 160: all 18 spill; neither
--     of two with D = 192
local function spills_staged(v, s, alive, way)
   local has_gradient = select(2, bias.type_of(v))
   return has_gradient and v.dq == "atomic" and s.key_tiles * s.query_steps >= 4 and alive > 149
      or v.varlen == 1 and v.br > 32 and v.d % 64 > 0 and way > 64 and alive > 168
end

-- Returns true for kernels that spill although at most most_alive registers are alive. Measured with 240 kernels for
-- sm_75 and sm_90, D = 64, 128, 256. They have few warps, whose threads copy much; or few queries; or dQ takes many
-- registers while scores are computed late. If tiles pass through registers, kernels with tiles of many keys spill,
-- too.
local function spills_near_limit(v, path, alive, dq)
   if path.register_staging then
      return v.d <= most_columns and (alive > most_staged or alive == 168 and v.bc > 32 and v.parts == 1)
         or alive > 168 and v.bc > 16
         and (v.warps < 4 or v.layout == "swizzle" or v.order == "late" or v.bc >= 4 * v.br)
   end
   return alive > 196 and (v.warps < 4 or v.br < 64 or v.order == "late" and dq > 72 or spills_with_feature(v))
      or alive > 188 and spills_with_columns(v)
end

-- Returns the registers through which two tiles (of Q and dO, or of K and V) pass, and the registers of the larger
-- tile. rows: of each tile.
local function staged(v, path, rows)
   local threads = 32 * v.warps
   local d_pad, dv_pad = M.padded(v)
   local function registers(row_columns)
      return path.register_staging and (rows * row_columns // 8 + threads - 1) // threads * 4 or 0
   end
   return registers(d_pad) + registers(dv_pad), registers(d_pad)
end

-- Returns the registers that features take throughout.
local function of_features(v, path)
   local of_all = v.bias == "none" and 0 or v.bias:find("_gradient") and of_gradient or of_bias
   return of_all + (path.register_staging and v.varlen * staged_varlen + v.dropout * staged_dropout or 0)
end

-- Returns
--   1. registers of a thread that are alive at once: dK and dV; also S^T and dP^T, or dQ; and fragments. Without
--     cp.async, Q and dO pass through registers while dQ is computed. If these are too many, they do so after dQ, one
--     after the other. Query blocks have dQ, S and dP, and K and V pass in the same way
--   2. true if Q and dO pass after dQ
--   3. number of parts of its rows of dQ that a warp computes one after the other
-- s: shares(v), if the caller has them.
function M.live_registers(v, path, s)
   s = s or shares(v)
   local sums = 8 * s.key_tiles * (s.out_pairs + s.value_pairs) + (v.dq == "block" and whole_registers or 0)
      + (v.split == 1 and split_registers or 0)
   local tiles = 2 + features.kept_tiles(v) -- S^T, dP^T
   local scores = 8 * tiles * s.key_tiles * s.query_steps + 4 * s.key_tiles + 4
      + features.registers(v, 1) + v.dropout * 4 * s.query_steps + v.varlen * lengths.packed.own_registers
   local dq_parts, dq = 1, 0
   if v.dq ~= "separate" then
      while dq_parts < s.dq_row_tiles
         and sums + (8 * s.dq_pairs + 4) * (s.dq_row_tiles // dq_parts) + 4 > most_alive do
         dq_parts = 2 * dq_parts
      end
      dq = (8 * s.dq_pairs + 4) * (s.dq_row_tiles // dq_parts) + 4
   end
   local ways, way = staged(v, path, v.br)
   local later = v.stages == 1 and sums + dq + ways > most_alive
   local alive = sums + math.max(scores, later and math.max(dq, way) or dq + ways)
   if v.dq == "separate" then
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

-- Returns what the cost model needs. registers: as the compiler reported them, or 0 for an estimate. Estimates are kept
-- in v, because candidates are selected by many problems.
function M.facts(v, path, registers)
   if registers == 0 and v.facts then
      return v.facts
   end
   local facts = shares(v)
   local alive = M.live_registers(v, path, facts)
   -- Padded rows start 16 bytes apart modulo 128 only if their length is a multiple of 128 bytes. Otherwise the 8 lanes
   -- of a store phase, which write several rows, have bank conflicts.
   facts.fill_ways = v.layout == "pad" and facts.d_pad % 64 + facts.dv_pad % 64 > 0 and 2 or 1
   facts.smem_bytes, facts.warps = M.smem_bytes(v), v.warps
   facts.k8 = path.k8
   facts.registers = registers > 0 and registers or math.min(alive + other_registers, 255)
   facts.spilled = math.max(alive - most_alive, 0)
   facts.more_fp32_per_score, facts.ex2_per_score = features.work_per_score(v, v.bc, "backward")
   facts.biased = v.bias ~= "none" and 1 or 0
   v.facts = registers == 0 and facts or v.facts
   return facts
end

return M
