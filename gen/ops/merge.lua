-- The merge families: n partial results of attention, O in fp32 and LSE, become one (fa2_merge in fa2.h). The number of
-- partial results is the problem's seq_k. A group of lanes has a row of O (templates/merge/merge.cuh). The axes:
--   threads   of a block
--   ahead     partial results that are loaded together
-- The work is loads and stores, so variants differ in how many bytes are under way, and in what is left over: rows of
-- the last block, and partial results of the last step.
local families = require("core.family")
local kinds = require("ops.kinds")
local partial = require("features.partial")
local window = require("features.window")

local M = {}

-- Lanes of a row: as many as it has groups of four columns, a power of two up to a warp.
local function row_lanes(d)
   local lanes = 1
   while 2 * lanes <= math.min(d // 4, 32) do
      lanes = 2 * lanes
   end
   return lanes
end

local function block_rows(v)
   return v.threads // row_lanes(v.d)
end

-- Registers of a thread: the loads that are under way, the sums and place of a row.
local function registers_of(v)
   return 5 * v.ahead + 36
end

-- Constants of the model. Not measured: loads and stores of a card at nine tenths of its bandwidth, with latencies as
-- the other families have them.
local fit = {share = 0.9, latency_us = 0.8, launch_us = 0.4}

-- Returns us. The memory needs the bytes. A block needs a latency for each step, and the card has room for so many
-- blocks at once.
local function cost(v, problem, arch, registers)
   local used = registers > 0 and registers or registers_of(v)
   local rows = problem.batch * problem.heads_q * problem.seq_q
   local out = partial.out_bytes(problem)
   local bytes = rows * (problem.head_dim * (4 * problem.seq_k + out) + 4 * (problem.seq_k + 1))
   local together = math.max(math.min(arch.warps * 32 // v.threads, arch.regs // (used * v.threads), arch.blocks), 1)
   local blocks = (rows + block_rows(v) - 1) // block_rows(v)
   local columns = 4 * row_lanes(problem.head_dim) -- of a row at a time
   local steps = (problem.seq_k + v.ahead - 1) // v.ahead * ((problem.head_dim + columns - 1) // columns)
   local rounds = (blocks + arch.sm_count * together - 1) // (arch.sm_count * together)
   local chain_us = rounds * (fit.launch_us + steps * fit.latency_us)
   local memory_us = bytes / (fit.share * arch.dram)
   return arch.launch_us + (chain_us ^ 4 + memory_us ^ 4) ^ 0.25
end

local kind_axes = kinds.axes(576)
local axes = { -- D and the element type, and its own
   kind_axes[1], kind_axes[2],
   {name = "partial", field = "partial", values = {0, 1}, feature = true},
   {name = "threads", values = {128, 256}},
   {name = "ahead", values = {2, 8}},
}

local function unfit(v, _, arch)
   return registers_of(v) * v.threads > arch.regs and "an SM cannot hold a block"
end

-- Returns typical problems: partial results of two and eight ranks, long and short, and of many splits of one query.
local function typical(problem, arch)
   return window.typical({{32, 32, 8192, 2}, {32, 32, 8192, 8}, {arch.sm_count, arch.sm_count, 16, 4}, {32, 32, 1, 64}},
                         problem)
end

function M.family(name, path)
   return families.new({
      name = name, op = "merge", template = "merge/merge.cu.in", path = path, axes = axes,
      selection = {limit = 24, covered = {{"threads"}, {"ahead"}}, crowds = {}},
      typical = typical, unfit = unfit, cost = cost,

      recipe = function(v)
         return {
            op = "merge", rows = block_rows(v), keys = 1,
            steps = {{role = "main", threads = v.threads, blocks = "rows/" .. block_rows(v)}},
         }
      end,
   })
end

return M
