-- append: a step before attention writes new keys and values into the cache (templates/forward/append.cuh; into a cache
-- in 8 bits: kv8_append.cuh). rotary: that step rotates the new keys and Q, and writes Q to the workspace.
local kv8 = require("features.kv8")
local lengths = require("features.lengths")

local M = {}

M.forward_only = true
M.axis = {name = "append", says = "new keys are written into K and V first"}
M.rotary = {forward_only = true, axis = {name = "rotary", values = {"none", "halves", "interleaved"}}}

-- The number of columns that are rotated.
M.rotary_dim = {forward_only = true, axis = {name = "rotary_dim"}}

-- Threads of a block of that step.
local threads = 256

local function is_rotary(v)
   return v.rotary ~= "none"
end

-- Returns us of that step, for as many new keys as queries: a launch, and the bytes that it reads and writes.
function M.us(v, problem, arch)
   if v.append ~= 1 then
      return 0
   end
   local tensors = v.v_in_k == 1 and 1 or 2
   local heads = tensors * problem.heads_kv + (is_rotary(v) and problem.heads_q or 0)
   local rows = lengths.rows(problem, problem.seq_q, problem.total_q)
   local bytes = 4 * problem.head_dim * heads * rows
   return arch.launch_us + bytes / arch.dram
end

-- Adds that step and its workspace to a recipe.
function M.recipe(recipe, v)
   if v.append ~= 1 then
      return
   end
   local blocks = "new_rows/" .. (kv8.is_on(v) and threads // 32 or threads * 8 // v.d)
   table.insert(recipe.steps, 1, {role = "prepare", threads = threads, blocks = blocks})
   if is_rotary(v) then
      recipe.workspace = recipe.workspace and recipe.workspace .. "_and_queries" or "queries"
   end
end

return M
