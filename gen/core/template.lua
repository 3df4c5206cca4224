-- The template language.
--
--   @ if EXPR then / @ elseif EXPR then / @ else / @ end      text that may be left out
--   @ for NAME = FROM, TO [, STEP] do / @ end                 text that is repeated
--   @ include "FILE"                                          another template, with the same names
--   @ include EXPR                                            the same; the value is the file's name, or false: none
--   $(EXPR)                                                   a value, anywhere in other lines: a number, a boolean or
--                                                             a word of letters, digits and '_'; after //, in a
--                                                             comment, also a line of text
--
-- A line whose first non-blank character is @ is one of these. All else is text. Expressions are Lua, and see only the
-- parameters and the loop variables.
--
-- A .cuh file is plain C++: '@' and '$(' mean nothing in it. Its lines `#include "FILE"` name other files relative to
-- templates/, and are replaced by their text. A .cuh file comes once, however many files include it (its `#pragma once`
-- is removed). A .def file comes each time.
--
-- Each file is first parsed into nodes, so that all blocks are known to be closed. Then the nodes are rendered.
-- Expressions are compiled one by one, so that every error can name its line. If the next line of output is not the
-- next line of the file, #line is written, so that compilers report places in the templates. With a style, no #line is
-- written, and a value may be any text: the style escapes it.
local M = {}

-- Errors of a template or its parameters are thrown as tables. Errors that are strings are bugs of this module.
local function fail(where, message)
   error({template = where .. ": " .. message}, 0)
end

local function where_of(file, line)
   return file .. ":" .. line
end

-- Splits a text line into strings and {expression}s.
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
      pieces[#pieces + 1] = {body:sub(2, -2), is_comment = line:sub(1, start):find("//", 1, true) ~= nil}
      position = start + 1 + #body
   end
end

-- Directives by keyword. Each takes the parser {stack}, its node {type, line, where} and the words after the keyword.
-- stack holds {node, body}: the open blocks, and the list to which lines are added.
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
   node.file = rest:match('^"([^"]+)"$')
   node.name = not node.file and rest
   append(parser, node)
end

-- Returns the keyword and the words after it, if a line begins with '@'; else nil.
local function words_of(line)
   local words = line:match("^%s*@(.*)$")
   if words then
      local keyword, rest = words:match("^%s*(%a*)(.*)$")
      return keyword, rest:match("^%s*(.-)%s*$")
   end
end

-- Returns true for plain C++.
local function is_header(file)
   return file:sub(-4) == ".cuh"
end

-- Parses a line of a template.
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

-- Parses a line of plain C++.
local function parse_plain(parser, node, line)
   if line == "#pragma once" then
      return
   end
   node.file = line:match('^#include "([^"]+)"$')
   node.type, node.pieces = node.file and "include" or "text", {line}
   append(parser, node)
end

-- Returns the nodes of a file, or throws an error that names its line.
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

-- Returns the values of an expression list, at most four. Lua's messages begin with the chunk's name, which is `where`.
-- holder: a table of the parsed file that keeps the chunk for the next time.
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

-- A kernel takes plain values only, so that its text is in templates/ and nowhere else. A comment takes a line of text,
-- which a backslash at its end would continue.
local function is_plain(value, is_comment)
   return type(value) ~= "string" or value:find(is_comment and "^[^%c\\]*$" or "^[%a_][%w_]*$") ~= nil
end

-- Returns the text of a value. Values of a kernel are plain.
local function to_text(where, expression, value, of_kernel, is_comment)
   if of_kernel and not is_plain(value, is_comment) then
      fail(where, string.format("'%s' is no number, word or boolean: '%s'", expression, value))
   elseif math.type(value) == "integer" then
      return string.format("%d", value)
   elseif math.type(value) == "float" and value - value == 0 then
      return string.format("%.17g", value)
   elseif type(value) == "string" or type(value) == "boolean" then
      return tostring(value)
   end
   local what = value == nil and "nil" or type(value) == "number" and "not finite" or type(value)
   fail(where, "'" .. expression .. "' is " .. what)
end

-- Returns the text of a value. With a style, returns what the style makes of it.
local function text_of(state, where, piece)
   local value = evaluate(state, where, piece[1], piece)
   if not state.style then
      return to_text(where, piece[1], value, true, piece.is_comment)
   elseif type(value) == "table" and value.markup then
      return value.markup
   end
   return state.style(to_text(where, piece[1], value, false))
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

-- Text and nodes by file, because a file is expanded for many variants.
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
   local file = node.file or evaluate(state, node.where, node.name, node)
   if file == false then
      return
   elseif type(file) ~= "string" then
      fail(node.where, "'" .. node.name .. "' is no file's name")
   end
   enter(state, file, node.where)
end

function walk(state, nodes)
   for _, node in ipairs(nodes) do
      render[node.type](state, node)
   end
end

-- Returns the environment of expressions. Known names come from the table itself. The functions handle the others.
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

-- Expands the template `file` (relative to templates/). Returns the text, or nil and "templates/FILE:LINE: what is
-- wrong".
--   parameters  name -> number, string, boolean or function
--   read(file)  returns the text of a template, or nil
--   style       for text that is no kernel: a function that escapes the text of a value, so that no value is taken for
--               markup. A value {markup = text} is inserted as it is
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
