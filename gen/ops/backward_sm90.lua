-- bwd_sm90: the backward family on wgmma and TMA (templates/hopper/bwd.cuh).
--
-- A block has two warpgroups with 64 keys each; with more than 128 columns, three warpgroups that divide the products
-- of the same 64 keys. One more warpgroup loads. The block loops over queries in tiles of Br. dQ is summed by fp32
-- additions in memory. Steps of their own prepare and convert it, as in the other families (backward.lua). The axes:
--   br       queries of a tile
--   split    blocks that share the queries of a tile of keys. 1: for few blocks, as in backward.lua. 2: a block has
--            some whole query heads of a group, and adds to dK and dV in fp32 in the workspace. A combine step
--            converts these sums. 2 is for masks: blocks of different keys have different numbers of tiles in a head.
--            If they walk all heads of a group, they drift apart, and L2 no longer holds what they share. Also, a
--            block of all heads is long, and the last ones finish alone
--   heads    query heads of a block with split=2
--   keys     deterministic=1 under a causal mask: blocks with the last keys begin first, or those with the first keys
--            (templates/backward/dq_order.cuh)
--   dq       who adds dQ to its sums. atomic: each warp its part, from registers. bulk: the copy engine, one tile
--            later (bwd_dq_bulk.cuh). group: one more warpgroup, which computes dQ alone (bwd_dq_group.cuh)
--            With deterministic=1 a thread of the producer counts, and lets the copy engine add (bwd_producer.cuh)
--   order    dV is started before dS is made (early), or after it (late), which frees registers. With these, dq=bulk
--            computes S a tile ahead, and dq=group keeps K and V in registers up to D = 64. At D = 64 it then
--            computes dQ transposed, with K in registers, too (bwd_dq_columns.cuh)
local axes_of = require("core.axes")
local bwd = require("ops.backward")
local cost = require("ops.backward_cost")
local elements = require("core.elements")
local families = require("core.family")
local features = require("features.list")
local fwd_sm90 = require("ops.forward_sm90")
local kinds = require("ops.kinds")
local partial = require("features.partial")
local paths = require("paths.wgmma")

local M = {name = "bwd_sm90"}

-- Stages of Q and dO in shared memory; with a warpgroup for dQ, that many of dS^T, too. That one needs three: with two,
-- warpgroups wait for Q and dO (1.5 times as slow at D = 64), and four are not faster.
local function stages(v)
   return v.dq == "group" and 3 or 2
end

-- Blocks for each SM if blocks share queries. An SM holds one.
local waves = 1

-- How warpgroups divide the work of a block: by its keys, the same with one more for dQ (bwd_dq_group.cuh), or by the
-- products of a tile if dK and dV have many columns (bwd_by_product.cuh).
--   groups    warpgroups that compute
--   keys      of a block
local by_keys = {groups = 2, keys = 128}
local with_dq_group = {groups = 3, keys = 128}
local by_product = {groups = 3, keys = 64}

local function division_of(v)
   return v.d > 128 and by_product or v.dq == "group" and with_dq_group or by_keys
end

-- Threads that write a tile of dK or dV: a warpgroup for each 64 keys.
local function writers(v)
   return 2 * division_of(v).keys
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
   elseif v.dq == "group" and d_pad(v) > 80 then
      return 2, 64
   elseif v.dq == "group" then
      return 1, d_pad(v)
   elseif sharing == 1 then
      return 1, d_pad(v)
   end
   return sharing, v.d > 64 and 64 or (v.d + 31) // 32 * 16
end

local function smem_bytes(v)
   local division = division_of(v)
   local tiles = pages(v) * 128 * (2 * division.keys + 2 * stages(v) * v.br)
   local scores = division.keys * v.br
   local bytes = tiles + elements.bytes(v) * stages(v) * scores + 2 * stages(v) * 4 * v.br + 8 * (2 + 4 * stages(v))
   if division == by_keys and v.dq == "atomic" then
      return bytes
   end
   local counted = v.dq == "group" and v.deterministic == 1
   bytes = bytes + 8 * (2 + (counted and 3 or 2) * stages(v))
   if v.dq == "bulk" then
      local sharing, width = dq_shares(v)
      return (bytes + 127) // 128 * 128 + v.br * sharing * width * 4
   end
   return division == by_product and bytes + 4 * scores or bytes -- P^T has one, in fp32
end

-- Returns true if registers remain for the addresses of a bias, besides the sums and what another feature keeps.
local function bias_fits(v)
   local more = features.modifiers(v) - 1 + v.dropout + v.deterministic
   return v.bias == "none" or v.br == 64 and d_pad(v) <= (more > 0 and 96 or 128)
end

-- Returns true if a kernel that does not add to dQ by itself has registers for its features. As compiled: others spill.
local function features_fit(v)
   local scored = features.modifiers(v) + v.dropout
   if v.dq == "bulk" then
      return d_pad(v) <= 96 and scored <= 1 or scored == 0 and (v.varlen == 0 or d_pad(v) <= 112)
   end
   local in_memory = v.bias ~= "none" or v.dropout == 1
   local may_add = d_pad(v) <= 64 or features.terms(v) == 0
   return scored == 0 or v.order == "early" and scored == 1 and not in_memory and may_add
end

local function unfit(v)
   return v.br > 64 and d_pad(v) > most_columns and "sums, S and dP need too many registers"
      or not bias_fits(v) and "sums, S, dP and the way to a bias need too many registers"
      or v.varlen == 1 and division_of(v) == by_product
         and "rows behind a sequence's end are cleared where all warpgroups read a tile together"
end

-- Returns what the cost model (backward_cost.lua) needs to know about a block.
local function shape_of(v)
   return {
      dtype = v.dtype, br = v.br, bc = division_of(v).keys, split = v.split, heads = v.heads, waves = waves,
      dq = "atomic", rows = "prepared",
   }
end

-- From timings on an H200: D = 32 to 256, S = 2048 and 4096, with and without a mask. dq=bulk and dq=group were timed
-- on an H100: D = 64 to 128, S = 1024 to 16384.
--   tensor       FLOP per clock and SM
--   per_score    clocks per score for what products do not hide
--   bulk         the same if the copy engine adds dQ
--   group        FLOP per clock and SM if a warpgroup of its own computes dQ. Products hide the rest
--   order        clocks of the slower order of dV, over clocks of the faster
--   reversed     clocks if blocks with the last keys come first, over clocks of the other order: on an H100 0.91 to
--                0.95, D = 64 and 128, S = 2048 to 16384
--   divided      FLOP per clock and SM if warpgroups divide the products (by pages)
--   bias         clocks per score for a bias, which each thread reads by itself
local fit = {
   tensor = 2480, per_score = 0.11, bulk = 0.045, group = 2540, order = 1.03, reversed = 0.93, divided = 2090,
   bias = 0.2,
}
M.fit = fit -- for tests/bench/fit.lua

-- Returns the clocks per score that features add.
local function feature_clocks(v, arch)
   local fp32, ex2 = features.work_per_score(v, division_of(v).keys, "backward")
   return fp32 / arch.fp32 + (ex2 - 1) / arch.ex2
end

-- Returns the clocks per score of products and of what they do not hide.
local function product_clocks(v)
   if division_of(v) == by_product then
      return 10 * 64 * pages(v) / fit.divided + fit.per_score
   elseif v.dq == "group" then
      local parts, width = dq_shares(v)
      return 2 * (4 * d_pad(v) + parts * width) / fit.group
   end
   return 10 * d_pad(v) / fit.tensor + (v.dq == "bulk" and fit.bulk or fit.per_score)
end

-- Returns true if kernels that start dV late are faster, as measured. With few columns they have K and V in registers.
local function is_late_faster(v)
   if v.dq == "group" then
      return d_pad(v) <= 64 or d_pad(v) > 80
   end
   return v.causal == 1
end

-- Returns true if blocks with the last keys come first.
local function reverses_keys(v)
   return v.deterministic == 1 and v.causal == 1 and v.window == 0 and v.keys == "last"
end

local function tile_clocks(v, arch)
   local added = v.bias ~= "none" and fit.bias or 0
   local slower = v.dq ~= "atomic" and (v.order == "late") ~= is_late_faster(v)
   local per_score = product_clocks(v) * (slower and fit.order or 1) + added + feature_clocks(v, arch)
   return v.br * division_of(v).keys * per_score * (reverses_keys(v) and fit.reversed or 1)
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
   return cost.backward(shape, facts, problem, arch)
end

-- Returns the columns of all products: of scores, of dQ, and of the sums of dK or dV.
local function product_columns(v, dq_columns)
   local list = {v.br, dq_columns}
   for first = 0, d_pad(v) - 1, most_summed do
      list[#list + 1] = math.min(d_pad(v) - first, most_summed)
   end
   return list
end

-- Returns true if the warpgroup for dQ computes it transposed, with K in registers (hopper/bwd_dq_columns.cuh). The
-- others have K and V in registers, too, and a row has 64 columns, 16 for each warp.
local function is_dq_transposed(v)
   return v.dq == "group" and v.order == "late" and d_pad(v) == 64
end

-- Queries of a product if dQ is transposed: kDqQueries in templates/hopper/dq_columns.cuh.
local transposed_queries = 32

local function names(v)
   local division = division_of(v)
   local _, width = dq_shares(v)
   local own = bwd.shared_names(v, {
      prepared = true,
      bc = division.keys, groups = division.groups, stages = stages(v), qwarps = 1,
      writers = writers(v),
      dq_order = v.deterministic == 1 and (reverses_keys(v) and 2 or 1) or 0,
      consumers = division == by_product and "by_product" or v.dq == "atomic" and "by_keys" or "dq_" .. v.dq,
      dq_columns = width, dq_transposed = is_dq_transposed(v),
   })
   return fwd_sm90.add_product_names(own, v, product_columns(v, is_dq_transposed(v) and transposed_queries or width))
end

-- A bias in fp32 spills at D = 128. The other families have its gradient and boolean masks.
M.axes = axes_of.joined(kinds.axes(256), features.wgmma_axes({"none", "fp16", "bf16"}), {
   kinds.deterministic, partial.axis,
   {name = "br", values = {64, 128}},
   {
      name = "split", values = {0, 1, 2}, quiet = true,
      unless = function(v)
         return v.split == 1 and v.varlen == 1 and "packed sequences have blocks of their own"
      end,
   },
   {
      name = "heads", values = {0, 1, 2}, quiet = true, phase = "launch",
      unless = function(v)
         return (v.split == 2) ~= (v.heads > 0)
            and "heads is for split=2, whose blocks have some of a group's query heads"
      end,
   },
   {
      name = "keys", values = {"last", "first"}, quiet = true,
      unless = function(v)
         return v.keys == "first" and (v.deterministic == 0 or v.causal == 0 or v.window > 0)
            and "the order of keys is chosen where blocks add in order under a causal mask"
      end,
   },
   {
      name = "dq", values = {"atomic", "bulk", "group"}, quiet = true,
      unless = function(v)
         return v.dq ~= "atomic" and (v.d > 128 or v.br > 64)
               and "warpgroups divide the products, or have no registers, for another way to dQ"
            or v.dq == "bulk" and d_pad(v) <= 64 and "with few columns a warpgroup of its own is faster"
            or v.dq == "bulk" and v.deterministic == 1 and v.varlen == 1
               and "a sequence's end cuts tiles of dQ, and warps add the rest in no order"
            or v.dq == "group" and d_pad(v) > 96
               and "two warpgroups have registers for sums of 96 columns beside a third one"
      end,
   },
   {
      name = "order", values = {"early", "late"}, quiet = true,
      unless = function(v)
         return v.order == "late" and v.dq == "atomic" and "warps that add to dQ themselves have one order"
            or v.order == "early" and v.dq == "group" and d_pad(v) > 80
               and "registers for more than 80 columns remain if dV is late"
            or v.dq ~= "atomic" and not features_fit(v)
               and "sums, S, dP and what features keep need too many registers"
      end,
   },
})

M.selection = {limit = 16, covered = {{"br", "split", "heads", "keys"}, {"br", "split", "dq", "order"}}, crowds = {}}

local function recipe(v)
   local sharing, width = dq_shares(v)
   local division = division_of(v)
   local keys = division.keys
   local steps = bwd.first_steps(v)
   steps[#steps + 1] = {role = "main", threads = 128 * (division.groups + 1), blocks = "key_tiles"}
   if v.split > 0 then
      steps[#steps + 1] = bwd.combine_step(writers(v), 2 * keys * d_pad(v))
   end
   steps[#steps + 1] = bwd.convert_step(v, sharing * width)
   return {
      op = "backward", rows = v.br, keys = keys, suffix = "a",
      waves = v.split == 1 and waves or nil, splits = v.split == 1 and cost.most_splits or nil,
      heads = v.heads > 0 and v.heads or nil,
      workspace = v.deterministic == 1 and "rows_dq_and_turns" or "rows_and_dq", columns = sharing * width,
      maps = string.format("q/%d,k/%d,v/%d,do/%d", v.br, keys, keys, v.br),
      steps = steps,
   }
end

function M.family()
   return families.new({
      name = M.name, op = "backward", template = "hopper/bwd_sm90.cu.in", path = paths.sm90,
      axes = M.axes, selection = M.selection, recipe = recipe, names = names,
      smem_bytes = smem_bytes, unfit = unfit, cost = us_of, typical = bwd.typical,

      useless = function(problem, arch)
         return paths.useless(arch) or problem.seq_q < 64 and "fewer query rows than one tile has"
      end,

      unsuited = function(v, problem, arch)
         return v.split == 1 and cost.splits(shape_of(v), problem, arch) == 1 and "there are blocks enough"
            or v.heads >= problem.heads_q // problem.heads_kv and v.split == 2
               and "a group has no more query heads than a block would have"
      end,
   })
end

return M
