-- window: query i, which stands at p = i + seq_k - seq_q, sees the keys p - window_left ...
-- p + window_right (templates/features/window.cuh). A causal mask is the window whose right end is 0.
-- The functions take any problem: one that asks for no window has none that ends. Two more kinds have one length:
-- a prefix of window_left keys that all queries see, where else the mask is causal; and chunks of window_left,
-- of which a query sees its own.
local M = {}

local prefix, chunk = 2, 3

M.axis = {name = "window", field = "window", values = {0, 1, prefix, chunk}, feature = true}

-- With a prefix, being causal says nothing about a tile: what templates see.
function M.names(v)
   return {causal = v.window == prefix and 0 or v.causal}
end

-- More than any length.
M.unbounded = 1 << 30

-- How many keys a query sees before its own position, and behind it.
function M.ends(problem)
   local left, right = M.unbounded, M.unbounded
   if problem.window == chunk then -- in the mean
      left = problem.window_left // 2
      right = left
   elseif problem.window == 1 then
      left = problem.window_left >= 0 and problem.window_left or left
      right = problem.window_right >= 0 and problem.window_right or right
   end
   return left, problem.causal == 1 and 0 or right
end

-- How many keys some query sees.
function M.seen_keys(problem)
   local left = M.ends(problem)
   local first = math.max(problem.seq_k - problem.seq_q, 0) -- position of a query
   if problem.window == chunk then
      return problem.seq_k - first // problem.window_left * problem.window_left
   end
   return problem.seq_k - math.max(first - left, 0)
end

-- Windows to select variants by, for whatever window a problem of the class has: narrow and wide ones
-- that models are trained with.
local widths = {256, 1024}

-- The shapes, each with each of these windows if the problem asks for one.
function M.typical(shapes, problem)
   if problem.window == 0 then
      return shapes
   end
   local list = {}
   for _, shape in ipairs(shapes) do
      for _, width in ipairs(widths) do
         local copy = {window_left = width, window_right = problem.window == 1 and width or -1}
         for name, value in pairs(shape) do
            copy[name] = value
         end
         list[#list + 1] = copy
      end
   end
   return list
end

return M
