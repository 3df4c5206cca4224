-- All families, in the order in which they are asked. A family is a table with
--   name                                 first word of its variants, its entry point, and its
--                                        template's name: templates/NAME.cu.in
--   keys                                 of its canonical text (variant.lua)
--   serves(self, problem, arch)          true, or nil and the reason
--   check(self, v)                       true, or nil and why v is no point of its space
--   candidates(self, problem, arch)      list of v with v.text; list of {text, reason} rejected
--   cost(self, v, problem, arch, registers)   us
--   launch(self, v)                      {threads, block_rows, smem_bytes}
--   environment(self, v)                 the names that its template sees
local fwd_sm75 = require("fwd_sm75")
local fwd_sm80 = require("fwd_sm80")

return {fwd_sm75, fwd_sm80}
