-- The backward families of fp32 elements (templates/fp32/bwd.cuh). A block has Bc keys and loops over queries in tiles
-- of Br. It adds to dQ in memory; if deterministic=1, in a fixed order (templates/backward/dq_order.cuh). The axes:
--   product   ffma: FMA instructions. tf32: three products of TF32 on tensor cores, which sm_75 lacks
--   warps, qwarps   S^T is divided among (warps / qwarps) x qwarps warps, keys by queries; dK and dV likewise, keys by
--                   columns. dQ is divided by columns and rows
local backward_cost = require("ops.backward_cost")
local bias = require("features.bias")
local bwd = require("ops.backward")
local columns = require("features.columns")
local families = require("core.family")
local features = require("features.list")
local fp32 = require("ops.fp32")
local kinds = require("ops.kinds")
local lengths = require("features.lengths")
local partial = require("features.partial")
local plain_cost = require("ops.forward_plain_cost")

local M = {}

-- Columns of dK, dV and dQ that a warp has at a time.
local group_columns = 32

-- Returns how many warps divide the columns of dQ, as in templates/fp32/bwd_shape.cuh.
local function dq_column_warps(v)
   local count = v.warps
   while count > 1 and v.d <= group_columns * (count // 2) do
      count = count // 2
   end
   return count
end

local function groups(column_count, warps)
   return (column_count + group_columns * warps - 1) // (group_columns * warps)
end

-- Returns what each warp has.
local function shares(v)
   local col_warps = dq_column_warps(v)
   return {
      key_tiles = v.bc * v.qwarps // (16 * v.warps), query_tiles = math.max(v.br // (8 * v.qwarps), 1),
      out_groups = groups(v.d, v.qwarps), value_groups = groups(columns.of(v), v.qwarps),
      dq_rows = v.br * col_warps // v.warps, dq_groups = groups(v.d, col_warps), col_warps = col_warps,
   }
end

local function cuts_keys(v)
   local key_warps = v.warps // v.qwarps
   return (v.warps % v.qwarps ~= 0 or v.bc % (16 * key_warps) ~= 0)
      and "bc does not give each warp whole m16 tiles of keys"
      or v.bc > 64 * key_warps and "a warp would have more than four m16 tiles of keys"
end

-- On SMs with little shared memory, tiles of long rows have so few queries that some warps have none of S^T.
local function cuts_queries(v, path)
   local unit = v.product == "tf32" and 16 or 8
   local few = path.register_staging and v.d > 128 and v.br < 8 * v.qwarps
   return v.br % (unit * v.qwarps) ~= 0 and not few and "br does not give each warp whole tiles of queries"
      or v.br > 64 * v.qwarps and "more than eight n8 tiles of queries only take registers"
      or v.br * dq_column_warps(v) % (v.warps * (v.product == "tf32" and 16 or 4)) ~= 0
         and "br and d do not give each warp whole tiles of dQ"
      or cuts_keys(v)
end

local axes = fp32.axes("backward", {partial.axis, kinds.deterministic}, {
   {
      name = "br", values = {8, 16, 32, 64, 128},
      unless = function(v, path)
         return v.br == 8 and not (path.register_staging and v.d > 192)
            and "so few queries are for SMs with little shared memory, and long rows"
      end,
   },
   {name = "bc", values = {16, 32, 64, 128}},
   {name = "warps", values = {2, 4, 8}},
   {name = "qwarps", values = {1, 2, 4}, unless = cuts_queries},
})

-- Returns bytes of shared memory; the templates assert the same sum. Each row has four columns more.
local function smem_bytes(v)
   local both = v.d + columns.of(v) + 8
   return 4 * ((v.br + v.bc) * both + v.br * (v.bc + 4) + 2 * v.br)
end

-- Registers for the gradient of a bias: the largest kernel of tf32 that was not rejected without them spilled 16 bytes.
local of_gradient = 12

-- Returns the registers of a thread that are alive at once: sums of dK and dV; S and dP, or a group of columns of dQ;
-- fragments, addresses and loop (40); on sm_75 a tile of Q or dO under way, with its addresses.
local function live_registers(v, path)
   local s = shares(v)
   local sums = 16 * s.key_tiles * (s.out_groups + s.value_groups)
   local fragments = v.product == "tf32" and 8 * s.key_tiles + 16 or 8 * s.key_tiles + 8
   local scores = 8 * s.key_tiles * s.query_tiles + fragments
   local keys = 4 * s.key_tiles * s.query_tiles + (v.product == "tf32" and fragments or 4 * s.out_groups + 8)
   local staged = fp32.staged_registers(v, v.br, path)
   local dq = s.dq_rows + (v.product == "tf32" and s.dq_rows // 2 + 12 or 20) + staged
   return sums + math.max(scores, keys + staged, dq) + 40 + features.registers(v, 1)
      + v.varlen * lengths.packed.own_registers + (select(2, bias.type_of(v)) and of_gradient or 0)
end

-- Kernels with more registers spill. Measured with 270 kernels for sm_75 and 730 for sm_80, sm_86 and sm_89, D = 8 to
-- 256, with and without features: none with fewer spills.
local most_live, most_staged = 228, 208

-- Returns the clocks of each unit of an SM for a tile of a block.
local function units_of(v, facts, arch)
   local s, dv = facts.shares, columns.of(v)
   local scores, wide = v.br * v.bc, v.d + dv
   local out_columns = group_columns * v.qwarps * (s.out_groups + s.value_groups)
   local products = scores * (wide + out_columns + group_columns * s.col_warps * s.dq_groups)
   local softmax = scores * (backward_cost.fit.fp32_per_score + facts.more_fp32_per_score) / arch.fp32
   local ex2 = facts.ex2_per_score * scores / arch.ex2
   local out_groups = s.out_groups + s.value_groups
   if v.product == "tf32" then
      local numbers = v.warps * ((16 * s.key_tiles + 8 * s.query_tiles) * wide
                                 + v.br * (2 * 16 * s.key_tiles + group_columns * out_groups)
                                 + v.bc * (s.dq_rows + group_columns) * s.dq_groups)
      return {
         3 * 2 * products / (arch.tensor / 2),
         fp32.fit.split * numbers / fp32.fit.lanes + softmax + products / 8 / arch.fp32, ex2,
         4 * numbers / arch.smem_rate,
      }
   end
   local words = v.warps * (2 * (s.key_tiles + s.query_tiles) * wide -- that each lane of a warp gets
                            + 4 * v.br * (2 * s.key_tiles + out_groups)
                            + v.bc * (4 + s.dq_rows // 4) * s.dq_groups)
   return {products / arch.fp32 + softmax, ex2, 128 * words / arch.smem_rate}
end

local function find_facts(v, path, registers)
   local facts = fp32.facts(v, "backward", smem_bytes(v), live_registers(v, path), registers)
   facts.shares, facts.d_pad = shares(v), v.d
   return facts
end

local card_of = fp32.card_of(units_of)

local function unfit(v, path, arch)
   return fp32.unfit(v, find_facts(v, path, 0), arch, path.register_staging and most_staged or most_live)
end

local function us_of(v, path, problem, arch, registers)
   local facts = find_facts(v, path, registers)
   plain_cost.on_card(v, facts, arch, card_of)
   local shape = {dtype = v.dtype, br = v.br, bc = v.bc, split = 0, dq = "direct", rows = "prepared"}
   return backward_cost.backward(shape, facts, problem, arch)
end

local function recipe(v)
   local steps = bwd.first_steps(v)
   steps[#steps + 1] = {role = "main", threads = 32 * v.warps, blocks = "key_tiles"}
   return {
      op = "backward", rows = v.br, keys = v.bc, workspace = v.deterministic == 1 and "rows_and_turns" or "rows",
      steps = steps,
   }
end

function M.family(name, path)
   return families.new({
      name = name, op = "backward", template = "fp32/bwd.cu.in", path = path, axes = axes,
      selection = {limit = 24, covered = {{"product", "br", "bc"}, {"product", "warps", "qwarps"}}, crowds = {}},
      typical = bwd.typical, smem_bytes = smem_bytes, unfit = unfit, recipe = recipe,

      cost = function(v, problem, arch, registers)
         return us_of(v, path, problem, arch, registers)
      end,

      -- Gradients are fp32, as with partial: 1 if they are written, 2 if they are added to.
      names = function(v)
         local names = bwd.shared_names(v, {
            layout = "pad", stages = 1, order = "early", dq = "atomic", prepared = true,
            dq_order = v.deterministic, writers = 32 * v.warps,
         })
         names.partial = v.partial == 2 and 2 or 1
         return names
      end,
   })
end

return M
