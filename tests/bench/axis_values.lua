-- Lists the values of all tuning axes that some problem gets, one a line: family, axis, value, and "silent" if a text
-- without the axis means the value. For axis_winners.py, by run_lua.
local fa2 = fa2 -- luacheck: ignore 113 (tests/bench/run_lua.c)
local axes_of = require("core.axes")

-- Problems that together reach all values: head dimensions, with each of the fields that axes depend on.
local dims = {16, 32, 64, 80, 128, 256, 512}
local features = {
   {}, {causal = 1}, {dtype = "fp32"}, {scores = "int8"}, {sums = "fast"}, {scores = "int8", sums = "fast"},
   {scores = "int8", pv = "fp8"},
   {bias = "fp16"}, {dropout = 1}, {seqused = 1}, {alibi = 1, causal = 1}, {deterministic = 1, causal = 1},
}

local function problem_of(op, dim, feature)
   local fields = {op = op, dtype = "fp16", batch = 2, heads_q = 32, heads_kv = 8, seq_q = 1024, seq_k = 4096,
                   head_dim = dim}
   if op == "merge" then
      fields.heads_kv = fields.heads_q
   end
   for name, value in pairs(feature) do
      fields[name] = value
   end
   local ok, problem = pcall(fa2.problem, fields)
   return ok and problem
end

-- The values of a family's axes, as a set of "axis value".
local function values_of(family)
   local values = {}
   for _, dim in ipairs(dims) do
      for _, feature in ipairs(features) do
         local problem = problem_of(family.op, dim, feature)
         if problem then
            axes_of.each_point(family.name, family.axes, family.path, problem, function(v)
               for _, axis in ipairs(family.axes) do
                  if not axis.field then
                     values[axis.name .. "\t" .. v[axis.name]] = true
                  end
               end
            end)
         end
      end
   end
   return values
end

for _, family in ipairs(require("families")) do
   local values = values_of(family)
   for _, axis in ipairs(family.axes) do
      for _, value in ipairs(not axis.field and axis.values or {}) do
         if values[axis.name .. "\t" .. value] then
            local silent = value == axis.default or value == axes_of.silent_value(axis)
            print(table.concat({family.name, axis.name, value, silent and "silent" or ""}, "\t"))
         end
      end
   end
end
