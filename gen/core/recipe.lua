-- Formats the text that tells the runtime how to launch a variant. runtime/base/recipe.h describes it.
local M = {}

-- Words in their order. A word whose value is nil is left out.
local head = {
   "op", "abi", "rows", "keys", "pack", "waves", "splits", "heads", "columns", "workspace", "suffix", "maps",
}
local step = {"role", "threads", "smem", "cluster", "early", "blocks"}

local function add_words(words, object, keys)
   for _, key in ipairs(keys) do
      if object[key] ~= nil then
         words[#words + 1] = key .. "=" .. object[key]
      end
   end
end

-- Returns the text of a recipe. recipe: a table with the words of the head, and steps: a list of tables with entry and
-- the words of a step.
function M.format(recipe)
   local parts, words = {}, {}
   add_words(words, recipe, head)
   parts[1] = table.concat(words, " ")
   for _, s in ipairs(recipe.steps) do
      words = {s.entry}
      add_words(words, s, step)
      parts[#parts + 1] = table.concat(words, " ")
   end
   return table.concat(parts, "; ")
end

return M
