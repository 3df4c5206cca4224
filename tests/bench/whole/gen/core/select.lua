-- In the place of gen/core/select.lua (FA2_GEN_PATH=tests/bench/whole): every variant that fits the card, to measure
-- what the choice of candidates loses and saves.
local M = {}

function M.for_class(variants)
   local all = {}
   for _, variant in ipairs(variants) do
      all[variant.text] = true
   end
   return all
end

return M
