-- The axes of a family's tuning space. One table gives the texts of variants (variant.lua), the points of the space,
-- the reasons why a text is no point, and the names that templates see.
--
-- An axis is a table with
--   name     the key in texts, and the name that templates see
--   values   list of integers or words, in the order of the points
--   unless   unless(v, path): returns why the value does not go with earlier axes, whose values v has; nil or false if
--            it goes. nil: every value goes
--   phase    "launch": it only changes the launch (recipe.lua). Sources do not contain it, and variants that differ in
--            it have the same code. nil: it is compiled
--   default  the value if a text ends before the axis: databases are in use that are older than the axis
-- An axis that is a field of the problem is not chosen. A point has the problem's value:
--   field    the name of that field. values may be nil: then all integers to which `unless` has no objection
--   feature  true: the first value (0 without values) means that the problem does not ask for the feature. Texts show
--            only other values. Templates see false for the first value, true for 1, and any other value as it is
-- An axis that is chosen may have
--   quiet    true: texts show it only if its value is not the first one
local M = {}

-- Returns why an axis has no such value; nil if it has.
local function unknown_value(axis, value)
   for _, allowed in ipairs(axis.values or {value}) do
      if value == allowed then
         return nil
      end
   end
   return axis.name .. " is none of " .. table.concat(axis.values, ", ")
end

-- Returns the value that texts do not show; nil if they show all.
function M.silent_value(axis)
   if axis.feature or axis.quiet then
      return axis.values and axis.values[1] or 0
   end
   return nil
end

-- Returns true if a point has a feature. A point of a family without the axis has not.
function M.has(axis, v)
   return v[axis.name] ~= nil and v[axis.name] ~= M.silent_value(axis)
end

-- Returns why v[axis.name] does not go with the values of earlier axes; nil or false if it does.
local function objection(axis, v, path)
   return axis.unless and axis.unless(v, path)
end

-- The same, or why it is not a value.
local function misfit(axis, v, path)
   return unknown_value(axis, v[axis.name]) or objection(axis, v, path)
end

-- Returns why v is no point; nil if it is one.
function M.misfit(axes, v, path)
   for _, axis in ipairs(axes) do
      local reason = misfit(axis, v, path)
      if reason then
         return reason
      end
   end
end

-- Returns a function that makes a point from the values in v, a family's name and a text. It is one constructor with
-- all names: a table that grows name by name is reallocated again and again.
local function copier(axes)
   local words = {}
   for i, axis in ipairs(axes) do
      words[i] = ("%s = v.%s"):format(axis.name, axis.name)
   end
   return load("local v, family, text = ... return {family = family, text = text, " .. table.concat(words, ", ") .. "}",
               "=point", "t", {})
end

-- Calls add(v) for each point that serves a problem. The value of the last axis changes first. A point also has the
-- name of its family and its canonical text (variant.lua), which grows by a word for each axis.
function M.each_point(family, axes, path, problem, add)
   local v, copy = {}, copier(axes)
   local function extend(index, text)
      local axis = axes[index]
      if not axis then
         add(copy(v, family, text))
         return
      end
      local name, silent = axis.name, M.silent_value(axis)
      for _, value in ipairs(axis.field and {problem[axis.field]} or axis.values) do
         v[name] = value
         if not (axis.field and misfit or objection)(axis, v, path) then
            extend(index + 1, value == silent and text or text .. " " .. name .. "=" .. value)
         end
      end
      v[name] = nil -- earlier axes must not see it
   end
   extend(1, family)
end

-- Returns the names that a template sees for a point.
function M.names(axes, v)
   local names = {}
   for _, axis in ipairs(axes) do
      if axis.feature then
         names[axis.name] = M.has(axis, v) and (v[axis.name] == 1 or v[axis.name])
      elseif axis.phase ~= "launch" then
         names[axis.name] = v[axis.name]
      end
   end
   return names
end

-- Adds what the other tables have to `names`, and returns it. A later table wins.
function M.add_names(names, ...)
   for _, more in ipairs({...}) do
      for name, value in pairs(more) do
         names[name] = value
      end
   end
   return names
end

-- Returns one list of the axes of several.
function M.joined(...)
   local list = {}
   for _, part in ipairs({...}) do
      table.move(part, 1, #part, #list + 1, list)
   end
   return list
end

-- Returns true if a list of {first, second} has this one. For `unless` of an axis that goes with an earlier one.
function M.has_pair(list, first, second)
   for _, pair in ipairs(list) do
      if pair[1] == first and pair[2] == second then
         return true
      end
   end
   return false
end

-- Returns the fields of the problem that are compiled into a point, by name. key: "name", or "field" if v is a problem.
function M.kind(axes, v, key)
   local kind = {}
   for _, axis in ipairs(axes) do
      if axis.field then
         kind[axis.field] = v[axis[key or "name"]]
      end
   end
   return kind
end

-- Returns as a text what a point has besides the fields of the problem.
function M.similarity(axes, v)
   local words = {}
   for _, axis in ipairs(axes) do
      if not axis.field then
         words[#words + 1] = " " .. axis.name .. "=" .. v[axis.name]
      end
   end
   return table.concat(words)
end

-- Names the first feature that the problem asks for and that no axis has; nil if there is none.
function M.missing(axes, asked)
   for _, name in ipairs(asked) do
      local known = false
      for _, axis in ipairs(axes) do
         known = known or axis.field == name
      end
      if not known then
         return "it does not know " .. name
      end
   end
end

return M
