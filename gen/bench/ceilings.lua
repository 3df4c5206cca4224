-- Kernels that measure what a card can do. A benchmark compares attention with these rates. Each kernel is a family
-- that serves no problem, and has only texts, recipes and sources (core/family.lua). tuner/bench/ceilings.c says which
-- are run, and how much work a thread does in an iteration.
local elements = require("core.elements")
local families = require("core.family")
local forward_sm90 = require("ops.forward_sm90")

local nowhere = {
   refuses_sm = function()
      return "it measures the card"
   end,
}

-- own.suffix: suffix of the target. own.names(v): what the template sees besides the axes. Both may be nil.
local function family(name, axes, own)
   own = own or {}
   local made = families.new({
      name = name, op = "forward", template = "bench/" .. name .. ".cu.in", path = nowhere, axes = axes,

      -- No operation has this ABI, so nothing uses the kernel for attention. The worker fills the card with blocks.
      recipe = function()
         return {
            op = "forward", abi = 1000000, rows = 1, keys = 1, suffix = own.suffix,
            steps = {{role = "main", threads = 256, blocks = "rows"}},
         }
      end,

      names = function(v)
         local names = own.names and own.names(v) or {}
         names.threads, names.element = 256, v.dtype and elements.ptx(v)
         return names
      end,
   })
   local launch = made.launch
   -- A class has a head dimension. The axes here are not fields of a class.
   function made.launch(self, v)
      return (launch(self, v)), {op = "forward", head_dim = 8}
   end
   return made
end

-- Axes of mma.sync: k of m16n8, the type that is multiplied, the type of sums.
local function no_instruction(v)
   return v.dtype == "bf16" and v.sum == "fp16" and "bf16 products are summed in fp32"
end

-- Products of a warpgroup as in Q K^T of fwd_sm90: 64 rows, 256 columns, 64 deep. Threads write the operands.
local function products(v)
   return forward_sm90.add_product_names({d = 64, bc = 256}, v, {256})
end

return {
   family("ceiling_wgmma", {{name = "dtype", values = elements.names}}, {suffix = "a", names = products}),
   family("ceiling_tensor", {
      {name = "k", values = {8, 16}},
      {name = "dtype", values = elements.names},
      {name = "sum", values = {"fp32", "fp16"}, unless = no_instruction},
   }),
   family("ceiling_shared", {}),
   family("ceiling_ex2", {}),
   family("ceiling_read", {}),
   family("ceiling_copy", {}),
}
