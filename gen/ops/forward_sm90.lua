-- fwd_sm90: the forward family on wgmma and TMA (templates/hopper).
--
-- A block has `groups` warpgroups of 64 query rows each, and one warpgroup that loads. Shared memory has `stages` tiles
-- of Bc rows of K, and as many of V. The axes:
--   pingpong    1: ping-pong, the warpgroups start their products one after the other
--   persistent  0: a block computes one row tile. 1, 2: there are only as many blocks as the card holds, and each
--               computes several row tiles. It loads the next one while it writes O. 1: the tiles are divided in
--               advance. 2: a block that is free takes the next tile
--   order       heads: row tiles of a head are neighbours. weight: row tiles that see the most keys come first, within
--               a section of heads whose K and V fit into L2
--   pack        1: the query heads that share a key head are rows of one matrix, as in forward_splitkv.lua
--   alibi_mma   1: a term's part that depends on the column is a step of Q K^T (templates/hopper/slopes.cuh)
--   bias_in_accumulator
--               1: S begins as a bias in 16 bits, and the product is added to it. 0: the bias is added to the product
--
-- If speculates(v), P of tiles without a mask is computed with a speculative maximum, the row's maximum so far. It is
-- computed again if that was too small (templates/hopper/speculative_max.cuh).
local axes_of = require("core.axes")
local bias = require("features.bias")
local cost = require("ops.forward_sm90_cost")
local dropout = require("features.dropout")
local elements = require("core.elements")
local families = require("core.family")
local features = require("features.list")
local fwd = require("ops.forward")
local lengths = require("features.lengths")
local partial = require("features.partial")
local paths = require("paths.wgmma")
local plain = require("ops.forward_plain")
local plain_cost = require("ops.forward_plain_cost")
local space = require("ops.forward_sm90_axes")
local window = require("features.window")

local M = {name = "fwd_sm90"}

-- Limits of registers, by the number of warpgroups that compute:
--   load, group   registers of a thread that loads, and of one that computes
--   resident      blocks that share an SM
--   most          registers of S, P and O in a thread; with more, ptxas spills
--   keyed_most    the same with dropout
--   columns       columns of O or of S; with more, one wgmma names more registers than a thread has when the block
--                 begins
--   counted       registers that a loading thread has in addition if work is taken by a counter or a bias is copied.
--                 The computing warpgroups give them up in equal parts
local register_shares = {
   {load = 24, group = 232, resident = 2, most = 192, columns = 128, counted = 8, keyed_most = 166},
   {load = 24, group = 240, resident = 1, most = 208, columns = 256, counted = 16, keyed_most = 210},
   {load = 32, group = 160, resident = 1, most = 128, columns = 128, counted = 0, keyed_most = 146},
}

-- fp32 instructions per score for dropout. The keys of columns are computed before, and masks during the product S.
local by_keys = 0.9

-- Columns whose keys one block of the preparing step computes.
local keys_of_block = 256

-- fp32 instructions per score for a bias in shared memory: a conversion, the addition, a share of the loads.
local by_words = 2.3

-- How many of these are saved. in_accumulator_less: if S begins as the bias. beside_less, by warpgroups: if D >=
-- beside_columns, because the product then takes as long as reading the bias. It is also subtracted with dropout, which
-- does not read the bias early: two problems of D = 128 took 296 and 610 us. The model says 293 and 627; without it 338
-- and 714.
local in_accumulator_less, beside_less, beside_columns = 1.2, {1.3, 2.3, 1.4}, 128

local function words_cost(v)
   if v.bias_in_accumulator == 1 then
      return by_words - in_accumulator_less
   end
   return by_words - (v.d >= beside_columns and beside_less[v.groups] or 0)
end

-- A head with this many row tiles fills them as well with its own rows as several heads do, and hardly sees more keys.
local own_tiles = 8

-- Pages of 64 columns in a row of a tile.
local function pages(v)
   return (v.d + 63) // 64
end

-- Bytes for the index of the next work tile, which warpgroups read.
local function number_bytes(v)
   return v.persistent == 2 and 4 * v.groups or 0
end

-- Bytes of a warpgroup's tile of a 16-bit bias, and of the tile's two barriers.
local function side_bytes(v)
   if not bias.is_ahead(v) then
      return 0
   end
   return 64 * 2 * v.bc + 16
end

-- Bytes of the keys of columns for dropout, one tile for each tile of K.
local function key_bytes(v)
   return v.dropout * v.stages * 8 * v.bc
end

-- Bytes of shared memory. rows: rows of Q, K and V, and of O. side_stages: tiles of a bias for each warpgroup.
local function bytes_of(v, rows, side_stages)
   return pages(v) * 128 * rows + 8 * (2 * v.groups + 4 * v.stages) + side_stages * v.groups * side_bytes(v)
      + number_bytes(v) + 32 * v.bc * v.alibi_mma + key_bytes(v)
end

local function rows_read(v)
   return 64 * v.groups + 2 * v.stages * v.bc
end

-- Bytes of shared memory of an SM 9.0, the only one that runs this family, and those that the system takes for each
-- block (arch.lua).
local smem_sm, smem_reserved = 233472, 1024

local function resident_with(v, rows, side_stages)
   return math.min(register_shares[v.groups].resident, smem_sm // (bytes_of(v, rows, side_stages) + smem_reserved))
end

local function resident(v)
   return math.max(resident_with(v, rows_read(v), 1), 1)
end

-- Returns true if O of a persistent block has its own place in shared memory, so that the next Q is loaded early. It
-- has one if the SM then still holds as many blocks.
local function has_own_place(v)
   return v.persistent > 0 and resident_with(v, rows_read(v) + 64 * v.groups, 1) >= resident(v)
end

local function rows_held(v)
   return rows_read(v) + (has_own_place(v) and 64 * v.groups or 0)
end

-- Tiles of a bias for each warpgroup: as many as of K if there is room, else one. With one, its next tile is loaded
-- only after this one was added to the scores. If scores begin as the bias, that is only after P is right.
local function side_stages(v)
   return resident_with(v, rows_held(v), v.stages) >= resident(v) and v.stages or 1
end

local function smem_bytes(v)
   return bytes_of(v, rows_held(v), side_stages(v))
end

-- Returns true if TMA stores O, so that its warps do not wait. Persistent blocks do if the SM holds one of them: 2 %
-- faster than stores by lanes. With two blocks on an SM it is 3 % slower, and without persistent blocks the same. O
-- that is fp32 or merged goes from registers to memory.
local function stores_by_map(v)
   return v.persistent > 0 and v.groups > 1 and not partial.from_registers(v)
end

-- An fp32 bias is read where it is added. ptxas reads this share of a thread's values at once.
local read_ahead = 5 / 4

-- Dropout has two forms. With small D, its work on P is done while the next S is computed. With larger D, the factors
-- of P are computed during the product S before it. They are kept until P is there, if O leaves registers for them.
local function drops_beside(v)
   return v.dropout == 1 and v.d <= 64
end

local function keeps_early(v)
   return v.dropout == 1 and v.d > 64 and v.d <= 192
end

-- Registers for dropout: the factors that are kept, or several words at once.
local function words_of_masks(v)
   return keeps_early(v) and v.bc // 4 or drops_beside(v) and 16 or 0
end

-- The most columns of O for which P is computed with a speculative maximum (templates/hopper/speculative_max.cuh).
-- Kernels whose scores begin as a bias have no limit.
local speculative_columns = 64

-- Returns true if P of tiles without a mask is computed with a speculative maximum. It is not if a bias is added after
-- the product: the place of a 16-bit bias was released by then, and an fp32 bias would be read twice. It is not if
-- another term is added after the product, because it leaves no registers.
local function speculates(v)
   local in_product = v.bias == "none" and features.terms(v) == v.alibi_mma
   return v.bias_in_accumulator == 1 or v.d <= speculative_columns and in_product
end

-- Returns true if a bias in shared memory is read during the product that it is added to. With dropout it is not,
-- because dropout's work is done there.
local function reads_early(v)
   return bias.is_ahead(v) and v.bias_in_accumulator == 0 and v.dropout == 0
end

-- Registers for a bias in shared memory: all its words if it is read early, and their addresses. With three warpgroups
-- ptxas finds room for the addresses.
local function words_of(v)
   if reads_early(v) then
      return v.bc // 4 + (v.groups < 3 and 4 or 0)
   end
   return bias.is_ahead(v) and v.bias_in_accumulator == 0 and 8 or 0
end

-- Registers of a thread for S, P and O, and for what features keep.
local function live_registers(v)
   local staged = bias.is_ahead(v) and bias.registers(1, v) or 0 -- the bias is in shared memory instead
   local read = v.bias == "fp32" and v.bc // 2 * read_ahead or 0
   return v.bc // 2 + v.bc // 4 + v.d // 2 + words_of(v) + read + words_of_masks(v)
      + features.wgmma_registers(v) - staged
end

-- Returns false if a bias in shared memory leaves too few registers. With D > 208 only persistent blocks have enough;
-- with D > 224 only those with persistent=1 and pingpong=0. Measured with 84 kernels, D = 216 to 256: none of the
-- accepted ones spills, and 32 of the 44 others spill 8 to 204 bytes. With three warpgroups and dropout, none spills up
-- to D = 64; 12 of 20 spill 8 to 96 bytes with D = 80 to 128.
local function leaves_registers(v)
   if v.groups == 3 and v.dropout == 1 and bias.is_ahead(v) then
      return v.d <= 64
   elseif not bias.is_ahead(v) or v.d <= 208 then
      return true
   end
   return v.persistent > 0 and (v.d <= 224 or v.persistent == 1 and v.pingpong == 0)
end

local function most_registers(v)
   return register_shares[v.groups][v.dropout == 1 and "keyed_most" or "most"]
end

local function unfit(v)
   return (live_registers(v) > most_registers(v) or math.max(v.d, v.bc) > register_shares[v.groups].columns
           or not leaves_registers(v)) and "S, P and O need too many registers"
      or v.dropout == 1 and v.bc % 32 > 0 and "keys of dropout's columns are read for 32 of them"
end

-- Returns what the cost model needs. v keeps it, because the model is asked about many problems.
local function facts_of(v)
   if v.facts then
      return v.facts
   end
   local fp32, ex2 = features.work_per_score(v, v.bc, "forward")
   v.facts = {
      br = 64 * v.groups, queries = 64 * v.groups, heads_together = 1,
      resident = resident(v), own_place = has_own_place(v),
      d_pad = (v.d + 15) // 16 * 16, dv_pad = v.d, smem_bytes = smem_bytes(v),
      bytes_per_score = features.bytes_per_score(v),
      staged = bias.is_ahead(v) and 1 or 0, speculates = speculates(v) and 1 or 0,
      ex2_per_score = ex2,
      more_fp32_per_score = fp32 - v.alibi_mma
         + v.dropout * (by_keys - dropout.fp32_per_score(v, v.bc))
         + (bias.is_ahead(v) and words_cost(v) - bias.fp32_per_score(v, v.bc) or 0),
   }
   return v.facts
end

-- Adds names for templates/hopper/wgmma_lists.cu.in: the element, and the columns of products, each number once.
function M.add_product_names(names, v, columns)
   local seen, list, most = {}, {}, 0
   for _, count in ipairs(columns) do
      if not seen[count] then
         seen[count], list[#list + 1], most = true, {macro = "FA2I_WGMMA", columns = count}, math.max(most, count)
      end
   end
   names.element, names.products_of, names.most_columns = elements.ptx(v), list, most
   return names
end

-- Returns what the templates of both forward families on wgmma see. scored: keys of a tile that a warpgroup multiplies
-- by Q. out: columns of its O.
function M.shared_names(v, scored, out)
   local names = fwd.shared_names(v)
   names.wide = false -- rows of a tile are in the order in which TMA loads them
   M.add_product_names(names, v, {scored, out})
   return names
end

function M.names(v)
   local names = M.shared_names(v, v.bc, v.d)
   names.speculates = speculates(v)
   names.rounded = false
   names.bias_in_accumulator, names.alibi_mma = v.bias_in_accumulator == 1, v.alibi_mma == 1
   names.packed_heads = v.pack == 1
   names.own_place, names.side_stages = has_own_place(v), side_stages(v)
   names.staged = bias.is_ahead(v)
   names.dropout_form = drops_beside(v) and "beside" or keeps_early(v) and "early" or "none"
   local share = register_shares[v.groups]
   local counted = (v.persistent == 2 or bias.is_ahead(v)) and share.counted or 0
   names.load_registers, names.group_registers = share.load + counted, share.group - counted // v.groups
   return names
end

-- Returns the word for the blocks of the launch. A divisor of 1 is left out.
local function blocks(v)
   if v.persistent == 0 then
      return "row_tiles"
   end
   return "resident_row_tiles" .. (resident(v) > 1 and "/" .. resident(v) or "")
end

-- Returns the word for the workspace, and the step that fills it; nil if the workspace is empty.
local function prepared(v)
   if v.dropout == 1 then
      return "column_keys", {role = "prepare", threads = keys_of_block // 2, blocks = "keys/" .. keys_of_block}
   elseif v.persistent == 2 then
      return "counter", {role = "prepare", threads = 32, blocks = "one"}
   end
end

local function recipe(v)
   local workspace, before = prepared(v)
   local steps = {before}
   steps[#steps + 1] = {role = "main", threads = 128 * (v.groups + 1), blocks = blocks(v)}
   return {
      op = "forward", rows = 64 * v.groups, keys = v.bc,
      pack = v.pack == 1 and 1 or nil, suffix = "a",
      maps = string.format("%sk/%d,v/%d%s%s", v.pack == 0 and "q/64," or "", v.bc, v.bc,
                           stores_by_map(v) and ",o/16" or "", bias.is_ahead(v) and ",bias/64" or ""),
      workspace = workspace, steps = steps,
   }
end

local function typical(problem, arch)
   local shapes = plain.typical(arch)
   for _, shape in ipairs(shapes) do
      shape[1], shape[2] = shape[1] * 3 // 4, shape[2] * 3 // 4
   end
   return window.typical(shapes, problem)
end

local function useless(problem, arch)
   return paths.useless(arch) or problem.seq_q * (problem.heads_q // problem.heads_kv) < 64
      and "fewer query rows than one warpgroup computes"
end

local function unsuited(v, problem)
   local heads = v.pack == 1 and problem.heads_q // problem.heads_kv or 1
   local rows = problem.seq_q * heads
   return v.pack == 1 and heads == 1 and "each query head has keys of its own"
      or v.pack == 1 and problem.seq_q >= own_tiles * 64 * v.groups and "a query head has rows enough"
      or rows < 64 and "fewer query rows than one warpgroup computes"
      or v.groups > 1 and v.groups > (rows + 63) // 64 and "a warpgroup would have no rows"
end

-- The problem whose query heads are packed into rows.
local packed = plain_cost.of_problem(function(problem)
   return axes_of.add_names({}, problem, {heads_q = problem.heads_kv})
end)

local function cost_us(v, problem, arch)
   local facts = facts_of(v)
   if v.pack == 1 then -- a row tile has fewer queries, but of all heads that share keys
      facts.heads_together = problem.heads_q // problem.heads_kv
      facts.queries = math.max(facts.br // facts.heads_together, 1)
      problem = packed(problem)
   end
   return lengths.sum_of_parts(problem, function(part) return cost.us(v, facts, part, arch) end)
end

function M.family()
   return families.new({
      name = M.name, op = "forward", template = "hopper/fwd_sm90.cu.in", path = paths.sm90,
      axes = space.all, selection = space.selection, recipe = recipe, names = M.names, typical = typical,
      smem_bytes = smem_bytes, unfit = unfit, useless = useless, unsuited = unsuited, cost = cost_us,
   })
end

return M
