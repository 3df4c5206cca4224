-- The tuning space of backward: its axes, and which of their values go together. backward.lua says what they mean.
local axes_of = require("core.axes")
local block = require("ops.backward_block")
local columns = require("features.columns")
local features = require("features.list")
local kinds = require("ops.kinds")
local partial = require("features.partial")

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

-- More k16 steps of S^T only take registers. A row of single tiles keeps the tensor cores too little busy.
local function divides_queries(v)
   local steps, rest = v.br // (16 * v.qwarps * v.parts), v.br % (16 * v.qwarps * v.parts)
   if rest ~= 0 then
      return nil, "br does not give each part whole k16 steps"
   elseif steps > 4 or v.parts > 1 and steps > 2 then
      return nil, "a part would be more than four k16 steps, or two where there are several"
   elseif not block.row_warps(v) then
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
   kinds.deterministic,
   {name = "br", values = {32, 64, 128}},
   {name = "bc", values = {16, 32, 64, 128, 256}},
   {name = "warps", values = {2, 4, 8}},
   {name = "qwarps", values = {1, 2, 4}, when = divides_keys},
   {name = "parts", values = {1, 2, 4}, when = divides_queries},
   {name = "stages", values = {1, 2, 3}},
   {name = "barriers", values = {1, 2}, when = is_pipeline},
   {name = "order", values = {"early", "late"}},
   {
      name = "dq", values = {"atomic", "separate", "block"},
      when = function(v)
         if v.dq == "block" and (v.varlen == 1 or features.reads_rows(v)) then
            return nil, "a block has all keys of a head where that is not packed, and no step reads its rows"
         elseif v.dq == "block" and v.order == "late" then
            return nil, "a block that has all keys of a head has no registers for that order"
         elseif v.dq ~= "block" and v.bc > 128 then
            return nil, "tiles of 256 keys are for blocks that have all of a head"
         end
         return true
      end,
   },
   {
      name = "dqbc", values = {0, 16, 32, 64},
      when = function(v)
         if (v.dq == "separate") ~= (v.dqbc > 0) then
            return nil, "dqbc is for dq=separate, which has tiles of its own"
         end
         return true
      end,
   },
   {
      name = "rows", values = {"prepared", "computed"},
      when = function(v)
         if v.rows == "computed" and v.dq == "atomic" then
            return nil, "dQ that is added to must be prepared"
         elseif v.rows == "prepared" and v.dq == "block" then
            return nil, "a block that has all keys of a head computes each row's once"
         elseif v.rows == "computed" and features.reads_rows(v) then
            return nil, "a step reads prepared rows"
         end
         return true
      end,
   },
   {
      name = "layout", values = {"pad", "swizzle"}, default = "swizzle",
      when = function(v, path)
         local d_pad, dv_pad = block.padded(v)
         if v.layout == "pad" and not path.register_staging and d_pad % 64 + dv_pad % 64 == 0 then
            return nil, "padded rows are for fills through registers, and rows that fill no banks"
         end
         return true
      end,
   },
   {
      name = "split", values = {0, 1}, quiet = true, default = 0,
      when = function(v)
         if v.split == 1 and (v.dq == "block" or v.varlen == 1 or v.dv > 0) then
            return nil, "queries are shared where dQ has other blocks, and sequences and V are plain"
         elseif v.split == 1 and (v.order == "late" or v.layout == "pad" or v.bc < 32) then
            return nil, "queries are shared in one order, with swizzled rows, of at least 32 keys"
         end
         return true
      end,
   },
}

return axes_of.joined(kinds.axes(256), {columns.axis}, features.axes("backward"), {partial.axis}, own_axes)
