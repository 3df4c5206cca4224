-- The backward families: a block has Bc keys and loops over queries in tiles of Br. The axes:
--   warps, qwarps   S^T is divided among (warps / qwarps) x qwarps warps, keys by queries; dK and dV likewise, keys by
--                   columns. dQ is divided by rows and columns so that the fewest fragments are read
--   parts           parts of a warp's queries in a tile; one part is in registers at a time
--   stages          tiles of Q and dO in shared memory
--   barriers        barriers per tile; with one barrier, one more stage is needed
--   order           dV is added to before dP^T is computed (early) or after it (late)
--   dq=atomic       dQ is summed by fp32 additions in memory. If deterministic=1, blocks add to a tile of dQ in a fixed
--                   order (dq_order.cuh)
--   dq=separate     separate query blocks, with tiles of dqbc keys, compute S and dP again. They sum dQ in one order,
--                   so that every launch gives the same bits
--   dq=block        a block has all keys of a head, one tile after the other, so that no other block adds to its dQ. If
--                   the keys are one tile, nothing is added at all. It is for short sequences of many heads
--                   (dq_block.cuh)
--   rows            LSE and delta of a row are computed by a prepare step (prepared) or by each block (computed: one
--                   launch, no workspace)
--   layout          rows of tiles are swizzled, or padded, which takes more memory and fewer registers. Padded is 1 to
--                   3 % slower on an H200. On Turing, where fills take many registers, it avoids spills
--   split           1: for few blocks. Several blocks share the queries of a tile of keys, and a combine step sums
--                   their parts of dK and dV in one order (split.cuh)
--
-- A family is this scheme on a code path (paths/mma_sync.lua).
local axes = require("ops.backward_axes")
local axes_of = require("core.axes")
local block = require("ops.backward_block")
local columns = require("features.columns")
local cost = require("ops.backward_cost")
local elements = require("core.elements")
local families = require("core.family")
local features = require("features.list")
local partial = require("features.partial")
local window = require("features.window")

local M = {}

local prepare_threads, convert_rows = 256, 32

local function unfit(v, path, arch)
   local facts = block.facts(v, path, 0)
   return facts.spilled > 0 and ("about %d registers too many"):format(facts.spilled)
      or cost.resident_blocks(facts, arch) < 1 and "an SM cannot hold a block"
end

-- The model is least sure how warps should divide the tiles. It sees little difference between orders and pipelines,
-- and none between ways to sum dQ that add alike.
local selection = {
   limit = 50,
   alike = function(v) -- the model does not know the order
      return (v.text:gsub(" order=%l+", ""))
   end,
   covered = {{"br", "parts"}, {"bc", "warps", "qwarps"}, {"stages", "barriers"}, {"order"},
              {"dq", "rows"}, {"dq", "bc"}, {"layout"}, {"split", "dq"}, {"split", "bc"}},
   crowds = {
      {axes = {"bc", "warps", "qwarps"}, most = 10},
      {axes = {"br", "bc", "warps", "qwarps", "parts"}, most = 6},
      {axes = {"dq", "rows"}, value = "dq=separate rows=prepared", most = 4},
      {axes = {"dq", "rows"}, value = "dq=separate rows=computed", most = 10},
      {axes = {"dq"}, value = "dq=block", most = 6},
      {axes = {"split"}, value = "split=1", most = 6},
   },
}

-- Returns long sequences that fill the card, ordinary ones, short ones, and too few blocks for the card.
function M.typical(problem, arch)
   local list = {}
   for _, size in ipairs({{arch.sm_count, 4096}, {2 * arch.sm_count, 512}, {64, 256}, {32, 128},
                          {8, 512}, {1, 512}, {4 * arch.sm_count, 128}, {8, 4096, 1}}) do
      if problem.window == 0 or size[2] > 256 then  -- a window leaves little of shorter ones
         list[#list + 1] = {size[1], size[3] or size[1], size[2], size[2]}
      end
   end
   return window.typical(list, problem)
end

-- dq=block suits only problems whose keys are one tile of it, and split=1 only problems with few blocks.
local function unsuited(v, problem, arch)
   return v.split == 1 and cost.splits(v, problem, arch) == 1 and "there are blocks enough"
      or v.dq == "block" and (problem.seq_k > v.bc or 2 * problem.seq_k <= v.bc)
         and "a head's keys are no tile of these"
end

-- Returns how many lanes share a row in the prepare step: a power of two.
local function row_lanes(d)
   local lanes = 1
   while lanes < d // 8 do
      lanes = 2 * lanes
   end
   return lanes
end

function M.adds_dq_in_order(v)
   return v.deterministic == 1 and v.dq == "atomic"
end

local main_blocks = {atomic = "key_tiles", separate = "key_and_query_tiles", block = "key_heads"}

-- Computes LSE and delta, and fills dQ with zeros.
local function prepare_step(v)
   local blocks = "padded_rows/" .. prepare_threads // row_lanes(columns.of(v))
   return {role = "prepare", threads = prepare_threads, blocks = blocks}
end

-- Sums dK and dV of blocks that share queries.
function M.combine_step(threads, smem)
   return {role = "combine", threads = threads, smem = smem, blocks = "key_tile_sums"}
end

-- Converts dQ to its type. width: columns of a row of sums. The rows of a block are of one sequence.
function M.convert_step(v, width)
   local blocks = (v.varlen == 1 and "query_tiles/" or "padded_rows/") .. convert_rows
   return {role = "convert", threads = math.min(2 * width, 256), blocks = blocks}
end

-- Returns the steps before the main one.
function M.first_steps(v)
   local steps = {}
   if v.rows ~= "computed" then
      steps[1] = prepare_step(v)
   end
   features.add_backward_steps(steps, v)
   return steps
end

local function recipe(v)
   local steps = M.first_steps(v)
   steps[#steps + 1] = {
      role = "main", threads = 32 * v.warps,
      blocks = main_blocks[v.dq] .. (v.dq == "separate" and "/" .. 16 * v.warps or ""),
   }
   if v.split == 1 then
      local pitch = elements.bytes(v) * (block.padded(v) + (v.layout == "pad" and 8 or 0))
      steps[#steps + 1] = M.combine_step(32 * v.warps, v.bc * pitch)
   end
   if v.dq ~= "separate" then
      steps[#steps + 1] = M.convert_step(v, (block.padded(v)))
   end
   return {
      op = "backward", rows = v.br, keys = v.bc,
      waves = v.split == 1 and cost.waves or nil, splits = v.split == 1 and cost.most_splits or nil,
      workspace = M.adds_dq_in_order(v) and "rows_dq_and_turns" or v.dq == "atomic" and "rows_and_dq"
         or v.dq == "block" and "dq_of_tiles" or v.rows == "prepared" and "rows" or nil,
      columns = (v.dq ~= "separate" or v.split == 1) and (block.padded(v)) or nil, steps = steps,
   }
end

-- Adds to `names` what the templates of all backward families see, and returns it. The caller adds `prepared`.
function M.shared_names(v, names)
   names.convert_rows = convert_rows
   local split = v.split or 0
   names.columns, names.split, names.split_by = columns.of(v), split > 0, split
   return axes_of.add_names(names, features.names(v, "backward"), window.names(v), partial.names(v))
end

function M.family(name, path)
   return families.new({
      name = name, op = "backward", template = "backward/" .. name .. ".cu.in", path = path,
      axes = axes, selection = selection, typical = M.typical,
      smem_bytes = block.smem_bytes, unfit = unfit, unsuited = unsuited, recipe = recipe,

      cost = function(v, problem, arch, registers)
         return cost.backward(v, block.facts(v, path, registers), problem, arch)
      end,

      names = function(v)
         local _, later, dq_parts = block.live_registers(v, path)
         return M.shared_names(v, {
            rwarps = block.row_warps(v), fill_later = later == true,
            dq_order = M.adds_dq_in_order(v) and 1 or 0, dq_parts = dq_parts, prepared = v.rows == "prepared",
            writers = 32 * v.warps, dq_transposed = false,
         })
      end,
   })
end

return M
