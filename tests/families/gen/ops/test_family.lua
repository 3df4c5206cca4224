-- A family whose one variant per class misbehaves when it is launched. It fits every SM, and twice
-- the cost keeps it from being anyone's default. It does not know windows.
local fwd = require("ops.forward")
local plain = require("ops.forward_plain")
local variant = require("core.variant")

local M = {}

function M.family(name)
   local family = fwd.family(name, plain, {
      refuses_sm = function()
      end,
      pipelines = {{1, 1}},
      k8 = true,
      register_staging = true,
      sm = 80,
      products = "mma_k8",
   })
   local cost = family.cost
   for i, axis in ipairs(family.axes) do
      if axis.name == "window" then
         table.remove(family.axes, i)
         break
      end
   end

   local names = family.names
   function family.names(v)
      local all = names(v)
      all.window, all.window_kind = false, "kNone"
      all.score_params = all.features or all.has.softcap
      return all
   end

   function family.candidates(_, problem)
      local v = {
         family = name, d = problem.head_dim, dtype = problem.dtype, causal = problem.causal,
         br = 32, bc = 16, warps = 2, kstages = 1, vstages = 1, layout = "swizzle", q = "smem",
         fill = "whole",
      }
      for _, axis in ipairs(family.axes) do
         if axis.feature then
            v[axis.name] = problem[axis.field]
         elseif axis.quiet then
            v[axis.name] = axis.values[1]
         end
      end
      v.text = variant.format(v, family.axes)
      return {v}
   end

   function family.rejected()
      return {}
   end

   function family.cost(v, problem, arch, registers)
      return 2 * cost(v, problem, arch, registers)
   end

   return family
end

return M
