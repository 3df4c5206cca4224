-- columns: V and O have fewer columns than Q and K, or rows have so many columns that warps divide them.
--
-- If a row has more than 256 columns, `parts` warps share rows (templates/forward/parts.cuh). Each multiplies every
-- parts-th 16 columns of Q and K. Then all add their parts of S. Each computes every parts-th 16 columns of O.
local kv8 = require("features.kv8")

local M = {}

-- The most columns for which one warp has whole rows.
local most_undivided = 256

M.axis = {
   name = "dv", field = "head_dim_v", feature = true,
   unless = function(v)
      return (v.dv % 8 ~= 0 or v.dv < 0) and "dv is not a multiple of 8"
         or v.dv >= v.d and "head_dim_v is not below head_dim"
   end,
}

-- V is the first columns of K, or all of them. Their tile is in shared memory once.
M.shared = {name = "v_in_k", field = "v_in_k", values = {0, 1}, feature = true}

M.parts = {
   name = "parts", values = {1, 2, 4}, quiet = true,
   unless = function(v)
      return (v.parts > 1) ~= (v.d > most_undivided)
         and "warps divide rows of more than " .. most_undivided .. " columns, and no others"
   end,
}

-- Returns the columns of V and O for a variant; M.of_problem does for a problem. Families without the axis have as many
-- columns of V as of K.
function M.of(v)
   return v.dv and v.dv > 0 and v.dv or v.d
end

function M.of_problem(problem)
   return problem.head_dim_v > 0 and problem.head_dim_v or problem.head_dim
end

-- Returns the bytes of K and V that are read for a key.
function M.key_bytes(problem)
   local count = problem.head_dim + (problem.v_in_k == 1 and 0 or M.of_problem(problem))
   return count * kv8.element_bytes(problem) + kv8.key_scales(problem)
end

-- Returns the columns in shared memory: whole k16 steps, and equally many for each of the warps that divide them.
function M.padded(columns, v)
   local unit = 16 * v.parts
   return (columns + unit - 1) // unit * unit
end

-- Returns why a pipeline is none: separate tiles of K and V do not go with V in K.
function M.no_pipeline(v)
   return v.v_in_k == 1 and v.kstages ~= v.vstages and "V in K has as many stages"
end

return M
