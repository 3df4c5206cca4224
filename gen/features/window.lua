-- window: query i at position p = i + seq_k - seq_q sees the keys p - window_left ... p + window_right
-- (templates/features/window.cuh). A causal mask is the window whose right end is 0. Two more kinds use only
-- window_left. A prefix: all queries see the first window_left keys, and the mask is causal otherwise. Chunks of
-- window_left keys: a query sees its own chunk. The functions take any problem. Without a window, no end is bounded.
local M = {}

local prefix, chunk = 2, 3

M.axis = {name = "window", values = {0, 1, prefix, chunk}}

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

-- Returns sizes of problems (core/family.lua) for a list of {query heads, key heads, queries, keys}. If the problem has
-- a window, each of them comes with each of these windows.
function M.typical(shapes, problem)
   local list = {}
   for _, shape in ipairs(shapes) do
      for _, width in ipairs(problem.window == 0 and {0} or widths) do
         list[#list + 1] = {
            batch = 1, heads_q = shape[1], heads_kv = shape[2], seq_q = shape[3], seq_k = shape[4],
            window_left = width, window_right = problem.window <= 1 and width or -1,
         }
      end
   end
   return list
end

return M
