-- lengths: what device memory says of the sequences of a batch (templates/features/lengths.cu.in). seqused:
-- how many keys each of them has. Where keys are divided among blocks, sequences get blocks in proportion
-- to their lengths (templates/features/shares.cu.in).
local M = {}

M.forward_only = true
M.axis = {name = "seqused", field = "seqused", values = {0, 1}, feature = true}

-- Whether sequences of a variant have lengths of their own.
function M.has(v)
   return v.seqused == 1
end

-- What templates read in the place of the problem's sizes.
function M.names(v)
   local lengths = M.has(v)
   return {
      lengths = lengths,
      seq_q = "p.seq_q",
      seq_k = lengths and "place.sequence.seq_k" or "p.seq_k",
      splits = lengths and "place.splits" or "p.splits",
      row_splits = lengths and "parts.splits" or "p.splits",
      row_part = lengths and "parts.first + split * kBr" or "split * rows + row",
   }
end

return M
