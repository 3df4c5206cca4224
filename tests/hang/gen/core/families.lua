-- The plain family, and one variant of the one on TMA: gpu_hang.sh plants a fault in its template.
local fwd = require("ops.forward")
local fwd_sm90 = require("ops.forward_sm90")
local paths = require("paths.mma_sync")
local plain = require("ops.forward_plain")

local hopper = fwd_sm90.family()
local candidates = hopper.candidates
function hopper:candidates(problem, arch)
   return {candidates(self, problem, arch)[1]}
end

return {fwd.family("fwd_sm80", plain, paths.sm80), hopper}
