-- Variants as tables and as canonical texts: "FAMILY KEY=VALUE KEY=VALUE ...". There is one space between words. Keys
-- are in the order of the family's axes (axes.lua). Integers have no leading zeros. Features appear only if they are
-- asked for.
local axes_of = require("core.axes")

local M = {}

-- Lists of {name, value that is not shown} by a list of axes, because surveys write thousands of variants.
local written = setmetatable({}, {__mode = "k"})

function M.format(variant, axes)
   if not written[axes] then
      local list = {}
      for i, axis in ipairs(axes) do
         list[i] = {name = axis.name, silent = axes_of.silent_value(axis)}
      end
      written[axes] = list
   end
   local words = {variant.family}
   for _, each in ipairs(written[axes]) do
      local value = variant[each.name]
      if value ~= each.silent then
         words[#words + 1] = each.name .. "=" .. value
      end
   end
   return table.concat(words, " ")
end

-- Returns the first word of a text, the name of its family.
function M.family(text)
   return text:match("^[^ ]*")
end

local function has_word(text, axis)
   return text:find(" " .. axis.name .. "=", 1, true) ~= nil
end

-- Returns the text of a variant for a problem. Tables show texts without the problem's fields; these are inserted.
function M.complete(text, problem, axes)
   local words = {M.family(text)}
   for _, axis in ipairs(axes) do
      local value = axis.field and problem[axis.field]
      if value and value ~= axes_of.silent_value(axis) and not has_word(text, axis) then
         words[#words + 1] = axis.name .. "=" .. value
      end
   end
   return table.concat(words, " ") .. text:sub(#words[1] + 1)
end

-- Returns the words that a text lacks, with their values: "d=, dtype=fp16|bf16"; nil if it lacks none.
function M.missing(text, axes)
   local words = {}
   for _, axis in ipairs(axes) do
      if axes_of.silent_value(axis) == nil and axis.default == nil and not has_word(text, axis) then
         words[#words + 1] = axis.name .. "=" .. table.concat(axis.values or {}, "|")
      end
   end
   return #words > 0 and table.concat(words, ", ") or nil
end

local function is_word(axis)
   return axis.values and type(axis.values[1]) == "string"
end

-- Returns the value in "NAME=VALUE"; nil and what is wrong.
local function value_of(axis, word)
   local name, value = word:match("^([^=]*)=(.*)$")
   if name ~= axis.name then
      return nil, string.format("'%s' where '%s=' is expected", word, axis.name)
   elseif axis.feature and axis.values and #axis.values == 2 and not is_word(axis) and value ~= "1" then
      return nil, string.format("'%s' is not %s=1, which is left out otherwise", word, axis.name)
   elseif value == tostring(axes_of.silent_value(axis)) then
      return nil, string.format("'%s' is left out", word)
   elseif not is_word(axis) then
      if not (value == "0" or value:find("^[1-9]%d?%d?%d?%d?$")) then
         return nil, string.format("'%s' is not a plain integer below 100000", word)
      end
      return math.tointeger(tonumber(value))
   end
   for _, allowed in ipairs(axis.values) do
      if value == allowed then
         return value
      end
   end
   return nil, string.format("'%s' is not one of %s", word, table.concat(axis.values, ", "))
end

-- Returns the value of an axis for which a text has no word; nil if it must have one.
local function missing_value(axis, word)
   local silent = axes_of.silent_value(axis)
   if silent ~= nil and (not word or word:match("^[^=]*") ~= axis.name) then
      return silent
   elseif not word then
      return axis.default
   end
end

-- Returns the variant of a canonical text; nil and what is wrong for any other text.
function M.parse(text, axes)
   local variant = {family = M.family(text)}
   local position = #variant.family + 1
   for _, axis in ipairs(axes) do
      local word, after = text:match("^ ([^ ]*)()", position)
      local value, message = missing_value(axis, word)
      if value == nil and word then
         value, message = value_of(axis, word)
         position = after
      end
      if value == nil then
         return nil, string.format("'%s'%s", text, message and ": " .. message
                                   or " has no '" .. axis.name .. "='")
      end
      variant[axis.name] = value
   end
   if position <= #text then
      return nil, string.format("'%s' goes on after its last key", text)
   end
   return variant
end

return M
