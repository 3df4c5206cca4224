-- What the families of fp32 elements share (forward_fp32.lua, backward_fp32.lua).
local columns = require("features.columns")
local features = require("features.list")
local kinds = require("ops.kinds")
local plain_cost = require("ops.forward_plain_cost")

local M = {}

local most_columns = 256

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

-- Returns the axes of a family: the problem, the features, `more`, the product, and the tile.
function M.axes(op, more, tile)
   local axes = kinds.axes(most_columns, {"fp32"})
   for _, list in ipairs({{columns.axis}, features.fp32_axes(op), more, {product}, tile}) do
      table.move(list, 1, #list, #axes + 1, axes)
   end
   return axes
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
