-- The forward families of fp32 elements (templates/fp32/fwd.cuh). A block computes Br query rows of one head with all
-- keys, with one tile of K and one of V in shared memory. The axes:
--   product   ffma: FMA instructions. tf32: three products of TF32 on tensor cores, which sm_75 lacks
--   br, warps, bc   as in forward.lua
local axes_of = require("core.axes")
local columns = require("features.columns")
local families = require("core.family")
local features = require("features.list")
local fp32 = require("ops.fp32")
local fwd = require("ops.forward")
local lengths = require("features.lengths")
local partial = require("features.partial")
local plain = require("ops.forward_plain")
local plain_cost = require("ops.forward_plain_cost")
local precision = require("features.precision")
local window = require("features.window")

local M = {}

-- {Br, warps}. Each warp has one or two m16 row tiles.
local blocks = {{32, 2}, {64, 4}, {64, 2}, {128, 4}}

local axes = fp32.axes("forward", {precision.axes[1], precision.axes[2], precision.axes[3], partial.axis}, {
   {name = "br", values = {32, 64, 128}},
   {
      name = "warps", values = {2, 4},
      unless = function(v)
         return not axes_of.has_pair(blocks, v.br, v.warps) and "no such pair of br and warps"
      end,
   },
   {
      name = "bc", values = {8, 16, 32, 48, 64},
      unless = function(v, path)
         return v.bc == 8 and not (path.register_staging and v.d > 192)
            and "so few keys are for SMs with little shared memory, and long rows"
      end,
   },
})

local function row_tiles(v)
   return v.br // (16 * v.warps)
end

-- Returns bytes of shared memory; the templates assert the same sum. Each row has four columns more.
local function smem_bytes(v)
   return 4 * ((v.br + v.bc) * (v.d + 4) + v.bc * (columns.of(v) + 4))
end

-- Returns the registers of a thread that are alive at once: O, S, fragments of a product, addresses and loop (40), and
-- on sm_75 a tile of K or V under way, with its addresses. Measured with 16 kernels for sm_75: those with more than 228
-- spill 112 to 432 bytes, and no others spill.
local function live_registers(v, path)
   local wm = row_tiles(v)
   local fragments = v.product == "tf32" and 8 * wm + 12 or 8 * wm + 8
   return wm * columns.of(v) // 2 + wm * v.bc // 2 + fragments + 40 + fp32.staged_registers(v, v.bc, path)
      + features.registers(v, wm)
end

-- Clocks of a block before its first tile and after its last.
local prologue = 3070

-- Returns the clocks of each unit of an SM for a tile of a block.
local function units_of(v, facts, arch)
   local wide, scores = v.d + columns.of(v), v.br * v.bc
   local softmax = scores * (plain_cost.fit.fp32_per_score + facts.more_fp32_per_score) / arch.fp32
   local ex2 = facts.ex2_per_score * scores / arch.ex2
   if v.product == "tf32" then
      local numbers = v.br * v.d + v.warps * v.bc * wide + scores -- Q and P once, K and V by each warp
      return {
         3 * 2 * scores * wide / (arch.tensor / 2),
         -- An FADD for eight products.
         fp32.fit.split * numbers / fp32.fit.lanes + softmax + scores * wide / 8 / arch.fp32, ex2,
         4 * (v.br * v.d + v.warps * v.bc * wide) / arch.smem_rate,
      }
   end
   local rows = 2 * row_tiles(v)
   local words = v.warps * (rows * (v.d + v.bc) + v.bc * wide // 4) -- that each lane of a warp gets
   return {scores * wide / arch.fp32 + softmax, ex2, 128 * words / arch.smem_rate}
end

local function find_facts(v, path, registers)
   local facts = fp32.facts(v, "forward", smem_bytes(v), live_registers(v, path), registers)
   facts.bytes_per_score = features.bytes_per_score(v)
   return facts
end

local card_of = fp32.card_of(units_of)

local function cost(v, facts, problem, arch)
   local card = plain_cost.on_card(v, facts, arch, card_of)
   if card.resident < 1 then
      return math.huge
   end
   return plain_cost.spread(v, facts, problem, arch, card.resident, card.tile_clocks, prologue, 1)
end

local function unfit(v, path, arch)
   return fp32.unfit(v, find_facts(v, path, 0), arch, 228)
end

function M.family(name, path)
   return families.new({
      name = name, op = "forward", template = "fp32/fwd.cu.in", path = path, axes = axes,
      selection = {limit = 24, covered = {{"product", "br", "warps"}, {"product", "bc"}}, crowds = {}},
      smem_bytes = smem_bytes, unfit = unfit, unsuited = plain.unsuited,

      typical = function(problem, arch)
         return window.typical(plain.typical(arch), problem)
      end,

      cost = function(v, problem, arch, registers)
         local facts = find_facts(v, path, registers)
         return lengths.sum_of_parts(problem, function(part) return cost(v, facts, part, arch) end)
      end,

      recipe = function(v)
         return {
            op = "forward", rows = v.br, keys = v.bc,
            steps = {{role = "main", threads = 32 * v.warps, blocks = "row_tiles"}},
         }
      end,

      -- O is fp32, as a partial result is: 1 if it is written, 2 if it is merged.
      names = function(v)
         local names = fwd.shared_names(v)
         names.layout = "pad"
         names.partial = v.partial == 2 and 2 or 1
         names.wide, names.packed_heads = false, false
         return names
      end,
   })
end

return M
