-- softcap: scores are s = c tanh(scale q k / c), before any mask (templates/features/modifier.cuh).
local M = {}

M.axis = {name = "softcap", says = "scores are capped by a tanh"}

-- For fp32: a cap would be as exact as the hardware's tanh, so there is none (runtime/base/problem_check.c).
M.none = {name = "softcap", field = "softcap", values = {0}, feature = true}

-- Work for each score: one tanh, by the unit that computes ex2, and the multiplication before it.
M.ex2_per_score = 1
M.fp32_per_score = 1
-- Registers that it keeps for all scores, on wgmma.
M.wgmma_registers = 8
-- fp32 instructions per score in backward besides these: the square, the derivative, and its product with P.
M.slope_per_score = 2

return M
