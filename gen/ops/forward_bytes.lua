-- The scheme of fwd_bytes_sm89: the plain scheme (forward_plain.lua) with Q K^T in 8-bit integers and P V in e4m3
-- numbers, where the problem permits both (scores=int8, pv=fp8). A step before attention rounds K and V
-- (templates/forward/quantise.cuh, fp8_values.cuh); the main step rounds Q, and makes P without exp2
-- (product_pv_fp8.cuh).
local axes_of = require("core.axes")
local features = require("features.list")
local int8 = require("features.int8")
local plain = require("ops.forward_plain")
local precision = require("features.precision")

-- Features that only more exact kernels serve: dropout; new keys and their rotation; caches in 8 bits; merging with
-- results in fp32.
local unserved = {
   dropout = true, append = true, rotary = true, rotary_dim = true, kv = true, kv_scales = true, carry = true,
}

-- Returns an axis with no value but the one without the feature.
local function without(axis)
   return {name = axis.name, field = axis.field, values = {axis.values and axis.values[1] or 0}, feature = true}
end

local served = {}
for i, axis in ipairs(features.axes("forward")) do
   served[i] = unserved[axis.name] and without(axis) or axis
end

local function no_steps(v)
   return v.bc % 32 ~= 0 and "products of e4m3 numbers have 32 keys"
      or v.d % 16 ~= 0 and "columns of V are pairs of n8 tiles"
      or v.dv ~= 0 and "V has as many columns as K"
      or v.v_in_k == 1 and "V in K has 16 bits"
      or v.partial ~= 0 and "results in fp32 need an exact LSE"
end

-- Returns true for kernels that spill. Compiled for sm_89: those with D = 160 to 224 that this rules out spill 12 to 48
-- bytes, and the others up to 4, or 12 with D = 224.
local function spills(v)
   return v.d > 160 and v.bc > 32 and (v.bc > 64 or v.kstages > 1) or v.d > 128 and v.bc > 96
end

local function unless_of(name)
   for _, axis in ipairs(plain.axes) do
      if axis.name == name then
         return axis.unless
      end
   end
end

-- Axes that differ from those of the plain scheme. To keep the space small there is no spread fill, no third stage, no
-- padding, and no block of two warps. They gained nothing on an H100 that ran the PTX, with fp16 products in place of
-- e4m3; no card of SM 8.9 or 12.x has been measured.
local own = {
   br = {name = "br", values = {64, 128}},
   bc = {name = "bc", values = {32, 64, 96, 128}, unless = no_steps},
   warps = {name = "warps", values = {4, 8}, unless = unless_of("warps")},
   kstages = {name = "kstages", values = {1, 2}},
   vstages = {
      name = "vstages", values = {1, 2},
      unless = function(v, path)
         return unless_of("vstages")(v, path) or spills(v) and "with so many columns, more keys or stages spill"
      end,
   },
   layout = {name = "layout", values = {"swizzle"}},
   fill = {name = "fill", values = {"whole"}, default = "whole"},
   q = {name = "q", values = {"reg"}},
   qk = {name = "qk", values = {"int8"}, quiet = true, unless = int8.axis.unless},
   pv = precision.pv_fp8,
}

local axes = {}
for i, axis in ipairs(plain.axes) do
   axes[i] = own[axis.name] or axis
end

return axes_of.add_names({}, plain, {
   template = "fwd_sm80", features = served, axes = axes,
   permissions = {
      precision.axes[1],
      precision.demanded(precision.axes[2], "int8", "the problem does not permit 8-bit scores"),
      precision.demanded(precision.axes[3], "fp8", "the problem does not permit values in e4m3"),
   },
   selection = {
      limit = 24,
      covered = {{"br", "warps"}, {"bc"}, {"kstages", "vstages"}}, crowds = {},
   },
})
