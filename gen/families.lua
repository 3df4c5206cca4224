-- All families, in the order in which they are asked. core/family.lua describes a family.
local bwd = require("ops.backward")
local bwd_fp32 = require("ops.backward_fp32")
local bwd_sm90 = require("ops.backward_sm90")
local fwd = require("ops.forward")
local fwd_bytes = require("ops.forward_bytes")
local fwd_bytes_sm90 = require("ops.forward_bytes_sm90")
local fwd_fp32 = require("ops.forward_fp32")
local fwd_sm90 = require("ops.forward_sm90")
local fwd_splitkv_sm90 = require("ops.forward_splitkv_sm90")
local merge = require("ops.merge")
local paths = require("paths.mma_sync")
local plain = require("ops.forward_plain")
local splitkv = require("ops.forward_splitkv")

return {
   fwd.family("fwd_sm75", plain, paths.sm75),
   fwd.family("fwd_sm80", plain, paths.sm80),
   fwd.family("fwd_bytes_sm89", fwd_bytes, paths.sm89),
   fwd_sm90.family(),
   fwd_bytes_sm90.family(),
   fwd.family("fwd_splitkv_sm75", splitkv, paths.sm75),
   fwd.family("fwd_splitkv_sm80", splitkv, paths.sm80),
   fwd_splitkv_sm90.family(),
   fwd_fp32.family("fwd_fp32_sm75", paths.sm75),
   fwd_fp32.family("fwd_fp32_sm80", paths.sm80),
   bwd.family("bwd_sm75", paths.sm75),
   bwd.family("bwd_sm80", paths.sm80),
   bwd_sm90.family(),
   bwd_fp32.family("bwd_fp32_sm75", paths.sm75),
   bwd_fp32.family("bwd_fp32_sm80", paths.sm80),
   merge.family("merge_sm75", paths.sm75),
   merge.family("merge_sm80", paths.sm80),
}
