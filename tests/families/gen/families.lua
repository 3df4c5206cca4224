-- The plain forward families, and two that misbehave: the tuner must survive them.
local fwd = require("ops.forward")
local paths = require("paths.mma_sync")
local plain = require("ops.forward_plain")
local test_family = require("ops.test_family")

return {
   fwd.family("fwd_sm75", plain, paths.sm75), fwd.family("fwd_sm80", plain, paths.sm80),
   test_family.family("test_fault"), test_family.family("test_hang"),
}
