-- The axes of a family's tuning space: one table, from which come its texts (variant.lua), its points,
-- what is said of a text that is no point, and the names that its templates see.
--
-- An axis is a table with
--   name     the key in texts, and what templates see
--   values   list of integers or words, in the order of the points
--   when     when(v, path): true, or nil and why the value does not go with those of the axes before it,
--            which v has; nil: it always does
--   phase    "launch": it acts on the launch alone (recipe.lua), so it is not in the source, and variants
--            that differ in it have the same code; nil: it is compiled
--   default  what texts mean that end before it: it came later than databases in use
-- One that is a field of the problem is no matter of choice; of a point it has the problem's value:
--   field    the name of that field. values may be nil: integers, which `when` decides about
--   feature  true: 0, or 1 where a problem asks for it; texts show it only there, and templates see a
--            boolean. With more values, or words, the first one means that it is not asked for, and templates see
--            false or the value, true for 1; without values 0 does, and they see false or the integer
-- One that is a matter of choice may have
--   quiet    true: texts show it only where it has not its first value
local M = {}

local function has_value(axis, value)
   if not axis.values then
      return true
   end
   for _, allowed in ipairs(axis.values) do
      if value == allowed then
         return true
      end
   end
   return nil, axis.name .. " is none of " .. table.concat(axis.values, ", ")
end

-- The value that texts do not show; nil: they show all.
function M.silent_value(axis)
   if axis.feature or axis.quiet then
      return axis.values and axis.values[1] or 0
   end
   return nil
end

-- Whether a point has a feature; one of a family without the axis has not.
function M.has(axis, v)
   return v[axis.name] ~= nil and v[axis.name] ~= M.silent_value(axis)
end

-- true, or nil and why v[axis.name] does not go with those before it.
local function goes_with(axis, v, path)
   if axis.when then
      return axis.when(v, path)
   end
   return true
end

-- true, or nil and why v[axis.name] is no value, or does not go with those before it.
local function check_value(axis, v, path)
   local ok, reason = has_value(axis, v[axis.name])
   if ok then
      ok, reason = goes_with(axis, v, path)
   end
   return ok, reason
end

-- true, or nil and why v is no point.
function M.check(axes, v, path)
   for _, axis in ipairs(axes) do
      local ok, reason = check_value(axis, v, path)
      if not ok then
         return nil, reason
      end
   end
   return true
end

-- A function that copies the values of a point and takes its family and its text: a constructor with all names, as a
-- table that grows name by name is made anew again and again.
local function copier(axes)
   local words = {}
   for i, axis in ipairs(axes) do
      words[i] = ("%s = v.%s"):format(axis.name, axis.name)
   end
   return load("local v, family, text = ... return {family = family, text = text, " .. table.concat(words, ", ") .. "}",
               "=point", "t", {})
end

-- Calls add(v) for each point that serves a problem, the values of the last axis changing first. A point has also its
-- family, by name, and its canonical text (variant.lua), which grows by a word for each axis.
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
         if axis.field and check_value(axis, v, path) or not axis.field and goes_with(axis, v, path) then
            extend(index + 1, value == silent and text or text .. " " .. name .. "=" .. value)
         end
      end
      v[name] = nil -- those before it do not see it
   end
   extend(1, family)
end

-- The names that a template sees of a point.
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

-- The fields of the problem that are compiled into a point, by name.
function M.kind(axes, v)
   local kind = {}
   for _, axis in ipairs(axes) do
      if axis.field then
         kind[axis.field] = v[axis.name]
      end
   end
   return kind
end

-- What a point has beyond the fields of the problem, as a text.
function M.likeness(axes, v)
   local words = {}
   for _, axis in ipairs(axes) do
      if not axis.field then
         words[#words + 1] = " " .. axis.name .. "=" .. v[axis.name]
      end
   end
   return table.concat(words)
end

-- true, or nil and the first of the features that a problem asks for and that no axis is.
function M.knows(axes, asked)
   for _, name in ipairs(asked) do
      local known = false
      for _, axis in ipairs(axes) do
         known = known or axis.field == name
      end
      if not known then
         return nil, "it does not know " .. name
      end
   end
   return true
end

return M
