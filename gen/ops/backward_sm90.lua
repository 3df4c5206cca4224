-- bwd_sm90: the backward family on wgmma and TMA (templates/hopper/bwd.cuh).
--
-- A block has two warpgroups with 64 keys each; with more than 128 columns, three warpgroups that divide the products
-- of the same 64 keys. One more warpgroup loads. The block loops over queries in tiles of Br, and has two stages of Q
-- and dO. Three stages were not faster. dQ is summed by fp32 additions in memory. Steps of their own prepare and
-- convert it, as in the other families (backward.lua).
local alibi = require("features.alibi")
local bwd = require("ops.backward")
local cost = require("ops.backward_cost")
local dropout = require("features.dropout")
local families = require("core.family")
local features = require("features.list")
local fwd_sm90 = require("ops.forward_sm90")
local kinds = require("ops.kinds")
local lengths = require("features.lengths")
local partial = require("features.partial")
local paths = require("paths.wgmma")
local sinks = require("features.sinks")
local softcap = require("features.softcap")
local window = require("features.window")

local M = {name = "bwd_sm90"}

-- Stages of Q and dO in shared memory.
local stages = 2

-- Blocks for each SM if blocks share queries. An SM holds one.
local waves = 1

-- How warpgroups divide the work of a block: by its keys, or by the products of a tile if dK and dV have many columns
-- (templates/hopper/bwd_by_product.cuh).
--   groups             warpgroups that compute
--   keys               of a block
--   load, group, dq    registers of a thread that loads, of one that has scores, and of one that has only dQ
local by_keys = {groups = 2, keys = 128, load = 24, group = 240}
local by_product = {groups = 3, keys = 64, load = 24, group = 208, dq = 72}

local function division_of(v)
   return v.d > 128 and by_product or by_keys
end

-- With 128 queries in a tile, S^T and dP^T leave registers for sums of this many columns. With more, kernels with
-- features spill.
local most_columns = 32

-- If warpgroups divide the products, the most columns of a sum in one product. With more, it names more registers than
-- a thread has when the block begins.
local most_summed = 128

local function d_pad(v)
   return (v.d + 15) // 16 * 16
end

-- Pages of 64 columns in a row of a tile.
local function pages(v)
   return (v.d + 63) // 64
end

-- Returns how many warpgroups share rows of dQ, and the columns of each. If one warpgroup computes dQ in parts: the
-- number of parts and the columns of each.
local function dq_shares(v)
   local sharing = by_keys.groups // (v.br // 64)
   if v.d > 128 then
      return pages(v), 64
   elseif sharing == 1 then
      return 1, d_pad(v)
   end
   return sharing, v.d > 64 and 64 or (v.d + 31) // 32 * 16
end

local function smem_bytes(v)
   local division = division_of(v)
   local tiles = pages(v) * 128 * (2 * division.keys + 2 * stages * v.br)
   local scores = division.keys * v.br
   local bytes = tiles + 2 * 2 * scores + 2 * stages * 4 * v.br + 8 * (2 + 4 * stages) -- dS^T has two places
   return division == by_product and bytes + 4 * scores + 8 * (2 + 2 * stages) or bytes -- P^T has one, in fp32
end

-- Returns true if registers remain for the addresses of a bias, besides the sums and what another feature keeps.
local function bias_fits(v)
   local more = v.softcap + v.alibi + v.dropout + v.deterministic
   return v.bias == "none" or v.br == 64 and d_pad(v) <= (more > 0 and 96 or 128)
end

local function fits(v, _, arch)
   if smem_bytes(v) > arch.smem_block then
      return nil, string.format("%d bytes of shared memory, a block has %d", smem_bytes(v), arch.smem_block)
   elseif v.br > 64 and d_pad(v) > most_columns then
      return nil, "sums, S and dP need too many registers"
   elseif not bias_fits(v) then
      return nil, "sums, S, dP and the way to a bias need too many registers"
   elseif v.varlen == 1 and division_of(v) == by_product then
      return nil, "rows behind a sequence's end are cleared where all warpgroups read a tile together"
   end
   return true
end

-- Returns what the cost model (backward_cost.lua) needs to know about a block.
local function shape_of(v)
   return {br = v.br, bc = division_of(v).keys, split = v.split, dq = "atomic", rows = "prepared", waves = waves}
end

-- From timings on an H200, D = 32 to 256, S = 2048 and 4096, with and without a mask.
--   tensor       FLOP per clock and SM
--   per_score    clocks per score for what products do not hide
--   divided      FLOP per clock and SM if warpgroups divide the products (by pages)
--   bias         clocks per score for a bias, which each thread reads by itself
local fit = {tensor = 2480, per_score = 0.11, divided = 2090, bias = 0.2}
M.fit = fit -- for tests/bench/fit.lua

-- Returns the clocks per score that features add.
local function feature_clocks(v, arch)
   local fp32 = features.fp32_per_score(v, division_of(v).keys)
      + v.softcap * (softcap.fp32_per_score + softcap.slope_per_score)
   return fp32 / arch.fp32 + v.softcap * softcap.ex2_per_score / arch.ex2
end

-- Returns the clocks of a tile.
local function tile_clocks(v, arch)
   local columns, rate = d_pad(v), fit.tensor
   if division_of(v) == by_product then
      columns, rate = 64 * pages(v), fit.divided
   end
   local added = v.bias ~= "none" and fit.bias or 0
   local per_score = 10 * columns / rate + fit.per_score + added + feature_clocks(v, arch)
   return v.br * division_of(v).keys * per_score
end

local function us_of(v, problem, arch)
   local shape = shape_of(v)
   local facts = {
      d_pad = d_pad(v),
      card = {
         arch = arch, resident = 1,
         tile_clocks = function()
            return tile_clocks(v, arch)
         end,
      },
   }
   local us = 0
   for _, part in ipairs(lengths.parts(problem)) do
      us = us + cost.backward(shape, facts, part, arch)
   end
   return us
end

-- Returns the columns of all products: of scores, of dQ, and of the sums of dK or dV.
local function product_columns(v, dq_columns)
   local list = {v.br, dq_columns}
   for first = 0, d_pad(v) - 1, most_summed do
      list[#list + 1] = math.min(d_pad(v) - first, most_summed)
   end
   return list
end

local function names(v)
   local division, dq_in_order = division_of(v), v.deterministic == 1
   local _, width = dq_shares(v)
   local own = bwd.shared_names(v, {
      prepared = true,
      smem_bytes = smem_bytes(v), groups = division.groups, keys = division.keys, stages = stages, dq = "atomic",
      dq_in_order = dq_in_order, last_keys_first = dq_in_order and v.causal == 1 and v.window == 0, wgmma = true,
      by_product = division == by_product, writers = division == by_product and 128 or 128 * division.groups,
      dq_columns = width, load_registers = division.load, group_registers = division.group,
      dq_registers = division.dq or 0,
   })
   return fwd_sm90.add_product_names(own, v, product_columns(v, width))
end

-- A bias as it lies in memory. In fp32 it spills at D = 128. The other families have its gradient and boolean masks.
local added = {name = "bias", field = "bias", values = {"none", "fp16", "bf16"}, feature = true}

M.axes = kinds.axes(256)
for _, axis in ipairs({
   softcap.axis, window.axis, alibi.axis, sinks.axis, added, dropout.axis, lengths.packed.axis, kinds.deterministic,
   partial.axis,
   {name = "br", values = {64, 128}},
   {
      name = "split", values = {0, 1}, quiet = true,
      when = function(v)
         if v.split == 1 and v.varlen == 1 then
            return nil, "packed sequences have blocks of their own"
         end
         return true
      end,
   },
}) do
   M.axes[#M.axes + 1] = axis
end

M.selection = {limit = 4, covered = {{"br", "split"}}, crowds = {}}

local function recipe(v)
   local sharing, width = dq_shares(v)
   local division = division_of(v)
   local keys = division.keys
   local steps = {bwd.prepare_step(M.name, v)}
   if v.sinks == 1 then
      steps[2] = bwd.sinks_step(M.name)
   end
   steps[#steps + 1] = {
      entry = M.name, role = "main", threads = 128 * (division.groups + 1), smem = smem_bytes(v), blocks = "key_tiles",
   }
   if v.split == 1 then
      steps[#steps + 1] = bwd.combine_step(M.name, 2 * keys, 2 * keys * d_pad(v))
   end
   steps[#steps + 1] = bwd.convert_step(M.name, v, sharing * width)
   return {
      op = "backward", abi = bwd.abi + features.revision(v), rows = v.br, keys = keys, suffix = "a",
      waves = v.split == 1 and waves or nil, splits = v.split == 1 and cost.most_splits or nil,
      workspace = v.deterministic == 1 and "rows_dq_and_turns" or "rows_and_dq", columns = sharing * width,
      maps = string.format("q/%d,k/%d,v/%d,do/%d", v.br, keys, keys, v.br),
      steps = steps,
   }
end

function M.family()
   return families.new({
      name = M.name, op = "backward", template = "hopper/bwd_sm90.cu.in", path = paths.sm90,
      axes = M.axes, selection = M.selection, fits = fits, recipe = recipe, names = names,
      cost = us_of,

      typical = function(problem, arch)
         local sizes = bwd.typical(problem, arch)
         for _, size in ipairs(sizes) do
            size.head_dim_v = 0
         end
         return sizes
      end,

      is_worth = function(problem, arch)
         if arch.generic then
            return nil, "a device that plays another SM, or whose driver has no tensor maps, takes no code for sm_90a"
         elseif problem.seq_q < 64 then
            return nil, "fewer query rows than one tile has"
         end
         return true
      end,

      suits = function(v, problem, arch)
         if v.split == 1 and cost.splits(shape_of(v), problem, arch) == 1 then
            return nil, "there are blocks enough"
         end
         return true
      end,
   })
end

return M
