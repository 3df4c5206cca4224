-- What scripts may see: base without files and clocks, table, string, math; and the host's require.
std = {
   read_globals = {
      "assert", "error", "getmetatable", "ipairs", "load", "next", "pairs", "pcall", "rawequal",
      "rawget", "rawlen", "rawset", "require", "select", "setmetatable", "tonumber", "tostring",
      "type", "xpcall", "_VERSION", math = {other_fields = true}, string = {other_fields = true},
      table = {other_fields = true},
   },
}
max_line_length = 100
