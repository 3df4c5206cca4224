-- The template language.
--
--   @ if EXPR then / @ elseif EXPR then / @ else / @ end      text that may be left out
--   @ for NAME = FROM, TO [, STEP] do / @ end                 text that is repeated
--   @ include "FILE"                                          another template, same names
--   $(EXPR)                                                   a value, anywhere in other lines
--
-- A .cuh file is plain C++: '@' and '$(' mean nothing in it. Its lines `#include "FILE"` name other files relative to
-- templates/, and are replaced by their text. A .cuh file comes once, however many files include it (`#pragma once`,
-- which is taken out); a .def file comes each time.
--
-- A line whose first non-blank character is @ is one of the above; all else is text. Expressions
-- are Lua and see only the parameters and the loop variables. Each file is parsed into nodes first,
-- so that blocks are known to balance, and then walked; expressions are compiled one by one, which
-- is why every error can name its line. #line is emitted wherever the next line of output is not
-- the next line of the file, so compilers report places in the templates; not where a style is given.
local M = {}

-- Faults of the template or its parameters travel as tables; strings are faults of this module.
local function fail(where, message)
   error({template = where .. ": " .. message}, 0)
end

local function where_of(file, line)
   return file .. ":" .. line
end

-- Pieces of a text line: strings, and {expression}s.
local function split_values(where, line)
   local pieces, position = {}, 1
   while true do
      local start = line:find("$(", position, true)
      if not start then
         pieces[#pieces + 1] = line:sub(position)
         return pieces
      end
      local body = line:match("^%b()", start + 1)
      if not body then
         fail(where, "'$(' without its ')'")
      end
      pieces[#pieces + 1] = line:sub(position, start - 1)
      pieces[#pieces + 1] = {body:sub(2, -2)}
      position = start + 1 + #body
   end
end

-- Each directive gets the parser {stack}, its node {type, line, where} and the words after the
-- keyword. stack holds {node, body}: the open blocks with the list that lines go to.
local directives = {}

local function top(parser)
   return parser.stack[#parser.stack]
end

local function append(parser, node)
   local body = top(parser).body
   body[#body + 1] = node
end

directives["if"] = function(parser, node, rest)
   local condition = rest:match("^(.-)%s*then$") or fail(node.where, "'if' without 'then'")
   local arm = {condition = condition, where = node.where, body = {}}
   node.arms = {arm}
   append(parser, node)
   table.insert(parser.stack, {node = node, body = arm.body})
end

directives["elseif"] = function(parser, node, rest)
   local block = top(parser)
   if not block.node or block.node.type ~= "if" or block.closed then
      fail(node.where, "'elseif' without 'if'")
   end
   local condition = rest:match("^(.-)%s*then$") or fail(node.where, "'elseif' without 'then'")
   local arm = {condition = condition, where = node.where, body = {}}
   table.insert(block.node.arms, arm)
   block.body = arm.body
end

directives["else"] = function(parser, node, rest)
   local block = top(parser)
   if not block.node or block.node.type ~= "if" or block.closed then
      fail(node.where, "'else' without 'if'")
   elseif rest ~= "" then
      fail(node.where, "text after 'else'")
   end
   block.node.otherwise = {}
   block.body = block.node.otherwise
   block.closed = true
end

directives["end"] = function(parser, node, rest)
   if not top(parser).node then
      fail(node.where, "'end' without 'if' or 'for'")
   elseif rest ~= "" then
      fail(node.where, "text after 'end'")
   end
   table.remove(parser.stack)
end

directives["for"] = function(parser, node, rest)
   local range
   node.variable, range = rest:match("^([%a_][%w_]*)%s*=(.*)$")
   node.range = range and range:match("^%s*(.-)%s+do$")
   if not node.range then
      fail(node.where, "'for' is not 'for NAME = FROM, TO [, STEP] do'")
   end
   node.body = {}
   append(parser, node)
   table.insert(parser.stack, {node = node, body = node.body})
end

directives["include"] = function(parser, node, rest)
   node.file = rest:match('^"([^"]+)"$') or fail(node.where, "'include' is not 'include \"FILE\"'")
   append(parser, node)
end

-- The keyword and the words behind it, of a line that begins with '@'; else nil.
local function words_of(line)
   local words = line:match("^%s*@(.*)$")
   if words then
      local keyword, rest = words:match("^%s*(%a*)(.*)$")
      return keyword, rest:match("^%s*(.-)%s*$")
   end
end

-- Plain C++.
local function is_header(file)
   return file:sub(-4) == ".cuh"
end

-- The node of a line of a template.
local function parse_line(parser, node, line)
   local keyword, rest = words_of(line)
   if not keyword then
      node.type, node.pieces = "text", split_values(node.where, line)
      append(parser, node)
   elseif directives[keyword] then
      node.type = keyword
      directives[keyword](parser, node, rest)
   else
      fail(node.where, "'@' is followed by none of if, elseif, else, end, for, include")
   end
end

-- The node of a line of plain C++.
local function parse_plain(parser, node, line)
   if line == "#pragma once" then
      return
   end
   node.file = line:match('^#include "([^"]+)"$')
   node.type, node.pieces = node.file and "include" or "text", {line}
   append(parser, node)
end

-- The nodes of a file, or an error naming its line.
local function parse(file, text)
   local root = {body = {}}
   local parser = {stack = {root}}
   local parse_one = is_header(file) and parse_plain or parse_line
   local number, position = 0, 1
   repeat
      local stop = text:find("\n", position, true) or #text + 1
      local line = text:sub(position, stop - 1)
      number, position = number + 1, stop + 1
      parse_one(parser, {line = number, where = where_of(file, number)}, line)
   until position > #text
   local open = top(parser).node
   if open then
      fail(open.where, "'" .. open.type .. "' without 'end'")
   end
   return root.body
end

-- The values of an expression list, at most four. Lua's own messages begin with the chunk's name, which is
-- ours. holder: a table of the parsed file, which keeps the chunk for the next time.
local function evaluate(state, where, expression, holder)
   local message
   state.where = where
   if not holder.chunk then
      holder.chunk, message = load("local _ENV = ... return " .. expression, "=" .. where, "t", {})
   end
   local ok, first, second, third, extra
   if holder.chunk then
      ok, first, second, third, extra = pcall(holder.chunk, state.environment)
   end
   if ok then
      return first, second, third, extra
   end
   message = message or first
   if type(message) == "table" then
      error(message, 0)
   end
   local prefix = where .. ":1: "
   fail(where, message:sub(1, #prefix) == prefix and message:sub(#prefix + 1) or message)
end

local function to_text(where, expression, value)
   if math.type(value) == "integer" then
      return string.format("%d", value)
   elseif math.type(value) == "float" and value - value == 0 then
      return string.format("%.17g", value)
   elseif type(value) == "string" or type(value) == "boolean" then
      return tostring(value)
   end
   local what = value == nil and "nil" or type(value) == "number" and "not finite" or type(value)
   fail(where, "'" .. expression .. "' is " .. what)
end

-- What stands for a value: of kernels its text; else what the style makes of it.
local function text_of(state, where, piece)
   local value = evaluate(state, where, piece[1], piece)
   if not state.style then
      return to_text(where, piece[1], value)
   elseif type(value) == "table" and value.markup then
      return value.markup
   end
   return state.style(to_text(where, piece[1], value))
end

local walk

local render = {}

function render.text(state, node)
   if not state.style and (state.file ~= state.output_file or node.line ~= state.output_line) then
      table.insert(state.output, string.format('#line %d "%s"\n', node.line, state.file))
   end
   for _, piece in ipairs(node.pieces) do
      if type(piece) == "table" then
         piece = text_of(state, node.where, piece)
      end
      state.output[#state.output + 1] = piece
   end
   state.output[#state.output + 1] = "\n"
   state.output_file, state.output_line = state.file, node.line + 1
end

render["if"] = function(state, node)
   for _, arm in ipairs(node.arms) do
      local value = evaluate(state, arm.where, arm.condition, arm)
      if value == nil then
         fail(arm.where, "'" .. arm.condition .. "' is nil")
      elseif value then
         return walk(state, arm.body)
      end
   end
   return walk(state, node.otherwise or {})
end

render["for"] = function(state, node)
   local from, to, step, extra = evaluate(state, node.where, node.range, node)
   step = step == nil and 1 or step
   local numbers = math.type(from) and math.type(to) and math.type(step)
   if not numbers or step == 0 or extra ~= nil then
      fail(node.where, "'" .. node.range .. "' is not two or three numbers, the step not 0")
   end
   local outer = rawget(state.values, node.variable)
   for value = from, to, step do
      state.values[node.variable] = value
      walk(state, node.body)
   end
   state.values[node.variable] = outer
end

-- file -> its text and nodes: a file is expanded for many variants.
local parsed = {}

local function nodes_of(file, text)
   if not parsed[file] or parsed[file].text ~= text then
      parsed[file] = {text = text, nodes = parse(file, text)}
   end
   return parsed[file].nodes
end

local function enter(state, file, where)
   if state.once[file] then
      return
   end
   state.once[file] = is_header(file)
   local text = state.read(file)
   if not text then
      fail(where, "there is no template '" .. file .. "'")
   elseif state.open[file] then
      fail(where, "'" .. file .. "' includes itself")
   end
   local outer = state.file
   state.file, state.open[file] = "templates/" .. file, true
   walk(state, nodes_of(state.file, text))
   state.file, state.open[file] = outer, nil
end

function render.include(state, node)
   enter(state, node.file, node.where)
end

function walk(state, nodes)
   for _, node in ipairs(nodes) do
      render[node.type](state, node)
   end
end

-- What expressions see. Names that there are come from the table itself; the functions are for the others.
local function strict(state)
   setmetatable(state.values, {__index = function(_, name)
      fail(state.where, "undefined name '" .. name .. "'")
   end})
   return setmetatable({}, {
      __index = state.values,
      __newindex = function(_, name)
         fail(state.where, "assignment to '" .. name .. "'")
      end,
   })
end

-- Expand the template `file` (relative to templates/). parameters: name -> number, string, boolean
-- or function. read(file): the text of a template, or nil. Returns the text, or nil and
-- "templates/FILE:LINE: what is wrong". style: for what is no kernel: what a value's text becomes, so that
-- no value is taken for markup; a value {markup = text} stands as it is.
function M.expand(file, parameters, read, style)
   local state = {read = read, style = style, open = {}, once = {}, output = {}, values = {}}
   for name, value in pairs(parameters) do
      state.values[name] = value
   end
   state.environment = strict(state)
   local ok, message = pcall(enter, state, file, file)
   if ok then
      return table.concat(state.output)
   elseif type(message) == "table" and message.template then
      return nil, message.template
   end
   error(message, 0)
end

return M
