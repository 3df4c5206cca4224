-- Formats numbers and texts for a page, and escapes texts so that they are not taken for markup. The host gives
-- printable texts.
local M = {}

local entities = {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;"}

-- Escapes for HTML and SVG, in text and in quoted attributes.
function M.html(text)
   if not text:find("[^%w%s_=.,:;/()%-+]") then
      return text
   end
   return (text:gsub("[&<>\"']", entities))
end

-- Escapes for markdown, also in table cells.
function M.markdown(text)
   text = text:gsub("%s+", " ")
   return (text:gsub("[\\`*_{}%[%]<>#|~&]", function(c)
      return c == "<" and "&lt;" or c == "&" and "&amp;" or "\\" .. c
   end))
end

-- Quotes a text as one word of a shell.
function M.shell(text)
   return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- Marks a text that a template inserts without escaping (core/template.lua).
function M.markup(text)
   return {markup = text}
end

-- 1234567 -> "1 234 567", with narrow spaces that do not break.
function M.count(value)
   local digits = string.format("%.0f", value)
   local grouped = digits:reverse():gsub("(%d%d%d)", "%1 "):reverse()
   return (grouped:gsub("^ ", ""):gsub(" ", "\u{202F}"))
end

-- "1 problem", "3 problems"
function M.plural(count, word)
   return M.count(count) .. " " .. word .. (count == 1 and "" or "s")
end

-- Formats a number with so many decimals; nil becomes an en dash.
function M.fixed(value, decimals)
   return value and string.format("%." .. decimals .. "f", value) or "\u{2013}"
end

-- Returns a winner's time in µs. If none was measured, returns the model's time, and says so.
function M.time(winner)
   return M.fixed(winner.median_us or winner.model_us, 2) .. (winner.median_us and "" or " (model)")
end

-- Returns how times were taken, in words. timed: as in facts.lua.
function M.how(timed)
   local words = "modelled by the software device"
   return not timed.modelled and "measured" or timed.measured and "measured or " .. words or words
end

-- Formats a coordinate with as few characters as possible.
function M.place(value)
   local text = string.format("%.1f", value):gsub("%.0$", "")
   return text == "-0" and "0" or text
end

-- The same in whole pixels, for small figures, because a page has many of them.
function M.pixel(value)
   return string.format("%.0f", value)
end

-- 2.5e9 -> "2.50 G"
function M.scaled(value, base)
   local units, unit = {"", "k", "M", "G", "T", "P"}, 1
   if base == 1024 then
      units = {"", "Ki", "Mi", "Gi", "Ti", "Pi"}
   end
   while value >= base and unit < #units do
      value, unit = value / base, unit + 1
   end
   return string.format(value < 10 and unit > 1 and "%.2f %s" or value < 100 and "%.3g %s" or "%.0f %s", value,
                        units[unit])
end

-- "2026-11-21T17:45:00Z" -> "2026-11-21 17:45"
function M.moment(text)
   local day, clock = (text or ""):match("^(%d%d%d%d%-%d%d%-%d%d)T(%d%d:%d%d)")
   return day and day .. " " .. clock or "\u{2013}"
end

return M
