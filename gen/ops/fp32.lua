-- What the families of fp32 elements share (forward_fp32.lua, backward_fp32.lua).
local kinds = require("ops.kinds")
local plain_cost = require("ops.forward_plain_cost")

local M = {}

local most_columns = 256

-- A cap would be as exact as the hardware's tanh, so there is none (runtime/base/problem_check.c).
M.no_cap = {axis = {name = "softcap", field = "softcap", values = {0}, feature = true}}

-- ffma: FMA instructions. tf32: three products of TF32 on tensor cores.
local product = {
   name = "product", values = {"ffma", "tf32"},
   when = function(v, path)
      if v.product == "tf32" and path.sm < 80 then
         return nil, "TF32 needs compute capability 8.0"
      end
      return true
   end,
}

-- Returns the axes of a family: the problem, the features, the product, and the tile.
function M.axes(features, tile)
   local axes = kinds.axes(most_columns, {"fp32"})
   for _, feature in ipairs(features) do
      axes[#axes + 1] = feature.axis
   end
   axes[#axes + 1] = product
   return table.move(tile, 1, #tile, #axes + 1, axes)
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

return M
