-- lengths: what device memory says of the sequences of a batch (templates/features/lengths.cu.in). seqused:
-- how many keys each of them has; varlen: where its rows begin and end in packed tensors. Where keys are
-- divided among blocks, sequences get blocks in proportion to their lengths
-- (templates/features/shares.cu.in).
local M = {}

M.forward_only = true
M.axis = {name = "seqused", field = "seqused", values = {0, 1}, feature = true}

-- Of packed sequences.
M.packed = {axis = {name = "varlen", field = "varlen", values = {0, 1}, feature = true}}

-- Backward: where the sequence's tensors begin, and its lengths.
M.packed.own_registers = 10

-- Whether sequences of a variant have lengths of their own.
function M.has(v)
   return v.seqused == 1 or v.varlen == 1 or v.leftpad == 1
end

local function with(problem, sizes)
   local part = {}
   for name, value in pairs(problem) do
      part[name] = value
   end
   for name, value in pairs(sizes) do
      part[name] = value
   end
   part.seqused, part.varlen, part.total_q, part.total_k = 0, 0, 0, 0
   part.paged, part.page, part.leftpad = 0, 0, 0
   return part
end

-- Rows of packed tensors, or of all sequences.
function M.rows(problem, seq, total)
   return total and total > 0 and total or problem.batch * seq
end

-- The longest of packed sequences, and the mean of the others.
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

-- By problem, which has them for the cost of every variant.
local parts = setmetatable({}, {__mode = "k"})

-- A problem, which must not change, as a list of problems without such lengths: those that are tuned for
-- (fa2i_forward_parts of runtime/ops).
function M.parts(problem)
   local list = parts[problem]
   if not list then
      list = find_parts(problem)
      parts[problem] = list
   end
   return list
end

-- What templates of backward read in the place of the problem's: names of parameters of all sequences, and of
-- the own one's alone; the sequence's number, and its plane for dropout; tiles of queries, and the first one's number;
-- rows of LSE, and those of LSE and delta that are prepared, of a plane; the sequence's first of these; fragments
-- between m16 tiles of dQ; rows of its sums, and tiles at which there are turns.
function M.backward_names(v)
   local packed = v.varlen == 1
   local of_row = packed and v.rows == "prepared"
   return {
      seqused = false, append = false,
      params = packed and "all" or "p",
      own = packed and "own" or "p",
      sequence = packed and "place.own.index" or "place.batch",
      dropped_plane = packed and "own.index * p.heads_q + head" or "plane",
      batches = packed and "1" or "p.batch",
      q_tiles = packed and "place.q_tiles" or "p.q_tiles",
      q_tile = packed and " + place.first_q_tile" or "",
      lse_rows = packed and "p.features.total_q" or "p.seq_q",
      plane_queries = packed and "plane_rows" or "p.seq_q",
      plane_rows = packed and "prepared_rows(p)" or "int64(p.q_tiles) * kBr",
      tile_rows = packed and "prepared_rows(p)" or "p.q_tiles * kBr",
      row_tile = of_row and ", place.first_prepared" or "",
      takes_row = of_row and ", int first" or "", first_row = of_row and "first + " or "",
      dq_step = packed and "2 * kDqPairs * kColWarps" or "2 * kDqPairs",
      dq_rows = packed and "int64(p.heads_q) * p.features.total_q" or "all_rows",
      turn_count = packed and "int64(p.heads_q) * p.q_tiles" or "all_rows / kBr",
   }
end

-- What templates of forward read in the place of the problem's sizes.
function M.names(v)
   local lengths, packed = M.has(v), v.varlen == 1
   return {
      lengths = lengths,
      seq_q = v.varlen == 1 and "place.sequence.seq_q" or "p.seq_q",
      sequence_q = v.varlen == 1 and "sequence.seq_q" or "p.seq_q",
      seq_k = lengths and "place.sequence.seq_k" or "p.seq_k",
      splits = lengths and "place.splits" or "p.splits",
      -- Whether no other block has keys of a row; else which slot its part goes to, of how many.
      is_whole = packed and "place.part < 0" or (lengths and "place.splits" or "p.splits") .. " == 1",
      part = packed and "place.part" or "blockIdx.x",
      part_slots = packed and "part_slots(p)" or "p.features.slots",
      first_part = packed and "first_part" or "first",
      row_splits = lengths and "parts.splits" or "p.splits",
      row_part = lengths and "parts.first" or "row", -- the first of its parts, which are so far apart
      row_step = lengths and "kBr" or "rows",
   }
end

return M
