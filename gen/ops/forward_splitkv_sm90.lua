-- fwd_splitkv_sm90: the family on wgmma for few query rows, whose keys several blocks divide. V is the first columns of
-- K (templates/hopper/split.cuh).
--
-- A block has two warpgroups that multiply, and one that copies. Both have all 64 rows. Each computes S of half of a
-- tile's keys, and half of O's columns. Shared memory has two stages of 64 keys. waves: see forward_splitkv.lua.
local append = require("features.append")
local axes_of = require("core.axes")
local columns = require("features.columns")
local cost = require("ops.forward_splitkv_sm90_cost")
local elements = require("core.elements")
local families = require("core.family")
local features = require("features.list")
local kinds = require("ops.kinds")
local lengths = require("features.lengths")
local paged = require("features.paged")
local partial = require("features.partial")
local paths = require("paths.wgmma")
local precision = require("features.precision")
local splitkv = require("ops.forward_splitkv")
local wgmma = require("ops.forward_sm90")
local window = require("features.window")

local M = {name = "fwd_splitkv_sm90"}

-- rows, keys: of a block's tiles. stages: tiles of keys in shared memory. parts: warpgroups that multiply.
local rows, keys, stages, parts = 64, 64, 2, 2

-- Columns must be whole pages of 64: of K, and of V for each warpgroup, whose O is one wgmma wide.
local function fills_pages(v)
   local dv = columns.of(v)
   return v.d % 64 == 0 and dv % (64 * parts) == 0 and dv <= 256 * parts and v.d > 256
end

M.axes = axes_of.joined(kinds.axes(576), {
   columns.axis,
   {name = "v_in_k", field = "v_in_k", values = {0, 1}, feature = true, unless = function(v)
      return v.v_in_k == 0 and "V is not in K" or not fills_pages(v) and "its columns are no whole pages"
   end},
   features.everywhere[1], features.everywhere[2], lengths.axis, paged.axis,
   append.axis, append.rotary.axis, append.rotary_dim.axis, precision.axes[1], precision.axes[2],
   precision.axes[3], partial.axis, splitkv.waves,
})

M.selection = {limit = 16, covered = {{"waves"}}, crowds = {}}

-- Returns bytes of shared memory; the templates assert the same.
local function smem_bytes(v)
   local o_bytes = 4 * columns.of(v)
   local bytes = elements.bytes(v)
   local given = keys // parts * bytes // 2 + 8 -- by a thread: P of half of its warpgroup's keys, and two numbers
   return math.max(bytes * v.d * (rows + stages * keys) + 128 * parts * given + 16 * stages,
                   rows * (o_bytes + (160 - o_bytes % 128) % 128 + 8 + partial.row_bytes(v)))
end

-- Returns what the scheme that divides keys (forward_splitkv.lua) needs to know about a block and its sequences.
local function shape_of(v)
   return {br = rows, bc = keys, teams = 1, waves = v.waves, seqused = v.seqused}
end

local function recipe(v)
   local made = {
      op = "forward", rows = rows, keys = keys, suffix = "a",
      steps = {{role = "main", threads = 128 * (parts + 1), blocks = "row_tiles"}},
   }
   splitkv.recipe(made, v)
   append.recipe(made, v)
   return made
end

local function names(v)
   local all = wgmma.shared_names(v, keys // parts, columns.of(v) // parts)
   axes_of.add_names(all, splitkv.names)
   all.packed_heads, all.bc = true, keys
   return all
end

function M.family()
   return families.new({
      name = M.name, op = "forward", template = "hopper/" .. M.name .. ".cu.in", path = paths.sm90,
      axes = M.axes, selection = M.selection, smem_bytes = smem_bytes, recipe = recipe, names = names,

      typical = function(problem, arch)
         return window.typical(splitkv.typical(arch), problem)
      end,

      useless = function(problem, arch)
         return paths.useless(arch) or splitkv.useless(problem, arch)
      end,

      unsuited = function(v, problem, arch)
         return splitkv.unsuited(shape_of(v), problem, arch)
      end,

      cost = function(v, problem, arch)
         return lengths.sum_of_parts(problem, function(part)
            return cost.us(shape_of(v), smem_bytes(v), part, arch)
         end, append.us(v, problem, arch))
      end,
   })
end

return M
