-- lengths: device memory gives the lengths of a batch's sequences (templates/features/lengths.cuh). seqused: the number
-- of keys of each sequence. varlen: where its rows begin and end in packed tensors. If keys are divided among blocks,
-- sequences get blocks in proportion to their lengths (templates/features/shares.cuh).
local axes_of = require("core.axes")

local M = {}

M.forward_only, M.fp32 = true, true
M.axis = {name = "seqused", says = "each sequence has its own number of keys"}

-- For packed sequences.
M.packed = {
   fp32 = true, axis = {name = "varlen", says = "sequences are packed one after the other"},
   own_registers = 10, -- in backward: where the sequence's tensors begin, and its lengths
}

-- Returns true if the sequences of a variant have their own lengths.
function M.has(v)
   return v.seqused == 1 or v.varlen == 1 or v.leftpad == 1
end

local plain = {seqused = 0, varlen = 0, total_q = 0, total_k = 0, paged = 0, page = 0, leftpad = 0}

local function with(problem, sizes)
   return axes_of.add_names({}, problem, sizes, plain)
end

-- Returns the rows of packed tensors, or of all sequences.
function M.rows(problem, seq, total)
   return total and total > 0 and total or problem.batch * seq
end

-- Returns the length of the longest packed sequence, and the mean of the others.
local function longest_and_mean(problem, seq, given)
   local others, total = problem.batch - 1, M.rows(problem, seq, given)
   local longest = math.min(seq, total)
   return longest, others > 0 and math.min(seq, (total - longest) // others) or 0
end

local function find_parts(problem)
   if problem.varlen == 1 then
      local q, mean_q = longest_and_mean(problem, problem.seq_q, problem.total_q)
      local k, mean_k = longest_and_mean(problem, problem.seq_k, problem.total_k)
      local list = {with(problem, {batch = 1, seq_q = q, seq_k = k})}
      if mean_q > 0 and mean_k > 0 then
         list[2] = with(problem, {batch = problem.batch - 1, seq_q = mean_q, seq_k = mean_k})
      end
      return list
   elseif problem.seqused == 1 then
      local mean = problem.seq_k * (problem.batch + 1) // 2 // problem.batch
      return {with(problem, {seq_k = math.max(mean, 1)})}
   elseif problem.paged == 1 then
      return {with(problem, {})}
   end
   return {problem}
end

-- Results by problem. A problem asks for the cost of every variant.
local parts = setmetatable({}, {__mode = "k"})

-- Returns a list of problems without such lengths that cost about as much together. These are the problems that are
-- tuned for (fa2i_forward_parts in runtime/ops). The problem must not change.
function M.parts(problem)
   local list = parts[problem]
   if not list then
      list = find_parts(problem)
      parts[problem] = list
   end
   return list
end

-- Returns the sum of f(part) over the parts of a problem, and of `first`, if it is given.
function M.sum_of_parts(problem, f, first)
   local sum = first or 0
   for _, part in ipairs(M.parts(problem)) do
      sum = sum + f(part)
   end
   return sum
end

return M
