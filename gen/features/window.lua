-- window: query i at position p = i + seq_k - seq_q sees the keys p - window_left ... p + window_right
-- (templates/features/window.cuh). A causal mask is the window whose right end is 0. Two more kinds use only
-- window_left. A prefix: all queries see the first window_left keys, and the mask is causal otherwise. Chunks of
-- window_left keys: a query sees its own chunk. The functions take any problem. Without a window, no end is bounded.
local M = {}

local prefix, chunk = 2, 3

M.axis = {name = "window", field = "window", values = {0, 1, prefix, chunk}, feature = true}

-- Names for templates. With a prefix, a causal problem is not causal for a tile.
function M.names(v)
   return {causal = v.window == prefix and 0 or v.causal}
end

-- More than any length.
M.unbounded = 1 << 30

-- Returns how many keys a query sees before its own position, and after it.
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

-- Returns how many keys are seen by at least one query.
function M.seen_keys(problem)
   local left = M.ends(problem)
   local first = math.max(problem.seq_k - problem.seq_q, 0) -- position of the first query
   if problem.window == chunk then
      return problem.seq_k - first // problem.window_left * problem.window_left
   end
   return problem.seq_k - math.max(first - left, 0)
end

-- Windows by which variants are selected, for all windows of a class: narrow and wide ones with which models are
-- trained.
local widths = {256, 1024}

-- Returns the shapes; if the problem has a window, each shape with each of these windows.
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
