-- How good the choice for problems that were not tuned is, by measurements of all candidates of many: for each
-- problem the time of the kernel that the runtime's estimate puts first among those that were measured, over the least;
-- with nothing tuned, with half of the others tuned, with the presets that are among them tuned, with all of a model's
-- problems tuned but one, and with one problem tuned at a time. As for a call, what is asked about is the end of the
-- problem's step (runtime/ops/steps.h). The candidates of a problem are the kernels that were measured on it, also
-- where today's list of them is another.
--
--   model="build/tests/run_lua tests/bench/model.lua"
--   sqlite3 -csv fa2.db "$($model query)" | build/tests/run_lua tests/bench/replay.lua [SHOWN]
--
-- from the top of the source tree; SHOWN: how many of the worst are named. No GPU: it repeats choices, not
-- measurements.
local fa2 = fa2 -- luacheck: ignore 113 (tests/bench/run_lua.c)
local generator = require("init")
local measured = dofile("tests/bench/measured.lua")

local shown = tonumber(arg[1]) or 3

local function kind_of(problem)
   return problem.seq_q <= 8 and "decode" or problem.seq_q == problem.seq_k and "prefill" or "chunked"
end

-- What a database in which the known problems were tuned knows (gen/core/estimate.lua).
local function evidence_of(known)
   local kernels, index, sets = {}, {}, {}
   for _, entry in ipairs(known) do
      local set = {problem = entry.problem, card = entry.card, here = true, kernels = {}, us = {}}
      for _, row in ipairs(entry.rows) do
         if not index[row.variant] then
            kernels[#kernels + 1] = {text = row.variant, class = entry.problem.class, registers = row.registers,
                                     spilled = false, code = true}
            index[row.variant] = #kernels
         end
         set.kernels[#set.kernels + 1], set.us[#set.us + 1] = index[row.variant], row.us
      end
      sets[#sets + 1] = set
   end
   return {kernels = kernels, sets = sets}
end

local function prepare(list)
   local candidates = {}
   for _, entry in ipairs(list) do
      entry.us, entry.best, entry.asked = {}, math.huge, fa2.asked(entry.problem, entry.card.sm_count)
      candidates[entry.asked] = {}
      for i, row in ipairs(entry.rows) do
         entry.us[row.variant] = row.us
         entry.best = math.min(entry.best, row.us)
         candidates[entry.asked][i] = {
            text = row.variant, cost_us = assert(generator.cost(row.variant, entry.asked, entry.card, 0)),
         }
      end
   end
   function generator.candidates(problem)
      return candidates[problem]
   end
end

-- {ratio, entry, text} of the choice, by what was learnt last; nil if no kernel that is considered was measured.
local function choose(entry)
   for _, option in ipairs(assert(generator.rank(entry.asked, entry.card))) do
      local us = entry.us[option.text]
      if us then
         return {ratio = us / entry.best, entry = entry, text = option.text}
      end
   end
end

local function say(name, list)
   local sum = 0
   table.sort(list, function(a, b) return a.ratio < b.ratio end)
   for _, one in ipairs(list) do
      sum = sum + math.log(one.ratio)
   end
   if #list > 0 then
      print(("%-34s %4d: geometric mean %.3f, 90th percentile %.3f, worst %.3f"):format(
         name, #list, math.exp(sum / #list), list[math.ceil(0.9 * #list)].ratio, list[#list].ratio))
   end
end

local function report(name, list)
   say(name, list)
   for _, kind in ipairs({"prefill", "decode", "chunked"}) do
      local some = {}
      for _, one in ipairs(list) do
         some[#some + 1] = kind_of(one.entry.problem) == kind and one or nil
      end
      say("   " .. kind, some)
   end
   for i = #list, math.max(#list - shown + 1, 1), -1 do
      print(("   %.3f %s: %s"):format(list[i].ratio, list[i].entry.key, list[i].text))
   end
end

-- Choices for `asked` with `known` tuned, and their ratios over those with nothing tuned.
local function compare(known, asked, none, choices, against)
   generator.learn("forward", evidence_of(known))
   for _, entry in ipairs(asked) do
      local one = choose(entry)
      if one and none[entry] then
         choices[#choices + 1] = one
         against[#against + 1] = {ratio = one.ratio / none[entry], entry = entry, text = one.text}
      end
   end
end

-- Whether a problem is one of the presets', which have no features.
local preset_fields = {"batch", "heads_q", "heads_kv", "seq_q", "seq_k", "head_dim", "dtype", "causal"}

local function read_presets()
   local presets = {}
   for line in io.lines("tuner/input/presets.csv") do
      local sizes = line:match("^%a+,(%d.*)$")
      presets[sizes or ""] = true
   end
   return function(entry)
      local values = {}
      for i, field in ipairs(preset_fields) do
         values[i] = entry.problem[field]
      end
      return #entry.problem.asked == 0 and presets[table.concat(values, ",")] or false
   end
end

local function report_presets(list, none)
   local known, asked, choices, against = {}, {}, {}, {}
   local is_preset = read_presets()
   for _, entry in ipairs(list) do
      table.insert(is_preset(entry) and known or asked, entry)
   end
   compare(known, asked, none, choices, against)
   report(("%d presets tuned"):format(#known), choices)
   report("the same against nothing tuned", against)
end

-- Whether a problem is one of tests/bench/untuned.py's model, of no preset.
local function is_alike(entry)
   local p = entry.problem
   return p.heads_q == 32 and p.heads_kv == 8 and p.head_dim == 128 and p.dtype == "bf16" and p.causal == 1
      and #p.asked == 0
end

-- Of a model's problems each, with the others tuned.
local function report_alike(list, none)
   local choices, against, is_preset = {}, {}, read_presets()
   local alike = {}
   for _, entry in ipairs(list) do
      alike[#alike + 1] = is_alike(entry) and not is_preset(entry) and entry or nil
   end
   for i, entry in ipairs(alike) do
      local others = table.move(alike, 1, #alike, 1, {})
      table.remove(others, i)
      compare(others, {entry}, none, choices, against)
   end
   report("all but one of a model's tuned", choices)
   report("the same against nothing tuned", against)
end

local function main()
   local list, none, untuned = measured.read(generator.cost), {}, {}
   prepare(list)
   generator.learn("forward", evidence_of({}))
   for _, entry in ipairs(list) do
      local one = choose(entry)
      none[entry], untuned[#untuned + 1] = one and one.ratio, one
   end
   report("nothing tuned", untuned)
   local choices, against = {}, {}
   for fold = 0, 1 do
      local known, asked = {}, {}
      for i, entry in ipairs(list) do
         table.insert(i % 2 == fold and known or asked, entry)
      end
      compare(known, asked, none, choices, against)
   end
   report("the other half tuned", choices)
   report("the same against nothing tuned", against)
   report_presets(list, none)
   report_alike(list, none)
   choices, against = {}, {}
   for i = 1, #list, 3 do
      local neighbour = {}
      for _, entry in ipairs(list) do
         local same = entry ~= list[i] and entry.problem.head_dim == list[i].problem.head_dim
         neighbour[#neighbour + 1] = same and entry or nil
      end
      compare({list[i]}, neighbour, none, choices, against)
   end
   report("one tuned, against nothing tuned", against)
end

main()
