-- The cost model of fwd_sm90: clocks per tile, spread over the card as forward_plain_cost.lua does it.
--
-- Tensor cores and the units of the softmax work side by side, as far as warpgroups are apart in time or a
-- product runs beside its own warpgroup's softmax.
local plain = require("ops.forward_plain_cost")
local shares = require("ops.forward_shares")

local M = {}

-- Fitted to 1175 timings of 128 problems on an H200, prefill and chunked prefill, random ones (D = 16 to 224) and
-- presets (tests/bench/fit.lua): the mean of the fits to either half.
local fit = {
   -- FLOP per clock and SM of wgmma; 4096 by the data sheet, at a clock that the power limit does not allow.
   tensor = 3060,
   -- Instructions per score beside ex2, that 128 lanes do: scale and subtract, maximum, sum, half a conversion.
   fp32_per_score = 4.7,
   -- So many less where P is made by the maxima so far: 3.1 % of the time of D = 64 (S = 8192, causal).
   guessed = 0.4,
   -- Share of the shorter of both times that is not hidden: by one warpgroup of an SM (which has stalls of its own
   -- beside it), two, three. Where two could take turns and do not, that times.
   exposed1 = 1.1, exposed2 = 0.36, exposed3 = 0.115,
   no_turns = 1.7,
   -- Clocks of a tile for its barriers and the latency of its chain of products.
   chain = 130,
   -- Clocks of a block before its first product and after its last. Of a persistent one for each row tile: where
   -- the next Q waits for O, and where it does not (so much less on an H100, S = 512).
   prologue = 2850, waiting = 2150, ahead = 850,
   -- More of them where the warps copy rows of several heads themselves: two divisions a row, and no product
   -- before all is there. Of 45 problems on an H200, the mean of the fits to either half.
   packed = 2700,
   -- us of a launch beyond those of other families: three maps come with it, and registers change hands.
   launch = 0.88,
   -- Clocks for a row of K or V that does not end with a sector of 32 bytes: its copies are what bounds small blocks.
   row = 5.2,
   -- Share that rows of several pages of 64 columns cost more where the last is not full.
   page = 0.08,
   -- us of the step before work that is taken by a counter, and of one that makes keys for dropout.
   counter = 1.5, keys = 2.5,
   -- What instructions of features count for: they come between S and its exponentials, where nothing hides them.
   feature = 2.2,
   -- Clocks of a score for a bias that comes through shared memory, beside those: it is waited for.
   staged = 0.035,
   -- Columns of Q K^T that the step with what ALiBi adds by column counts for.
   sloped = 5,
   -- By which rows by weight take longer, and where small row tiles have keys of their own head: fewer of them read
   -- the same at a time.
   by_weight = 0.99, by_weight_alone = 1.15,
}

M.fit = fit -- for tests/bench/fit.lua

-- Heads of a section whose row tiles are ordered by weight, as work.cuh has it.
local function section_of(v, problem)
   local rows = (32 << 20) // (4 * v.d)
   local group = problem.heads_q // problem.heads_kv
   return math.min(math.max(rows // problem.seq_k, 1) * group, problem.heads_q * problem.batch)
end

-- v: d, groups, bc, turns, persistent, order, pack, causal, window, dropout; facts: forward_sm90.lua; problem: where
-- rows are packed, with as many query heads as key heads.
function M.us(v, facts, problem, arch)
   local scores = facts.br * v.bc
   local tensor = 2 * scores * (facts.d_pad + facts.dv_pad + v.sloped * fit.sloped) / fit.tensor
   local ex2 = scores * facts.ex2_per_score / arch.ex2
   local softmax = ex2 + scores * (fit.fp32_per_score - facts.guessed * fit.guessed) / arch.fp32
   local feature = scores * (fit.feature * facts.more_fp32_per_score / arch.fp32 + facts.staged * fit.staged)
   local copies = v.d % 16 == 0 and 0 or fit.row * 2 * v.bc
   local function clocks(blocks)
      local longer, shorter = math.max(tensor, softmax), math.min(tensor, softmax)
      local groups = math.min(blocks * v.groups, 3)
      local exposed = fit["exposed" .. groups] * (v.turns == 0 and v.groups > 1 and fit.no_turns or 1)
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
   local first = (fit.prologue - prologue) / arch.clock -- nothing is before the first row tile of a block
   prologue = prologue + v.pack * fit.packed
   return fit.launch + first + (v.dropout == 1 and fit.keys or v.persistent == 2 and fit.counter or 0)
      + plain.spread({br = facts.queries, bc = v.bc}, facts, problem, arch, facts.resident, clocks, prologue, slower,
                     v.persistent == 1 and busiest or nil)
end

return M
