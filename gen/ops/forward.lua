-- The forward families: what a variant needs, which variants are legal, what the runtime is told.
--
-- A block owns Br query rows and walks over keys in tiles of Bc; kstages and vstages are the K and
-- V tiles of a team of warps in shared memory. Equal numbers above 1 make K and V one stage with
-- one barrier a tile; (1, 1) and (2, 1) wait for K and V apart, with two. fill: the next tile's copies
-- are issued behind one step of Q K^T (whole) or a share behind each (spread).
--
-- A family is a code path (paths/mma_sync.lua) of a kind (forward_plain.lua, forward_splitkv.lua):
--   split                        whether it divides the keys: variants have teams and waves
--   keys                         of its canonical text
--   class                        how to select from it (select.lua)
--   each_point(path, add)        calls add(v) for each point of the space, in a fixed order; v has
--                                the keys but the class's
--   check(v)                     true, or nil and why v is no such point
--   serves(problem, arch)        true, or nil and why it is not worth trying
--   suits(v, problem, arch)      the same for one variant
--   cost(v, facts, problem, arch)   us
local cost = require("ops.forward_plain_cost")
local recipe_text = require("core.recipe")
local select_from = require("core.select")
local variant_text = require("core.variant")

local M = {}

-- How a pipeline works: barriers per tile, and for each wait, about how many tile times after their
-- issue loads are waited for. (1, 1): V is loaded during QK, the next K during PV; what is loaded a
-- tile ahead loses up to a QK of it where the fill waits for the end of QK. The cost model was fitted
-- with these numbers.
local pipelines = {
   ["1,1"] = {barriers = 2, ahead = {0.5, 0.5}},
   ["2,1"] = {barriers = 2, ahead = {1, 0.5}},
   ["2,2"] = {barriers = 1, ahead = {1}},
   ["3,3"] = {barriers = 1, ahead = {2}},
}

-- 16-byte chunks of a row, rounded up to whole m16n8k16 steps.
local function padded(d)
   return (d + 15) // 16 * 16
end

-- A plain block is one team.
local function team_count(v)
   return v.teams or 1
end

-- m16 row tiles of a warp.
local function row_tiles(v)
   return v.br * team_count(v) // (16 * v.warps)
end

-- Bytes; the templates assert the same sum. With q=reg, Q passes through the V tiles once. Where
-- keys are divided, the teams' rows of O come into the tiles' place, with a pitch of 32 bytes
-- modulo 128, and a maximum and a sum for each.
local function smem_bytes(v)
   local pitch = padded(v.d) + (v.layout == "pad" and 8 or 0)
   local k_rows, v_rows = team_count(v) * v.kstages * v.bc, team_count(v) * v.vstages * v.bc
   local rows = v.q == "reg" and k_rows + math.max(v_rows, v.br) or v.br + k_rows + v_rows
   local merged_row = v.d * 4 + (160 - v.d * 4 % 128) % 128 + 8
   return math.max(2 * pitch * rows, v.teams and v.teams * v.br * merged_row or 0)
end

-- Registers per thread that are alive at once: O, S, Q fragments, row statistics, K or V fragments
-- (8), addresses and loop (28); without cp.async, also the tiles on their way to shared memory, of
-- both K and V: ptxas keeps their addresses even where only one of the two is under way. A fill that
-- is spread over Q K^T keeps its addresses meanwhile.
local function live_registers(v, path)
   local wm = row_tiles(v)
   local d_pad = padded(v.d)
   local q = v.q == "reg" and wm * d_pad // 4 or 4 * wm
   local staged = 0
   if path.register_staging then
      local chunks = v.bc * d_pad // 8
      local threads = 32 * v.warps // team_count(v)
      staged = (chunks + threads - 1) // threads * 8
   end
   local addresses = v.fill == "spread" and 8 or 0
   return wm * d_pad // 2 + wm * v.bc // 2 + q + 4 * wm + 8 + 28 + staged + addresses
end

-- ptxas takes more registers than are alive, to have loads under way: 18 more in the mean of 500
-- kernels without spills, compiled by nvcc 13.0 for sm_90, and 20 for sm_75. It spills where about
-- 230 are alive: 0 to 36 bytes at 228 alive, 0 to 32 at 236, 8 at 244, 128 at 264. Up to 18 too
-- many may still be fast; what spills after all, the tuner sees.
local free_registers = 18
local spare_registers, tolerated_spill = 228, 18

-- What the cost model wants to know. registers: the compiler's count, or 0 for the estimate.
local function facts_of(v, path, registers)
   local live = live_registers(v, path)
   local pipeline = pipelines[v.kstages .. "," .. v.vstages]
   local d_pad = padded(v.d)
   -- A block of more than eight warps cannot have 255.
   local most = math.min(255, 65536 // (32 * v.warps))
   local may_spill = registers == 0 or registers >= most
   return {
      warps = v.warps, d_pad = d_pad, smem_bytes = smem_bytes(v), k8 = path.k8,
      registers = registers > 0 and registers or math.min(live + free_registers, most),
      spilled = may_spill and math.max(live - math.min(spare_registers, most), 0) or 0,
      barriers = pipeline.barriers, ahead = pipeline.ahead,
      teams = team_count(v), row_tiles = row_tiles(v), fill = v.fill or "whole",
      -- Rows of a pad layout start 16 bytes apart modulo 128 only if d_pad / 8 is a multiple of 8;
      -- else the 8 lanes of a store phase, which cross rows, meet in banks.
      fill_ways = v.layout == "pad" and d_pad % 64 ~= 0 and 2 or 1,
   }
end

-- true, or nil and why a variant is outside the space. Says nothing about any card.
local function is_point(v, kind, path)
   if v.d < 8 or v.d > 256 or v.d % 8 ~= 0 then
      return nil, "d is not a multiple of 8 from 8 to 256"
   elseif v.causal > 1 then
      return nil, "causal is neither 0 nor 1"
   elseif v.dtype == "bf16" and not path.bf16 then
      return nil, "bf16 needs compute capability 8.0"
   elseif v.fill == "spread" and path.register_staging then
      return nil, "tiles that pass through registers are loaded at once"
   end
   for _, pipeline in ipairs(path.pipelines) do
      if pipeline[1] == v.kstages and pipeline[2] == v.vstages then
         return kind.check(v)
      end
   end
   return nil, "no such pair of kstages and vstages"
end

-- true, or nil and why an SM cannot run a variant well.
local function fits(v, path, arch)
   local facts = facts_of(v, path, 0)
   if facts.smem_bytes > arch.smem_block then
      return nil, string.format("%d bytes of shared memory, a block has %d", facts.smem_bytes,
                                arch.smem_block)
   elseif facts.spilled > tolerated_spill then
      return nil, string.format("about %d registers too many", facts.spilled)
   elseif cost.resident_blocks(facts, arch) < 1 then
      return nil, "an SM cannot hold a block"
   end
   return true
end

-- Every point of the space for a class, with its text. A kind's points may be more than those of one
-- head_dim.
local function points(family, problem)
   local list = {}
   family.kind.each_point(family.path, function(v)
      v.family, v.d, v.dtype = family.name, problem.head_dim, problem.dtype
      v.causal = problem.causal
      if family:check(v) then
         v.text = variant_text.format(v, family.keys)
         list[#list + 1] = v
      end
   end)
   return list
end

-- The class of a problem on a card: the points that fit, which of them are chosen (a set of texts),
-- and {text, reason} of those that do not fit.
local function class_of(self, problem, arch)
   local class = {legal = {}, rejected = {}}
   for _, v in ipairs(points(self, problem)) do
      local ok, reason = fits(v, self.path, arch)
      if ok then
         class.legal[#class.legal + 1] = v
      else
         class.rejected[#class.rejected + 1] = {text = v.text, reason = reason}
      end
   end
   class.chosen = select_from.for_class(class.legal, self.kind.class, problem, arch,
                                        function(v, typical)
      return self:cost(v, typical, arch, 0)
   end)
   return class
end

-- The chosen variants of a problem's class that suit the problem. Choosing is what takes time, and
-- it is the same for all problems of a class: it is done once.
local function candidates(self, problem, arch)
   local key = table.concat({problem.head_dim, problem.dtype, problem.causal, arch.key}, " ")
   local chosen = self.chosen[key]
   if not chosen then
      chosen = {}
      local class = class_of(self, problem, arch)
      for _, v in ipairs(class.legal) do
         if class.chosen[v.text] then
            chosen[#chosen + 1] = v
         end
      end
      self.chosen[key] = chosen
   end
   local suited = {}
   for _, v in ipairs(chosen) do
      if self.kind.suits(v, problem, arch) then
         suited[#suited + 1] = v
      end
   end
   return suited
end

-- {text, reason} of every point that is no candidate.
local function rejected(self, problem, arch)
   local class = class_of(self, problem, arch)
   local list = class.rejected
   for _, v in ipairs(class.legal) do
      local _, reason = self.kind.suits(v, problem, arch)
      if not class.chosen[v.text] then
         reason = "others of its class cost less by the model"
      end
      if reason then
         list[#list + 1] = {text = v.text, reason = reason}
      end
   end
   return list
end

-- true, or nil and the reason.
local function serves(self, problem, arch)
   local ok, reason = self.path.serves_sm(arch.family_sm)
   if not ok then
      return nil, reason
   elseif problem.op ~= "forward" then
      return nil, "it is a forward kernel"
   elseif problem.dtype == "bf16" and not self.path.bf16 then
      return nil, "bf16 needs compute capability 8.0, this is sm_" .. arch.sm
   elseif problem.head_dim < 8 or problem.head_dim > 256 or problem.head_dim % 8 ~= 0 then
      return nil, "head_dim must be a multiple of 8 from 8 to 256, not " .. problem.head_dim
   end
   return self.kind.serves(problem, arch)
end

-- The text of how a variant is launched (recipe.lua).
local function recipe_of(self, v)
   local recipe = {
      op = "forward", abi = 2, rows = v.br, keys = v.bc * team_count(v),
      steps = {{
         entry = self.name, role = "main", threads = 32 * v.warps, smem = smem_bytes(v),
         blocks = "row_tiles",
      }},
   }
   if self.kind.split then
      recipe.pack, recipe.waves, recipe.splits, recipe.workspace = 1, v.waves, 256, "partials"
      recipe.steps[2] = {
         entry = self.name .. "_combine", role = "combine", threads = 128, smem = 0,
         blocks = "rows/4",
      }
   end
   return recipe_text.format(recipe)
end

-- What the runtime is told of a variant.
local function launch(self, v)
   return {
      text = v.text, recipe = recipe_of(self, v),
      kind = {op = "forward", head_dim = v.d, dtype = v.dtype, causal = v.causal},
   }
end

-- The names that the template sees.
local function environment(self, v)
   local names = {
      family = self.name, split = self.kind.split, d_pad = padded(v.d), smem_bytes = smem_bytes(v),
      threads = 32 * v.warps, fill = "whole", softcap = false, window = false,
   }
   for _, key in ipairs(self.keys) do
      names[key.name] = v[key.name]
   end
   return names
end

-- The family of a kind on a code path. Its methods take v as variant.lua parses it, problem as
-- init.lua gets it, arch from arch.lua.
function M.family(name, kind, path)
   return {
      name = name, keys = kind.keys, kind = kind, path = path, chosen = {},
      candidates = candidates, rejected = rejected, serves = serves, launch = launch,
      environment = environment,

      -- true, or nil and the reason.
      check = function(_, v)
         return is_point(v, kind, path)
      end,

      -- us; registers as the compiler reports them, or 0.
      cost = function(_, v, problem, arch, registers)
         return kind.cost(v, facts_of(v, path, registers), problem, arch)
      end,
   }
end

return M
