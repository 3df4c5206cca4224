-- The cost model of fwd_splitkv_sm90: clocks per tile, or the memory's time. The rest is in forward_splitkv_cost.lua.
local columns = require("features.columns")
local plain = require("ops.forward_plain_cost")
local splitkv = require("ops.forward_splitkv_cost")

local M = {}

local ceil_div = plain.ceil_div

-- Fitted to timings on an H200: (D, Dv) = (576, 512) with 8192, 1500 and 700 keys.
local fit = {
   -- FLOP per clock and SM of wgmma, like `tensor` in forward_sm90_cost.lua.
   tensor = 3400,
   -- Clocks per tile for its barriers, the exchange of P, and the part of the load latency that nothing hides.
   chain = 300,
   -- Clocks per key of a tile for its softmax.
   key = 6,
   -- us of a block before its first tile and after its last.
   edges = 14,
}

-- Returns us for a problem. v: br, bc, teams, waves.
function M.us(v, smem_bytes, problem, arch)
   if smem_bytes > arch.smem_block then
      return math.huge
   end
   local splits, keys = splitkv.splits(v, problem, arch, v.waves)
   local tiles = splitkv.row_tiles(v, problem)
   local rounds = ceil_div(tiles * splits, arch.sm_count)
   local steps = ceil_div(ceil_div(keys, v.bc), splits)
   -- Each warpgroup multiplies Q by half of the keys, and reads twice as much of Q as of the keys.
   local narrow = 1 / 2 + 64 / v.bc
   local products = 2 * v.br * v.bc * (problem.head_dim * narrow + columns.of_problem(problem)) / fit.tensor
   local clocks = products + fit.chain + fit.key * v.bc
   local body = rounds * steps * clocks / arch.clock
   local memory = splitkv.memory_us(v, {bytes_per_score = 0}, problem, arch, tiles, keys)
   return arch.launch_us + rounds * fit.edges + math.max(body, memory) + splitkv.combine_us(problem, arch, splits)
end

return M
