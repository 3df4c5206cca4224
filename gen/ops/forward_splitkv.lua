-- The scheme of the forward families that divides the keys, for few query rows or few blocks. The query heads of a
-- group are rows of one matrix. `teams` groups of warps each compute every teams-th tile of keys. So many blocks divide
-- the tiles that each SM gets about `waves` blocks. Then a combine step merges their results. forward.lua says what the
-- axes mean.
local axes_of = require("core.axes")
local columns = require("features.columns")
local cost = require("ops.forward_splitkv_cost")
local kv8 = require("features.kv8")
local lengths = require("features.lengths")

-- max_splits: the weights for which a warp of the combine step has room.
local M = {splits = true, names = {max_splits = cost.max_splits}}

-- Rows of a block of the combine step, one warp for each.
local combine_rows = 4

-- Numbers of m16 row tiles that a warp may have, by br.
local warp_tiles = {[16] = {1}, [32] = {1, 2}, [64] = {1, 2}}
local waves = {1, 2, 4, 8, 16}

-- If all row tiles have the same keys, more waves than this gain nothing.
local waves_of_equals = 4

local function no_block(v)
   for _, tiles in ipairs(warp_tiles[v.br]) do
      if v.br * v.teams * v.parts == 16 * v.warps * tiles then
         return nil
      end
   end
   return "no such br, warps and teams"
end

-- Sequences of different lengths are divided more evenly if there are more blocks.
local function too_many_waves(v)
   return v.waves > waves_of_equals and not lengths.has(v)
      and "so many blocks are for sequences with lengths of their own"
end

local function no_pipeline(v, path)
   return v.kstages ~= v.vstages and "kstages and vstages differ"
      or not axes_of.has_pair(path.pipelines, v.kstages, v.vstages) and "no such number of stages"
      or columns.no_pipeline(v)
end

M.waves = {name = "waves", values = waves, phase = "launch", unless = too_many_waves}

M.axes = {
   {name = "br", values = {16, 32, 64}},
   {name = "bc", values = {16, 32, 64}},
   {name = "warps", values = {1, 2, 4, 8}},
   {name = "teams", values = {1, 2, 4, 8}, unless = no_block},
   {name = "kstages", values = {1, 2, 3}},
   {name = "vstages", values = {1, 2, 3}, unless = no_pipeline},
   M.waves,
   {name = "layout", values = {"swizzle"}},
   kv8.q_axis,
}

M.selection = {
   limit = 24,
   covered = {{"br"}, {"teams"}, {"bc"}, {"kstages"}, {"waves"}, {"q"}},
   -- The model sees little difference between q=smem and q=reg, and between pipelines.
   crowds = {
      {axes = {"br", "teams"}, most = 5},
      {axes = {"br", "warps", "teams", "bc", "kstages"}, most = 1},
   },
}

-- Returns typical sizes: decode with a short and a long cache; decode with fewer and with more key heads than SMs, or
-- several new tokens at once; a chunk of a long prefill; short prefill.
function M.typical(arch)
   local few = arch.sm_count * 5 // 8
   return {{32, 8, 1, 4096}, {32, 8, 1, 65536}, {few, few, 1, 4096}, {4 * arch.sm_count, arch.sm_count, 1, 4096},
           {64, 8, 8, 8192}, {16, 16, 128, 16384}, {8, 8, 512, 512}, {8, 8, 1024, 1024}}
end

-- Returns the rows of the packed matrix.
local function row_count(problem)
   return problem.seq_q * (problem.heads_q // problem.heads_kv)
end

-- Splitting keys is worth trying in three cases. Few rows: packing heads reads K and V once. Few queries of many heads:
-- rows of plain blocks would be empty. Few blocks: plain families leave SMs idle.
function M.useless(problem, arch)
   local plain_blocks = (problem.seq_q + 63) // 64 * problem.heads_q * problem.batch
   return row_count(problem) > 64 and problem.seq_q > 8 and plain_blocks >= 2 * arch.sm_count
      and "the card has enough blocks without splitting keys"
end

-- Br = 32 suits any problem: if registers are short, no smaller block may be legal.
function M.unsuited(v, problem, arch)
   local splits, keys = cost.splits(v, problem, arch, v.waves)
   if v.br > 32 and v.br >= 2 * row_count(problem) then
      return "half of a block's rows would be empty"
   elseif v.teams > (keys + v.bc - 1) // v.bc then
      return "there are fewer tiles than teams"
   end
   for _, fewer in ipairs(lengths.has(v) and {} or waves) do
      if fewer < v.waves and cost.splits(v, problem, arch, fewer) == splits then
         return "fewer waves split the keys alike"
      end
   end
end

function M.recipe(recipe, v)
   recipe.pack, recipe.waves, recipe.splits = 1, v.waves, M.names.max_splits
   recipe.workspace = "partials"
   recipe.steps[2] = {role = "combine", threads = 32 * combine_rows, early = 1, blocks = "rows/" .. combine_rows}
end

M.cost = cost.forward

return M
