-- int8: Q K^T in 8-bit integers, where the problem permits it (scores=int8). A step before attention rounds K
-- (templates/forward/quantise.cuh); the main step rounds Q.
local elements = require("core.elements")
local features = require("features.list")
local lengths = require("features.lengths")
local precision = require("features.precision")
local window = require("features.window")

local M = {}

M.axis = {
   name = "qk", values = {"exact", "int8"}, quiet = true,
   unless = function(v, path)
      if v.qk == "exact" then
         return nil
      end
      return v.scores ~= "int8" and "the problem does not permit 8-bit scores"
         or (v.q ~= "reg" or v.parts > 1) and "8-bit scores need whole rows of Q in registers"
         or v.v_in_k == 1 and "V in K has 16 bits"
         or path.register_staging and (v.d > 224 or v.d > 128 and v.kstages > 1)
            and "such rows spill when tiles pass through registers" -- 24 to 48 bytes at D = 192 and 256
         or v.kv ~= "dtype" and "K is in 8 bits already"
         or v.append == 1 and "append has no step that rounds K"
   end,
}

-- About how many keys a block of the step rounds.
local keys_of_block = 256

function M.is_on(v)
   return v.qk == "int8"
end

-- Returns the columns of rows of K in shared memory, as if they were elements. 8-bit rows are whole k32 steps.
function M.key_columns(v, padded)
   return M.is_on(v) and (v.d + 31) // 32 * 32 // elements.bytes(v) or padded
end

-- Returns true if scores are scaled by the softmax (templates/forward/step.cuh): nothing else is done to them.
local function is_scaled_in_softmax(v)
   return features.modifiers(v) == 0
end

-- Returns the instructions for each score besides those of exact scores.
function M.fp32_per_score(v)
   return M.is_on(v) and not is_scaled_in_softmax(v) and 1 or 0
end

-- Returns the registers by which the estimate is too high: with two row tiles and few keys, 20 kernels with D = 96 and
-- 128 were compiled for sm_80 to sm_89, and do not spill.
local function unneeded(v, row_tiles)
   return row_tiles == 2 and v.bc <= 32 and v.bias == "none" and 18 or 0
end

-- Returns the registers besides rows of Q. A row tile has two scales and two factors of scores for each group of keys;
-- and two products with the mean key, unless they lie in shared memory.
function M.registers(v, row_tiles)
   return (is_scaled_in_softmax(v) and 4 or 6) * row_tiles + 6 - unneeded(v, row_tiles)
end

-- How many registers too many a variant may have. The model's choices for sm_75 to sm_89 with D = 64 to 256 were
-- compiled: with up to 8 too many they spill 4 bytes at most.
M.tolerated = 8

-- Returns the threads of such a block. A thread keeps up to 4 times 16 bytes, or 8 with very large tiles. If V is
-- rounded, too, they read 16 or 32 rows at a time, because a scale is of 32 keys.
local function threads_of_block(v)
   if precision.rounds_values(v) then
      local parts = M.key_columns(v) * elements.bytes(v) // 8 -- of a row, eight columns of a thread each
      return (parts * (parts <= 16 and 32 or 16) + 127) // 128 * 128
   end
   return v.bc * M.key_columns(v) > 4096 and 512 or 256
end

local function tiles_of_block(v)
   return math.max((precision.rounds_values(v) and 2 or 1) * keys_of_block // v.bc, 1)
end

-- Returns us of the step: a launch, and the bytes that it reads and writes.
function M.us(v, problem, arch)
   if not M.is_on(v) then
      return 0
   end
   local rows = lengths.sum_of_parts(problem, function(part)
      return part.heads_kv * part.batch * window.seen_keys(part)
   end)
   local tensors = precision.rounds_values(v) and 2 or 1
   return arch.launch_us + tensors * rows * elements.bytes(v) * (v.d + M.key_columns(v)) / arch.dram
end

-- Adds the step and its workspace to a recipe. The main step begins early: its blocks wait for that step.
-- workspace: its word; nil: int8_keys.
function M.recipe(recipe, v, workspace)
   if not M.is_on(v) then
      return
   end
   local tiles = tiles_of_block(v)
   local blocks = "head_tiles" .. (tiles > 1 and "/" .. tiles or "")
   table.insert(recipe.steps, 1, {role = "quantise", threads = threads_of_block(v), blocks = blocks})
   recipe.steps[2].early = 1
   recipe.workspace = workspace or "int8_keys"
end

-- Returns what the templates see.
function M.names(v)
   if not M.is_on(v) then
      return {int8 = false, quant_threads = 0, quant_tiles = 0}
   end
   return {int8 = true, quant_threads = threads_of_block(v), quant_tiles = tiles_of_block(v)}
end

return M
