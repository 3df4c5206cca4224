-- The forward families: what a variant needs, and what the runtime is told about it.
--
-- A block has Br query rows and loops over keys in tiles of Bc. A team of warps has kstages tiles of K and vstages
-- tiles of V in shared memory. If both numbers are equal and above 1, K and V are one stage, with one barrier per tile.
-- (1, 1) and (2, 1) wait for K and V separately, with two barriers. fill: the copies of the next tile are issued after
-- one step of Q K^T (whole), or a share of them after each step (spread).
--
-- A family is a scheme, which divides the work among blocks (forward_plain.lua, forward_splitkv.lua), on a code path
-- (paths/mma_sync.lua). A scheme has
--   splits      true: blocks divide the keys, and variants have teams and waves
--   axes        the axes after the problem's fields (core/axes.lua): parts (features/columns.lua), br, bc, warps,
--               kstages, vstages, layout, q; optionally fill and teams
--   selection, typical(arch), useless, unsuited   see core/family.lua
--   cost(v, facts, problem, arch)               returns us
--   recipe(recipe, v)                           adds the scheme's words and steps to a recipe
--   names                                       what its templates see
--   features, permissions, template             optional: axes and a template instead of those of all forward families
local append = require("features.append")
local axes_of = require("core.axes")
local columns = require("features.columns")
local cost = require("ops.forward_plain_cost")
local elements = require("core.elements")
local families = require("core.family")
local features = require("features.list")
local int8 = require("features.int8")
local kinds = require("ops.kinds")
local kv8 = require("features.kv8")
local lengths = require("features.lengths")
local paged = require("features.paged")
local partial = require("features.partial")
local precision = require("features.precision")
local window = require("features.window")

local M = {}

-- Pipelines by "kstages,vstages". barriers: per tile. ahead: for each wait of a tile, about how many tile times before
-- it the loads were issued. (1, 1) loads V during Q K^T, and the next K during P V. If the fill waits for the end of Q
-- K^T, a load one tile ahead in fact has up to one Q K^T less. The cost model was fitted with these numbers.
local pipelines = {
   ["1,1"] = {barriers = 2, ahead = {0.5, 0.5}},
   ["2,1"] = {barriers = 2, ahead = {1, 0.5}},
   ["2,2"] = {barriers = 1, ahead = {1}},
   ["3,3"] = {barriers = 1, ahead = {2}},
}

-- The teams of a block. A plain block is one team.
local function team_count(v)
   return v.teams or 1
end

-- m16 row tiles of a warp.
local function row_tiles(v)
   return v.br * team_count(v) * v.parts // (16 * v.warps)
end

-- Columns in shared memory of rows of Q and K, and of rows of V.
local function padded(v)
   return columns.padded(v.d, v), columns.padded(columns.of(v), v)
end

-- The same of rows of K and V as they lie there, as if they were elements; of rounded V, which has no
-- padding, as if it were not transposed.
local function columns_in_smem(v)
   local d_pad, dv_pad = padded(v)
   local value_columns = precision.rounds_values(v) and v.d // elements.bytes(v)
      or kv8.row_columns(v, columns.of(v), dv_pad)
   return int8.key_columns(v, kv8.row_columns(v, v.d, d_pad)), value_columns
end

-- Returns bytes of shared memory; the templates assert the same sum. With q=reg, Q passes once through the place of the
-- V tiles. If warps divide columns, each has a place for its S. If K is rounded, each row has a number. If keys are
-- divided, the teams' rows of O replace the tiles. Their pitch is 32 bytes modulo 128, and each row has a maximum and a
-- sum.
local function smem_bytes(v)
   local d_pad = padded(v)
   local k_columns, v_columns = columns_in_smem(v)
   local padding = v.layout == "pad" and 8 or 0
   local bytes, scales = elements.bytes(v), kv8.scale_bytes(v)
   local q = bytes * v.br * (d_pad + padding)
   local k = team_count(v) * v.kstages * (bytes * v.bc * (k_columns + padding) + scales)
   local values = v.v_in_k == 1 and 0 or team_count(v) * v.vstages * (bytes * v.bc * (v_columns + padding) + scales)
   local tiles = v.q == "reg" and k + math.max(values, q) or q + k + values
   local sums = v.parts > 1 and 4 * team_count(v) * v.parts * v.br * v.bc or 0
   local means = int8.is_on(v) and 4 * v.br or 0
   local o_bytes = 4 * columns.of(v)
   local merged_row = o_bytes + (160 - o_bytes % 128) % 128 + 8
   return math.max(tiles + sums + means, v.teams and v.br * (v.teams * merged_row + partial.row_bytes(v)) or 0)
end

-- Returns the registers of a thread for a tile of K or V that it copies: 16 bytes in each pass.
local function staged_registers(v, row_columns)
   local chunks, threads = row_columns // 8, 32 * v.warps // team_count(v)
   if v.parts > 1 then
      return (v.bc + threads // chunks - 1) // (threads // chunks) * 4
   end
   return (v.bc * chunks + threads - 1) // threads * 4
end

-- Registers that a boolean mask takes in addition to another bias, if a thread has 32 scores or more. Eight bytes of it
-- come at once, and ptxas loads the bytes of all scores at the same time. Measured with 120 kernels for sm_80, D = 64
-- and 128: if 208 to 224 registers are alive without these, 52 to 272 bytes spill.
local function mask_registers(v, wm)
   return v.bias == "bool" and 5 * math.max(wm * v.bc - 64, 0) // 8 or 0
end

-- Returns the registers of a thread that are alive at once: O, S, fragments of Q, row statistics, fragments of K or V
-- (8), addresses and loop (28). Without cp.async, tiles of both K and V pass through registers: ptxas keeps the
-- addresses of both even while only one is copied. With fill=spread, the addresses of the copies are alive during Q
-- K^T.
local function live_registers(v, path)
   local wm = row_tiles(v)
   local d_pad, dv_pad = padded(v)
   local q = v.q == "reg" and wm * d_pad // (4 * v.parts) or 4 * wm
   if int8.is_on(v) then
      q = wm * int8.key_columns(v) // 4 + int8.registers(v, wm)
   end
   local staged = 0
   if path.register_staging then
      local k_columns, v_columns = columns_in_smem(v)
      staged = staged_registers(v, k_columns) + (v.v_in_k == 1 and 0 or staged_registers(v, v_columns))
   end
   local addresses = v.fill == "spread" and 8 or 0
   return wm * dv_pad // (2 * v.parts) + wm * v.bc // 2 + q + 4 * wm + 8 + 28 + staged + addresses
      + features.registers(v, wm) + mask_registers(v, wm) + precision.registers(v, wm)
end

-- ptxas uses more registers than are alive, to have loads in flight. For sm_90 it uses 18 more, in the mean of 500
-- kernels without spills (nvcc 13.0), and 20 for sm_75. It spills if about 230 are alive: 0 to 36 bytes at 228, 0 to 32
-- at 236, 8 at 244, 128 at 264. With up to 18 too many a kernel may still be fast, and the tuner sees what spills.
local free_registers = 18
local spare_registers, tolerated_spill = 228, 18

-- The most registers alive with rows of 256 columns and Q in shared memory. All of 25 kernels for sm_80 and sm_90 with
-- more spill 12 to 1748 bytes. Features that change the keys of a sequence take some of them.
local wide_columns = 224

local function most_wide(v, arch)
   if v.cache_rows == 1 and arch.family_sm >= 90 then
      return 196
   elseif v.cache_rows == 1 or v.leftpad == 1 or v.varlen == 1 then
      return 204
   end
   return v.seqused == 1 and 212 or 228
end

-- Returns true for kernels that spill with these features. Measured with two row tiles per warp:
--   a prefix, sm_80, D = 64 to 128: all 24 of these spill, and 2 of 8 others
--   V with fewer columns, D = 192: all 7 of these spill on sm_90 (not causal, with stages for K and V), and all 4 of
--     these on sm_80 (without such stages)
local function spills_with_feature(v, live, arch)
   if row_tiles(v) == 2 and v.window == 2 then
      return live > 196 and (v.d > 112 or v.kstages == 1)
   elseif row_tiles(v) == 2 and v.dv > 0 and v.bc == 48 and v.layout == "swizzle" then
      local hopper = arch.family_sm >= 90
      return live > 224 and (hopper and v.kstages > 1 and v.causal == 0 or not hopper and v.kstages == 1)
   end
   return v.d > wide_columns and v.parts == 1 and v.dropout == 0 and v.q == "smem" and (v.vstages == 1 or v.br == 64)
      and live > most_wide(v, arch)
end

-- Returns what the cost model needs. registers: as the compiler reported them, or 0 for an estimate.
local function find_facts(v, path, registers)
   local live = live_registers(v, path)
   local pipeline = pipelines[v.kstages .. "," .. v.vstages]
   local d_pad, dv_pad = padded(v)
   local k_pad, v_pad = columns_in_smem(v)
   local may_spill = registers == 0 or registers >= 255
   local fp32, ex2 = features.work_per_score(v, v.bc, "forward")
   return {
      warps = v.warps, d_pad = d_pad, dv_pad = dv_pad, k_pad = k_pad, v_pad = v_pad, parts = v.parts,
      smem_bytes = smem_bytes(v), k8 = path.k8,
      registers = registers > 0 and registers or math.min(live + free_registers, 255), live = live,
      spilled = may_spill and math.max(live - spare_registers, 0) or 0,
      barriers = pipeline.barriers, ahead = pipeline.ahead,
      teams = team_count(v), row_tiles = row_tiles(v), fill = v.fill or "whole",
      int8 = int8.is_on(v),
      ex2_per_score = precision.rounds_values(v) and ex2 - 1 or ex2,
      fp32_per_sum = precision.fp32_per_sum(v),
      more_fp32_per_score = fp32 + int8.fp32_per_score(v),
      bytes_per_score = features.bytes_per_score(v), numbers = (v.bias == "none" or v.bias == "bool") and 0 or 1,
   }
end

-- The same. Estimates are kept in v, because a variant is asked about for many problems.
local function facts_of(v, path, registers)
   if registers > 0 then
      return find_facts(v, path, registers)
   end
   v.facts = v.facts or find_facts(v, path, 0)
   return v.facts
end

local function unfit(v, path, arch)
   local threads = 32 * v.warps // team_count(v)
   if threads < columns.padded(v.d, v) // 8 then
      return ("%d threads cannot copy a row at once"):format(threads)
   end
   local facts = facts_of(v, path, 0)
   if cost.resident_blocks(facts, arch) < 1 then
      return "an SM cannot hold a block"
   elseif facts.spilled > (facts.int8 and int8.tolerated or tolerated_spill) then
      return ("about %d registers too many"):format(facts.spilled), true
   end
   return spills_with_feature(v, facts.live, arch) and "its features need too many registers", true
end

-- Returns what the shared templates of all forward families see of a variant.
function M.shared_names(v)
   -- own_sequences: sequences have their own lengths, or rows of the cache.
   local names = {columns = columns.of(v), own_sequences = lengths.has(v) or v.cache_rows == 1}
   return axes_of.add_names(names, features.names(v, "forward"), window.names(v), precision.names(v), partial.names(v),
                            int8.names(v))
end

function M.family(name, scheme, path)
   return families.new({
      name = name, op = "forward", template = "forward/" .. (scheme.template or name) .. ".cu.in", path = path,
      axes = axes_of.joined(kinds.axes(576), {columns.axis, columns.shared},
                    scheme.features or features.axes("forward"), scheme.permissions or precision.axes,
                    {partial.axis, columns.parts}, scheme.axes),
      selection = scheme.selection, smem_bytes = smem_bytes, unfit = unfit,
      useless = scheme.useless, unsuited = scheme.unsuited,

      typical = function(problem, arch)
         return window.typical(scheme.typical(arch), problem)
      end,

      cost = function(v, problem, arch, registers)
         local facts = facts_of(v, path, registers)
         local once = append.us(v, problem, arch) + int8.us(v, problem, arch)
         return lengths.sum_of_parts(problem, function(part) return scheme.cost(v, facts, part, arch) end, once)
      end,

      recipe = function(v)
         local recipe = {
            op = "forward", rows = v.br, keys = v.bc * team_count(v),
            steps = {{role = "main", threads = 32 * v.warps, blocks = "row_tiles"}},
         }
         scheme.recipe(recipe, v)
         append.recipe(recipe, v)
         int8.recipe(recipe, v, precision.rounds_values(v) and "int8_keys_and_columns")
         return recipe
      end,

      names = function(v)
         local names = {
            split = scheme.splits, packed_heads = scheme.splits, fill = v.fill or "whole", teams = team_count(v),
            max_splits = 1, -- for schemes without splits
         }
         axes_of.add_names(names, M.shared_names(v), scheme.names)
         names.pages_exchanged = paged.is_exchanged(v, names.wide, path)
         return names
      end,
   })
end

return M
