-- In the place of gen/core/select.lua where a test needs a short tuning (FA2_GEN_PATH): of each class the
-- first and the last variant by text.
local M = {}

function M.for_class(variants)
   local first, last
   for _, variant in ipairs(variants) do
      if not first or variant.text < first then
         first = variant.text
      end
      if not last or variant.text > last then
         last = variant.text
      end
   end
   return first and {[first] = true, [last] = true} or {}
end

return M
