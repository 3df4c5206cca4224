-- The tuning space of backward: its axes, and which of their values go together. backward.lua says what they mean.
local axes_of = require("core.axes")
local block = require("ops.backward_block")
local columns = require("features.columns")
local features = require("features.list")
local kinds = require("ops.kinds")
local partial = require("features.partial")

local function cuts_keys(v)
   local key_warps = v.warps // v.qwarps
   return v.warps % v.qwarps ~= 0 and "qwarps does not divide the warps"
      or v.bc % (16 * key_warps) ~= 0 and "bc does not give each warp whole m16 tiles of keys"
      or v.bc > 32 * key_warps and "a warp would have more than two m16 tiles of keys"
end

-- More k16 steps of S^T only take registers. A row of single tiles keeps the tensor cores too little busy.
local function cuts_queries(v)
   local steps, rest = v.br // (16 * v.qwarps * v.parts), v.br % (16 * v.qwarps * v.parts)
   return rest ~= 0 and "br does not give each part whole k16 steps"
      or (steps > 4 or v.parts > 1 and steps > 2)
         and "a part would be more than four k16 steps, or two where there are several"
      or not block.row_warps(v) and "br and d do not give each warp whole tiles of dQ"
end

local function no_pipeline(v)
   local is_one = v.barriers == 2 and v.stages <= 2
      or v.barriers == 1 and v.stages == (v.qwarps > 1 and 3 or 2)
   return not is_one and "no such pair of stages and barriers"
end

local own_axes = {
   kinds.deterministic,
   {name = "br", values = {32, 64, 128}},
   {name = "bc", values = {16, 32, 64, 128, 256}},
   {name = "warps", values = {2, 4, 8}},
   {name = "qwarps", values = {1, 2, 4}, unless = cuts_keys},
   {name = "parts", values = {1, 2, 4}, unless = cuts_queries},
   {name = "stages", values = {1, 2, 3}},
   {name = "barriers", values = {1, 2}, unless = no_pipeline},
   {name = "order", values = {"early", "late"}},
   {
      name = "dq", values = {"atomic", "separate", "block"},
      unless = function(v)
         if v.dq ~= "block" then
            return v.bc > 128 and "tiles of 256 keys are for blocks that have all of a head"
         end
         return (v.varlen == 1 or features.reads_rows(v))
            and "a block has all keys of a head where that is not packed, and no step reads its rows"
            or v.order == "late" and "a block that has all keys of a head has no registers for that order"
      end,
   },
   {
      name = "dqbc", values = {0, 16, 32, 64},
      unless = function(v)
         return (v.dq == "separate") ~= (v.dqbc > 0) and "dqbc is for dq=separate, which has tiles of its own"
      end,
   },
   {
      name = "rows", values = {"prepared", "computed"},
      unless = function(v)
         if v.rows == "prepared" then
            return v.dq == "block" and "a block that has all keys of a head computes each row's once"
         end
         return v.dq == "atomic" and "dQ that is added to must be prepared"
            or features.reads_rows(v) and "a step reads prepared rows"
      end,
   },
   {
      name = "layout", values = {"pad", "swizzle"}, default = "swizzle",
      unless = function(v, path)
         local d_pad, dv_pad = block.padded(v)
         return v.layout == "pad" and not path.register_staging and d_pad % 64 + dv_pad % 64 == 0
            and "padded rows are for fills through registers, and rows that fill no banks"
      end,
   },
   {
      name = "split", values = {0, 1}, quiet = true, default = 0,
      unless = function(v)
         if v.split == 0 then
            return nil
         end
         return (v.dq == "block" or v.varlen == 1 or v.dv > 0)
            and "queries are shared where dQ has other blocks, and sequences and V are plain"
            or (v.order == "late" or v.layout == "pad" or v.bc < 32)
            and "queries are shared in one order, with swizzled rows, of at least 32 keys"
      end,
   },
}

return axes_of.joined(kinds.axes(256), {columns.axis}, features.axes("backward"), {partial.axis}, own_axes)
