-- The kind of forward family that divides the keys, for few query rows or few blocks: the query
-- heads of a group are rows of one matrix, `teams` groups of warps each visit every teams-th tile,
-- and so many blocks divide the tiles that about `waves` come to each SM. What the fields mean:
-- forward.lua.
local cost = require("ops.forward_splitkv_cost")

local M = {split = true}

M.keys = {
   {name = "d", integer = true}, {name = "dtype", one_of = {"fp16", "bf16"}},
   {name = "causal", integer = true}, {name = "br", integer = true}, {name = "bc", integer = true},
   {name = "warps", integer = true}, {name = "teams", integer = true},
   {name = "kstages", integer = true}, {name = "vstages", integer = true},
   {name = "waves", integer = true}, {name = "layout", one_of = {"swizzle"}},
   {name = "q", one_of = {"smem", "reg"}},
}

-- Br with the m16 row tiles of a warp.
local shapes = {{16, 1}, {32, 1}, {32, 2}, {64, 1}, {64, 2}}
local teams = {1, 2, 4, 8}
local bcs = {16, 32, 64}
local waves = {1, 2, 4}
local most_warps = 16

M.class = {
   limit = 24,
   axes = {{"br"}, {"teams"}, {"bc"}, {"kstages"}, {"waves"}, {"q"}},
   -- The model sees little difference between q=smem and q=reg, and between pipelines.
   crowds = {
      {axis = {"br", "teams"}, most = 5},
      {axis = {"br", "warps", "teams", "bc", "kstages"}, most = 1},
   },
}

-- Decode with a short and a long cache, with too few and too many key heads to give each SM one,
-- several new tokens at once, and short prefill.
function M.class.typical(arch)
   local list = {}
   for _, size in ipairs({{32, 8, 1, 4096}, {32, 8, 1, 65536},
                          {arch.sm_count * 5 // 8, arch.sm_count * 5 // 8, 1, 4096},
                          {4 * arch.sm_count, arch.sm_count, 1, 4096}, {64, 8, 8, 8192},
                          {8, 8, 512, 512}, {8, 8, 1024, 1024}}) do
      list[#list + 1] = {
         batch = 1, heads_q = size[1], heads_kv = size[2], seq_q = size[3], seq_k = size[4],
      }
   end
   return list
end

local function each_block(add)
   for _, shape in ipairs(shapes) do
      for _, team_count in ipairs(teams) do
         local warps = shape[1] * team_count // (16 * shape[2])
         if warps <= most_warps then
            add(shape[1], team_count, warps)
         end
      end
   end
end

function M.each_point(path, add)
   each_block(function(br, team_count, warps)
      for _, bc in ipairs(bcs) do
         for _, pipeline in ipairs(path.pipelines) do
            for _, wave_count in ipairs(pipeline[1] == pipeline[2] and waves or {}) do
               for _, q in ipairs({"smem", "reg"}) do
                  add({br = br, warps = warps, teams = team_count, bc = bc, kstages = pipeline[1],
                       vstages = pipeline[2], waves = wave_count, layout = "swizzle", q = q})
               end
            end
         end
      end
   end)
end

local function is_one_of(value, list)
   for _, allowed in ipairs(list) do
      if value == allowed then
         return true
      end
   end
   return false
end

function M.check(v)
   local has_block = false
   each_block(function(br, team_count, warps)
      has_block = has_block or v.br == br and v.teams == team_count and v.warps == warps
   end)
   if not is_one_of(v.bc, bcs) then
      return nil, "bc is none of " .. table.concat(bcs, ", ")
   elseif not is_one_of(v.waves, waves) then
      return nil, "waves is none of " .. table.concat(waves, ", ")
   elseif v.kstages ~= v.vstages then
      return nil, "kstages and vstages differ"
   elseif not has_block then
      return nil, "no such br, warps and teams"
   end
   return true
end

-- Rows of the packed matrix.
local function row_count(problem)
   return problem.seq_q * (problem.heads_q // problem.heads_kv)
end

-- Few rows: packing heads reads K and V once. Few blocks: the plain families leave SMs idle.
function M.serves(problem, arch)
   local plain_blocks = (problem.seq_q + 63) // 64 * problem.heads_q * problem.batch
   if row_count(problem) <= 64 or plain_blocks < 2 * arch.sm_count then
      return true
   end
   return nil, "the card has enough blocks without splitting keys"
end

-- Br = 32 suits any problem: where registers are short, no smaller block may be legal.
function M.suits(v, problem, arch)
   if v.br > 32 and v.br >= 2 * row_count(problem) then
      return nil, "half of a block's rows would be empty"
   elseif v.teams > (problem.seq_k + v.bc - 1) // v.bc then
      return nil, "there are fewer tiles than teams"
   end
   for _, fewer in ipairs(waves) do
      if fewer < v.waves and cost.splits(v, problem, arch, fewer)
         == cost.splits(v, problem, arch, v.waves) then
         return nil, "fewer waves split the keys alike"
      end
   end
   return true
end

M.cost = cost.forward

return M
