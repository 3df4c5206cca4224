-- Writes a report: the facts of one or two databases, through the templates in tuner/report/templates/.
--
-- Templates escape all values, except the markup that figures.lua and variant_rows make.
local compare = require("tuner.report.lua.compare")
local facts_of = require("tuner.report.lua.facts")
local figures = require("tuner.report.lua.figures")
local format = require("tuner.report.lua.format")
local generator = require("init")
local statistics = require("tuner.report.lua.statistics")
local template = require("core.template")
local arch_of = require("core.arch")

local M = {}

local BETWEEN_MAX = 24 -- the most untuned problems whose choice is shown

-- Returns the results of a function for each item, without nil ones.
local function collect(list, get)
   local out = {}
   for _, item in ipairs(list) do
      out[#out + 1] = get(item)
   end
   return out
end

-- ---- winners ----

-- Makes a column of the table of winners: its title, the function that returns a cell, and whether that is a number.
local function field(title, name)
   return {title = title, number = true, get = function(row) return row[name] end}
end

-- Returns a problem's features besides its sizes, in words.
local function features(row)
   local problem, words = row.group.problem, {}
   if problem.causal == 1 then
      words[1] = "causal"
   end
   for _, name in ipairs(problem.asked) do
      local value = problem[name]
      words[#words + 1] = math.type(value) and name or name .. " " .. value
   end
   if problem.window == 1 then
      words[#words + 1] = problem.window_left .. "/" .. problem.window_right
   end
   return table.concat(words, ", ")
end

local winner_columns = {
   {title = "device", get = function(row) return row.device end},
   {title = "op", get = function(row) return row.op end},
   {title = "dtype", get = function(row) return row.dtype end},
   field("D", "head_dim"), field("B", "batch"), field("Hq", "heads_q"), field("Hkv", "heads_kv"), field("Sq", "seq_q"),
   field("Sk", "seq_k"),
   {title = "mask and features", get = features},
   {title = "\u{B5}s", number = true, kept = true, get = function(row)
      return row.median_us and format.fixed(row.median_us, 2)
   end},
   {title = "TFLOPS", number = true, kept = true, get = function(row)
      return row.tflops and format.fixed(row.tflops, 2)
   end},
   {title = "vs default", number = true, kept = true, get = function(row)
      return row.speedup_vs_default and format.fixed(row.speedup_vs_default, 3)
   end},
   {title = "naive \u{B5}s", number = true, get = function(row)
      return row.naive_us and format.fixed(row.naive_us, 2)
   end},
   {title = "vs naive", number = true, get = function(row)
      return row.gain_over_naive and format.fixed(row.gain_over_naive, 2)
   end},
   {title = "model \u{B5}s", number = true, kept = true, get = function(row)
      return row.model_us and format.fixed(row.model_us, 2)
   end},
   {title = "source", get = function(row) return row.source end},
   {title = "state", bad = "", get = function(row) return row.state end},
   {title = "refuted", bad = "refuted: ", get = function(row) return row.refuted end},
   {title = "failed", bad = "failed: ", get = function(row) return row.failed end},
   {title = "variant", kept = true, code = true, get = function(row) return row.brief end},
}

-- Returns the columns that differ between rows or are always kept, and a text about those that are equal in all rows.
local function choose_columns(columns, rows)
   local shown, equal = {}, {}
   for _, column in ipairs(columns) do
      local first, varied = nil, column.kept
      for i, row in ipairs(rows) do
         local value = column.get(row) or ""
         first = i == 1 and value or first
         varied = varied or value ~= first
      end
      if varied then
         shown[#shown + 1] = column
      elseif first and first ~= "" then
         equal[#equal + 1] = column.title .. " " .. first
      end
   end
   return shown, table.concat(equal, ", ")
end

-- Returns the problems of a winner, from the columns that are shown: " (missing, refuted: wrong)".
local function mark_of(columns, row)
   local words = collect(columns, function(column)
      local value = column.bad and column.get(row)
      return value and column.bad .. value or nil
   end)
   return #words > 0 and " (" .. table.concat(words, ", ") .. ")" or ""
end

-- ---- problems ----

-- Returns the rows of a problem's table as markup, because there are ten thousand of them.
local function variant_rows(group, axes, families)
   local lines = {}
   local best = group.ok[1] and group.ok[1].median_us
   local function cell(text)
      return "<td>" .. (text and format.html(tostring(text)) or "")
   end
   local function add(row, time)
      local cells = {row.best and "<tr class=w>" or "<tr>", time}
      cells[#cells + 1] = cell(row.max_error and row.max_error > 0 and format.fixed(row.max_error, 2))
      cells[#cells + 1] = cell(row.registers and row.registers > 0 and format.fixed(row.registers, 0))
      cells[#cells + 1] = cell(row.smem_bytes and format.place(row.smem_bytes / 1024))
      if families > 1 then
         cells[#cells + 1] = cell(row.family)
      end
      for _, name in ipairs(axes) do
         cells[#cells + 1] = cell(row.axes[name])
      end
      lines[#lines + 1] = table.concat(cells)
   end
   for _, row in ipairs(group.ok) do
      add(row, cell(format.fixed(row.median_us, 2)) .. cell(format.fixed(row.median_us / best, 2)) ..
               cell(row.q1_us and row.q3_us and format.fixed(row.q3_us - row.q1_us, 2)) ..
               cell(row.model_us and format.fixed(row.model_us, row.model_us < 100 and 2 or 0)))
   end
   for _, row in ipairs(group.failed) do
      add(row, "<td class=f colspan=4>" .. format.html(row.outcome or ""))
   end
   return format.markup(table.concat(lines))
end

local function union_of_axes(group)
   local all = table.move(group.failed, 1, #group.failed, #group.ok + 1, table.move(group.ok, 1, #group.ok, 1, {}))
   return figures.varied_axes(all)
end

local function what_is_correlated(timed)
   return timed.modelled and "cost model and software device" or "model and measurement"
end

-- Makes the section of a problem. The template calls it when the section is due.
local function problem_section(host, group)
   local axes, families = union_of_axes(group), {}
   for _, row in ipairs(group.rows) do
      if not families[row.family] then
         families[row.family], families[#families + 1] = true, row.family
      end
   end
   local text, message = template.expand("tuner/report/templates/problem.html.in", {
      id = "p" .. group.index, shape = group.shape, device = group.device,
      count = #group.ok + #group.failed, failed = #group.failed, spared = group.spared,
      fastest = group.ok[1] or false, families = families,
      fixed = format.fixed, plural = format.plural,
      gain = group.winner and group.winner.speedup_vs_default or false,
      tflops = group.winner and group.winner.tflops or false, several = false,
      correlated = what_is_correlated(group.timed),
      correlation = group.correlation or false, fastest_rank = group.fastest_rank or false, modelled = group.modelled,
      axes = axes, rows = variant_rows(group, axes, #families), strip = figures.distribution(host, group) or false,
      by_axis = figures.by_axis(host, group) or false, heat = figures.heat_maps(host, group),
   }, host.read, format.html)
   return format.markup(text or error(message, 0))
end

-- ---- failures ----

-- Counts failed variants by outcome and reason. Reasons that differ only in their numbers are one.
local function failures_of(groups)
   local by, list = {}, {}
   for _, group in ipairs(groups) do
      for _, row in ipairs(group.failed) do
         local reason = (row.detail or ""):gsub("%d+%.?%d*", "\u{2026}")
         local key = (row.outcome or "") .. "\0" .. reason
         if not by[key] then
            by[key] = {outcome = row.outcome or "", reason = row.detail or "", count = 0, variant = row.variant or "",
                       shape = group.shape}
            list[#list + 1] = by[key]
         end
         by[key].count = by[key].count + 1
      end
   end
   table.sort(list, function(a, b)
      return a.count > b.count or a.count == b.count and a.outcome .. a.reason < b.outcome .. b.reason
   end)
   return list
end

-- ---- what the runtime would do ----

-- Returns pairs of neighbouring winners that differ only in Sq and Sk. A problem between them has the geometric mean of
-- their sizes.
local function between_pairs(winners)
   local series, order = {}, {}
   for _, row in ipairs(winners) do
      local p = row.group.problem
      if p.varlen ~= 1 then
         local key = table.concat({row.device, row.arch, p.class, p.batch, p.heads_q, p.heads_kv,
                                   tostring(p.seq_q == p.seq_k), p.seq_q == p.seq_k and 0 or p.seq_q,
                                   p.window_left or 0, p.window_right or 0, p.page or 0}, " ")
         if not series[key] then
            series[key], order[#order + 1] = {}, key
         end
         table.insert(series[key], row)
      end
   end
   local pairs_found = {}
   for _, key in ipairs(order) do
      for i = 2, #series[key] do
         pairs_found[#pairs_found + 1] = {series[key][i - 1], series[key][i]}
      end
   end
   return pairs_found
end

local function middle(a, b)
   return math.floor(math.sqrt(a * b) + 0.5)
end

local function between(host, winners)
   local found, list = between_pairs(winners), {}
   local step = math.max(1, math.ceil(#found / BETWEEN_MAX))
   for i = 1, #found, step do
      local low, high = found[i][1], found[i][2]
      local p, fields = low.group.problem, {}
      for name, value in pairs(p) do -- a copy, so the order does not matter
         fields[name] = value
      end
      fields.seq_q = middle(p.seq_q, high.group.problem.seq_q)
      fields.seq_k = middle(p.seq_k, high.group.problem.seq_k)
      local ok, choice = pcall(host.predict, fields, low.group.device)
      local shaped, shape = pcall(host.shape, fields)
      if ok and choice and shaped and shape then
         local described = host.describe(fields)
         choice.shape, choice.device, choice.tflops = shape, low.device, described.flop / choice.us * 1e-6
         list[#list + 1] = choice
      end
   end
   return list
end

-- ---- cards ----

-- The ceilings for products and for bytes: the unit that limits them, and the names of the measurements.
local product_roofs = {
   {label = "wgmma", names = {"wgmma_fp16", "wgmma_bf16"}},
   {label = "mma.sync", names = {"tensor_fp16", "tensor_bf16", "tensor_fp16_k8"}},
}
local memory_roofs = {{label = "L2", names = {"l2"}}, {label = "device memory", names = {"copy"}}}

-- Returns the measured roofs of these kinds, each with its best rate.
local function measured_roofs(ceilings, kinds, unit)
   return collect(kinds, function(kind)
      local rates = collect(kind.names, function(name) return ceilings[name] end)
      return #rates > 0 and {
         name = kind.label, label = kind.label, measured = true, [unit] = math.max(table.unpack(rates)),
      } or nil
   end)
end

-- Returns the measured roofs of a device, or else those that follow from the card's figures.
local function roofs_of(device)
   local products = measured_roofs(device.ceilings, product_roofs, "tflops")
   local memory = measured_roofs(device.ceilings, memory_roofs, "gbps")
   local arch = arch_of.describe(device)
   local function promised(label, fields)
      fields.name, fields.label, fields.measured = label .. ", by the card\u{2019}s figures", label, false
      return fields
   end
   if #products == 0 and arch then
      local all = arch.sm_count * arch.clock * 1e-6
      products[1] = arch.wgmma and promised("wgmma", {tflops = arch.wgmma * all}) or nil
      products[#products + 1] = promised("mma.sync", {tflops = arch.tensor * all})
   end
   if #memory == 0 and arch then
      memory[1] = promised("device memory", {gbps = arch.dram * 1e-3})
   end
   return table.move(memory, 1, #memory, #products + 1, products)
end

local function card_view(host, device, winners)
   local own = collect(winners, function(row) return row.group.device == device and row or nil end)
   local roofs = roofs_of(device)
   return {
      name = device.name or "", arch = device.arch, real = device.real == 1, software = device.timed.modelled or false,
      sm_count = device.sm_count, problems = #own, uncompiled = device.uncompiled or false,
      clock = device.clock_khz and string.format("%.2f GHz", device.clock_khz * 1e-6),
      l2 = format.scaled(device.l2_bytes or 0, 1024) .. "B",
      smem = format.scaled(device.smem_block_bytes or 0, 1024) .. "B",
      bandwidth = format.scaled(device.bandwidth_bytes or 0, 1000) .. "B/s", roofs = roofs,
      roofline = figures.roofline(host, own, roofs) or false,
   }
end

-- ---- repeating a tuning ----

-- Returns the problems as a shape file. A field that no problem shows has no column. A field that one problem does not
-- show is empty there.
local function shape_file(host, groups)
   local lines, seen, shown, asked = {}, {}, {}, {}
   for _, group in ipairs(groups) do
      local values = {}
      for key, value in group.shape:gmatch("(%S-)=(%S+)") do
         values[key], shown[key] = value, true
      end
      if not seen[group.shape] then
         seen[group.shape], asked[#asked + 1] = true, values
      end
   end
   local columns = collect(host.fields, function(one) return shown[one.key] and one or nil end)
   lines[1] = table.concat(collect(columns, function(one) return one.name end), ",")
   for _, values in ipairs(asked) do
      lines[#lines + 1] = table.concat(collect(columns, function(one) return values[one.key] or "" end), ",")
   end
   return table.concat(lines, "\n")
end

-- ---- the page ----

-- Returns how the times of a session were taken.
local function source_of(facts, session)
   if session.modelled ~= "1" then
      return "measured"
   end
   for _, device in ipairs(facts.devices) do
      if device.name == session.device and device.real == 0 then
         return "modelled by the cost model"
      end
   end
   return format.how({modelled = true})
end

local function span_of(sessions, winners)
   local first, last
   for _, list in ipairs({collect(sessions, function(row) return row.started_at end),
                          collect(winners, function(row) return row.tuned_at end)}) do
      for _, moment in ipairs(list) do
         first = (not first or moment < first) and moment or first
         last = (not last or moment > last) and moment or last
      end
   end
   return format.moment(first):sub(1, 10), format.moment(last):sub(1, 10)
end

local function count_failed(groups)
   local count = 0
   for _, group in ipairs(groups) do
      count = count + #group.failed
   end
   return count
end

-- Makes the table of values that the templates use.
local function view_of(tools, facts, other)
   local host, winners = tools.host, facts.winners
   local gains = collect(winners, function(row) return row.speedup_vs_default end)
   local naive = collect(winners, function(row) return row.gain_over_naive end)
   local correlations = collect(facts.groups, function(group) return group.correlation end)
   local columns, equal = choose_columns(winner_columns, winners)
   local first_day, last_day = span_of(facts.sessions, winners)
   local used = collect(facts.devices, function(device)
      return (#device.problems > 0 or device.uncompiled) and device or nil
   end)
   local ranks = collect(facts.groups, function(group) return group.fastest_rank end)
   return {
      start = format.markup(host.start), version = host.version, made_at = host.made_at, path = facts.path,
      facts = facts, winners = winners, columns = columns, equal = equal, first_day = first_day, last_day = last_day,
      software = facts.timed.modelled and not facts.timed.measured or false,
      source = function(session) return source_of(facts, session) end,
      cards = collect(used, function(device) return card_view(host, device, winners) end),
      sessions = facts.sessions, failures = failures_of(facts.groups), failed = count_failed(facts.groups),
      gain = statistics.geometric_mean(gains) or false, gain_count = #gains,
      gains = figures.gains(host, gains, {
         title = "Gain of tuning over the untuned default, by problem",
         order = format.plural(#gains, "problem") .. ", the greatest gain first",
         ratio = "time of the default / time of the winner",
      }) or false,
      naive_gain = statistics.geometric_mean(naive) or false, naive_count = #naive,
      naive_gains = figures.gains(host, naive, {
         title = "Gain over naive attention, by problem",
         order = format.plural(#naive, "problem") .. ", the greatest gain first",
         ratio = "time of naive attention / time of the winner",
      }) or false,
      correlation = statistics.median(correlations) or false,
      correlations = figures.correlations(host, correlations, what_is_correlated(facts.timed)) or false,
      correlated = what_is_correlated(facts.timed),
      model = figures.model(host, facts.groups, format.how(facts.timed)) or false,
      ranked = #ranks, first_twelve = #collect(ranks, function(rank) return rank <= 12 and rank or nil end),
      between = between(host, winners), other = other and compare.view(host, facts, other) or false,
      mark = function(row) return mark_of(columns, row) end,
      groups = facts.groups, problem = function(i) return problem_section(host, facts.groups[i]) end,
      shape_file = shape_file(host, facts.groups), shell = format.shell,
      markup = format.markup, read = host.read, fixed = format.fixed, time = format.time, count = format.count,
      plural = format.plural, moment = format.moment, scaled = format.scaled, string = string,
   }
end

local files = {html = "tuner/report/templates/page.html.in", markdown = "tuner/report/templates/page.md.in"}

-- Returns the text of a report. format_name: html or markdown. host: functions and values (tuner/report/page.c). tuned,
-- other: path, and rows of devices, sessions, winners and measurements. other may be nil.
function M.write(format_name, host, tuned, other)
   local tools = {host = host, cost = generator.costs()}
   local facts = facts_of.read(tools, tuned)
   local view = view_of(tools, facts, other and facts_of.read(tools, other))
   return template.expand(files[format_name], view, host.read, format[format_name])
end

return M
