-- What the families of fp32 elements share (forward_fp32.lua, backward_fp32.lua).
local axes_of = require("core.axes")
local columns = require("features.columns")
local features = require("features.list")
local host = require("host")
local kinds = require("ops.kinds")
local plain_cost = require("ops.forward_plain_cost")

local M = {}

-- ffma: FMA instructions. tf32: three products of TF32 on tensor cores.
local product = {
   name = "product", values = {"ffma", "tf32"},
   unless = function(v, path)
      return v.product == "tf32" and path.sm < 80 and "TF32 needs compute capability 8.0"
   end,
}

-- Returns the axes of a family: the problem, the features, `more`, the product, and the tile.
function M.axes(op, more, tile)
   local kind_axes = kinds.axes(host.fp32_columns, {"fp32"})
   return axes_of.joined(kind_axes, {columns.axis}, features.fp32_axes(op), more, {product}, tile)
end

-- Constants of the model that the 16-bit families have not. Not fitted.
M.fit = {
   split = 3,  -- instructions that divide a number into two of TF32
   lanes = 64, -- of an SM that execute them
   wait = 450, -- clocks of a tile while loads and barriers keep a block waiting, if it is alone on its SM
}

-- Returns clocks of an SM in which `count` blocks do one tile each. units: clocks of its units for one of them.
function M.tile_clocks(v, units, count)
   local most, sum = 0, 0
   for _, clocks in ipairs(units) do
      most, sum = math.max(most, clocks), sum + clocks
   end
   local share = math.max(plain_cost.fit.exposed * 4 / (v.warps * count), plain_cost.fit.exposed_least)
   return count * (most + share * (sum - most)) + M.fit.wait / count
end

-- Returns the registers of a tile of this many rows under way, with its addresses, where tiles pass through registers.
function M.staged_registers(v, rows, path)
   return path.register_staging and (rows * v.d + 128 * v.warps - 1) // (128 * v.warps) * 6 or 0
end

-- Returns what the cost model needs. registers: as the compiler reported them, or 0 for an estimate from those that are
-- alive at once.
function M.facts(v, op, smem_bytes, live, registers)
   local more, ex2 = features.work_per_score(v, v.bc, op)
   return {
      warps = v.warps, smem_bytes = smem_bytes, registers = registers > 0 and registers or math.min(live + 18, 255),
      live = live, more_fp32_per_score = more, ex2_per_score = ex2,
   }
end

-- Returns a function for plain_cost.on_card. units_of(v, facts, arch): see tile_clocks.
function M.card_of(units_of)
   return function(v, facts, arch)
      return {
         resident = plain_cost.resident_blocks(facts, arch),
         tile_clocks = plain_cost.kept(function(count)
            return M.tile_clocks(v, units_of(v, facts, arch), count)
         end),
      }
   end
end

-- Returns why an SM cannot run a variant well (core/family.lua). most: registers that may be alive.
function M.unfit(v, facts, arch, most)
   if 32 * v.warps < v.d // 4 then
      return ("%d threads cannot copy a row at once"):format(32 * v.warps)
   elseif plain_cost.resident_blocks(facts, arch) < 1 then
      return "an SM cannot hold a block"
   end
   return facts.live > most and ("about %d registers too many"):format(facts.live - most), true
end

return M
