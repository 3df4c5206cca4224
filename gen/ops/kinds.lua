-- The fields of the problem that the families of all operations have as their first axes (core/axes.lua). most:
-- the most columns of Q and K. dtypes: the element types; nil: those of 16 bits.
local elements = require("core.elements")

local M = {}

function M.axes(most, dtypes)
   return {
      {
         name = "d", field = "head_dim",
         unless = function(v)
            return (v.d < 8 or v.d > most or v.d % 8 ~= 0) and "d is not a multiple of 8 from 8 to " .. most
         end,
      },
      {
         name = "dtype", field = "dtype", values = dtypes or elements.names,
         unless = function(v, path)
            return elements.lacks(path.sm, v)
         end,
      },
      {name = "causal", field = "causal", values = {0, 1}},
   }
end

-- Backward: every launch gives the same bits.
M.deterministic = {name = "deterministic", field = "deterministic", values = {0, 1}, feature = true}

return M
