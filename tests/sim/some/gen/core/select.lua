-- In the place of gen/core/select.lua where a test needs more than a few variants, and no long tuning (FA2_GEN_PATH):
-- of each family of a class six, evenly among all by text.
local M = {}

function M.for_class(variants)
   local texts, chosen = {}, {}
   for _, variant in ipairs(variants) do
      texts[#texts + 1] = variant.text
   end
   table.sort(texts)
   for i = 0, math.min(6, #texts) - 1 do
      chosen[texts[1 + i * #texts // 6]] = true
   end
   return chosen
end

return M
