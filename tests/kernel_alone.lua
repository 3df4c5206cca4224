-- Writes headers of kernels alone, after the configuration of a family: for test_kernel_text.py.
--
--   cd TREE; run_lua tests/kernel_alone.lua FOLDER < LINES
--
-- A line is "CONFIGURATION HEADER VARIANT", the former two below templates/. FOLDER gets N.cu for line N: what the
-- variant's configuration, its policies and the header, with all that it includes, expand to.
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
for line in io.lines() do
   local configuration, header, variant = line:match("^(%S+) (%S+) (.*)$")
   local policies, root = configuration:gsub("config", "policies"), {}
   for _, file in ipairs({configuration, read(policies) and policies or "", header}) do
      root[#root + 1] = file ~= "" and ('@ include "%s"'):format(file) or nil
   end
   root = table.concat(root, "\n")
   number = number + 1
   local text, message = generator.source(variant, function(file)
      local own = root or read(file)  -- what is asked for first stands for the family's root
      root = nil
      return own
   end)
   local output = assert(io.open(("%s/%d.cu"):format(arg[1], number), "wb"))
   output:write(text or error(header .. ": " .. message))
   output:close()
end
