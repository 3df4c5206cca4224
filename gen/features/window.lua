-- window: query i, which stands at p = i + seq_k - seq_q, sees the keys p - window_left ...
-- p + window_right (templates/features/window.cu.in). A causal mask is the window whose right end is 0.
-- The functions take any problem: one that asks for no window has none that ends.
local M = {}

M.axis = {name = "window", field = "window", values = {0, 1}, feature = true}

-- More than any length.
M.unbounded = 1 << 30

-- How many keys a query sees before its own position, and behind it.
function M.ends(problem)
   local left, right = M.unbounded, M.unbounded
   if problem.window == 1 then
      left = problem.window_left >= 0 and problem.window_left or left
      right = problem.window_right >= 0 and problem.window_right or right
   end
   return left, problem.causal == 1 and 0 or right
end

-- How many keys some query sees.
function M.seen_keys(problem)
   local left = M.ends(problem)
   return problem.seq_k - math.max(problem.seq_k - problem.seq_q - left, 0)
end

-- Windows to select variants by, for whatever window a problem of the class has: narrow and wide ones
-- that models are trained with.
local widths = {256, 1024}

-- The shapes, each with each of these windows if the problem asks for one.
function M.typical(shapes, problem)
   if problem.window ~= 1 then
      return shapes
   end
   local list = {}
   for _, shape in ipairs(shapes) do
      for _, width in ipairs(widths) do
         local copy = {window_left = width, window_right = width}
         for name, value in pairs(shape) do
            copy[name] = value
         end
         list[#list + 1] = copy
      end
   end
   return list
end

return M
