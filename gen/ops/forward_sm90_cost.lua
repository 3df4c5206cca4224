-- The cost model of fwd_sm90: clocks per tile. forward_plain_cost.lua spreads them over the card.
--
-- Tensor cores and the units of the softmax work at the same time in two cases: warpgroups are apart in time, or a
-- product runs during its own warpgroup's softmax.
local plain = require("ops.forward_plain_cost")
local shares = require("ops.forward_shares")

local M = {}

-- Fitted to 1175 timings of 128 problems on an H200: prefill and chunked prefill, random problems (D = 16 to 224) and
-- presets (tests/bench/fit.lua). Each constant is the mean of the fits to the two halves of the problems.
local fit = {
   -- FLOP per clock and SM of wgmma. The data sheet says 4096, at a clock that the power limit does not allow.
   tensor = 3060,
   -- fp32 instructions per score besides ex2: scale and subtract, maximum, sum, half a conversion.
   fp32_per_score = 4.7,
   -- fp32 instructions per score that a speculative maximum saves: 3.1 % of the time of D = 64 (S = 8192, causal).
   speculates = 0.4,
   -- Share of the shorter of the two times that is not hidden, by the number of warpgroups on an SM. A single warpgroup
   -- also has stalls of its own. no_turns: factor of that share for several warpgroups without ping-pong.
   exposed1 = 1.1, exposed2 = 0.36, exposed3 = 0.115,
   no_pingpong = 1.7,
   -- Clocks per tile for its barriers and for the latency of its chain of products.
   chain = 130,
   -- Clocks of a block before its first product and after its last. A persistent block has for each row tile, in their
   -- place, `waiting` if the next Q waits for the place of O, else `ahead`. The difference was measured on an H100, S =
   -- 512.
   prologue = 2850, waiting = 2150, ahead = 850,
   -- Clocks that packed rows add to these. Warps copy rows of several heads themselves, with two divisions per row. No
   -- product starts before all rows are there. From 45 problems on an H200, the mean of the fits to the two halves.
   packed = 2700,
   -- us of a launch, more than for other families: it passes three tensor maps, and warps exchange registers.
   launch = 0.88,
   -- Clocks for a row of K or V that does not end with a sector of 32 bytes. Copying such rows is what limits small
   -- blocks.
   row = 5.2,
   -- Share by which rows of several pages of 64 columns cost more if the last page is not full.
   page = 0.08,
   -- us of the preparing step: if work is taken by a counter, and if it computes keys for dropout.
   counter = 1.5, keys = 2.5,
   -- Factor of the features' instructions. They are between S and its exponentials, where nothing hides them.
   feature = 2.2,
   -- Clocks per score for a bias that comes through shared memory, besides its instructions, because it is waited for.
   staged = 0.035,
   -- Columns of Q K^T that cost as much as the additional step of alibi_mma.
   alibi_mma = 5,
   -- Factors of the SMs' time if row tiles are ordered by weight. by_weight_alone: small row tiles whose heads have
   -- their own keys. Fewer tiles then read the same keys at the same time.
   by_weight = 0.99, by_weight_alone = 1.15,
}

M.fit = fit -- for tests/bench/fit.lua

-- Returns the heads of a section within which row tiles are ordered by weight, as in work.cuh.
local function section_of(v, problem)
   local rows = (32 << 20) // (4 * v.d)
   local group = problem.heads_q // problem.heads_kv
   return math.min(math.max(rows // problem.seq_k, 1) * group, problem.heads_q * problem.batch)
end

-- Returns us for a problem.
--   v        d, groups, bc, pingpong, persistent, order, pack, alibi_mma, dropout
--   facts    facts_of in forward_sm90.lua
--   problem  if rows are packed, it has as many query heads as key heads
function M.us(v, facts, problem, arch)
   local scores = facts.br * v.bc
   local tensor = 2 * scores * (facts.d_pad + facts.dv_pad + v.alibi_mma * fit.alibi_mma) / fit.tensor
   local ex2 = scores * facts.ex2_per_score / arch.ex2
   local softmax = ex2 + scores * (fit.fp32_per_score - facts.speculates * fit.speculates) / arch.fp32
   local feature = scores * (fit.feature * facts.more_fp32_per_score / arch.fp32 + facts.staged * fit.staged)
   local copies = v.d % 16 == 0 and 0 or fit.row * 2 * v.bc
   local function clocks(blocks)
      local longer, shorter = math.max(tensor, softmax), math.min(tensor, softmax)
      local groups = math.min(blocks * v.groups, 3)
      local exposed = fit["exposed" .. groups] * (v.pingpong == 0 and v.groups > 1 and fit.no_pingpong or 1)
      return blocks * math.max(longer + exposed * shorter + feature, copies) + fit.chain
   end
   local prologue = v.persistent == 0 and fit.prologue or facts.own_place and fit.ahead or fit.waiting
   local alone = v.groups == 1 and problem.heads_q == problem.heads_kv
   local slower = (v.d > 64 and v.d % 64 > 0 and 1 + fit.page or 1)
      * (v.order == "weight" and (alone and fit.by_weight_alone or fit.by_weight) or 1)
   local function busiest(weights)
      return shares.busiest(weights, problem.batch * problem.heads_q, v.order == "weight" and section_of(v, problem),
                            arch.sm_count, facts.resident, clocks)
   end
   local first = (fit.prologue - prologue) / arch.clock -- nothing is computed before the first row tile
   prologue = prologue + v.pack * fit.packed
   return fit.launch + first + (v.dropout == 1 and fit.keys or v.persistent == 2 and fit.counter or 0)
      + plain.spread({br = facts.queries, bc = v.bc}, facts, problem, arch, facts.resident, clocks, prologue, slower,
                     v.persistent == 1 and busiest or nil)
end

return M
