-- The precision that a problem permits (fa2_sums and fa2_scores in fa2.h). A permission alone changes no kernel: a
-- family that can use it has an axis for it, which is chosen.
local M = {}

M.axes = {
   {name = "sums", field = "sums", values = {"fp32", "fast"}, feature = true},
   {name = "scores", field = "scores", values = {"exact", "int8"}, feature = true},
}

return M
