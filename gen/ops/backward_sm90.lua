-- bwd_sm90: the backward family on wgmma and TMA (templates/hopper/bwd.cu.in).
--
-- A block is `groups` warpgroups of 64 keys each, and one that loads. It walks over queries in tiles of Br, of which
-- Q and dO have `stages` places each. dQ is summed by fp32 additions in memory, and prepared and converted by steps of
-- their own, as by the other families (backward.lua).
local bwd = require("ops.backward")
local columns = require("features.columns")
local cost = require("ops.backward_cost")
local families = require("core.family")
local features = require("features.list")
local fwd_sm90 = require("ops.forward_sm90")
local kinds = require("ops.kinds")
local paths = require("paths.wgmma")

local M = {name = "bwd_sm90"}

-- By groups: registers of a thread that loads, and of one that computes; most: sums, S, dP and operands, more are
-- spilled.
local shares = {
   [2] = {load = 24, group = 240, most = 216},
   [3] = {load = 32, group = 160, most = 136},
}

local function d_pad(v)
   return (v.d + 15) // 16 * 16
end

-- 64 columns lie together.
local function pages(v)
   return (v.d + 63) // 64
end

-- Warpgroups that share rows of dQ, and the columns of each.
local function dq_shares(v)
   local sharing = v.groups // (v.br // 64)
   return sharing, v.d > 64 and sharing > 1 and 64 or d_pad(v) // sharing
end

local function smem_bytes(v)
   local bc = 64 * v.groups
   local tiles = pages(v) * 128 * (2 * bc + 2 * v.stages * v.br)
   return tiles + 2 * 2 * bc * v.br + 2 * v.stages * 4 * v.br + 8 * (2 + 4 * v.stages)
end

-- Sums, S^T and dP^T of a thread, and what is converted of one of them.
local function live_registers(v)
   return d_pad(v) + v.br + v.br // 4
end

local function divides(v)
   local rows = v.br // 64
   if v.groups % rows ~= 0 then
      return nil, "br does not give each warpgroup rows of dQ"
   end
   local sharing, width = dq_shares(v)
   if width % 16 ~= 0 or v.d > 64 and sharing > pages(v) then
      return nil, "columns of dQ do not divide evenly"
   end
   return true
end

local function fits(v, _, arch)
   if smem_bytes(v) > arch.smem_block then
      return nil, string.format("%d bytes of shared memory, a block has %d", smem_bytes(v), arch.smem_block)
   elseif live_registers(v) > shares[v.groups].most then
      return nil, "sums, S and dP need too many registers"
   end
   return true
end

-- As backward.lua's kernels are described.
local function complete(v)
   local all = fwd_sm90.complete(v, 1)
   all.bc, all.dq, all.rows, all.split, all.layout = 64 * v.groups, "red", "prepared", 0, "swizzle"
   all.deterministic = 0
   all.softcap, all.window = v.softcap or 0, v.window or 0
   return all
end

-- Fitted to nothing yet: FLOP per clock and SM, and clocks of a tile for its barriers.
local fit = {tensor = 2300, tile = 500}

local function us_of(v, problem, arch)
   local all = complete(v)
   local facts = {
      d_pad = d_pad(v),
      card = {
         arch = arch, resident = 1,
         tile_clocks = function()
            return 10 * v.br * all.bc * d_pad(v) / fit.tensor + fit.tile
         end,
      },
   }
   return cost.backward(all, facts, problem, arch)
end

local function names(v)
   local all = complete(v)
   local sharing, width = dq_shares(v)
   local own = bwd.shared_names(all, {
      smem_bytes = smem_bytes(v), bc = all.bc, dq = "red", rows = "prepared", turns = false, wgmma = true,
      meet = "named_barrier(1, kWorkers)", writers = "kWorkers",
      dq_columns = width, dq_width = sharing * width, dq_chunk = "warp % kColWarps * 2 * kDqPairs + n",
      d_pad = d_pad(v), element = v.dtype == "bf16" and "bf16" or "f16",
      operands = fwd_sm90.operands, accumulators = fwd_sm90.accumulators,
      score_columns = v.br, score_tiles = "kQueryTiles", row_operands = "K or V", tile_operands = "Q or dO",
      mapped = "Q, K, V and dO", more_maps = ", d_o",
      load_registers = shares[v.groups].load, group_registers = shares[v.groups].group,
   })
   for _, axis in ipairs({"softcap", "window"}) do
      own[axis] = false
   end
   for _, feature in ipairs(features.all) do
      own[feature.axis.name] = false
   end
   return own
end

M.axes = kinds.axes(128)
for _, axis in ipairs({
   {name = "br", values = {64, 128}},
   {name = "groups", values = {2, 3}, when = divides},
   {name = "stages", values = {2, 3}},
}) do
   M.axes[#M.axes + 1] = axis
end

M.selection = {limit = 8, covered = {{"br"}, {"groups"}, {"stages"}}, crowds = {}}

local function recipe(v)
   local sharing, width = dq_shares(v)
   local bc = 64 * v.groups
   return {
      op = "backward", abi = bwd.abi, rows = v.br, keys = bc, suffix = "a",
      workspace = "rows_and_dq", columns = sharing * width,
      maps = string.format("q/%d,k/%d,v/%d,do/%d", v.br, bc, bc, v.br),
      steps = {
         bwd.prepare_step(M.name, complete(v)),
         {
            entry = M.name, role = "main", threads = 128 * (v.groups + 1), smem = smem_bytes(v),
            blocks = "key_tiles",
         },
         bwd.convert_step(M.name, sharing * width),
      },
   }
end

function M.family()
   return families.new({
      name = M.name, op = "backward", template = "hopper/bwd_sm90.cu.in", path = paths.sm90,
      axes = M.axes, selection = M.selection, fits = fits, recipe = recipe, names = names,
      typical = bwd.typical, cost = us_of,

      is_worth = function(problem, arch)
         if arch.generic then
            return nil, "a device that is software, or plays another SM, takes no code for sm_90a"
         elseif problem.seq_q < 64 or columns.of_problem(problem) ~= problem.head_dim then
            return nil, "fewer query rows than one tile has"
         end
         return true
      end,

      suits = function()
         return true
      end,
   })
end

return M
