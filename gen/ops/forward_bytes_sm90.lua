-- fwd_bytes_sm90: forward on wgmma with Q K^T in 8-bit integers and P V in e4m3 numbers, where the problem permits both
-- (scores=int8, pv=fp8). It has the frame of fwd_sm90 (templates/hopper/fwd.cuh), and other products
-- (bytes_consumer.cuh). A step before it rounds K and V. The axes are those of forward_sm90.lua, and
--   overlap   1: P V of a tile runs during the softmax of the next one, and has registers of its own. 0: S and the sums
--             of P V share registers, and the warpgroups' products and softmax alternate
local families = require("core.family")
local features = require("features.list")
local fwd = require("ops.forward")
local int8 = require("features.int8")
local kinds = require("ops.kinds")
local paths = require("paths.wgmma")
local plain = require("ops.forward_plain")
local plain_cost = require("ops.forward_plain_cost")
local precision = require("features.precision")
local sm90 = require("ops.forward_sm90")

local M = {name = "fwd_bytes_sm90"}

-- By the number of warpgroups: registers of a thread that loads and of one that computes, how many S, O, P and sums of
-- P V may take, and for how many blocks on an SM registers suffice. With more than `most`, kernels of D = 64 and 128
-- spill.
local register_shares = {
   {load = 24, group = 232, most = 192, resident = 2}, {load = 24, group = 240, most = 208, resident = 1},
   {load = 32, group = 160, most = 112, resident = 1},
}

-- Constants of the model. Not fitted.
local fit = {
   tensor = 5500,   -- FLOP per clock and SM, below the data sheet's 8192 as for 16 bits
   fp32 = 5.5,      -- instructions for each score besides ex2
   exposed = {0.9, 0.36, 0.2}, -- share of the shorter of products and softmax that is not hidden, by warpgroups
   overlapped = 0.8, -- factor of that share with overlap=1
   tile = 150, prologue = 3600, launch = 0.9,
}

-- The columns of O that are summed at a time.
local function part_of(v)
   return v.d <= 128 and v.d or 64
end

local function need(value, reason)
   return function(v)
      if v[value[1]] == value[2] then
         return true
      end
      return nil, reason
   end
end

local axes = kinds.axes(256)
for _, axis in ipairs(features.wgmma_axes({"none"})) do -- none of these features is there
   local none = axis.values and axis.values[1] or 0
   axes[#axes + 1] = {name = axis.name, field = axis.field, values = {none}, feature = true}
end
for _, axis in ipairs({
   precision.axes[1],
   {
      name = "scores", field = "scores", values = {"exact", "int8"}, feature = true,
      when = need({"scores", "int8"}, "the problem does not permit 8-bit scores"),
   },
   {
      name = "values", field = "pv", values = {"exact", "fp8"}, feature = true,
      when = need({"values", "fp8"}, "the problem does not permit values in e4m3"),
   },
   {name = "groups", values = {1, 2, 3}},
   {name = "bc", values = {64, 96, 128, 192}},
   {name = "stages", values = {2, 3}},
   {
      name = "pingpong", values = {0, 1},
      when = function(v)
         if v.pingpong == 0 or v.groups > 1 then
            return true
         end
         return nil, "one warpgroup has nobody to take turns with"
      end,
   },
   {
      name = "overlap", values = {0, 1},
      when = function(v)
         if v.d % 64 ~= 0 then
            return nil, "rows are no whole pages"
         elseif v.overlap == 1 and v.d > 128 then
            return nil, "P V has several parts"
         end
         return true
      end,
   },
   {name = "persistent", values = {0, 1}},
}) do
   axes[#axes + 1] = axis
end

local function bytes_of(v, own_place)
   local rows = 64 * v.groups * (own_place and 2 or 1)
   return 2 * v.d * rows + 2 * v.stages * v.bc * v.d + 8 * (2 * v.groups + 4 * v.stages)
end

local most_bytes = 232448

local function has_own_place(v)
   return v.persistent > 0 and bytes_of(v, true) <= most_bytes
end

local function smem_bytes(v)
   return bytes_of(v, has_own_place(v))
end

local function live_registers(v)
   local s, sums = v.bc // 2, v.d <= 128 and v.d // 2 or 64
   return v.d // 2 + v.bc // 8 + (v.overlap == 1 and s + sums or math.max(s, sums))
end

local function fits(v, _, arch)
   if smem_bytes(v) > arch.smem_block then
      return nil, string.format("%d bytes of shared memory, a block has %d", smem_bytes(v), arch.smem_block)
   elseif live_registers(v) > register_shares[v.groups].most then
      return nil, "S, P and O need too many registers"
   end
   return true
end

local function cost(v, problem, arch)
   local scores = 64 * v.groups * v.bc
   local tensor = 4 * scores * v.d / fit.tensor
   local softmax = scores / arch.ex2 + scores * (fit.fp32 + v.d / v.bc) / arch.fp32
   local exposed = fit.exposed[v.groups] * (v.overlap == 1 and fit.overlapped or 1)
   local facts = {
      br = 64 * v.groups, queries = 64 * v.groups, heads_together = 1, resident = 1, d_pad = v.d, dv_pad = v.d,
      smem_bytes = smem_bytes(v), bytes_per_score = 0,
   }
   local function clocks(blocks)
      return blocks * (math.max(tensor, softmax) + exposed * math.min(tensor, softmax)) + fit.tile
   end
   return fit.launch + int8.us(v, problem, arch) * 2
      + plain_cost.spread({br = facts.br, bc = v.bc}, facts, problem, arch, 1, clocks, fit.prologue, 1)
end

function M.names(v)
   local names, share = fwd.shared_names(v), register_shares[v.groups]
   names.wide, names.packed_heads, names.order = false, false, "heads"
   sm90.add_product_names(names, v, {})
   names.part, names.most_columns = part_of(v), math.max(part_of(v), v.bc)
   names.lazy_rescale = 2 -- templates/hopper/bytes_values.cuh
   names.staged, names.speculates = false, false
   names.bias_in_accumulator, names.alibi_mma, names.dropout_form, names.side_stages = false, false, "none", 1
   names.own_place, names.by_map = has_own_place(v), v.persistent > 0 and v.groups > 1
   names.load_registers, names.group_registers, names.resident = share.load, share.group, share.resident
   names.smem_bytes, names.rounded = smem_bytes(v), true
   local rounding = int8.names(v)
   names.quant_threads, names.quant_tiles = rounding.quant_threads, rounding.quant_tiles
   return names
end

local function recipe(v)
   local made = {
      op = "forward", rows = 64 * v.groups, keys = v.bc, suffix = "a",
      maps = "q/64" .. (v.persistent > 0 and v.groups > 1 and ",o/16" or ""),
      steps = {{
         entry = M.name, role = "main", threads = 128 * (v.groups + 1), smem = smem_bytes(v),
         blocks = v.persistent > 0 and "resident_row_tiles" or "row_tiles",
      }},
   }
   int8.recipe(made, v)
   made.workspace = "int8_keys_and_values"
   return made
end

local function typical(_, arch)
   local sizes = plain.typical(arch)
   for _, size in ipairs(sizes) do
      size.head_dim_v, size.kv = 0, "dtype"
   end
   return sizes
end

local function is_worth(problem, arch)
   if arch.generic then
      return nil, "a device that plays another SM, or whose driver has no tensor maps, takes no code for sm_90a"
   elseif problem.seq_q < 64 then
      return nil, "fewer query rows than one warpgroup computes"
   end
   return true
end

local function suits(v, problem)
   if v.groups > 1 and v.groups > (problem.seq_q + 63) // 64 then
      return nil, "a warpgroup would have no rows"
   end
   return true
end

function M.family()
   return families.new({
      name = M.name, op = "forward", template = "hopper/fwd_bytes_sm90.cu.in", path = paths.sm90, axes = axes,
      selection = {
         limit = 16, covered = {{"groups", "overlap"}, {"bc"}, {"persistent"}, {"pingpong"}},
         crowds = {{axes = {"groups", "bc"}, most = 4}, {axes = {"groups"}, most = 8}},
      },
      fits = fits, recipe = recipe, names = M.names, typical = typical, is_worth = is_worth, suits = suits, cost = cost,
   })
end

return M
