-- The forward families: their keys, their space, what a variant needs, which variants are legal.
--
-- A block owns Br query rows, a warp wm tiles of 16 of them, and walks over the keys in tiles of
-- Bc. kstages and vstages are the K and V tiles in shared memory. Equal numbers above 1 make K and
-- V one stage with one barrier a tile; (1, 1) and (2, 1) wait for K and V apart, with two.
local cost = require("cost")
local select_from = require("select")
local variant_text = require("variant")

local M = {}

local keys = {
   {name = "d", integer = true}, {name = "dtype", one_of = {"fp16", "bf16"}},
   {name = "causal", integer = true}, {name = "br", integer = true}, {name = "bc", integer = true},
   {name = "warps", integer = true}, {name = "kstages", integer = true},
   {name = "vstages", integer = true}, {name = "layout", one_of = {"swizzle", "pad"}},
   {name = "q", one_of = {"smem", "reg"}},
}

-- Br with the warps that it is split among: one or two m16 row tiles each.
local blocks = {{32, 2}, {64, 4}, {64, 2}, {128, 8}, {128, 4}, {256, 8}}
local bcs = {16, 32, 48, 64, 80, 96, 112, 128}
-- Values that no variant of a class should go without.
local axes = {{"br", "warps"}, {"bc"}, {"kstages", "vstages"}, {"layout"}, {"q"}}

-- How a pipeline works: barriers per tile, and for each wait, how many tile times after their issue
-- loads are waited for. (1, 1): V is loaded during QK, the next K during softmax and PV.
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

-- Bytes; the templates assert the same sum. With q=reg, Q passes through the V tiles once.
local function smem_bytes(v)
   local pitch = padded(v.d) + (v.layout == "pad" and 8 or 0)
   if v.q == "reg" then
      return 2 * pitch * (v.kstages * v.bc + math.max(v.vstages * v.bc, v.br))
   end
   return 2 * pitch * (v.br + (v.kstages + v.vstages) * v.bc)
end

-- Registers per thread that are alive at once: O, S, Q fragments, row statistics, K or V fragments
-- (8), addresses and loop (28); without cp.async, also the tiles on their way to shared memory.
local function live_registers(v, options)
   local wm = v.br // (16 * v.warps)
   local d_pad = padded(v.d)
   local q = v.q == "reg" and wm * d_pad // 4 or 4 * wm
   local staged = 0
   if options.register_staging then
      local chunks = v.bc * d_pad // 8
      local threads = 32 * v.warps
      staged = (chunks + threads - 1) // threads * 4 * (v.vstages > 1 and 2 or 1)
   end
   return wm * d_pad // 2 + wm * v.bc // 2 + q + 4 * wm + 8 + 28 + staged
end

-- ptxas takes more registers than are alive, to have loads under way, and spills where about 230
-- are alive. Fitted to 38 kernels compiled by nvcc 13.0 for sm_75 and sm_80: those without spills
-- are met to 12 registers in the mean; 0 to 36 bytes were spilled at 228 alive, 0 to 32 at 236, 8
-- at 244, 128 at 264. Up to 18 too many may still be fast; what spills after all, the tuner sees.
local free_registers, free_registers_staging = 22, 40
local spare_registers, tolerated_spill = 228, 18

-- What the cost model wants to know. registers: the compiler's count, or 0 for the estimate.
local function facts_of(v, options, registers)
   local live = live_registers(v, options)
   local pipeline = pipelines[v.kstages .. "," .. v.vstages]
   local d_pad = padded(v.d)
   local free = options.register_staging and free_registers_staging or free_registers
   local may_spill = registers == 0 or registers >= 255
   return {
      warps = v.warps, d_pad = d_pad, smem_bytes = smem_bytes(v), k8 = options.k8,
      registers = registers > 0 and registers or math.min(live + free, 255),
      spilled = may_spill and math.max(live - spare_registers, 0) or 0,
      barriers = pipeline.barriers, ahead = pipeline.ahead,
      -- Rows of a pad layout start 16 bytes apart modulo 128 only if d_pad / 8 is a multiple of 8;
      -- else the 8 lanes of a store phase, which cross rows, meet in banks.
      fill_ways = v.layout == "pad" and d_pad % 64 ~= 0 and 2 or 1,
   }
end

-- true, or nil and why a variant is outside the space. Says nothing about any card.
local function is_point(v, options)
   if v.d < 8 or v.d > 256 or v.d % 8 ~= 0 then
      return nil, "d is not a multiple of 8 from 8 to 256"
   elseif v.causal > 1 then
      return nil, "causal is neither 0 nor 1"
   elseif v.bc < 16 or v.bc > 128 or v.bc % 16 ~= 0 then
      return nil, "bc is not a multiple of 16 from 16 to 128"
   elseif not options.stages[v.kstages .. "," .. v.vstages] then
      return nil, "no such pair of kstages and vstages"
   elseif v.dtype == "bf16" and not options.bf16 then
      return nil, "bf16 needs compute capability 8.0"
   end
   for _, pair in ipairs(blocks) do
      if pair[1] == v.br and pair[2] == v.warps then
         return true
      end
   end
   return nil, "no such pair of br and warps"
end

-- true, or nil and why an SM cannot run a variant well.
local function fits(v, options, arch)
   local facts = facts_of(v, options, 0)
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

-- Every point of the space for a class, with its text.
local function points(name, options, problem)
   local list = {}
   local function add(block, bc, pipeline, layout, q)
      local v = {
         family = name, d = problem.head_dim, dtype = problem.dtype, causal = problem.causal,
         br = block[1], warps = block[2], bc = bc, kstages = pipeline[1], vstages = pipeline[2],
         layout = layout, q = q,
      }
      v.text = variant_text.format(v, keys)
      list[#list + 1] = v
   end
   for _, block in ipairs(blocks) do
      for _, bc in ipairs(bcs) do
         for _, pipeline in ipairs(options.pipelines) do
            for _, layout in ipairs({"swizzle", "pad"}) do
               add(block, bc, pipeline, layout, "smem")
               add(block, bc, pipeline, layout, "reg")
            end
         end
      end
   end
   return list
end

-- Half of a block's rows may be empty, not more, if there is a smaller block.
local function too_tall(v, problem)
   local rows = math.max(problem.seq_q, 32)
   return v.br > 64 and v.br >= 2 * ((rows + 31) // 32 * 32)
end

-- All points of the problem's class: those chosen, and {text, reason} for the others.
local function candidates(self, problem, arch)
   local legal, chosen, rejected = {}, {}, {}
   for _, v in ipairs(points(self.name, self.options, problem)) do
      local ok, reason = fits(v, self.options, arch)
      if ok then
         legal[#legal + 1] = v
      else
         rejected[#rejected + 1] = {text = v.text, reason = reason}
      end
   end
   local function cost_of(v, typical)
      return self:cost(v, typical, arch, 0)
   end
   local function is_twin(v)
      return v.layout == "pad"
   end
   local class = select_from.for_class(legal, axes, is_twin, problem, arch, cost_of)
   for _, v in ipairs(legal) do
      local reason = not class[v.text] and "others of its class cost less by the model"
         or too_tall(v, problem) and "more than half of a block's rows would be empty"
      if reason then
         rejected[#rejected + 1] = {text = v.text, reason = reason}
      else
         chosen[#chosen + 1] = v
      end
   end
   return chosen, rejected
end

-- A forward family. options:
--   serves_sm(sm)     true, or nil and the reason
--   pipelines         list of {kstages, vstages}
--   bf16, k8          whether it has bf16; whether its products are m16n8k8
--   register_staging  whether tiles pass through registers (no cp.async)
-- The methods take v as variant.lua parses it, problem as init.lua gets it, arch from arch.lua.
function M.family(name, options)
   local family = {name = name, keys = keys, options = options, candidates = candidates}
   options.stages = {}
   for _, pipeline in ipairs(options.pipelines) do
      options.stages[pipeline[1] .. "," .. pipeline[2]] = true
   end

   -- true, or nil and the reason.
   function family.serves(_, problem, arch)
      local ok, reason = options.serves_sm(arch.family_sm)
      if not ok then
         return nil, reason
      elseif problem.op ~= "forward" then
         return nil, "it is a forward kernel"
      elseif problem.dtype == "bf16" and not options.bf16 then
         return nil, "bf16 needs compute capability 8.0, this is sm_" .. arch.sm
      elseif problem.head_dim < 8 or problem.head_dim > 256 or problem.head_dim % 8 ~= 0 then
         return nil, "head_dim must be a multiple of 8 from 8 to 256, not " .. problem.head_dim
      end
      return true
   end

   -- true, or nil and the reason.
   function family.check(_, v)
      return is_point(v, options)
   end

   -- us; registers as the compiler reports them, or 0.
   function family.cost(_, v, problem, arch, registers)
      return cost.forward(v, facts_of(v, options, registers), problem, arch)
   end

   function family.launch(_, v)
      return {threads = 32 * v.warps, block_rows = v.br, smem_bytes = smem_bytes(v)}
   end

   -- The names that the template sees.
   function family.environment(_, v)
      local environment = {
         family = name, d_pad = padded(v.d), smem_bytes = smem_bytes(v), threads = 32 * v.warps,
      }
      for _, key in ipairs(keys) do
         environment[key.name] = v[key.name]
      end
      return environment
   end

   return family
end

return M
