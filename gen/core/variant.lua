-- Variants as tables and as canonical text: "FAMILY KEY=VALUE KEY=VALUE ...", one space between the
-- words, the keys in the order that the family lists them, integers without leading zeros.
--
-- A key is {name = "br", integer = true} or {name = "q", one_of = {"smem", "reg"}}. One that came
-- later than databases in use has a default, for the texts that end before it.
local M = {}

function M.format(variant, keys)
   local words = {variant.family}
   for _, key in ipairs(keys) do
      local value = variant[key.name]
      local form = key.integer and "%s=%d" or "%s=%s"
      words[#words + 1] = string.format(form, key.name, value)
   end
   return table.concat(words, " ")
end

-- The first word of a text: the name of its family.
function M.family(text)
   return text:match("^[^ ]*")
end

local function value_of(key, word)
   local name, value = word:match("^([^=]*)=(.*)$")
   if name ~= key.name then
      return nil, string.format("'%s' where '%s=' is expected", word, key.name)
   end
   if key.integer then
      if not (value == "0" or value:find("^[1-9]%d?%d?%d?%d?$")) then
         return nil, string.format("'%s' is not a plain integer below 100000", word)
      end
      return math.tointeger(tonumber(value))
   end
   for _, allowed in ipairs(key.one_of) do
      if value == allowed then
         return value
      end
   end
   return nil, string.format("'%s' is not one of %s", word, table.concat(key.one_of, ", "))
end

-- The variant of a canonical text; nil and what is wrong for any other text.
function M.parse(text, keys)
   local variant = {family = M.family(text)}
   local position = #variant.family + 1
   for _, key in ipairs(keys) do
      local word, after = text:match("^ ([^ ]*)()", position)
      if word then
         local value, message = value_of(key, word)
         if value == nil then
            return nil, string.format("'%s': %s", text, message)
         end
         variant[key.name], position = value, after
      elseif key.default then
         variant[key.name] = key.default
      else
         return nil, string.format("'%s' has no '%s='", text, key.name)
      end
   end
   if position <= #text then
      return nil, string.format("'%s' goes on after its last key", text)
   end
   return variant
end

return M
