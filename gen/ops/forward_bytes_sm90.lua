-- fwd_bytes_sm90: forward on wgmma with Q K^T in 8-bit integers and P V in e4m3 numbers, where the problem permits both
-- (scores=int8, pv=fp8). It has the frame of fwd_sm90 (templates/hopper/fwd.cuh), and other products
-- (bytes_consumer.cuh). A step before it rounds K and V. Its axes have the meaning that they have in forward_sm90.lua.
local axes_of = require("core.axes")
local elements = require("core.elements")
local families = require("core.family")
local features = require("features.list")
local fwd = require("ops.forward")
local int8 = require("features.int8")
local kinds = require("ops.kinds")
local paths = require("paths.wgmma")
local plain = require("ops.forward_plain")
local plain_cost = require("ops.forward_plain_cost")
local precision = require("features.precision")
local shares = require("ops.forward_shares")
local sm90 = require("ops.forward_sm90")
local window = require("features.window")

local M = {name = "fwd_bytes_sm90"}

-- By the number of warpgroups, as in forward_sm90.lua: registers of a thread that loads and of one that computes; how
-- many S, O, P and sums of P V may take; columns of S.
local register_shares = {
   [2] = {load = 24, group = 240, most = 212, columns = 256}, [3] = {load = 32, group = 160, most = 120, columns = 192},
}

-- Constants of the model, fitted to times of an H100 (2026-11-28): 16 heads of 16384 rows with D = 64, 128, 256, and 32
-- of 4096 with D = 64 and 128.
local fit = {
   tensor = 6900, -- FLOP per clock and SM
   fp32 = 6.8,    -- instructions for each score
   tile = 400,    -- clocks of a tile of keys besides
   exposed = 0.55, -- share of the shorter of products and softmax that is not hidden by another warpgroup
   prologue = {[0] = 16800, 7700}, -- clocks of a block besides its tiles of keys, by persistent
   launch = 0.9,
   step = 1.5,    -- time of the step that rounds K and V, over what int8.lua says
   first = 7,     -- us of that step before its first tile is there
}

-- V has more columns in shared memory, of which one is 1: P V has the row sums, too.
local more_columns = precision.sum_columns

-- Tiles of K, and of V, in shared memory.
local stages = 2

-- The columns of O that are summed at a time.
local function part_of(v)
   return v.d <= 128 and v.d or 64
end

local function is_no_head_dim(v)
   return v.d % 64 ~= 0 and "head_dim is none of 64, 128, 192 and 256"
end

local none = {}
for i, axis in ipairs(features.wgmma_axes({"none"})) do -- the family has none of these features
   none[i] = {name = axis.name, field = axis.field, values = {axis.values and axis.values[1] or 0}, feature = true}
end

local axes = axes_of.joined(kinds.axes(256), none, {
   precision.axes[1],
   precision.demanded(precision.axes[2], "int8", "the problem does not permit 8-bit scores"),
   precision.demanded(precision.axes[3], "fp8", "the problem does not permit values in e4m3"),
   {name = "groups", values = {2, 3}, unless = is_no_head_dim},
   {name = "bc", values = {96, 128, 192, 256}},
   {name = "persistent", values = {0, 1}},
   {name = "qk", values = {"int8"}, quiet = true}, -- features/int8.lua asks for it
   precision.pv_fp8,
})

-- Returns the bytes of a tile of V, in whole repetitions of the swizzle: kVTileBytes in templates/hopper/fwd_shape.cuh.
local function value_bytes(v)
   return (v.bc * (v.d + more_columns) + 1023) // 1024 * 1024
end

local function bytes_of(v, own_place)
   local rows = 64 * v.groups * (own_place and 2 or 1)
   return 2 * v.d * rows + stages * (v.bc * v.d + value_bytes(v)) + 8 * (2 * v.groups + 4 * stages)
end

-- Bytes of shared memory of a block of an SM 9.0.
local most_bytes = 232448

local function has_own_place(v)
   return v.persistent > 0 and bytes_of(v, true) <= most_bytes
end

local function smem_bytes(v)
   return bytes_of(v, has_own_place(v))
end

-- O, and S or, later, P and the sums of P V.
local function live_registers(v)
   local sums = (part_of(v) + more_columns) // 2 + (v.d > 128 and 32 or 0)
   return v.d // 2 + math.max(v.bc // 2, v.bc // 8 + sums)
end

local function unfit(v)
   local share = register_shares[v.groups]
   return (live_registers(v) > share.most or v.bc > share.columns) and "S, P and O need too many registers"
end

local function cost(v, problem, arch)
   local scores = 64 * v.groups * v.bc
   local tensor = 4 * scores * (v.d + more_columns / 2) / fit.tensor
   local softmax = scores * (fit.fp32 + v.d / v.bc) / arch.fp32
   local facts = {
      smem_bytes = smem_bytes(v), bytes_per_score = 0,
      key_share = 1 / elements.bytes(v), -- bytes of K and V in the workspace, over the tensors'
   }
   local function clocks()
      return math.max(tensor, softmax) + fit.exposed * math.min(tensor, softmax) + fit.tile
   end
   local function busiest(weights)
      return shares.busiest(weights, problem.batch * problem.heads_q, nil, arch.sm_count, 1, clocks)
   end
   return fit.launch + fit.first + int8.us(v, problem, arch) * fit.step
      + plain_cost.spread({br = 64 * v.groups, bc = v.bc}, facts, problem, arch, 1, clocks,
                          fit.prologue[v.persistent], 1, v.persistent == 1 and busiest or nil)
end

-- Returns the products (templates/hopper/wgmma_bytes.cuh): Q K^T; P V, whose last part has the row sums; its other
-- parts.
local function products_of(v)
   local part = part_of(v)
   return {
      {macro = "FA2I_WGMMA_S8", columns = v.bc}, {macro = "FA2I_WGMMA_E4M3", columns = part + more_columns},
      part < v.d and {macro = "FA2I_WGMMA_E4M3", columns = part} or nil,
   }
end

function M.names(v)
   local names, share = fwd.shared_names(v), register_shares[v.groups]
   names.wide, names.packed_heads, names.order = false, false, "heads"
   sm90.add_product_names(names, v, {})
   names.products_of, names.most_columns = products_of(v), math.max(part_of(v) + more_columns, v.bc)
   names.speculates, names.staged = false, false
   names.bias_in_accumulator, names.alibi_mma, names.dropout_form, names.side_stages = false, false, "none", 1
   names.own_place = has_own_place(v)
   names.load_registers, names.group_registers = share.load, share.group
   names.rounded, names.stages, names.pingpong = true, stages, false
   return names
end

local function recipe(v)
   local made = {
      op = "forward", rows = 64 * v.groups, keys = v.bc, suffix = "a",
      maps = "q/64" .. (v.persistent > 0 and ",o/16" or ""), -- persistent blocks store O by TMA
      steps = {{
         role = "main", threads = 128 * (v.groups + 1),
         blocks = v.persistent > 0 and "resident_row_tiles" or "row_tiles",
      }},
   }
   int8.recipe(made, v, "int8_keys_and_values")
   return made
end

local function typical(problem, arch)
   return window.typical(plain.typical(arch), problem)
end

local function useless(problem, arch)
   return paths.useless(arch) or problem.seq_q <= 64 and "no more query rows than one warpgroup computes"
end

local function unsuited(v, problem)
   return v.groups > (problem.seq_q + 63) // 64 and "a warpgroup would have no rows"
end

function M.family()
   return families.new({
      name = M.name, op = "forward", template = "hopper/fwd_sm90.cu.in", path = paths.sm90, axes = axes,
      selection = {
         limit = 16, covered = {{"groups"}, {"bc"}, {"persistent"}}, crowds = {},
      },
      recipe = recipe, names = M.names, typical = typical, smem_bytes = smem_bytes, unfit = unfit, useless = useless,
      unsuited = unsuited, cost = cost,
   })
end

return M
