-- The precision that a problem permits (fa2_sums, fa2_scores, fa2_pv in fa2.h), and how kernels use it. A permission
-- alone changes no kernel: a family that can use it has an axis for it, which is chosen.
local M = {}

-- The permissions: sums, scores, values.
M.axes = {
   {name = "sums", field = "sums", values = {"fp32", "fast"}, feature = true},
   {name = "scores", field = "scores", values = {"exact", "int8"}, feature = true},
   {name = "values", field = "pv", values = {"exact", "fp8"}, feature = true},
}

-- Returns the axis of a permission without which a family has no kernel.
function M.demanded(axis, value, reason)
   return {
      name = axis.name, field = axis.field, values = axis.values, feature = true,
      unless = function(v)
         return v[axis.name] ~= value and reason
      end,
   }
end

-- The type in which P V is summed within a tile of keys (templates/forward/product_pv_fp16.cuh).
M.pv = {
   name = "pv", values = {"fp32", "fp16"}, quiet = true,
   unless = function(v, path)
      if v.pv == "fp32" then
         return nil
      end
      return v.kv ~= "dtype" and "the sums of V in 8 bits are fp32"
         or v.sums == "fp32" and "the problem does not permit fp16 sums"
         or path.k8 and v.bc > 64
            and "the sums of so many keys, rounded after every 8, err more than twice as much as fp32 sums"
   end,
}

-- The same in families that round P and V to e4m3 numbers (templates/forward/fp8_p.cuh).
M.pv_fp8 = {name = "pv", values = {"fp8"}, quiet = true}

function M.rounds_values(v)
   return v.pv == "fp8"
end

-- The growth of a maximum, in log2, up to which O is not rescaled. fp16 sums are finite while |V| is at most
-- 65504 / (keys of a tile * 2^growth). 2 allows |V| = 127 with tiles of 128 keys; fa2.h states it. e4m3 numbers have
-- room for 1.5 (templates/forward/fp8_p.cuh).
local growth = {fp32 = 8, fp16 = 2, fp8 = 1.5}

-- The same with V in 8 bits and P in fp16, which is multiplied by scales (templates/forward/kv8_values.cuh).
local growth_kv8 = 4

-- Returns the registers that ptxas takes in addition, because it loads V early. Measured with two row tiles per warp,
-- sm_80 and sm_86, D = 64 and 128: with 204 registers alive without these, one of 5 kernels spills; with 212 and more,
-- 10 of 11 spill 12 to 96 bytes.
function M.registers(v, row_tiles)
   return v.pv == "fp16" and row_tiles > 1 and 28 or 0
end

-- Returns the fp32 instructions for each element of O and tile of keys: a sum of fp16 is converted and added, one of
-- e4m3 products is scaled and added.
function M.fp32_per_sum(v)
   return v.pv == "fp16" and 2 or M.rounds_values(v) and 1 or 0
end

-- Rounded P is multiplied by as many more columns, which give the row sums: columns of ones, on Hopper one of them.
M.sum_columns = 8

-- Returns what templates see of a variant.
function M.names(v)
   local pv = v.pv or "fp32"
   local scaled = v.kv ~= nil and v.kv ~= "dtype" and v.dtype == "fp16"
   local exact = (v.kv or "dtype") == "dtype" and v.qk ~= "int8"
   return {
      lazy_rescale = scaled and growth_kv8 or growth[pv],
      p_type = pv == "fp8" and "e4m3" or not exact and "fp32" or pv == "fp16" and "fp16" or "Elem",
      fp8_values = pv == "fp8",
      product_pv = pv == "fp32" and "forward/product_pv.cuh" or ("forward/product_pv_%s.cuh"):format(pv),
   }
end

return M
