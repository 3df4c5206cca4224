-- columns: V and O have fewer columns than Q and K, or all of them have so many that warps divide them.
--
-- Where a row has more than 256 columns, `parts` warps share rows (templates/forward/parts.cuh): each multiplies
-- every parts-th 16 columns of Q and K, all add up what they have of S, and each computes every parts-th 16 columns
-- of O.
local M = {}

-- The most columns that one warp takes.
local most_undivided = 256

M.axis = {
   name = "dv", field = "head_dim_v", feature = true,
   when = function(v)
      if v.dv % 8 ~= 0 or v.dv < 0 then
         return nil, "dv is not a multiple of 8"
      elseif v.dv >= v.d then
         return nil, "head_dim_v is not below head_dim"
      end
      return true
   end,
}

-- V is the first columns of K, or all of them: their tile is in shared memory once.
M.shared = {name = "v_in_k", field = "v_in_k", values = {0, 1}, feature = true}

M.parts = {
   name = "parts", values = {1, 2, 4}, quiet = true,
   when = function(v)
      if (v.parts > 1) == (v.d > most_undivided) then
         return true
      end
      return nil, "warps divide rows of more than " .. most_undivided .. " columns, and no others"
   end,
}

-- Columns of V and O, of a variant and of a problem.
function M.of(v)
   return v.dv > 0 and v.dv or v.d
end

function M.of_problem(problem)
   return problem.head_dim_v > 0 and problem.head_dim_v or problem.head_dim
end

-- Of a key: those of K and V that are read.
function M.of_key(problem)
   return problem.head_dim + (problem.v_in_k == 1 and 0 or M.of_problem(problem))
end

-- Columns in shared memory: whole k16 steps, as many for each of the warps that divide them.
function M.padded(columns, v)
   local unit = 16 * v.parts
   return (columns + unit - 1) // unit * unit
end

-- nil and the reason where a pipeline has tiles of K and V apart, and they are one.
function M.goes_with_pipeline(v)
   if v.v_in_k == 1 and v.kstages ~= v.vstages then
      return nil, "V in K has as many stages"
   end
   return true
end

return M
