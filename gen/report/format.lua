-- Numbers and texts as a page shows them, and what keeps a text from being taken for markup. The host gives texts that
-- are printable.
local M = {}

local entities = {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;"}

-- For HTML and SVG, in text and in attributes with quotes.
function M.html(text)
   if not text:find("[^%w%s_=.,:;/()%-+]") then
      return text
   end
   return (text:gsub("[&<>\"']", entities))
end

-- For markdown, also in cells of tables.
function M.markdown(text)
   text = text:gsub("%s+", " ")
   return (text:gsub("[\\`*_{}%[%]<>#|~&]", function(c)
      return c == "<" and "&lt;" or c == "&" and "&amp;" or "\\" .. c
   end))
end

-- One word of a shell.
function M.shell(text)
   return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- What stands as it is in a template (core/template.lua).
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

-- nil: an en dash
function M.fixed(value, decimals)
   return value and string.format("%." .. decimals .. "f", value) or "\u{2013}"
end

-- A winner's time in µs; the model's where none was measured, which it says.
function M.time(winner)
   return M.fixed(winner.median_us or winner.model_us, 2) .. (winner.median_us and "" or " (model)")
end

-- How times were taken, in words: facts.lua's `timed`.
function M.how(timed)
   local words = "modelled by the software device"
   return not timed.modelled and "measured" or timed.measured and "measured or " .. words or words
end

-- Of coordinates: as few letters as say it.
function M.place(value)
   local text = string.format("%.1f", value):gsub("%.0$", "")
   return text == "-0" and "0" or text
end

-- The same of small figures, of which there are many.
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
