-- The cost model of fwd_sm90: clocks per tile, spread over the card as forward_plain_cost.lua does it.
--
-- Tensor cores and the units of the softmax work side by side, as far as warpgroups are apart in time or a
-- product runs beside its own warpgroup's softmax.
local plain = require("ops.forward_plain_cost")

local M = {}

-- Fitted to the first timings on an H200: D = 64, 128 and 256, S = 2048 and 16384.
local fit = {
   -- FLOP per clock and SM of wgmma; 4096 by the data sheet, at a clock that the power limit does not allow.
   tensor = 3400,
   -- Instructions per score beside ex2, that 128 lanes do: scale and subtract, maximum, sum, half a conversion.
   fp32_per_score = 4.7,
   -- Share of the shorter of both times that is not hidden, by the warpgroups of an SM; without turns, that times.
   exposed = {0.45, 0.27, 0.09},
   no_turns = 1.15,
   -- Clocks of a tile for its barriers and the latency of its chain of products.
   chain = 150,
   -- Clocks of a block before its first product and after its last.
   prologue = 2600,
}

-- v: groups, bc, turns; facts: forward_sm90.lua.
function M.us(v, facts, problem, arch)
   if facts.resident < 1 then
      return math.huge
   end
   local scores = facts.br * v.bc
   local tensor = 2 * scores * (facts.d_pad + facts.dv_pad) / fit.tensor
   local ex2 = scores * facts.ex2_per_score / arch.ex2
   local softmax = ex2 + scores * (fit.fp32_per_score + facts.more_fp32_per_score) / arch.fp32
   local function clocks(blocks)
      local longer, shorter = math.max(tensor, softmax), math.min(tensor, softmax)
      local groups = math.min(blocks * v.groups, 3)
      local exposed = fit.exposed[groups] * (v.turns == 0 and fit.no_turns or 1)
      return blocks * (longer + exposed * shorter) + fit.chain
   end
   return plain.spread({br = facts.br, bc = v.bc}, facts, problem, arch, facts.resident, clocks, fit.prologue, 1)
end

return M
