-- Writes the expanded kernels of variants: for gate.py, which runs it in the source tree whose text it wants.
--
--   cd TREE; run_lua .../gate.lua FOLDER < VARIANTS
--
-- VARIANTS: one a line. FOLDER gets N.cu for line N; a variant that the tree does not have gets N.missing, which says
-- why. No GPU.
local generator = require("init")

local function read(file)
   local input = io.open("templates/" .. file, "rb")
   if not input then
      return nil
   end
   local text = input:read("a")
   input:close()
   return text
end

local number = 0
for variant in io.lines() do
   number = number + 1
   local text, message = generator.source(variant, read)
   local output = assert(io.open(("%s/%d.%s"):format(arg[1], number, text and "cu" or "missing"), "wb"))
   output:write(text or message)
   output:close()
end
