-- All families, in the order in which they are asked. A family is a table with
--   name                                 first word of its variants, its entry point, and its
--                                        template's name: templates/NAME.cu.in
--   keys                                 of its canonical text (variant.lua)
--   serves(self, problem, arch)          true, or nil and the reason
--   check(self, v)                       true, or nil and why v is no point of its space
--   candidates(self, problem, arch)      list of v with v.text
--   rejected(self, problem, arch)        list of {text, reason}: every other point
--   cost(self, v, problem, arch, registers)   us
--   launch(self, v)                      {text, recipe, kind}: see init.lua
--   environment(self, v)                 the names that its template sees
local fwd = require("ops.forward")
local paths = require("paths.mma_sync")
local plain = require("ops.forward_plain")
local splitkv = require("ops.forward_splitkv")

return {
   fwd.family("fwd_sm75", plain, paths.sm75),
   fwd.family("fwd_sm80", plain, paths.sm80),
   fwd.family("fwd_splitkv_sm75", splitkv, paths.sm75),
   fwd.family("fwd_splitkv_sm80", splitkv, paths.sm80),
}
