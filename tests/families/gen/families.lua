-- The forward families, and two that misbehave: the tuner must survive them.
local fwd_sm75 = require("fwd_sm75")
local fwd_sm80 = require("fwd_sm80")
local test_family = require("test_family")

return {
   fwd_sm75, fwd_sm80, test_family.family("test_fault"), test_family.family("test_hang"),
}
